"""Libraries of the system that packages need: which Debian packages bring those that an image lacks.

Debian's own index of files says so (`inputs.bases.contents`). Of other systems, and without an answer, the command
is named that would say it.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

import debroot.contents
from graphcrate.compat.facts import suites
from graphcrate.compat.facts.facts import table_reader
from graphcrate.compat.variants import catalog
from graphcrate.host.context import Context
from graphcrate.inputs.bases import contents as files
from graphcrate.inputs.bases.contents import ContentsIndex
from graphcrate.model.audit import Audit, AuditFinding
from graphcrate.model.command import command, setting
from graphcrate.model.errors import GraphcrateError, IntegrityError, NetworkError
from graphcrate.model.words import joined, listed

#: how the loader says that a library is missing (dlopen(3)), which the user may paste
_MISSED = re.compile(r"(?<![\w+.-])(lib[\w+.-]{1,80}\.so[\w.]{0,20}): cannot open shared object file")


class _Finder(msgspec.Struct, frozen=True, kw_only=True):
    """`command` says which package of these systems has {library}."""

    systems: tuple[str, ...]
    command: str


class _Companion(msgspec.Struct, frozen=True, kw_only=True):
    """A library of these packages works with `instead` alone, which depends on it."""

    packages: tuple[str, ...]
    instead: str


_companions = table_reader("companions", tuple[_Companion, ...], "companion")
_finders = table_reader("finders", tuple[_Finder, ...], "finder")


class Brought(NamedTuple):
    """A suite's packages that bring some libraries."""

    packages: tuple[str, ...] = ()  #: to install
    either: tuple[tuple[str, tuple[str, ...]], ...] = ()  #: a library, and packages of which the user has to choose
    nowhere: tuple[str, ...] = ()  #: libraries that no package has

    @property
    def is_all(self) -> bool:
        return bool(self.packages) and not self.either and not self.nowhere


def brought(libraries: Iterable[str], index: ContentsIndex) -> Brought:
    """The packages of a suite to install for all of these."""
    packages, either, nowhere = dict[str, None](), dict[str, tuple[str, ...]](), list[str]()
    for library in libraries:
        choice = debroot.contents.choice(library, index.packages.get(library, ()))
        if len(choice) > 1:
            either[library] = choice
        elif choice:
            instead = (companion.instead for companion in _companions() if choice[0] in companion.packages)
            packages[next(instead, choice[0])] = None
        else:
            nowhere.append(library)
    chosen = {name: names for name, names in either.items() if packages.keys().isdisjoint(names)}
    return Brought(tuple(sorted(packages)), tuple(chosen.items()), tuple(nowhere))


def advised(audit: Audit, ctx: Context) -> Audit:
    """The audit, whose findings say which of the system's packages bring what they miss."""
    asking = [
        finding for finding in audit.findings if finding.missing and finding.severity != "note" and not finding.allowed
    ]
    if not asking:
        return audit
    system, _, release = audit.system.partition(" ")
    index, why = None, ""
    if release in suites.known() and suites.distribution_of(release).name == system:
        try:
            index = files.index(release, ctx)
        except (NetworkError, IntegrityError):
            why = f"{suites.titled(release)}'s index of files is not reached from here"
    fixed = {
        id(finding): of_debian(finding, index)
        if index
        else msgspec.structs.replace(finding, fix=_by_hand(finding, system, why))
        for finding in asking
    }
    findings = tuple(fixed.get(id(finding), finding) for finding in audit.findings)
    return msgspec.structs.replace(audit, findings=findings)


def next_step(audit: Audit) -> str:
    """Say what to do about all that fails for lack of a library; empty where no package is known that helps."""
    packages = packages_of(audit)
    return (
        f"{setting(apt=' '.join(packages))}    brings the libraries that are missing; the list above has the rest"
        if packages
        else ""
    )


def packages_of(audit: Audit) -> tuple[str, ...]:
    """All packages that would mend what fails, as far as packages can."""
    return tuple(
        sorted({name for finding in audit.findings if finding.severity == "fail" for name in finding.packages})
    )


def of_debian(finding: AuditFinding, index: ContentsIndex) -> AuditFinding:
    """The finding, which says what to install for it."""
    groups = [brought(group, index) for group in finding.missing]
    whole = [group for group in groups if group.is_all]
    if not whole and len(groups) > 1:
        lacking = joined((name for group in groups for name in group.nowhere), most=8)
        return msgspec.structs.replace(finding, fix=f"no package of {suites.titled(index.suite)} has {lacking}")
    fix = "; or ".join(described(group, index.suite) for group in whole or groups)
    if not whole and groups[0].nowhere:
        fix += f": a wheel of {finding.package} that brings it, or another version"
    return msgspec.structs.replace(finding, fix=fix, packages=(whole or groups)[0].packages)


def of_error(text: str, ctx: Context) -> Iterator[str]:
    """Find the packages with the libraries that an error's text misses, for each known Debian of our stacks.

    The one of most stacks is asked for. Nothing where no server answers, or no package has them.
    """
    names = dict.fromkeys(_MISSED.findall(text))
    bases = [variant.base.suite for recipe in catalog.all_recipes(ctx) for variant in recipe.variants]
    known = dict[tuple[str, ...], list[str]]()
    for number, (suite, _) in enumerate(Counter(filter(None, bases)).most_common() if names else ()):
        with contextlib.suppress(GraphcrateError):
            index = files.index(suite, ctx, ask=number == 0)
            if index is not None and (packages := brought(names, index).packages):
                known.setdefault(packages, []).append(suite)
    for packages, brought_by in known.items():
        systems = listed(map(suites.titled, brought_by))
        yield f"{listed(packages)} of {systems}: {command('image', '…', apt=' '.join(packages))}"


def described(brought: Brought, suite: str) -> str:
    """Say which packages bring something, in one clause."""
    parts = (
        [f"{listed(brought.packages)} of {suites.titled(suite)} ({setting(apt=' '.join(brought.packages))})"]
        if brought.packages
        else []
    )
    parts += [f"one of {listed(names)} of {suites.titled(suite)}, for {library}" for library, names in brought.either]
    if brought.nowhere:
        parts.append(f"no package of {suites.titled(suite)} has {joined(brought.nowhere, most=8)}")
    return "; ".join(parts)


def _by_hand(finding: AuditFinding, system: str, why: str) -> str:
    """Tell the user how to find a package that is not known here."""
    finder = next((finder for finder in _finders() if system in finder.systems), None)
    library = finding.missing[0][0]
    if finder is None:
        return f"the package of its system that has {library}"
    command = finder.command.replace("{library}", library)
    return f"its package: {command}" + (f"    ({why})" if why else f"    (on {system})")
