"""Where an image shall run, and what the rules of `compat.rules` say of that."""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

#: `native`: machine code for every GPU. `jit`: the driver compiles PTX first, which makes the first start slow.
#: `unknown`: nobody knows, and nothing speaks against it.
Status = Literal["native", "jit", "unknown", "rejected"]
STATUSES: tuple[Status, ...] = get_args(Status)


class Partition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A partition of Slurm. 0: not known."""

    cores_per_gpu: int = 0
    gpus: int = 0  #: on a node


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine, as `targets/*.toml` or a person describes it. What is empty or None is not known."""

    description: str = ""
    known: str = ""  #: who says so
    gpus: tuple[str, ...] | None = None  #: models, as `compat.facts` knows them; empty: there is none
    drivers: tuple[str, ...] = ()  #: NVIDIA's; several: a job may choose
    kernel: str = ""
    glibc: str = ""
    runtimes: Mapping[str, str] = {}  #: runtime → version, which may be empty; of pyxis that of enroot
    partitions: Mapping[str, Partition] = {}  #: of Slurm


class Software(msgspec.Struct, frozen=True, kw_only=True):
    """What an image holds, as far as it matters to a machine."""

    torch: str  #: "2.0.1+cu118"; "*": not known yet
    torch_cuda: str  #: "11.7", or "cpu"
    python: str
    suite: str = ""  #: of its Debian; empty: another base
    extensions: tuple[str, ...] = ()  #: compiled ones, by their names in the recipe
    architectures: tuple[str, ...] = ()  #: that they are compiled for: "7.0", "8.0+PTX"
    nvcc: str = ""  #: version of what compiles them
    impossible: str = ""  #: why they cannot be compiled for the GPUs that were asked for
    torch_geometric: str = ""  #: version of PyG
    glt: str = ""  #: version of graphlearn-torch
    packages: tuple[str, ...] = ()  #: names of its distributions


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rule found. `source`: who says so; `fix`: the nearest thing to change, where there is any."""

    rule: str
    what: str
    source: str
    fix: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reasons for the status (of a rejection the first), what is assumed, the oldest driver that it holds for."""

    status: Status
    reasons: tuple[Reason, ...] = ()
    assumes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    driver: str = ""

    @property
    def accepted(self) -> bool:
        return self.status != "rejected"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate of a variant, judged. `command` builds its image for the target."""

    recipe: str
    cuda: str
    candidate: str
    torch: str
    torch_geometric: str
    verdict: Verdict
    chosen: bool
    command: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`explain --json`: the newest first. `asked`: the CUDA version that was asked about."""

    target: Target
    name: str
    asked: str
    rows: tuple[Row, ...]
