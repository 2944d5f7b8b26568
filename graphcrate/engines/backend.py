"""Interfaces of engines that build images and of runners; `engines.table` has them by name.

Engines build from the plan's Dockerfile or definition, on the lock's own base, so that all end with the same files.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from graphcrate.host.arrivals import Arrivals
from graphcrate.host.disk.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.inputs.bases import Base
from graphcrate.model.plan import Plan, content_id
from graphcrate.model.report import Artifact, BuildReport, LayerRecord
from sifsquash.values import Compression

if TYPE_CHECKING:
    from graphcrate.host.sandbox.sandbox import Inside
    from ocilayout.layer import LayerCopy


class WatchesLayer(Protocol):
    """A reader of a layer beside its writer."""

    @property
    def copies(self) -> "Sequence[LayerCopy]":
        """Receivers of the entries of the layer, beside its blob."""

    def remember(self, digest: str) -> None:
        """Keep what was seen of the layer, which has this digest."""


@dataclass(frozen=True, kw_only=True)
class BuildOrder:
    """An order to build: what, from which inputs, and where to put it."""

    plan: Plan
    folder: Path  #: exists; where the artifact (if it is a file or folder) and `build.log` go
    base: Base | None  #: the plan's base in the cache; None: the engine pulls the image that the text names
    twin: Base | None = None  #: with the same Python for this machine's processor, where the base's is emulated
    files: Mapping[str, Path]  #: sha256 → path of locked files; engines get those of the local channel alone
    #: makes the wheels of compiled sdists (sha256 → wheel); gets what waits for the layers of wheels, and gives where
    #: those are unpacked that this build wrote
    compiled: Callable[[Callable[[], Sequence[Path]]], Mapping[str, Path]] | None = None
    toolkit: Callable[[], Path] | None = None  #: makes the folder of the plan's CUDA toolkit
    unpacks: bool = False  #: our own builder unpacks layers of wheels as it writes them: the image will be tested
    packs: Compression | None = None  #: it packs them for a squashfs, too: one will be made of the image
    arrivals: Arrivals = field(default_factory=Arrivals)  #: files that are still on their way to their paths
    #: the base, when it is made: `base` has its properties, and no layers before
    made_base: Future[Base] | None = None
    python: Future[Path] | None = None  #: the tree that the base's Python runs in, which may be there before the base
    #: watches each layer of wheels (in this cache; whether it is unpacked) in the process that writes it
    watch: Callable[[Cache, bool], AbstractContextManager["WatchesLayer"]] | None = None
    #: build arguments: mirrors, package index. Nothing of them may stay in the image
    arguments: Mapping[str, str] = field(default_factory=dict)
    certificates: Path | None = None  #: PEM file of the authorities to trust during the build alone
    cache: Cache
    environment: Mapping[str, str]
    progress: Progress


class Built(NamedTuple):
    """An engine's result. Other engines than our own keep their layers to themselves."""

    artifact: Artifact
    layers: tuple[LayerRecord, ...] = ()


@dataclass(frozen=True)
class Engine(ABC):
    """An engine that builds images, by its name.

    One that builds the plan's text has its images in a folder of its own.
    """

    name: str

    @abstractmethod
    def check(self, environment: Mapping[str, str]) -> str:
        """Version of the engine. Raises HostError when it is missing, not running or too old, with what to type."""

    @abstractmethod
    def build(self, order: BuildOrder) -> Built:
        """Build the image. Raises BuildError with the last lines and the log's path; leaves nothing half-made."""

    @abstractmethod
    def exists(self, report: BuildReport, folder: Path, environment: Mapping[str, str]) -> bool:
        """Return whether the image that this report in `folder` is of is still there.

        Raises HostError where the engine does not say.
        """

    def folder(self, image: Path) -> Path:
        """The folder of the files of an image that this engine builds; `image` is the folder of its name and tag."""
        return image / self.name

    def key(self, plan: Plan) -> str:
        """Return the key of all that the image depends on, as one word: plan, engine and text."""
        from graphcrate import render

        text = render.dockerfile(plan) + render.definition(plan)
        return f"{content_id(plan)}-{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


class RuntimeVersion(NamedTuple):
    """A runtime by its own name and version: ("apptainer", "1.4.5")."""

    name: str
    version: str


class Runner(Protocol):
    """A runner of commands in an image."""

    def runtime(self, environment: Mapping[str, str]) -> RuntimeVersion:
        """Ask the runtime here for its version. Raises HostError when nothing answers."""

    def opened(self, artifact: Artifact, *, cache: Cache, progress: Progress) -> "AbstractContextManager[Inside]":
        """Open the image to run commands in it. Raises HostError when the engine cannot be used."""
