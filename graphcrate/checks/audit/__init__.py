"""An image's programs and libraries, judged without running anything: what will not load, or not run, and why. Pure.

docs/audit.md says what each check looks at and how its verdicts compare with what happens.
"""

import re
from collections.abc import Iterable, Sequence

from graphcrate.checks.audit import code, metadata, space
from graphcrate.checks.audit.linking import Linking
from graphcrate.checks.audit.loading import Loader
from graphcrate.checks.audit.packages import BASE, Packages, short
from graphcrate.compat.facts import numbers
from graphcrate.model.audit import CHECKS, SEVERITIES, Audit, Contents, Finding, Severity


def judge(contents: Contents, gpus: Sequence[str] = ()) -> Audit:
    """Audit what was read. `gpus`: models that it shall run on; without, those that it says it is compiled for."""
    packages = Packages(contents)
    loader = Loader(contents, packages)
    linking = Linking(contents, packages, loader)
    found = [
        *map(_not_read, contents.unread),
        *linking.findings(),
        *code.findings(contents, packages, gpus),
        *space.findings(contents, packages, loader),
        *metadata.findings(contents, packages),
    ]
    return Audit(
        subject=contents.name,
        form=contents.form,
        python=contents.python,
        binaries=len(contents.binaries),
        bytes=sum(binary.size for binary in contents.binaries.values()),
        glibc=_floor(contents, packages, "GLIBC"),
        glibcxx=_floor(contents, packages, "GLIBCXX"),
        gpus=tuple(gpus),
        code=code.of_packages(contents, packages),
        findings=tuple(sorted(found, key=_order)),
        broken=tuple(sorted(short(path) for path in linking.broken if packages.owner(path) != BASE)),
        unread=contents.unread,
    )


def _not_read(what: str) -> Finding:
    """Whatever lies there may be broken: that nothing was found means nothing."""
    return Finding(
        check="files",
        severity="fail",
        package=BASE.name,
        file="",
        what=what,
        breaks="nothing of it was looked at",
        fix="pull or build the image again; a layer of another type: write it as tar+gzip",
    )


def count(findings: Iterable[Finding]) -> dict[Severity, int]:
    """How many there are of each severity."""
    severities = [finding.severity for finding in findings]
    return {severity: severities.count(severity) for severity in SEVERITIES if severity in severities}


def _order(finding: Finding) -> tuple[int, int, str, str]:
    return SEVERITIES.index(finding.severity), CHECKS.index(finding.check), finding.package, finding.file


def _floor(contents: Contents, packages: Packages, prefix: str) -> str:
    """The newest version of these symbols that a Python package's library cannot do without."""
    versions = {
        need.version.removeprefix(f"{prefix}_")
        for path, binary in contents.binaries.items()
        if packages.owner(path) != BASE
        for need in binary.versions_wanted
        if need.version.startswith(f"{prefix}_")
    }
    return max((version for version in versions if re.fullmatch(r"\d+(\.\d+)*", version)), key=numbers, default="")
