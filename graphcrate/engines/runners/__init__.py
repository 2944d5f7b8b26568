"""Backends that run commands in an image, each a module: found by the kind of artifact that it opens."""

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, cast

from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.model.report import Artifact


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

    def opened(self, artifact: Artifact, *, cache: Cache, progress: Progress) -> AbstractContextManager[Any]:
        """The image as `smoke.Inside`. Raises HostError when the engine cannot be used."""


def _module(name: str) -> Callable[[], Runner]:
    return lambda: cast("Runner", importlib.import_module(f"graphcrate.engines.runners.{name}"))


#: By the kind of artifact.
RUNNERS: Mapping[str, Callable[[], Runner]] = {
    "layout": _module("layouts"),
    "docker": _module("docker"),
    "podman": _module("podman"),
    "sif": _module("apptainer"),
    "sqsh": _module("pyxis"),
    "registry": _module("pyxis"),
}
