"""What builds images and what runs them, each a module that is imported when it is used: it needs its own libraries.

Engines build from the plan's Dockerfile or definition, on the lock's own base, so that all end with the same files.
"""

import hashlib
import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox import Inside
from graphcrate.inputs.bases import Base
from graphcrate.model.plan import Plan
from graphcrate.model.report import Artifact

#: The form of layers, for keys. Raise it whenever the same plan would give other bytes: places of files, RECORD,
#: bytecode, or the tar and gzip stream (`oci.layer` has a number of its own, which base layers share).
LAYER_FORMAT = 1
#: names of engines that build, and kinds of artifacts that are run → module
MODULES = {
    "docker": "oci",
    "podman": "oci",
    "apptainer": "apptainer",
    "singularity": "apptainer",
    "sif": "apptainer",
    "layout": "embedded.run",
    "sqsh": "pyxis",
    "registry": "pyxis",
}


@dataclass(frozen=True, kw_only=True)
class BuildOrder:
    """What to build, from what, and where to put it."""

    plan: Plan
    folder: Path  #: exists; where the artifact (if it is a file or folder) and `build.log` go
    base: Base | None  #: the plan's base in the cache; None: the engine pulls the image that the text names
    files: Mapping[str, Path]  #: sha256 → path of locked files; engines get those of the local channel alone
    compiled: Callable[[], Mapping[str, Path]] | None = None  #: makes the wheels of compiled sdists: sha256 → wheel
    toolkit: Callable[[], Path] | None = None  #: makes the folder of the plan's CUDA toolkit
    #: build arguments: mirrors, package index. Nothing of them may stay in the image
    arguments: Mapping[str, str] = field(default_factory=dict)
    certificates: Path | None = None  #: PEM file of the authorities to trust during the build alone
    cache: Cache
    environment: Mapping[str, str]
    progress: Progress


class RuntimeVersion(NamedTuple):
    """What runs an image, as it calls itself: ("apptainer", "1.4.5")."""

    name: str
    version: str


class Builder(Protocol):
    """What builds with an engine."""

    def check(self, environment: Mapping[str, str]) -> str:
        """Version of the engine. Raises HostError when it is missing, not running or too old, with what to type."""

    def build(self, order: BuildOrder) -> Artifact:
        """Build the image. Raises BuildError with the last lines and the log's path; leaves nothing half-made."""

    def exists(self, artifact: Artifact, environment: Mapping[str, str]) -> bool:
        """Whether the engine still has this very image. Raises HostError when the engine cannot be asked."""


class Runner(Protocol):
    """What runs commands in an image."""

    def runtime(self, environment: Mapping[str, str]) -> RuntimeVersion:
        """What answers here. Raises HostError when nothing does."""

    def opened(self, artifact: Artifact, *, cache: Cache, progress: Progress) -> AbstractContextManager[Inside]:
        """Open the image to run commands in it. Raises HostError when the engine cannot be used."""


def builder(engine: str) -> Builder:
    """Load what builds with docker, podman, apptainer or singularity."""
    return cast("Builder", _load(engine))


def runner(kind: str) -> Runner:
    """Load what runs artifacts of this kind."""
    return cast("Runner", _load(kind))


def file_digest(path: Path) -> str:
    """The digest of a file."""
    with path.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def _load(name: str) -> Any:  # noqa: ANN401
    module = importlib.import_module(f"graphcrate.engines.{MODULES[name]}")
    return module.StoreEngine(name) if name in ("docker", "podman") else module
