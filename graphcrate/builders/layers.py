"""The layers of a plan, made side by side: what depends on what, and what the cache has already.

An sdist becomes a wheel; a wheel is inspected; its sources are compiled in batches; then its layer is written. Each
piece starts as soon as what it needs is there, the one that most work hangs on first.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from graphcrate import wheelhouse
from graphcrate.builders import work
from graphcrate.builders.form import LAYER_FORMAT
from graphcrate.host.cache import Cache
from graphcrate.host.workers import Crew
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import CompileStep, FilesStep, ToolkitStep, WheelsStep, content_id
from graphcrate.model.report import LayerRecord
from graphcrate.oci import layer as stream
from graphcrate.wheels import bytecode, sdist
from graphcrate.wheels.claims import Claims
from graphcrate.wheels.install import Installation, Site
from graphcrate.wheels.wheel import check_tags

#: Bytes of source that one start of the sandbox compiles, unless a single shard has more.
BATCH = 20_000_000
#: A byte of source takes as long to compile as this many bytes of a wheel take to copy (measured).
COMPILE_WEIGHT = 15
#: What others wait for goes before everything else.
_FIRST = 1 << 50

Advance = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """What all layers of one build share. `files`: sha256 → path; `environment` is that of child processes.

    `compiled`: sha256 of a compiled sdist → its wheel; only layers of compiled packages look into it.
    """

    site: Site
    interpreter: bytecode.Interpreter
    files: Mapping[str, Path]
    cache: Cache
    environment: Mapping[str, str]
    compiled: dict[str, Path] = field(default_factory=dict)

    def key(self, step: WheelsStep | CompileStep | ToolkitStep | FilesStep) -> str:
        """What a layer's bytes depend on, as one hash."""
        parts = [LAYER_FORMAT, stream.LAYER_FORMAT, self.site, self.interpreter.version, content_id(step)]
        if isinstance(step, CompileStep):  # how sources are compiled can change, and the step stays as it is
            parts += [wheelhouse.origin(package, step) for package in step.packages]
        return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass
class WheelsLayer:
    """A layer of wheels on its way from step to record. `begin` it, let the crew finish, read `record`."""

    step: WheelsStep | CompileStep
    shop: Workshop
    record: LayerRecord | None = None
    _crew: Crew = field(init=False)
    _claims: Claims = field(init=False)
    _advance: Advance = field(init=False)
    _wheels: dict[str, work.Ingredient] = field(default_factory=dict)  #: by origin
    _waiting: int = 0  #: pieces that are to end before the next begins
    _sources: int = 0  #: bytes to compile

    def __post_init__(self) -> None:
        self.key = self.shop.key(self.step)
        self.record = work.read_record(self.shop.cache, self.key)
        self._origins = [self._origin(package) for package in self.step.packages]

    @property
    def is_there(self) -> bool:
        """Whether the cache has the layer and what it is checked by: nothing of the step's files is wanted then."""
        return self.record is not None and None not in self._known()

    def _known(self) -> list[Installation | None]:
        return [work.read_installation(self.shop.cache, origin, self.shop.site) for origin in self._origins]

    @property
    def size(self) -> int:
        """Bytes of the step's wheels and sdists."""
        return sum(package.file.size for package in self.step.packages)

    def begin(self, crew: Crew, claims: Claims, advance: Advance) -> None:
        """Submit what comes first. A layer that the cache has is only checked against the others.

        `advance` gets bytes of `size` as they are done.
        """
        self._crew, self._claims, self._advance = crew, claims, advance
        known = self._known()
        if self.record is not None and None not in known:
            self._claim([installation for installation in known if installation is not None])
            return
        sdists = [package for package in self.step.packages if package.is_sdist and not package.compiled]
        for package in self.step.packages:
            if package.compiled:
                self._add(package, self.shop.compiled[package.file.sha256], "")
            elif not package.is_sdist:
                self._add(package, self.shop.files[package.file.sha256], package.file.sha256)
        self._waiting = len(sdists)
        for package in sdists:
            self._make(package)
        if not sdists:
            self._inspect()

    def _origin(self, package: LockedPackage) -> str:
        if isinstance(self.step, CompileStep):
            return wheelhouse.origin(package, self.step)
        return sdist.origin(package)

    def _make(self, package: LockedPackage) -> None:
        def made(path: Path) -> None:
            self._add(package, path, "")
            self._waiting -= 1
            if not self._waiting:
                self._inspect()

        files = {file.file.sha256: self.shop.files[file.file.sha256] for file in (package, *package.build)}
        root, environment = self.shop.cache.root, self.shop.environment
        self._crew.submit(2 * _FIRST, work.make_wheel, package, files, root, environment, then=made)

    def _add(self, package: LockedPackage, path: Path, sha256: str) -> None:
        check_tags(path.name, self.shop.site.python, self.shop.site.glibc)
        origin = self._origin(package)
        self._wheels[origin] = work.Ingredient(
            name=package.name, version=package.version, path=path, origin=origin, sha256=sha256
        )

    def _inspect(self) -> None:
        weight = _FIRST + self.size
        wheels = [self._wheels[origin] for origin in self._origins]
        site, root = self.shop.site, self.shop.cache.root
        self._crew.submit(weight, work.inspect, wheels, site, root, then=self._inspected)

    def _claim(self, installations: Sequence[Installation]) -> None:
        for package, installation in zip(self.step.packages, installations, strict=True):
            for placed in installation.files:
                self._claims.claim(f"{package.name} {package.version}", placed.path, placed.identity)

    def _inspected(self, _: None) -> None:
        cache, site = self.shop.cache, self.shop.site
        installations = [work.installed(cache, self._wheels[origin], site) for origin in self._origins]
        self._claim(installations)
        if self.record is None:
            self._compile(installations)

    def _compile(self, installations: Sequence[Installation]) -> None:
        missing: list[Shard] = []
        version = self.shop.interpreter.version
        for origin, installation in zip(self._origins, installations, strict=True):
            sizes = [shard.size for shard in bytecode.shards(installation, self.shop.site)]
            bundles = [bytecode.bundle_path(self.shop.cache, origin, version, number) for number in range(len(sizes))]
            wheel = self._wheels[origin] = dataclasses.replace(self._wheels[origin], bytecode=tuple(bundles))
            missing += [(wheel, number, size) for number, size in enumerate(sizes) if not bundles[number].is_file()]
        batches = list(batched(missing))
        self._waiting = len(batches)
        self._sources = sum(size for _, _, size in missing)
        weight = self.size + COMPILE_WEIGHT * self._sources
        site, root = self.shop.site, self.shop.cache.root
        for batch in batches:
            arguments = ([(wheel, number) for wheel, number, _ in batch], site, self.shop.interpreter, root)
            compiled = functools.partial(self._compiled, sum(size for _, _, size in batch))
            self._crew.submit(weight, work.compile_batch, *arguments, then=compiled)
        if not batches:
            self._write()

    def _compiled(self, sources: int, _: None) -> None:
        # The bar counts the wheels' bytes: compiling is its share of a layer's work.
        self._advance(int(self.size * self._compile_share * sources / max(self._sources, 1)))
        self._waiting -= 1
        if not self._waiting:
            self._write()

    @property
    def _compile_share(self) -> float:
        compiling = COMPILE_WEIGHT * self._sources
        return compiling / (compiling + self.size) if compiling else 0.0

    def _write(self) -> None:
        wheels = [self._wheels[origin] for origin in self._origins]
        share = 1 - self._compile_share
        arguments = (self.key, self.step.title, wheels, self.shop.site, self.shop.cache.root, share)
        self._crew.submit(self.size, work.write_layer, *arguments, then=self._written)

    def _written(self, record: LayerRecord) -> None:
        self.record = record


Shard = tuple[work.Ingredient, int, int]  #: wheel, number, bytes of source


def batched(shards: Sequence[Shard]) -> Iterator[list[Shard]]:
    """Neighbours together until a batch has `BATCH` bytes of source."""
    batch: list[Shard] = []
    size = 0
    for shard in shards:
        if batch and size + shard[2] > BATCH:
            yield batch
            batch, size = [], 0
        batch.append(shard)
        size += shard[2]
    if batch:
        yield batch
