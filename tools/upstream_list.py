"""The list of upstream's suites, tools/upstream_suites.toml: whose tests run in an image, and which may fail there."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from graphcrate.model.errors import RecipeError

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tools" / "upstream_suites.toml"

#: whose an expected failure is: it asks for the internet; upstream's code or test is at fault; the machine's hardware
#: or rounding; versions that do not go together, in an image as its users get it; what images leave out until asked
Kind = Literal["network", "upstream", "machine", "versions", "image"]


class Expected(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tests that may fail, in just this way. `tests`: ids, where `*` stands for anything."""

    tests: tuple[str, ...]
    kind: Kind
    reason: str
    says: str = ""  #: what the message has; with another one the failure is another
    holds: str = ""  #: versions as requirements: "torch<2.1 python>=3.11": all of them; empty: always
    lacks: str = ""  #: a package that the image does not have; empty: whichever it has
    strict: bool = False  #: a test of it that passes fails the command, so that the row is taken out

    def __post_init__(self) -> None:
        if not self.reason.strip() or not all(self.tests):
            raise ValueError("an expected failure has tests and a reason")
        requirements(self.holds)

    def matches(self, test: str, message: str = "") -> bool:
        """Return whether a test is one of these, and a failure with this message; empty: it passed."""
        return any(pattern(text).fullmatch(test) for text in self.tests) and (not message or self.says in message)

    def applies(self, versions: Mapping[str, str]) -> bool:
        """Return whether it holds for an image with these packages, `python` among them."""
        is_there = bool(self.lacks) and canonicalize_name(self.lacks) in versions
        return not is_there and all(_has(versions, requirement) for requirement in requirements(self.holds))


class Ignored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A path of a suite that is not run, and why."""

    path: str
    reason: str


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A suite: where its tests are, and how they are run and judged. It runs in each image that has its package."""

    name: str  #: what SUITE= takes
    package: str  #: normalised name; its version in the image is that of the tests
    repository: str  #: "owner/name" on GitHub; the last part is its name in a folder of UPSTREAM=
    title: str  #: as users call it: "PyG"
    tag: str = "{version}"
    paths: tuple[str, ...] = ("test",)  #: what is taken of the repository
    ours: str = ""  #: a folder of this project whose files are put beside them
    collected: tuple[str, ...] = ()  #: what pytest is given; empty: `paths`
    what: str = "tests"  #: what is counted, for the catalogue: "3,649 of 3,665 of its own tests"
    requirements: tuple[str, ...] = ()  #: packages beside pytest and its plug-ins
    arguments: tuple[str, ...] = ()  #: of pytest
    environment: dict[str, str] = {}
    workers: int = 0  #: at most so many at once; 0: as many as the machine has room for
    minutes: int = 60  #: of the whole
    seconds: int = 300  #: of a test
    least: int = 1  #: so many have to pass, or something kept them from running
    ignored: tuple[Ignored, ...] = ()
    expected: tuple[Expected, ...] = ()

    @property
    def label(self) -> str:
        """Its name in tables: "PyG", "PyG examples"."""
        return self.title if self.what == "tests" else f"{self.title} {self.what}"

    def what_pytest_gets(self) -> tuple[str, ...]:
        """Paths and options that say which tests are run."""
        return (*(self.collected or self.paths), *(f"--ignore={ignored.path}" for ignored in self.ignored))


class Listed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of the list."""

    suite: tuple[Suite, ...]


def read_list(path: Path = LIST) -> Listed:
    """Read the list. Raises RecipeError for one that is malformed."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Listed)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: {error}", next_step="docs/dev/upstream.md has its fields") from error


def pattern(text: str) -> re.Pattern[str]:
    """Ids in which `*` stands for anything; brackets are those of parametrized tests."""
    return re.compile(".*".join(re.escape(part) for part in text.split("*")), re.DOTALL)


def requirements(text: str) -> tuple[Requirement, ...]:
    """Read versions as they are in `holds`. Raises ValueError."""
    try:
        found = tuple(Requirement(word) for word in text.split())
    except InvalidRequirement as error:
        raise ValueError(f"{text!r} is not a list of requirements: {error}") from error
    if odd := [
        str(requirement) for requirement in found if requirement.url or requirement.extras or requirement.marker
    ]:
        raise ValueError(f"{odd[0]!r} is not a name with versions")
    return found


def _has(versions: Mapping[str, str], requirement: Requirement) -> bool:
    """Return whether an image has a package in this version; 2.0.1+cu118 is 2.0.1."""
    try:
        version = Version(versions.get(canonicalize_name(requirement.name), ""))
    except InvalidVersion:
        return False
    return requirement.specifier.contains(version.public, prereleases=True)
