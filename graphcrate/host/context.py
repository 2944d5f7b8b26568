"""Where one command's work happens: the project's folder, the environment, the cache, the person's eyes."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphcrate.host import settings
from graphcrate.host.progress import Progress, Task

if TYPE_CHECKING:
    from graphcrate.host.cache import Cache


class OnDemand:
    """Draws on stderr, and loads what it draws with at the first word: an unchanged image is answered without any."""

    def __init__(self) -> None:
        self._inner: Progress | None = None

    def note(self, message: str) -> None:
        self._drawing().note(message)

    def task(self, description: str, total: int) -> contextlib.AbstractContextManager[Task]:
        return self._drawing().task(description, total)

    def _drawing(self) -> Progress:
        if self._inner is None:
            from graphcrate.host.bars import to_stderr

            self._inner = to_stderr()
        return self._inner


@dataclass(frozen=True, kw_only=True)
class Context:
    """Opened piece by piece: a command that needs no cache makes none."""

    root: Path
    environment: Mapping[str, str]
    _made: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def here(cls) -> "Context":
        """The project that this package lies in, with this process's environment."""
        return cls(root=Path(__file__).resolve().parents[2], environment=settings.environment())

    @property
    def cache(self) -> "Cache":
        """The cache, opened at first use. Raises CacheError."""
        if "cache" not in self._made:
            from graphcrate.host.cache import Cache, default_root

            self._made["cache"] = Cache(default_root(self.environment))
        cache: Cache = self._made["cache"]
        return cache

    @property
    def progress(self) -> Progress:
        """Reports to stderr."""
        if "progress" not in self._made:
            self._made["progress"] = OnDemand()
        progress: Progress = self._made["progress"]
        return progress
