"""An audit from what the user names to its report: read image, wheels or folder, and judge what was read."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphcrate.artifacts.tree import binaries, opening
from graphcrate.checks.audit import code, metadata, names, space, verbs
from graphcrate.checks.audit.linking import Linking
from graphcrate.checks.audit.loading import Loader
from graphcrate.checks.audit.packages import BASE, Packages, short
from graphcrate.checks.reading import CheckedImage, read_image, tools
from graphcrate.compat.facts import allowances, facts, gpu_table
from graphcrate.host import trace
from graphcrate.host.context import Context
from graphcrate.model.allowance import CHECKS, Check
from graphcrate.model.audit import SEVERITIES, Audit, AuditFinding, Contents, GpuVerdict
from graphcrate.model.errors import UsageError
from graphcrate.model.plan import site_packages

_UNKNOWN_PYTHON = "3"
#: checks that may find what another layer would mend: it has the library, the version, the package
_OF_WHAT_IS_ABSENT = frozenset[Check]({"libraries", "symbols", "versions", "strings", "metadata", "unused"})


def run(
    subjects: Sequence[str], ctx: Context, *, base: str = "", gpus: Sequence[str] = (), output: Path = Path("dist")
) -> Audit:
    """Audit one image or folder, or wheels. `base`: an image that wheels and folders are in.

    Raises UsageError for what does not exist, LayoutError, IntegrityError for what cannot be read.
    """
    return judge(_contents(subjects, ctx, base, output), gpus)


@dataclasses.dataclass(frozen=True)
class Look:
    """An image seen through its programs and libraries. `by_gpu`: for a model of each compute capability ("7.0")."""

    audit: Audit
    packages: Mapping[str, tuple[str, int]]  #: normalised name → version, bytes of its programs and libraries
    by_gpu: Mapping[str, tuple[AuditFinding, ...]]


class Seen(NamedTuple):
    """An image as it was read, and what its programs and libraries say."""

    image: CheckedImage
    look: Look


def look(contents: Contents) -> Look:
    """Look at an image: its audit, its packages, and what keeps it from running on each GPU."""
    owners = Packages(contents)
    sizes = {distribution.name: (distribution.version, 0) for distribution in contents.distributions}
    for path, binary in contents.binaries.items():
        owner = owners.owner(path)
        version, known = sizes.get(owner.name, (owners.version(owner), 0))
        sizes[owner.name] = version, known + binary.size
    by_gpu = {
        capability: tuple(code.findings(contents, owners, models[:1]))
        for capability, models in gpu_table.models_by_capability().items()
    }
    return Look(judge(contents), sizes, by_gpu)


def by_capability(contents: Contents) -> Mapping[str, GpuVerdict]:
    """Judge, by its libraries' code, what the GPUs of each listed compute capability ("7.0") run of an image."""
    return code.verdicts(contents, Packages(contents))


def _contents(subjects: Sequence[str], ctx: Context, base: str, output: Path) -> Contents:
    wheels = [Path(name) for name in subjects if name.endswith(".whl")]
    if len(subjects) != 1 and len(wheels) < len(subjects):
        raise UsageError("wheels, or one image or folder, can be audited at a time", next_step="run it once for each")
    if absent := next((wheel for wheel in wheels if not wheel.is_file()), None):
        raise UsageError(f"there is no wheel {absent}", next_step="ls *.whl    shows those in this folder")
    folder = Path(subjects[0])
    packages = _packages(folder)
    if not (wheels or packages):
        if base:
            raise UsageError(f"{folder} has a base of its own", next_step="leave --base out")
        contents = read_image(subjects[0], ctx, output).contents
        if contents.form == "folder" and not contents.binaries:
            raise UsageError(
                f"there is nothing to audit in {folder}: no program and no library",
                next_step="name an image, wheels (FOLDER/*.whl), an environment, or a folder with *.dist-info",
            )
        return contents
    lower = read_image(base, ctx, output).contents if base else None
    site = site_packages((binaries.interpreter_of(lower) if lower else "") or _UNKNOWN_PYTHON)
    with tools(ctx, site) as reading:
        if wheels:
            upper = binaries.of_wheels(" ".join(wheel.name for wheel in wheels), wheels, site, reading)
        else:
            opened = opening.opened(str(packages), reading, output, "all")
            upper = binaries.of_opened(subjects[0], opened, reading, below=site)
    return binaries.over(upper, lower) if lower else msgspec.structs.replace(upper, base=False)


def _packages(folder: Path) -> Path | None:
    """The folder of installed packages that the user means: it itself, or that of an environment (venv, conda)."""
    if any(folder.glob("*.dist-info")):
        return folder
    is_environment = (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()
    return min(folder.glob("lib/python3*/site-packages"), default=None) if is_environment else None


@trace.span("audit")
def judge(contents: Contents, gpus: Sequence[str] = ()) -> Audit:
    """Audit what was read. `gpus`: models that it shall run on; without, those that it says it is compiled for."""
    capabilities = {name.removesuffix("+PTX") for name in contents.architectures}
    gpus = gpus or [model for model, capability in gpu_table.gpus().items() if capability in capabilities]
    packages = Packages(contents)
    loader = Loader(contents, packages)
    allow = allowances.of_labels(contents.settings.labels) if contents.settings else ()
    linking = Linking(contents, packages, loader, allow)
    no_word = "nothing of it was looked at"  # it may be broken: that nothing was found means nothing
    again = "pull or build the image again; a layer of another type: write it as tar+gzip"
    findings = [
        *(AuditFinding("files", "fail", BASE.name, "", what, no_word, again) for what in contents.unread),
        *linking.findings(),
        *code.findings(contents, packages, gpus),
        *space.findings(contents, packages, loader),
        *metadata.findings(contents, packages),
        *names.findings(contents, packages),
        *verbs.findings(contents, packages, verbs.seen_by(contents, loader, linking)),
    ]
    if contents.left:
        note = AuditFinding("files", "note", BASE.name, "", f"not looked at: {'; '.join(contents.left)}")
        findings = [note, *map(_unsure, findings)]
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
        findings=tuple(sorted((allowances.judged(finding, allow) for finding in findings), key=_order)),
        # what an absent library breaks may be whole: it may be among what was left
        broken=tuple(
            sorted(short(path) for path in linking.broken if packages.owner(path) != BASE and not contents.left)
        ),
        unread=contents.unread,
        left=contents.left,
        system=_system(contents),
    )


def _system(contents: Contents) -> str:
    """The system of an image and which of its releases, as os-release(5) has them."""
    texts = (contents.texts.get(path, b"").decode("utf-8", "replace") for path in binaries.RELEASES)
    fields = dict(re.findall(r"^(\w+)=[\"']?([\w.-]+)[\"']?\s*$", next(filter(None, texts), ""), re.MULTILINE))
    return f"{fields.get('ID', '')} {fields.get('VERSION_CODENAME') or fields.get('VERSION_ID', '')}".strip()


def _unsure(finding: AuditFinding) -> AuditFinding:
    """A finding on an image of which not everything was looked at: that nothing has a thing is then not known."""
    if finding.check not in _OF_WHAT_IS_ABSENT:
        return finding
    what = f"{finding.what}, among the layers that were looked at"
    return msgspec.structs.replace(finding, severity="note", what=what, fix="look at all of them: --fetch all")


def _order(finding: AuditFinding) -> tuple[int, int, str, str]:
    return SEVERITIES.index(finding.severity), CHECKS.index(finding.check), finding.package, finding.file


def _floor(contents: Contents, packages: Packages, prefix: str) -> str:
    """The newest version of these symbols that a Python package's library cannot do without."""
    versions = (
        re.fullmatch(rf"{prefix}_(\d+(?:\.\d+)*)", need.version)
        for path, binary in contents.binaries.items()
        if packages.owner(path) != BASE
        for need in binary.versions_wanted
    )
    return max((version[1] for version in versions if version), key=facts.numbers, default="")
