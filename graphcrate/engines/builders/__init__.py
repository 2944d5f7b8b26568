"""Backends that turn a plan into an image: `embedded`, which needs nothing, and the engines of `BUILDERS`.

Those get the plan's Dockerfile or definition, on the lock's own base, so that all end with the same files.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.inputs.bases import Base
from graphcrate.model.plan import Plan
from graphcrate.model.report import Artifact

#: The form of layers, for keys. Raise it whenever the same plan would give other bytes: places of files, RECORD,
#: bytecode, or the tar and gzip stream (`oci.layer` has a number of its own, which base layers share).
LAYER_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Order:
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


class Builder(Protocol):
    """What builds with an engine: a module or an object."""

    def check(self, environment: Mapping[str, str]) -> str:
        """Version of the engine. Raises HostError when it is missing, not running or too old, with what to type."""

    def build(self, order: Order) -> Artifact:
        """Build the image. Raises BuildError with the last lines and the log's path; leaves nothing half-made."""


def _module(name: str, *engine: str) -> Callable[[], Builder]:
    """It is imported when it is used: each needs libraries that others do not."""

    def load() -> Builder:
        module = importlib.import_module(f"graphcrate.engines.builders.{name}")
        return cast("Builder", module.Builder(*engine) if engine else module)

    return load


BUILDERS: Mapping[str, Callable[[], Builder]] = {
    "docker": _module("oci", "docker"),
    "podman": _module("oci", "podman"),
    "apptainer": _module("apptainer"),
    "singularity": _module("apptainer"),
}
