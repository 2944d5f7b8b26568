"""Backends that run commands in an image. `embedded` opens a layout; the others are modules of `RUNNERS`."""

import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.model.report import Artifact


class Runner(Protocol):
    """What an engine's runner does."""

    def is_there(self, artifact: Artifact, environment: Mapping[str, str]) -> bool:
        """Whether the engine still has this very image. Raises HostError when the engine cannot be asked."""

    def opened(self, artifact: Artifact, *, cache: Cache, progress: Progress) -> AbstractContextManager[Any]:
        """The image as `smoke.Inside`. Raises HostError when the engine cannot be used."""


def _module(name: str) -> Callable[[], Runner]:
    return lambda: cast("Runner", importlib.import_module(f"graphcrate.runners.{name}"))


#: By the kind of artifact.
RUNNERS: Mapping[str, Callable[[], Runner]] = {
    "docker": _module("docker"),
    "podman": _module("podman"),
    "sif": _module("apptainer"),
}
