"""Gaps that an audit will find, said before anything is built: libraries of the system that added wheels need.

Read are the wheels that the user added and that are compiled: those of the cache, and of others as many as are soon
fetched, which a build needs anyway. What they need and do not bring is looked up in the index of the base's Debian. A
table knows what an import runs. The audit of the image has the last word: here the loader is not played.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from graphcrate.checks.audit.packages import is_torch_library
from graphcrate.compat.facts import allowances, suites, together
from graphcrate.compat.facts import packages as package_facts
from graphcrate.compat.facts.together import NeededProgram
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.inputs.bases import contents
from graphcrate.inputs.bases.contents import ContentsIndex
from graphcrate.model.allowance import Allowance
from graphcrate.model.audit import AuditFinding, Severity
from graphcrate.model.errors import GraphcrateError
from graphcrate.model.lock import DebianBase, Lock, LockedPackage
from graphcrate.model.platform import Platform
from graphcrate.model.words import joined, number_of
from graphcrate.resolve import libraries
from graphcrate.resolve.sources import linked
from graphcrate.resolve.sources.fetch import fetch
from graphcrate.resolve.sources.linked import Linked
from graphcrate.resolve.sources.storing import is_stored
from treeaudit.loader import is_driver

LARGEST = 64 << 20  #: bytes of all wheels that are fetched to look at
#: what every Debian has that runs programs: not looked up
_ALWAYS = re.compile(r"lib(c|m|dl|rt|pthread|util|gcc_s|stdc\+\+|z|gomp)\.so\.\d+")


def lines(
    lock: Lock,
    sources: SourceOptions,
    allow: Sequence[Allowance],
    with_apt: Callable[[Sequence[str]], str],
    ctx: Context,
) -> Iterator[str]:
    """Yield a plan's lines: which libraries the image will lack, for which packages, and what to type instead.

    `allow`: findings that the user's recipe allows; `with_apt`: what to type for more of Debian's packages.
    Nothing where the base is no Debian, or no server answers: the audit will say it later.
    """
    base = lock.compilation.base if sources.devel and lock.compilation else lock.base
    if not isinstance(base, DebianBase) or base.suite not in suites.known():
        return
    there = {package.name for package in base.packages}
    asked = lock.additions.asked
    programs = [row for row in together.programs() if row.package in asked and row.apt not in there]
    missed = list[AuditFinding]()
    with contextlib.suppress(GraphcrateError):
        missing = (row for row in _findings(lock, sources, ctx) if row.severity == "fail")
        findings = [row for row in missing if not allowances.why(row, allow)]
        index = contents.index(base.suite, ctx, lock.platform) if findings else None
        if index is not None:
            missed += _missed(findings, base, index)
    yield from _told(missed, programs, with_apt, base.suite)


def _findings(lock: Lock, sources: SourceOptions, ctx: Context) -> list[AuditFinding]:
    """One for each library that needs what neither its wheel nor another that was added brings."""
    names = lock.additions.packages
    added = [package for package in lock.packages if package.name in names and _is_compiled(package)]
    absent = [package for package in added if not is_stored(package.file, ctx.cache)]
    if sum(package.file.size for package in absent) <= LARGEST and absent:
        fetch(msgspec.structs.replace(lock, packages=tuple(absent)), sources, ctx)
    wheels = _linked([package for package in added if is_stored(package.file, ctx.cache)], ctx)
    brought = {name for wheel in wheels.values() for name in wheel.names}
    torch = next((package.version for package in lock.packages if package.name == "torch"), "")
    findings = []
    for package, wheel in wheels.items():
        for path, needed in wheel.needed.items():
            missing = tuple(name for name in needed if name not in brought and not _is_known(name, lock.platform))
            if missing:
                is_idle = package_facts.reason(package.name, path, torch) is not None
                severity: Severity = "note" if is_idle else "fail"
                findings.append(AuditFinding("libraries", severity, package.name, path, "", missing=(missing,)))
    findings = [*findings, *_one_of(findings, wheels)]
    opened = (row for row in package_facts.opened() if row.package in names)
    return [
        *findings,
        *(AuditFinding("libraries", "fail", row.package, "", "", missing=(row.libraries,)) for row in opened),
    ]


def _one_of(findings: Sequence[AuditFinding], wheels: Mapping[LockedPackage, Linked]) -> Iterator[AuditFinding]:
    """Packages of whose libraries one is enough, and that have none which lacks nothing."""
    missing = {(finding.package, finding.file): finding.missing[0] for finding in findings}
    for row in package_facts.optional():
        for package, wheel in wheels.items() if row.one_of else ():
            paths = [path for path in wheel.needed if package_facts.matches(row, package.name, path)]
            if paths and all((package.name, path) in missing for path in paths):
                groups = tuple(missing[package.name, path] for path in paths)
                yield AuditFinding("libraries", "fail", package.name, "", "", missing=groups)


def _missed(findings: Iterable[AuditFinding], base: DebianBase, index: ContentsIndex) -> Iterator[AuditFinding]:
    """The libraries that packages of Debian bring and the base lacks; with the packages to add."""
    there = {package.name for package in base.packages}

    def lacking(group: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in group if there.isdisjoint(index.packages.get(name, ())))

    for finding in findings:
        groups = [lacking(group) for group in finding.missing]
        if len(groups) == 1:  # what no package of Debian has may be another wheel's
            groups = [tuple(name for name in groups[0] if name in index.packages)]
        if all(groups):
            yield libraries.of_debian(msgspec.structs.replace(finding, missing=tuple(groups)), index)


def _told(
    findings: Iterable[AuditFinding],
    programs: Sequence[NeededProgram],
    with_apt: Callable[[Sequence[str]], str],
    suite: str,
) -> Iterator[str]:
    """A line for each package, and one for the command that adds what is certain."""
    by_package: dict[str, list[AuditFinding]] = {}
    for finding in findings:
        by_package.setdefault(finding.package, []).append(finding)
    for name, its in by_package.items():
        names = dict.fromkeys(library for finding in its for group in finding.missing for library in group)
        word = "one of " if any(len(finding.missing) > 1 for finding in its) and len(names) > 1 else ""
        yield f"  lacks     {word}{joined(sorted(names), most=8)}, which {name} needs: the audit would fail"
    for need in programs:
        yield f"  lacks     {need.program}, which {need.package} runs when it is imported"
    certain = {package for its in by_package.values() for finding in its for package in finding.packages}
    certain |= {need.apt for need in programs}
    if certain:
        yield f"    instead: {with_apt(sorted(certain))}    (packages of {suites.titled(suite)})"
    unsure = dict.fromkeys(finding.fix for its in by_package.values() for finding in its if not finding.packages)
    yield from (f"    instead: {fix}" for fix in unsure)


def _is_compiled(package: LockedPackage) -> bool:
    return package.file.name.endswith(".whl") and not package.file.name.endswith("-any.whl")


def _is_known(name: str, platform: Platform) -> bool:
    return bool(_ALWAYS.fullmatch(name)) or name == platform.loader_name or is_driver(name) or is_torch_library(name)


def _linked(packages: Sequence[LockedPackage], ctx: Context) -> dict[LockedPackage, Linked]:
    """Read the libraries that these wheels need; each is read once. Raises IntegrityError."""
    wheels = {package: linked.known(package.file, ctx.cache) for package in packages}
    if new := [package for package, wheel in wheels.items() if wheel is None]:
        total = sum(package.file.size for package in new)
        with ctx.progress.task(f"reading {number_of(len(new), 'wheel')}", total) as task:
            for package in new:
                wheels[package] = linked.of(package.file, ctx.cache)
                task.advance(package.file.size)
    return {package: wheel for package, wheel in wheels.items() if wheel is not None}
