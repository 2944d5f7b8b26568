"""Audits as lines for people and scripts. Pure."""

from collections.abc import Iterable, Iterator

from graphcrate.checks.audit import count
from graphcrate.model.audit import Audit, Finding, PackageCode
from graphcrate.model.words import printable


def lines(audit: Audit) -> Iterator[str]:
    """One line for each finding, the worst first, fields apart by tabs; the packages' GPU code; a summary."""
    for finding in audit.findings:
        fields = (finding.severity, finding.check, finding.package, finding.file, finding.what, finding.breaks)
        yield "\t".join(printable(field) for field in (*fields, finding.fix)).rstrip("\t")
    for package in audit.code:
        yield f"code\tarchitectures\t{printable(package.package)}\t\t{code(package)}"
    yield f"done\t\t\t\t{summary(audit)}"


def code(package: PackageCode) -> str:
    """`7.0, 8.0; PTX 8.0; in few parts 9.0`."""
    parts = [", ".join(package.code.sass)] if package.code.sass else []
    parts += [f"PTX {', '.join(package.code.ptx)}"] if package.code.ptx else []
    parts += [f"in few parts {', '.join(package.code.some)}"] if package.code.some else []
    return "; ".join(parts)


def summary(audit: Audit) -> str:
    """In one line: how much was read, what was found, what it asks of the base."""
    read = f"{audit.binaries} programs and libraries of {audit.bytes / 1e9:.1f} GB"
    floors = [f"glibc {audit.glibc}"] if audit.glibc else []
    floors += [f"GLIBCXX {audit.glibcxx}"] if audit.glibcxx else []
    wants = f"; its packages want {' and '.join(floors)}" if floors else ""
    return f"{read}: {counted(audit.findings) or 'nothing is wrong'}{wants}"


def counted(findings: Iterable[Finding]) -> str:
    """`1 fail, 2 warn, 3 note`."""
    return ", ".join(f"{number} {severity}" for severity, number in count(findings).items())


def after_build(audit: Audit, ref: str) -> Iterator[str]:
    """What a person is told after a build: nothing of notes."""
    told = [finding for finding in audit.findings if finding.severity != "note"]
    if not told:
        yield f"audit: {audit.binaries} programs and libraries, nothing that cannot be loaded or run"
        return
    yield f"audit: {counted(told)}    (./build.py audit {ref})"
    for finding in told:
        place = f"{finding.package} {finding.file}".rstrip()
        yield f"  {finding.severity}  {printable(place)}: {printable(finding.what)}; {printable(finding.fix)}".rstrip(
            "; "
        )
