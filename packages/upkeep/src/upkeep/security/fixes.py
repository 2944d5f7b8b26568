"""Fixes of known vulnerabilities in locks: which releases, and which of those a stack's rules allow. Pure."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from packaging.version import Version

from graphcrate.model.command import command
from graphcrate.model.lock import LockedPackage
from graphcrate.model.recipe import Channel
from graphcrate.model.words import listed
from graphcrate.resolve.sources.target import WheelTarget
from upkeep.releases import ListedRelease
from upkeep.security.vulnerability import Advisory, NotKnown


class PackageFix(msgspec.Struct, frozen=True, kw_only=True):
    """A package of a lock that gets another release. `ids`: of what is known against the one before."""

    name: str
    before: str  #: empty: it is new
    after: str
    ids: tuple[str, ...] = ()
    left: tuple[str, ...] = ()  #: of these, what no release fixes yet
    along: str = ""  #: why it moves with a package that is fixed: "leaky 1.1 requires tqdm>=5"
    of: Literal["python", "base", "compiler"] = "python"


class UnfixedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package with known vulnerabilities that stays as it is, and why."""

    name: str
    version: str
    ids: tuple[str, ...]
    reason: str


class LockFixes(msgspec.Struct, frozen=True, kw_only=True):
    """The fixes of a lock."""

    title: str  #: "pyg CUDA 13.0, pypi"
    packages: tuple[PackageFix, ...] = ()
    base: tuple[PackageFix, ...] = ()  #: Debian's packages with a fix in the security archive; the base is listed again
    unfixed: tuple[UnfixedPackage, ...] = ()

    @property
    def is_news(self) -> bool:
        """Return whether the lock changes."""
        return bool(self.packages or self.base)


class SecurityReview(msgspec.Struct, frozen=True, kw_only=True):
    """`update --security`, whole. `judged`: releases and bases of which something is known."""

    day: str
    locks: tuple[LockFixes, ...] = ()
    judged: int = 0
    unknown: tuple[NotKnown, ...] = ()
    written: bool = False

    @property
    def changed(self) -> tuple[LockFixes, ...]:
        """The locks that change."""
        return tuple(lock for lock in self.locks if lock.is_news)


def ids_of(advisories: Iterable[Advisory]) -> tuple[str, ...]:
    """All names of these, each advisory's together."""
    return tuple(dict.fromkeys(word for advisory in advisories for word in advisory.ids))


def fixes(release: Version, advisory: Advisory) -> bool:
    """Return whether a release does not have a vulnerability any more.

    Releases that fix it are one for each series: 1.26.17 says nothing of 2.0.1 where 2.0.6 is one of them, too.
    """
    fixed = [Version(text) for text in advisory.fixed]
    of_series = [version for version in fixed if version.release[:2] == release.release[:2]]
    of_major = [version for version in fixed if version.major == release.major]
    fitting = of_series or of_major or fixed
    return bool(fitting) and release >= min(fitting)


def unmovable(package: LockedPackage) -> str:
    """Explain why a package keeps its release in any case; empty for one that may move."""
    if package.name in ("torch", "torch-geometric"):
        return f"the recipe names its version: {command('update')} looks for another one"
    if package.channel is not Channel.PYPI:
        return f"it comes from the {package.channel} channel and goes with this torch"
    if package.is_sdist:
        return "it is built from sources that go with this torch"
    return ""


def candidates(
    package: LockedPackage,
    advisories: Sequence[Advisory],
    releases: Iterable[ListedRelease],
    target: WheelTarget,
    day: str,
) -> tuple[tuple[ListedRelease, ...], str]:
    """Releases that fix all that has a fix, the lowest first; or why there is no such release.

    `day`: after which the stack takes no files; empty: it takes all.
    """
    fixable = [advisory for advisory in advisories if advisory.fixed]
    if not fixable:
        return (), "no release fixes it yet"
    have = Version(package.version)
    newer = [
        release
        for release in releases
        if release.number > have and all(fixes(release.number, advisory) for advisory in fixable)
    ]
    if not newer:
        wanted_releases = listed(dict.fromkeys(version for advisory in fixable for version in advisory.fixed))
        return (), f"the index has no release that fixes it (fixed in {wanted_releases})"
    fitting = [
        release for release in newer if release.fits(target) and any(name.endswith(".whl") for name in release.files)
    ]
    if not fitting:
        return (), f"{package.name} {newer[0].version} and later have no wheel for Python {target.python}"
    allowed = [release for release in fitting if not day or (release.uploaded and release.uploaded <= day)]
    if not allowed:
        lowest = fitting[0]
        uploaded = f"is of {lowest.uploaded}" if lowest.uploaded else "has no day on the index"
        return (), (
            f"{package.name} {lowest.version}, which fixes it, {uploaded}, and the stack's packages are of {day}: "
            "exclude_newer_except in the recipe lets it through, with the reason (docs/recipes.md)"
        )
    return tuple(allowed), ""
