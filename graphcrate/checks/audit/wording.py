"""Word audits for people and scripts. Pure."""

from collections.abc import Iterable, Iterator

from graphcrate.checks.audit import count
from graphcrate.model.audit import SEVERITIES, Audit, Finding, PackageCode
from graphcrate.model.table import Answer, Column, Row, Table
from graphcrate.model.words import printable

_STYLES = dict(zip(SEVERITIES, ("bold red", "yellow", "dim"), strict=True))
_COLUMNS = (
    *(Column(""), Column("check", only="lines"), Column("package", 2), Column("file", 3)),
    *(Column("what", 5), Column("breaks", 3), Column("fix", 3)),
)
_CODE_COLUMNS = (
    *(Column("", only="lines"), Column("check", only="lines"), Column("package")),
    *(Column("version", only="terminal"), Column("file", only="lines"), Column("GPU code")),
)


def answer(audit: Audit) -> Answer:
    """Make a row of each finding, the worst first, and one for the GPU code of each package."""
    findings = [
        Row((one.severity, one.check, one.package, one.file, one.what, one.breaks, one.fix), _STYLES[one.severity])
        for one in audit.findings
    ]
    packages = [Row(("code", "architectures", one.package, one.version, "", code(one))) for one in audit.code]
    told = summary(audit)
    return Answer(
        (Table(_COLUMNS, tuple(findings)), Table(_CODE_COLUMNS, tuple(packages))),
        summary=told,
        last=f"done\t\t\t\t{told}",
    )


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
