"""The proof of a committed lock: written beside it by `matrix`, read by the tests and the tables of docs/."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from graphcrate.model import codec
from graphcrate.model.values import CudaVersion, Digest, FileName, Sha256, Size


class ProvenSuite(msgspec.Struct, frozen=True, kw_only=True):
    """A suite that passed inside the image, and on what: "cpu AMD EPYC 7742", "Tesla V100-SXM3-32GB"."""

    suite: str
    device: str
    seconds: float


class LockProof(msgspec.Struct, frozen=True, kw_only=True):
    """That the image of a lock was built, audited and tested. `CANDIDATE.proof.json` beside `CANDIDATE.lock.json`."""

    format: Literal[1] = 1
    recipe: FileName
    cuda: CudaVersion
    candidate: FileName
    lock_sha256: Sha256  #: of the lock's bytes: with another lock this proves nothing
    tag: FileName
    digest: Digest  #: of the image's manifest
    bytes: Size  #: sum of the compressed layers
    seconds: float  #: from the request to the last suite
    build_key: str  #: of plan and layer format: with another one the digest is another, too
    suites: tuple[ProvenSuite, ...]
    binaries: Size  #: programs and libraries that the audit read
    warnings: Size  #: of the audit
    #: by the audit, compute capability ("7.0") → "native", "jit" (the driver compiles PTX), "fails" or "unknown"
    gpus: Mapping[str, str]
    date: str  #: UTC, ISO 8601
    commit: str  #: that built it; with "+" at its end where files were changed since


def decode_proof(data: bytes) -> LockProof:
    """Parse a proof. Raises one of `errors.UNREADABLE`."""
    return codec.decode(data, LockProof)
