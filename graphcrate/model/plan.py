"""Plan: the ordered, typed steps from a lock to an image. Builders and renderers read it, nothing else."""

import hashlib
from typing import TypeVar

import msgspec

from graphcrate.model.lock import (
    Compilation,
    DebianBase,
    DebianToolkit,
    LockedPackage,
    MissingPackage,
    RegistryBase,
    Toolkit,
    platform_of,
)
from graphcrate.model.platform import Platform
from graphcrate.model.recipe import Channel

VENV = "/opt/venv"
CUDA_HOME = "/usr/local/cuda"  #: where a toolkit is, while something is compiled and in a devel image
BUILD_REQUIREMENTS = "/opt/build-requirements"  #: what a source that was added is built by, laid out as VENV is
BUILD = "/build"  #: sources are here while they are compiled, by any engine: paths get into binaries
#: Modification time of everything in a layer: 1980-01-01, the earliest that zip knows. Not the lock's `created`,
#: so that images share layers; not 0, which GNU tar calls implausible.
LAYER_MTIME = 315_532_800


def site_packages(python: str, environment: str = VENV) -> str:
    """The folder of the packages of an image with Python "3.11", or of another environment."""
    return f"{environment}/lib/python{python}/site-packages"


class BaseImage(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's base image; Debian's `packages` must be in it."""

    reference: str  #: as in FROM, with its digest where one is known
    interpreter: str  #: absolute path of the wanted Python
    brings_python: bool = False  #: with pip; else the distribution's own package is installed
    packages: tuple[str, ...] = ()


class BaseStep(msgspec.Struct, frozen=True, kw_only=True, tag="base"):
    """Start from this operating system: `base` exactly, where one is locked, else what `image` names."""

    base: DebianBase | RegistryBase | None
    image: BaseImage


class PlannedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, a symbolic link (`link` set) or a folder (`folder`) with root as owner. `path` is absolute."""

    path: str
    content: str = ""
    mode: int = 0o644
    link: str = ""
    folder: bool = False


class FilesStep(msgspec.Struct, frozen=True, kw_only=True, tag="files"):
    """Write these files as one layer."""

    title: str
    files: tuple[PlannedFile, ...]


class Slim(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs that libraries are cut to: code that none of them would load is overwritten by zeros."""

    capabilities: tuple[str, ...]  #: "7.0"
    ptx: bool  #: the newest PTX stays, for GPUs to come
    everything: bool  #: NVIDIA's own libraries too


class WheelsStep(msgspec.Struct, frozen=True, kw_only=True, tag="wheels"):
    """Install these packages into the virtual environment as one layer."""

    title: str
    python: str  #: "3.11"
    packages: tuple[LockedPackage, ...]
    slim: Slim | msgspec.UnsetType = msgspec.UNSET  #: left out where nothing is cut


class CompileStep(msgspec.Struct, frozen=True, kw_only=True, tag="compile"):
    """Make wheels of these sdists in the image's base with a compiler, and install them as one layer."""

    title: str
    python: str  #: "3.11"
    packages: tuple[LockedPackage, ...]  #: compiled sdists
    against: tuple[LockedPackage, ...]  #: torch and what it needs to be imported: wheels
    compilation: Compilation
    #: of a cross-compile: the image's, whose Python runs the sources' build; left out of others
    base: DebianBase | RegistryBase | msgspec.UnsetType = msgspec.UNSET


class ToolkitStep(msgspec.Struct, frozen=True, kw_only=True, tag="toolkit"):
    """Put a CUDA toolkit to CUDA_HOME as one layer, for users who compile in the image."""

    title: str
    toolkit: Toolkit


class RequirementsStep(msgspec.Struct, frozen=True, kw_only=True, tag="requirements"):
    """Install what these requirements resolve to on the day of the build, by an engine that reaches the channel."""

    title: str
    python: str
    channel: Channel
    requirements: tuple[str, ...]  #: PEP 508
    options: tuple[str, ...] = ()  #: of uv: the day as of which they are taken


class ConfigStep(msgspec.Struct, frozen=True, kw_only=True, tag="config"):
    """Set the image's configuration. Order of `environment` and `labels` is kept."""

    environment: dict[str, str]
    labels: dict[str, str]
    command: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    working_folder: str = "/"


AnyStep = TypeVar("AnyStep", bound=msgspec.Struct)
Step = BaseStep | FilesStep | WheelsStep | CompileStep | ToolkitStep | RequirementsStep | ConfigStep


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """An image's stack, for texts about it. Versions with local labels; `locked` unless some are still open."""

    description: str
    cuda: str
    python: str
    torch: str
    torch_cuda: str
    candidate: str
    torch_geometric: str = ""
    meaning: str = ""
    missing: tuple[MissingPackage, ...] = ()
    locked: bool = True


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """An image `name:tag`; `steps` begin with a BaseStep and end with the ConfigStep. `created` in Unix seconds."""

    name: str
    tag: str
    created: int
    stack: Stack
    steps: tuple[Step, ...]
    aliases: tuple[str, ...] = ()  #: further tags
    #: packages that the user added; left out where there are none
    added: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    def of(self, kind: type[AnyStep]) -> list[AnyStep]:
        """Return the steps of this kind."""
        return [step for step in self.steps if isinstance(step, kind)]

    @property
    def platform(self) -> Platform:
        """Return the platform of the image."""
        return platform_of(self.base.base)

    @property
    def base(self) -> BaseStep:
        return self.of(BaseStep)[0]

    @property
    def config(self) -> ConfigStep:
        return self.of(ConfigStep)[0]


def toolkit_id(toolkit: Toolkit) -> str:
    """Content id of what a toolkit consists of, whenever it was that Debian had these packages."""
    return content_id(msgspec.structs.replace(toolkit, listed="") if isinstance(toolkit, DebianToolkit) else toolkit)


def content_id(value: msgspec.Struct) -> str:
    """Content id of a step or plan: sha256 hex over its canonical encoding."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
