"""Doubts about the lists that a base was locked from, as far as today's lists tell.

A mirror that hides what is new, or gives another suite's lists in its place, leaves its mark in the lock: packages that
the suite never had, or the lack of fixes that were out when the lists were signed.
"""

from collections.abc import Iterator
from typing import Literal

from debroot import release
from debroot.versions import version_key
from graphcrate.inputs.bases.archive import SuiteArchive
from graphcrate.model.lock import DebianBase, DebianPackage
from upkeep.standing.presence import Presence
from upkeep.standing.values import Doubt

_MARGIN = 2 * 86_400.0  #: seconds between a fix in the archive and the lists of all mirrors


def of_base(
    of: Literal["base", "compiler"], base: DebianBase, archive: SuiteArchive, presence: Presence
) -> Iterator[Doubt]:
    """Yield what today's lists say against those that a base was locked from."""
    if base.without_security:
        yield Doubt(of=of, suite=base.suite, kind="unfixed")
    if base.listed > archive.listed:
        yield Doubt(
            of=of, suite=base.suite, kind="older", names=(release.day(archive.listed), release.day(base.listed))
        )
        return  # what they lack may be new
    if ahead := [package for package in base.packages if _is_ahead(package, archive)]:
        yield Doubt(of=of, suite=base.suite, kind="ahead", names=tuple(f"{it.name} {it.version}" for it in ahead))
    fixes = ((package, archive.fixed(package)) for package in base.packages)
    late = tuple(
        f"{package.name} {package.version} → {fix.version}"
        for package, fix in fixes
        if fix is not None and _was_out(fix, base.listed, presence)
    )
    if late:
        yield Doubt(of=of, suite=base.suite, kind="late", names=late)


def _is_ahead(package: DebianPackage, archive: SuiteArchive) -> bool:
    """Return whether it is newer than all that the suite has of it."""
    versions = [version_key(listed.version) for listed in archive.available([package.name])]
    return bool(versions) and max(versions) < version_key(package.version)


def _was_out(fix: DebianPackage, listed: str, presence: Presence) -> bool:
    """Return whether the archive had a fix when these lists were signed, by the time of its file on a mirror."""
    placed = presence.placed(fix) if listed else None
    return placed is not None and placed + _MARGIN < release.seconds(listed)
