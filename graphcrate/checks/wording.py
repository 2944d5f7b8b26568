"""Word contracts' findings and audits for people and scripts. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator

from graphcrate.model.audit import Audit, PackageCode
from graphcrate.model.contract import Finding, Inspection
from graphcrate.model.table import Answer, Column, Row, Table
from graphcrate.model.words import printable

#: of a contract's status or an audit's severity, the worst first: in words, and in rich's
_WORDS = {"fail": "fail", "warn": "warn", "unknown": "not known", "note": "note", "pass": "pass"}
_STYLES = {"fail": "bold red", "warn": "yellow", "unknown": "dim", "note": "dim", "pass": "green"}
_CONTRACT_COLUMNS = (
    *(Column("status"), Column("id", only="lines"), Column("runtimes", only="lines")),
    *(Column("check", 3, "terminal"), Column("seen", 4), Column("why", 5), Column("fix", 4)),
)
_AUDIT_COLUMNS = (
    *(Column(""), Column("check", only="lines"), Column("package", 2), Column("file", 3)),
    *(Column("what", 5), Column("breaks", 3), Column("fix", 3)),
)
_CODE_COLUMNS = (
    *(Column("", only="lines"), Column("check", only="lines"), Column("package")),
    *(Column("version", only="terminal"), Column("file", only="lines"), Column("GPU code")),
)


def count(statuses: Iterable[str]) -> dict[str, int]:
    """How many there are of each status or severity, the worst first."""
    counts = Counter(statuses)
    return {status: counts[status] for status in _WORDS if status in counts}


def counted(statuses: Iterable[str]) -> str:
    """`1 fail, 2 warn, 30 pass`."""
    return ", ".join(f"{number} {_WORDS[status]}" for status, number in count(statuses).items())


def contracts(inspection: Inspection) -> Answer:
    """Make a row of each finding, the worst first."""
    rows = []
    for one in _sorted(inspection.findings):
        identity = (one.status, one.check, ",".join(one.runtimes), f"{one.title} ({', '.join(one.runtimes)})")
        rows.append(Row((*identity, one.seen, one.why, one.fix), _STYLES[one.status]))
    return Answer((Table(_CONTRACT_COLUMNS, tuple(rows)),), summary=counted(one.status for one in inspection.findings))


def contracts_after_build(findings: Iterable[Finding], ref: str) -> Iterator[str]:
    """What a person is told after a build: nothing of what passed or is not known."""
    told = [finding for finding in findings if finding.status in ("fail", "warn")]
    if not told:
        yield "contracts: all kept that can be judged without the host"
        return
    yield f"contracts: {counted(one.status for one in told)}    (./build.py check {ref})"
    for one in _sorted(told):
        runtimes = ", ".join(one.runtimes)
        yield f"  {one.status}  {one.title} ({runtimes}): {printable(one.seen)}; {printable(one.fix)}"


def _sorted(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: list(_WORDS).index(finding.status))


def audit(found: Audit) -> Answer:
    """Make a row of each finding, the worst first, and one for the GPU code of each package."""
    findings = [
        Row((one.severity, one.check, one.package, one.file, one.what, one.breaks, one.fix), _STYLES[one.severity])
        for one in found.findings
    ]
    packages = [Row(("code", "architectures", one.package, one.version, "", code(one))) for one in found.code]
    floors = [f"glibc {found.glibc}"] * bool(found.glibc) + [f"GLIBCXX {found.glibcxx}"] * bool(found.glibcxx)
    told = (
        f"{found.binaries} programs and libraries of {found.bytes / 1e9:.1f} GB: "
        + (counted(one.severity for one in found.findings) or "nothing is wrong")
        + (f"; its packages want {' and '.join(floors)}" if floors else "")
    )
    tables = Table(_AUDIT_COLUMNS, tuple(findings)), Table(_CODE_COLUMNS, tuple(packages))
    return Answer(tables, summary=told, last=f"done\t\t\t\t{told}")


def code(package: PackageCode) -> str:
    """`7.0, 8.0; PTX 8.0; in few parts 9.0`."""
    parts = {"": package.code.sass, "PTX ": package.code.ptx, "in few parts ": package.code.some}
    return "; ".join(f"{kind}{', '.join(names)}" for kind, names in parts.items() if names)


def audit_after_build(found: Audit, ref: str) -> Iterator[str]:
    """What a person is told after a build: nothing of notes."""
    told = [finding for finding in found.findings if finding.severity != "note"]
    if not told:
        yield f"audit: {found.binaries} programs and libraries, nothing that cannot be loaded or run"
        return
    yield f"audit: {counted(one.severity for one in told)}    (./build.py audit {ref})"
    for one in told:
        words = f"{printable(f'{one.package} {one.file}'.rstrip())}: {printable(one.what)}; {printable(one.fix)}"
        yield f"  {one.severity}  {words}".rstrip("; ")
