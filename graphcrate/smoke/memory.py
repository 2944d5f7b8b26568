"""Past results of suites: a file for each pass, in a folder beside the image, so that they go where its folder goes.

A pass counts for the same image, suite, version of the suite, device, driver and runtime. No locks: nodes of a cluster
write at the same time through a network file system. docs/decisions/remembered-passes.md has the reasons.
"""

import contextlib
import hashlib
from pathlib import Path

import msgspec

from graphcrate.host import settings
from graphcrate.host.disk.atomic import write_file
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, GraphcrateError
from graphcrate.model.lock import encode
from graphcrate.model.report import Pass, SmokeReport, SuiteClaim

_CPU = "cpu"
FOLDER = "passes"  #: in the image's folder, dist/<name>/<tag>
SHARED = "shared"  #: below it: passes on machines of others, signed by a key that this user trusts


def content(image: str) -> str:
    """The digest that stands for an image's bytes; empty for a tag on a registry, which may be another one tomorrow."""
    digest = image.rpartition("@")[2]
    return digest if digest.startswith("sha256:") else ""


def recall(folder: Path, claim: SuiteClaim) -> Pass | None:
    """Read the stored pass of just this claim; None for anything else, readable or not.

    One that came signed, of another machine, counts on any CPU; of a GPU it has to be of that kind of node, too.
    """
    own = [_path(folder, claim), _path(folder / SHARED, claim)]
    elsewhere = sorted((folder / SHARED).glob(f"{claim.suite}-*.json")) if claim.device.startswith(_CPU) else []
    for path in (*own, *elsewhere):
        kept = read(path)
        if kept is not None and claim.image and (kept.claim if path in own else _on(claim, kept.claim)) == claim:
            return kept
    return None


def read(path: Path) -> Pass | None:
    """Read a stored pass; None for another file, and for one that contradicts itself."""
    with contextlib.suppress(OSError, *UNREADABLE):
        kept = codec.decode(path.read_bytes(), Pass)
        if (kept.report.suite, kept.report.status) == (kept.claim.suite, "passed") and is_consistent(kept):
            return kept
    return None


def _on(here: SuiteClaim, other: SuiteClaim) -> SuiteClaim:
    """The claim of another machine's CPU, as if it were of this one."""
    if not other.device.startswith(_CPU):
        return other
    return msgspec.structs.replace(other, device=here.device, driver=here.driver, runtime_version=here.runtime_version)


def is_consistent(kept: Pass) -> bool:
    """Tell whether the report of a pass is of the kind of device that the runner had: what a suite said is no proof."""
    return kept.claim.device.startswith(_CPU) == kept.report.device.startswith(_CPU)


def store_result(folder: Path, claim: SuiteClaim, report: SmokeReport) -> str:
    """Store a pass; remove an older one where the suite failed. Returns why that failed, or nothing.

    A folder that this user may not write to is no reason to fail.
    """
    path = _path(folder, claim)
    try:
        if report.status != "passed":
            path.unlink(missing_ok=True)
        elif claim.image:
            folder.mkdir(parents=True, exist_ok=True)
            write_file(path, encode(Pass(claim=claim, when=settings.now_utc(), report=report)))
    except (OSError, GraphcrateError) as error:
        why = error.what if isinstance(error, GraphcrateError) else error.strerror
        return f"{claim.suite} will be run again next time: {folder} cannot be written ({why})"
    return ""


def _path(folder: Path, claim: SuiteClaim) -> Path:
    key = hashlib.sha256(msgspec.json.encode(claim)).hexdigest()[:32]
    return folder / f"{claim.suite}-{key}.json"
