"""Backends that run commands in an image, each a module: found by the kind of artifact that it opens."""

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.model.report import Artifact

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from graphcrate.host.sandbox import Inside


class Runtime(NamedTuple):
    """What runs an image, as it calls itself: ("apptainer", "1.4.5")."""

    name: str
    version: str


class Runner(Protocol):
    """What a runner does."""

    def runtime(self, environment: Mapping[str, str]) -> Runtime:
        """What answers here. Raises HostError when nothing does."""

    def exists(self, artifact: Artifact, environment: Mapping[str, str]) -> bool:
        """Whether the engine still has this very image. Raises HostError when the engine cannot be asked."""

    def opened(self, artifact: Artifact, *, cache: Cache, progress: Progress) -> "AbstractContextManager[Inside]":
        """Open the image to run commands in it. Raises HostError when the engine cannot be used."""


def _module(name: str, *engine: str) -> Callable[[], Runner]:
    """It is imported when it is used: each needs libraries that others do not."""

    def load() -> Runner:
        module = importlib.import_module(f"graphcrate.engines.runners.{name}")
        return cast("Runner", module.Runner(*engine) if engine else module)

    return load


#: By the kind of artifact.
RUNNERS: Mapping[str, Callable[[], Runner]] = {
    "layout": _module("embedded"),
    "docker": _module("oci", "docker"),
    "podman": _module("oci", "podman"),
    "sif": _module("apptainer"),
    "sqsh": _module("pyxis"),
    "registry": _module("pyxis"),
}
