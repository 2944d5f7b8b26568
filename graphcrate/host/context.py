"""Where one command's work happens: the project's folder, the environment, the cache, the person's eyes."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphcrate.host import settings
from graphcrate.host.progress import Progress, Stderr
from graphcrate.model.command import command
from graphcrate.model.errors import UsageError

if TYPE_CHECKING:
    from graphcrate.host.cache import Cache

#: settings of make that are options of the same name
_SETTINGS = (
    "APT|CHANNEL|CUDA|DRIVER|ENGINE|EXTENSIONS|FLAVOUR|GPU|MIRROR|RECIPE|REQUIREMENTS|STACK|TARGET|TO|TOOLKIT|WHEELS"
    "|WITH"
)
_SETTING = re.compile(rf"(?:(')|\b)({_SETTINGS})=((?(1)[^']*|[^\s,;)']*))(?(1)'|)")
_BEFORE = re.compile(rf"(?<![A-Z_])((?:(?:{_SETTINGS})=\S+ )+)(make \w+(?: …)?)")


def as_installed(text: str) -> str:
    """The commands of a text, those of make too, as an installed package has them."""

    def option(found: re.Match[str]) -> str:
        value = f"'{found[3]}'" if " " in found[3] else found[3]
        return value if found[2] in ("STACK", "RECIPE") else f"--{found[2].lower()} {value}"

    text = _BEFORE.sub(lambda found: f"{found[2]} {found[1].rstrip()}", text)
    text = re.sub(r"\bmake (image|lock|publish) (?!…|STACK|RECIPE)(?=[A-Z])", r"make \1 STACK=pyg ", text)
    text = re.sub(r"\bmake (image|lock|publish|render)\b", r"graphcrate \1", _SETTING.sub(option, text))
    return text.replace("./build.py", "graphcrate")


@dataclass(frozen=True, kw_only=True)
class Context:
    """Opened piece by piece: a command that needs no cache makes none."""

    root: Path
    environment: Mapping[str, str]
    quiet: bool = False  #: say warnings alone

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

    def require_checkout(self, what: str) -> None:
        """Raises UsageError in an installed package, whose files (`what`) nobody changes."""
        if not self.is_checkout:
            raise UsageError(
                f"an installed package keeps {what} as they are",
                next_step=f"work in a clone of the project, or in a recipe of your own: {command('lock', 'mine.toml')}",
            )

    @functools.cached_property
    def cache(self) -> "Cache":
        """The cache, opened at first use. Raises CacheError."""
        from graphcrate.host.cache import Cache, default_root

        return Cache(default_root(self.environment))

    @functools.cached_property
    def progress(self) -> Progress:
        """Reports to stderr."""
        return Stderr(self.as_typed, quiet=self.quiet)

    def as_typed(self, text: str) -> str:
        """A text for people with its commands as they are typed here."""
        return text if self.is_checkout else as_installed(text)
