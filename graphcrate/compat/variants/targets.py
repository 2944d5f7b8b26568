"""Machines as people describe them: files of targets/, read strictly, and the command line. Pure but for `load`."""

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.compat.facts import driver_table, facts, gpu_table
from graphcrate.compat.facts.fabrics import fabrics
from graphcrate.model import toml
from graphcrate.model.command import setting
from graphcrate.model.contract import Host
from graphcrate.model.errors import UsageError
from graphcrate.model.runtime import RUNTIMES, RuntimeName, runtime_name

_DRIVERS = range(100, 1000)  #: what versions of NVIDIA's driver begin with
_VERSION_LIKE = "write it like 450.80.02 or 3.10"


class Partition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A partition of Slurm. 0: not known."""

    cores_per_gpu: int = 0
    gpus: int = 0  #: on a node


class NodeFabric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The network between a machine's nodes. 0 or empty: not known."""

    kind: str  #: one of `compat.facts.fabrics`: "infiniband"
    rails: int = 0  #: cards that a node has for it
    rate: int = 0  #: of each, in Gbit/s
    interface: str = ""  #: network interfaces that ranks find one another by: "hsn", "ib0"
    plugin: str = ""  #: folder of the nodes with lib/libnccl-net.so: "/opt/aws-ofi-nccl"


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine, as `targets/*.toml` or the user describes it. What is empty or None is not known."""

    description: str = ""
    known: str = ""  #: who says so
    gpus: tuple[str, ...] | None = None  #: models, as `facts` knows them; empty: there is none
    drivers: tuple[str, ...] = ()  #: NVIDIA's; several: a job may choose
    kernel: str = ""
    glibc: str = ""
    runtimes: Mapping[str, str] = {}  #: runtime → version, which may be empty; of pyxis that of enroot
    partitions: Mapping[str, Partition] = {}  #: of Slurm
    fabric: NodeFabric | None = None
    mounts: tuple[str, ...] = ()  #: folders of every `run` there, as its --mount


def load(path: Path) -> Target:
    """Read and validate a target file. Raises RecipeError."""
    return toml.load(path, Target, contradictions, f"fields are {', '.join(Target.__struct_fields__)}")


def contradictions(target: Target) -> Iterator[tuple[str, str]]:
    """Yield contradictions of a target that its fields' types do not tell."""
    for model in target.gpus or ():
        try:
            gpu_table.compute_capability(model)
        except UsageError as error:
            yield "gpus", f"{error.what}; {error.next_step}"
    versions = [("drivers", driver) for driver in target.drivers]
    versions += [("kernel", target.kernel), ("glibc", target.glibc)]
    versions += [(f"runtimes.{name}", version) for name, version in target.runtimes.items()]
    for field, version in versions:
        if version and not facts.numbers(version):
            yield field, f"{version!r} is not a version: {_VERSION_LIKE}"
    if len(set(target.drivers)) < len(target.drivers) or "" in target.drivers:
        yield "drivers", "a driver stands twice or is empty"
    if target.fabric is not None:
        if target.fabric.kind not in fabrics():
            yield "fabric.kind", f"there is no fabric {target.fabric.kind!r}; there are {', '.join(fabrics())}"
        if target.fabric.rails < 0 or target.fabric.rate < 0:
            yield "fabric", "a number of rails and a rate in Gbit/s are 1 or more"
        if not re.fullmatch(r"[\w.,=^-]*", target.fabric.interface, re.ASCII):
            yield "fabric.interface", f"{target.fabric.interface!r} names no network interface"
        if target.fabric.plugin and not re.fullmatch(r"/[\w./+-]+", target.fabric.plugin, re.ASCII):
            yield "fabric.plugin", f"{target.fabric.plugin!r} is not the absolute path of a folder"
    if target.gpus == () and target.drivers:
        yield "drivers", "a machine without a GPU has no driver"
    for name in target.runtimes:
        if name not in RUNTIMES:
            meant = runtime_name(name)
            hint = f"; it is called {meant} here" if meant else f"; there are {', '.join(RUNTIMES)}"
            yield f"runtimes.{name}", f"there is no runtime {name!r}{hint}"


class MachineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A target as the command line has it. Empty: nothing was said."""

    target: str = ""  #: name of a file in targets/
    gpu: str = ""  #: "v100,a100"
    driver: str = ""
    runtimes: tuple[str, ...] = ()
    runtime_version: str = ""
    kernel: str = ""
    glibc: str = ""


def merge_target(described: MachineRequest, known: Target) -> Target:
    """The named target (or an empty one) with what was said besides. Raises UsageError where they contradict."""
    named = runtimes_of(described.runtimes)
    if described.runtime_version and len(named) != 1:
        raise UsageError("a version of which runtime?", next_step="--runtime pyxis --runtime-version 3.4.1")
    _check_versions(described)
    gpus = None if known.gpus is None else tuple(map(gpu_table.gpu_model, known.gpus))
    models = gpu_table.gpu_models(described.gpu) if described.gpu else gpus
    for has, option, value in _contradicted(described, known, named, gpus, models):
        raise UsageError(
            f"target {described.target} has {has}, and --{option} says {value}",
            next_step=f"leave out --{option}, or {setting(target=described.target).both()} and say all of the machine",
        )
    return msgspec.structs.replace(
        known,
        gpus=models,
        drivers=(driver_of(described.driver),) if described.driver else known.drivers,
        kernel=described.kernel or known.kernel,
        glibc=described.glibc or known.glibc,
        runtimes={name: described.runtime_version or known.runtimes.get(name, "") for name in named} or known.runtimes,
    )


def driver_of(text: str) -> str:
    """Return a driver's version; of the CUDA version that nvidia-smi shows the oldest known driver that shows it."""
    return driver_table.driver_showing(text) or text


def _check_versions(described: MachineRequest) -> None:
    """Raises UsageError for versions that no driver, kernel, C library or runtime has."""
    for option in ("driver", "kernel", "glibc", "runtime_version"):
        if (value := getattr(described, option)) and not facts.numbers(value):
            raise UsageError(f"--{option.replace('_', '-')} {value!r} is not a version", next_step=_VERSION_LIKE)
    ask = "nvidia-smi --query-gpu=driver_version --format=csv,noheader    says it alone"
    if described.driver and facts.numbers(driver_of(described.driver))[0] not in _DRIVERS:
        raise UsageError(
            f"there is no NVIDIA driver {described.driver}: their versions begin with three digits", next_step=ask
        )
    if described.glibc and not re.match(r"v?2\.\d", described.glibc.strip()):
        raise UsageError(
            f"there is no glibc {described.glibc}: its versions are 2.17, 2.36 and the like",
            next_step="ldd --version    says it in its first line",
        )


def _contradicted(
    described: MachineRequest,
    known: Target,
    named: Sequence[str],
    gpus: Sequence[str] | None,
    models: Sequence[str] | None,
) -> Iterator[tuple[str, str, str]]:
    """Yield a target's fields, and the option that says otherwise with its value."""
    for name in named:
        has = known.runtimes.get(name, "")
        if known.runtimes and name not in known.runtimes:
            yield " and ".join(known.runtimes), "runtime", name
        if has and described.runtime_version and has != described.runtime_version:
            yield f"{name} {has}", "runtime-version", described.runtime_version
    architectures = [gpu_table.gpu_model(gpu_table.compute_capability(model)) for model in gpus or ()]
    if gpus is not None and not {*gpus, *architectures}.issuperset(models or ()):
        yield f"GPU {', '.join(known.gpus or ()) or 'none'}", "gpu", described.gpu
    if described.driver and (known.gpus == () or (known.drivers and driver_of(described.driver) not in known.drivers)):
        yield f"driver {' or '.join(known.drivers)}" if known.drivers else "no GPU", "driver", described.driver
    for option, new, old in (("kernel", described.kernel, known.kernel), ("glibc", described.glibc, known.glibc)):
        if new and old and facts.numbers(new) != facts.numbers(old):
            yield f"{option} {old}", option, new


def runtimes_of(names: Sequence[str]) -> tuple[RuntimeName, ...]:
    """The runtimes that the user named, in any form of their names. Raises UsageError."""
    runtimes: list[RuntimeName] = []
    for name in names:
        runtime = runtime_name(name.lower())
        if runtime is None:
            raise UsageError(f"there is no runtime {name!r}", next_step=f"choose from: {', '.join(RUNTIMES)}")
        runtimes.append(runtime)
    return tuple(dict.fromkeys(runtimes))


def host_of(machine: Target, shm: str, today: datetime.date | None = None) -> Host:
    """Turn a machine into a host, of several drivers with the oldest. Raises UsageError.

    `shm`: `64m`, `8g`, as `docker run --shm-size` takes it.
    """
    size = re.fullmatch(r"(\d+)([kmg]?)i?b?", shm.strip().lower())
    if shm and size is None:
        raise UsageError(f"--shm {shm!r} is not a size", next_step="write it as docker does: --shm 64m, --shm 8g")
    return Host(
        gpus=machine.gpus or (),
        driver=min(machine.drivers, key=facts.numbers, default=""),
        kernel=machine.kernel,
        glibc=machine.glibc,
        shm=int(size[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[size[2]] if size else None,
        versions={name: version for name, version in machine.runtimes.items() if version},
        fabric=machine.fabric.kind if machine.fabric else "",
        plugin=machine.fabric.plugin if machine.fabric else "",
        today=today,
    )
