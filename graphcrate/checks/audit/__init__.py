"""An image's programs and libraries, judged without running anything: what will not load, or not run, and why. Pure.

docs/audit.md says what each check looks at, docs/dev/audit.md how its verdicts compare with what happens.
"""

import re
from collections.abc import Sequence

from graphcrate.checks.audit import code, metadata, space
from graphcrate.checks.audit.linking import Linking
from graphcrate.checks.audit.loading import Loader
from graphcrate.checks.audit.packages import BASE, Packages, short
from graphcrate.compat.facts import numbers
from graphcrate.model.audit import CHECKS, SEVERITIES, Audit, Contents, Finding


def judge(contents: Contents, gpus: Sequence[str] = ()) -> Audit:
    """Audit what was read. `gpus`: models that it shall run on; without, those that it says it is compiled for."""
    packages = Packages(contents)
    loader = Loader(contents, packages)
    linking = Linking(contents, packages, loader)
    no_word = "nothing of it was looked at"  # it may be broken: that nothing was found means nothing
    again = "pull or build the image again; a layer of another type: write it as tar+gzip"
    found = [
        *(Finding("files", "fail", BASE.name, "", what, no_word, again) for what in contents.unread),
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


def _order(finding: Finding) -> tuple[int, int, str, str]:
    return SEVERITIES.index(finding.severity), CHECKS.index(finding.check), finding.package, finding.file


def _floor(contents: Contents, packages: Packages, prefix: str) -> str:
    """The newest version of these symbols that a Python package's library cannot do without."""
    versions = (
        re.fullmatch(rf"{prefix}_(\d+(?:\.\d+)*)", need.version)
        for path, binary in contents.binaries.items()
        if packages.owner(path) != BASE
        for need in binary.versions_wanted
    )
    return max((version[1] for version in versions if version), key=numbers, default="")
