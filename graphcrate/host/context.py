"""The context of one command: the project's folder, the environment, the cache, the progress display."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphcrate.host import settings
from graphcrate.host.progress import Progress, Stderr
from graphcrate.model.command import INSTALLED, command
from graphcrate.model.errors import UsageError

if TYPE_CHECKING:
    from graphcrate.host.disk.cache import Cache


@dataclass(frozen=True, kw_only=True)
class Context:
    """Opened piece by piece: a command that needs no cache makes none."""

    root: Path
    environment: Mapping[str, str]
    quiet: bool = False  #: say warnings alone
    verbose: bool = False  #: say in a plan also what is the same for each build
    without_security: bool = False  #: lock a suite where no server has the list of its security updates
    shown: Callable[[str], str] = str  #: words a message for who reads it: with whole commands

    @classmethod
    def here(cls) -> "Context":
        """The project of this package, with this process's environment."""
        package = Path(__file__).resolve().parents[1]
        # An installed package brings recipes, targets, locks and programs along (pyproject.toml).
        return cls(root=package / "data" if INSTALLED else package.parent, environment=settings.environment())

    @property
    def is_checkout(self) -> bool:
        """Return whether recipes and locks are files that this person may change."""
        return self.root.name != "data"

    def require_checkout(self, what: str) -> None:
        """Raises UsageError in an installed package, whose files (`what`) are not to be changed."""
        if not self.is_checkout:
            raise UsageError(
                f"an installed package keeps {what} as they are",
                next_step=f"work in a clone of the project, or in a recipe of your own: {command('lock', 'mine.toml')}",
            )

    @functools.cached_property
    def cache(self) -> "Cache":
        """The cache, opened at first use. Raises CacheError, UsageError for a limit that is no number."""
        from graphcrate.host.disk.cache import Cache, default_root, most_bytes
        from graphcrate.host.disk.ownership import group_of

        group, most = group_of(self.environment), most_bytes(self.environment)
        return Cache(default_root(self.environment), most, self.progress.warn, group)

    @functools.cached_property
    def progress(self) -> Progress:
        """Reports to stderr."""
        return Stderr(quiet=self.quiet, shown=self.shown)
