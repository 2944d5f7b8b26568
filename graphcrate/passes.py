"""What counts as the same pass again. Pure: `memory` keeps passes, `proving` runs what has none.

docs/decisions/remembered-passes.md has the reasons.
"""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from graphcrate.model.passes import Claim, Ground, Pass
from graphcrate.model.report import SmokeReport
from graphcrate.model.unreadable import UNREADABLE

FORMAT = 1  #: of `Pass`; another one is forgotten
_DIGEST = "sha256:"


def suite_hash(commands: Sequence[Sequence[str]], environment: Mapping[str, str], judge: bytes) -> str:
    """Of all that a suite is outside of the image: its commands with arguments and limits (one for each device), the
    variables that it gets, and the code that judges what it says.
    """
    told = msgspec.json.encode([commands, dict(environment), hashlib.sha256(judge).hexdigest()], order="deterministic")
    return hashlib.sha256(told).hexdigest()


def content(image: str) -> str:
    """The digest that stands for an image's bytes; empty for a tag on a registry, which may be another one tomorrow."""
    digest = image.rpartition("@")[2]
    return digest if digest.startswith(_DIGEST) else ""


def claim(image: str, suite: str, hashed: str, ground: Ground) -> Claim | None:
    """None where nothing stands for the image's bytes."""
    digest = content(image)
    return Claim(image=digest, suite=suite, suite_hash=hashed, ground=ground) if digest else None


def key(wanted: Claim) -> str:
    """A word that stands for the claim, fit for a file's name."""
    return hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()[:32]


def read(data: bytes, wanted: Claim) -> Pass | None:
    """The pass that `data` holds, if it is one of just this claim; None for anything else, readable or not."""
    try:
        found = msgspec.json.decode(data, type=Pass)
    except UNREADABLE:
        return None
    fits = found.format == FORMAT and found.claim == wanted
    return found if fits and found.report.suite == wanted.suite and found.report.status == "passed" else None


def made(wanted: Claim, report: SmokeReport, now: str) -> Pass | None:
    """What is to be remembered of a run; None for anything but a pass. `now`: ISO 8601, UTC."""
    return Pass(claim=wanted, when=now, report=report) if report.status == "passed" else None


def recalled(found: Pass) -> SmokeReport:
    """The report of that run, which says that it is remembered."""
    return msgspec.structs.replace(found.report, remembered=found.when)


def forgotten(report: SmokeReport) -> SmokeReport:
    """The report as the run itself gave it."""
    return msgspec.structs.replace(report, remembered="")


def told(found: Pass) -> str:
    """What a person hears instead of the suite's lines."""
    ground = found.claim.ground
    driver = f", driver {ground.driver}" if ground.driver else ""
    runtime = f"{ground.runtime} {ground.runtime_version}".strip()
    return (
        f"{found.claim.suite} passed on this kind of node before ({found.when[:10]}, {ground.device}{driver}, "
        f"{runtime}): not run again; --rerun runs it"
    )
