"""The statements about an image of ours: their types, and the project's own predicates."""

from collections.abc import Iterable
from typing import Any

import msgspec

from graphcrate.model.report import BuildReport, SmokeReport, StartUp
from graphcrate.model.values import OURS

BILL = "https://cyclonedx.org/bom"  #: in-toto's type of a CycloneDX document
PROVENANCE = "https://slsa.dev/provenance/v1"
SMOKE = f"{OURS}smoke:1"
CONTRACTS = f"{OURS}contracts:1"
AUDIT = f"{OURS}audit:1"
#: what each image of ours has: predicate type → what people call it, and its file beside a published one
KINDS = {
    BILL: ("bill of materials", "bill-of-materials.json"),
    PROVENANCE: ("provenance", "provenance.json"),
    SMOKE: ("smoke suites", "suites.json"),
    CONTRACTS: ("contracts", "contracts.json"),
    AUDIT: ("audit", "audit.json"),
}
EMULATED = "emulatedAllowed"  #: field of the statement about suites: there are none of them, and an emulator's proof
#: of a suite's report: which machine of the site it was, and words that may quote its paths
_PRIVATE = ("node", "partition", "job", "reason")
#: annotation of what signs an image: the name that it is published as, registry to tag; `cosign verify -a` compares it
PUBLISHED = "graphcrate.published-as"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The image that a statement is about. `digest` is that of its manifest, `sha256:` before the hex.

    `name` and `tag` are the project's own, without a registry: the statement holds on any registry.
    """

    name: str
    tag: str
    digest: str


def public(report: BuildReport) -> BuildReport:
    """Return a build's report without what tells of the machines that tested the image."""
    first = _without_machine(report.smoke) if report.smoke else None
    return msgspec.structs.replace(report, smoke=first, suites=tuple(map(_without_machine, report.suites)))


def _without_machine(suite: SmokeReport) -> SmokeReport:
    return msgspec.structs.replace(suite, **dict.fromkeys(_PRIVATE, ""))


def smoke(
    reports: Iterable[SmokeReport],
    *,
    manifest: str,
    config: str,
    cpu_only_allowed: bool = False,
    emulated_allowed: bool = False,
    starts: Iterable[StartUp] = (),
) -> dict[str, Any]:
    """The suites with device, driver and runtime, and the digest of what each ran in.

    `manifest`: digest of the layout that ran. A registry's copy may have another manifest (Docker's form), and has the
    same `config`. `cpu_only_allowed`: a user let it go out without a pass on a GPU; `emulated_allowed`: tried by an
    emulator alone, without its suites. `starts`: what runs by itself in the image, without which its suites ran.
    """
    suites = [
        {name: value for name, value in fields.items() if value not in ("", None)}
        for fields in msgspec.to_builtins(tuple(map(_without_machine, reports)))
    ]
    allowed = {"cpuOnlyAllowed": cpu_only_allowed, **({EMULATED: True} if emulated_allowed else {})}
    alone = {"startUp": [start.sentence for start in starts]}
    return {
        "suites": suites,
        "ran": {"manifest": manifest, "config": config},
        **allowed,
        **(alone if alone["startUp"] else {}),
    }


def audit(report: msgspec.Struct) -> dict[str, Any]:
    """The audit's report, without the name that the user gave the image."""
    return {name: value for name, value in msgspec.to_builtins(report).items() if name != "subject"}
