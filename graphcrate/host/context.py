"""Where one command's work happens: the project's folder, the environment, the cache, the person's eyes."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphcrate.host import settings
from graphcrate.host.progress import Progress, Stderr

if TYPE_CHECKING:
    from graphcrate.host.cache import Cache


@dataclass(frozen=True, kw_only=True)
class Context:
    """Opened piece by piece: a command that needs no cache makes none."""

    root: Path
    environment: Mapping[str, str]

    @classmethod
    def here(cls) -> "Context":
        """The project that this package lies in, with this process's environment."""
        package = Path(__file__).resolve().parents[1]
        checkout = package.parent
        # An installed package brings recipes, targets, locks and programs along (pyproject.toml).
        root = checkout if (checkout / "recipes").is_dir() else package / "data"
        return cls(root=root, environment=settings.environment())

    @property
    def is_checkout(self) -> bool:
        """Whether recipes and locks are files that this person may change."""
        return self.root.name != "data"

    @functools.cached_property
    def cache(self) -> "Cache":
        """The cache, opened at first use. Raises CacheError."""
        from graphcrate.host.cache import Cache, default_root

        return Cache(default_root(self.environment))

    @functools.cached_property
    def progress(self) -> Progress:
        """Reports to stderr."""
        return Stderr()
