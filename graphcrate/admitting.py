"""What a person wants published, and whether it may be: the image with all that is known of it, before the gate."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from graphcrate import catalogue, gate, memory, vetting
from graphcrate.errors import GateError, UsageError
from graphcrate.formats.mksquashfs import Compression
from graphcrate.host.workplace import Workplace
from graphcrate.model.audit import Audit
from graphcrate.model.lock import Lock, decode_lock
from graphcrate.model.publish import Evidence
from graphcrate.model.report import BuildReport, Pass
from graphcrate.model.unreadable import UNREADABLE
from graphcrate.oci import push
from graphcrate.oci.layout import Layout

_LOCK = "lock.json"
FileForm = Literal["sif", "sqsh"]
FILE_FORMS: tuple[FileForm, ...] = ("sif", "sqsh")
_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class Signer:
    """Who signs: a key file, an identity that is asked for (`keyless`), or nobody."""

    key: Path | None = None
    keyless: bool = False

    @property
    def name(self) -> str:
        """As reports call it."""
        return "key" if self.key else "keyless" if self.keyless else ""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asks. `ref`: a built image; `form`: None: what every runtime among the image's can pull."""

    ref: str
    output: Path = Path("dist")
    form: push.Form | None = None
    tags: tuple[str, ...] = ()  #: further ones
    mount_from: tuple[str, ...] = ()
    signer: Signer = Signer()
    allow_cpu_only: bool = False
    forms: tuple[FileForm, ...] = ()  #: for a folder; none: sif
    kernel: str | None = None  #: of the machines that run those
    compression: Compression | None = None  #: of those; None: as `converting` chooses
    keep: int | None = None  #: so many of this name stay in the folder
    replace: bool = False  #: another file of the same name there gives way


def forms_of(names: Iterable[str]) -> tuple[FileForm, ...]:
    """The forms of these names, each once. Raises UsageError for another name."""
    names = tuple(names)
    unknown = next((name for name in names if name not in FILE_FORMS), None)
    if unknown is not None:
        raise UsageError(f"there is no form {unknown!r} of a file", next_step="--as sif, or --as sqsh, or both")
    return tuple(form for form in FILE_FORMS if form in names)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An image with all that is known of it."""

    layout: Layout
    report: BuildReport
    lock: Lock
    audit: Audit
    evidence: Evidence

    @property
    def folder(self) -> Path:
        return self.layout.path.parent


def examine(request: Request, place: Workplace) -> Candidate:
    """The image, if it may go out. Raises UsageError for none, GateError with every reason against it."""
    layout, report = catalogue.find_image(request.ref, request.output)
    folder = layout.path.parent
    if not report.build_key:
        raise UsageError(
            f"{request.ref} was not built here: what is in it and whether it runs is not known",
            next_step="make image CUDA=…    builds one that can be published",
        )
    audit = _read(folder / vetting.AUDIT, Audit)
    lock = _lock(folder / _LOCK)
    recipe, variant = catalogue.find_variant(place, report.name, report.cuda)
    passes = tuple(_passes(folder / memory.FOLDER))
    evidence = gate.judge(report, audit, passes, variant.smoke or recipe.smoke, allow_cpu_only=request.allow_cpu_only)
    if evidence.refusals or audit is None:
        reasons = evidence.refusals
        raise GateError(
            f"{report.name}:{report.tag} is not published: {reasons[0].what}"
            + (f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""),
            cause="; ".join(reason.what for reason in reasons[1:]),
            next_step=reasons[0].fix,
        )
    if evidence.cpu_only:
        place.progress.note("no suite of it has passed on a GPU: published all the same, as --allow-cpu-only says")
    return Candidate(layout=layout, report=report, lock=lock, audit=audit, evidence=evidence)


def _lock(path: Path) -> Lock:
    """Raises UsageError for none, and for one that an older graphcrate wrote."""
    try:
        return decode_lock(path.read_bytes())
    except (OSError, *UNREADABLE) as error:
        raise UsageError(
            f"{path} does not say what the image was built from",
            cause=f"It was removed, damaged, or written by another graphcrate: {error}.",
            next_step="make image CUDA=…    builds it again; what is unchanged comes from the cache",
        ) from error


def _passes(folder: Path) -> Iterator[Pass]:
    for path in sorted(folder.glob("*.json")):
        found = _read(path, Pass)
        if found is not None:
            yield found


def _read(path: Path, kind: type[_Value]) -> _Value | None:
    """A value beside an image; None where it is not there or of another version."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, *UNREADABLE):
        return None
