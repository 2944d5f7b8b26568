"""Passes: what a suite has shown once, of which image, on which kind of node, so that it need not show it again."""

import msgspec

from graphcrate.model.report import SmokeReport


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What a suite runs on: a kind of node, under a runtime. Equal grounds are the same to a suite."""

    device: str  #: "2 x Tesla V100-SXM3-32GB", "cpu AMD EPYC 7742": models and how many of them it may see
    driver: str  #: version of the NVIDIA driver; empty on a CPU, which needs none
    runtime: str  #: as in SmokeReport
    runtime_version: str


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """That an image passes a suite on some ground. All of it has to be the same for a pass to count."""

    image: str  #: digest of the artifact (`model.report.Artifact`), with `sha256:`
    suite: str
    suite_hash: str  #: of how the suite is run and judged; its program lies in the image
    ground: Ground


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that was proven once: when (ISO 8601, UTC), and the report of that run."""

    claim: Claim
    when: str
    report: SmokeReport
    format: int = 1  #: of this value; passes of another one are forgotten
