"""The package's tables, read once: rows by name, versions, the builds of torch, limits of runtimes."""

import functools
import importlib.resources
import re
import tomllib
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

import msgspec

from graphcrate.model import codec
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.runtime import RuntimeName
from treeaudit.gpus import compiles_for as compiles_for
from treeaudit.gpus import has_code as has_code

_VERSION = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_Table = TypeVar("_Table")


class TorchBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A torch wheel: built with `cuda`, machine code for `sm`. None or empty: not known; `known`: how it is."""

    torch: str
    cuda: str
    sm: tuple[str, ...]
    ptx: tuple[str, ...] | None = None  #: PTX that the driver can compile for newer GPUs
    some: tuple[str, ...] = ()  #: machine code that few of its kernels have
    features: dict[str, tuple[str, ...]] = {}  #: machine code of its libraries of one feature that have less than `sm`
    cxx11_abi: bool | None = None  #: std::string in its new form
    glibc: str = ""  #: oldest that its libraries load with
    glibcxx: str = ""
    python: str = ""
    compile_python: str = ""  #: newest Python for torch.compile; empty: before 2.0, which has none, or not known
    pins: tuple[str, ...] = ()  #: of cuDNN and NCCL
    size: int = 0
    known: str
    by: str = ""  #: how the architectures were found
    source: str = ""


class MinimumVersion(msgspec.Struct, frozen=True):
    """The first version that will do; of a runtime with what is said of an older one (`{since}`, `{version}`)."""

    since: str
    source: str
    runtime: RuntimeName | Literal[""] = ""
    before: str = ""
    instead: str = ""  #: what to do where the older one cannot run the image at all
    lost: str = ""  #: the first version that will not; empty: all before `since`

    def objection(self, version: str) -> str:
        """Return what is said of this version; empty for one that will do."""
        if not version or not is_older(version, self.since) or (self.lost and is_older(version, self.lost)):
            return ""
        return self.before.format(since=self.since, version=version)


def data(name: str) -> bytes:
    """Read a file of the package's data."""
    return (importlib.resources.files("graphcrate.compat") / "data" / name).read_bytes()


@functools.cache
def _document(name: str) -> dict[str, Any]:
    return tomllib.loads(data(f"{name}.toml").decode())


def table(name: str, kind: type[_Table], part: str = "") -> _Table:
    """Read `data/<name>.toml`, or a part of it, as a value of this type. Raises msgspec.ValidationError."""
    document = _document(name)
    return codec.convert(document[part] if part else document, kind)


def table_reader(name: str, kind: type[_Table], part: str = "") -> Callable[[], _Table]:
    """Return what reads a table as `table` does, once, when it is first asked for."""
    return functools.cache(lambda: table(name, kind, part))


#: every known torch build
torch_builds = table_reader("torch", tuple[TorchBuild, ...], "build")
#: platform, as OCI names it → its builds, where they are not those of `torch_builds`
ported_builds = table_reader("torch_ported", dict[str, tuple[TorchBuild, ...]])
#: what runtimes, kernels, tools and C libraries take from which version on, by name
limits = table_reader("runtimes", dict[str, MinimumVersion])
#: instances of Alibaba PAI by their number of GPUs
instances = table_reader("instances", dict[str, str])


def limit(name: str) -> MinimumVersion:
    """Look up what `runtimes.toml` says under this name."""
    return limits()[name]


@functools.lru_cache(maxsize=4096)
def numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with, without trailing zeros: `3.10.0-1160.el7` → (3, 10), empty for none."""
    match = _VERSION.match(version.strip().removeprefix("v"))
    parts = [int(part) for part in match[0].split(".")] if match else []
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def is_older(version: str, other: str) -> bool:
    """Return whether the first version is the older one."""
    return numbers(version) < numbers(other)


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Compute capabilities or symbol versions by their numbers: GLIBC_2.9 before GLIBC_2.10, 10.0 before 10.0f."""

    def key(name: str) -> tuple[str, tuple[int, ...], str]:
        prefix, _, number = name.rpartition("_")
        return prefix, numbers(number), name

    return tuple(sorted(names, key=key))


def builds_for(platform: Platform) -> tuple[TorchBuild, ...]:
    """Every torch build for a platform that is known."""
    return torch_builds() if platform == DEFAULT else ported_builds().get(platform.name, ())


def torch_build(torch: str, cuda: str, platform: Platform = DEFAULT) -> TorchBuild | None:
    """Look up a torch by its version ("2.0.1+cu118") and what it was built with ("11.8")."""
    version = torch.partition("+")[0]
    return next((build for build in builds_for(platform) if (build.torch, build.cuda) == (version, cuda)), None)


def torch_runs_on(torch: str, cuda: str, capability: str) -> bool | None:
    """Tell whether a torch, named as in `torch_build`, has machine code for a capability; None if unknown."""
    build = torch_build(torch, cuda)
    if build is None:
        return False if cuda == "cpu" else None
    return has_code(build.sm, capability)
