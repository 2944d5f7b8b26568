"""Publishing: what keeps an image from going out, and what became of one that went."""

from collections.abc import Mapping

import msgspec

from graphcrate.model.report import SmokeReport

#: annotation of what went out with `Evidence.cpu_only`; the statement about its suites has a field for it
CPU_ONLY = "graphcrate.cpu-only"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why an image is not published, and what to do about it."""

    what: str
    fix: str = ""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate goes by: the newest passes of this digest; `cpu_only`: none of a GPU, as a person allowed."""

    suites: tuple[SmokeReport, ...]
    refusals: tuple[Refusal, ...]
    cpu_only: bool = False


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """`publish --json`. `digest`: of the manifest that the reference names. `lines`: runtime → what its users type."""

    name: str
    tag: str
    destination: str
    reference: str
    digest: str
    form: str = ""
    tags: tuple[str, ...] = ()
    bytes_sent: int = 0
    bytes_there: int = 0
    bytes_mounted: int = 0
    proofs: tuple[str, ...] = ()  #: digests of the manifests that hold statements and signatures
    signed: str = ""  #: "key"; empty: nobody signed
    cpu_only: bool = False
    seconds: float
    lines: Mapping[str, str] = {}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that `verify` looked at: `ok`, or not, in words."""

    what: str
    ok: bool
    said: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """`verify --json`. `statements`: predicate types that are signed or attached."""

    reference: str
    digest: str
    checks: tuple[Check, ...]
    statements: tuple[str, ...]
