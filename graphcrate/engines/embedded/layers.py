"""The layers of a plan, made side by side in two phases.

First all wheels are inspected, those of sdists built before. Then the sources of each layer are compiled in batches
and the layer is written, the one that most work hangs on first.
"""

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UNSET

from graphcrate.compat.slim import SLIM_FORMAT
from graphcrate.engines.backend import LAYER_FORMAT
from graphcrate.engines.embedded import work
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.host.workers import Advance, Pool
from graphcrate.inputs import extensions
from graphcrate.inputs.wheels import bytecode, sdist
from graphcrate.inputs.wheels.install import Installation, Site
from graphcrate.inputs.wheels.layer import Claims, WheelFile
from graphcrate.model.plan import CompileStep, FilesStep, ToolkitStep, WheelsStep, content_id
from graphcrate.model.report import LayerRecord
from graphcrate.oci import layer as stream

#: Bytes of source that one start of the sandbox compiles, unless a single shard has more.
BATCH = 20_000_000
#: Room that layers need beyond their wheels: bytecode and its archives.
_MORE_ROOM = 1.1
_MARGIN = 200 << 20
#: A byte of source takes as long to compile as this many bytes of a wheel take to copy (measured).
COMPILE_WEIGHT = 15


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """What all layers of one build share. `files`: sha256 → path; `environment` is that of child processes.

    `compiled`: sha256 of a compiled sdist → its wheel; only layers of compiled packages look into it.
    """

    site: Site
    interpreter: bytecode.InsidePython
    files: Mapping[str, Path]
    cache: Cache
    environment: Mapping[str, str]
    compiled: dict[str, Path] = field(default_factory=dict)

    def key(self, step: WheelsStep | CompileStep | ToolkitStep | FilesStep) -> str:
        """What a layer's bytes depend on, as one hash."""
        parts = [LAYER_FORMAT, stream.LAYER_FORMAT, self.site, self.interpreter.version, content_id(step)]
        if isinstance(step, CompileStep):  # how sources are compiled can change, and the step stays as it is
            parts += [extensions.origin(package, step) for package in step.packages]
        elif isinstance(step, WheelsStep) and step.slim is not UNSET:
            parts += [SLIM_FORMAT]
        return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass
class WheelsLayer:
    """A layer of wheels on its way from step to record."""

    step: WheelsStep | CompileStep
    shop: Workshop
    record: LayerRecord | None = None
    wheels: list[WheelFile] = field(default_factory=list)  #: in the order of the step's packages
    _uncompiled: int = 0  #: batches
    _compile_share: float = 0.0  #: of the work that the layer is

    def __post_init__(self) -> None:
        self.key = self.shop.key(self.step)
        self.record = work.read_record(self.shop.cache, self.key)
        step = self.step
        self._origins = [
            extensions.origin(package, step) if isinstance(step, CompileStep) else sdist.origin(package)
            for package in step.packages
        ]

    @property
    def exists(self) -> bool:
        """Whether the cache has the layer and what it is checked by: nothing of the step's files is wanted then."""
        return self.record is not None and None not in self._installations()

    @property
    def size(self) -> int:
        """Bytes of the step's wheels and sdists."""
        return sum(package.file.size for package in self.step.packages)

    def inspect(self, pool: Pool) -> None:
        """Submit the look at the wheels; of sdists they are built first."""
        files = {**self.shop.files, **self.shop.compiled}
        wanted = [file for package in self.step.packages for file in (package, *package.build)]
        known = {file.file.sha256: files[file.file.sha256] for file in wanted if file.file.sha256 in files}
        packages = list(zip(self.step.packages, self._origins, strict=True))
        shop = self.shop
        pool.submit(self.size, work.inspect, packages, known, shop.site, shop.cache, shop.environment, of=self)

    def claim(self, claims: Claims) -> None:
        """Check the layer's paths against those of the others. Raises BuildError."""
        for package, installation in zip(self.step.packages, self._installations(), strict=True):
            for placed in installation.files if installation else ():
                claims.claim(f"{package.name} {package.version}", placed.path, placed.identity)

    def compile(self, pool: Pool) -> None:
        """Submit the batches of sources that are to be compiled; the layer itself where there are none."""
        missing: list[Shard] = []
        shop = self.shop
        for place, wheel in enumerate(self.wheels):
            shards = bytecode.shards(work.installed(shop.cache, wheel, shop.site), shop.site)
            sizes = [sum(placed.size for placed in shard) for shard in shards]
            version = shop.interpreter.version
            paths = [bytecode.bundle_path(shop.cache, wheel.origin, version, number) for number in range(len(shards))]
            wheel = self.wheels[place] = dataclasses.replace(wheel, bytecode=tuple(paths))
            missing += [(wheel, each, sizes[each]) for each, path in enumerate(paths) if not path.is_file()]
        sources = sum(size for _, _, size in missing)
        weight = self.size + COMPILE_WEIGHT * sources
        self._compile_share = COMPILE_WEIGHT * sources / weight if sources else 0.0
        batches = list(batched(missing))
        self._uncompiled = len(batches)
        for batch in batches:
            # The bar counts the wheels' bytes: compiling is its share of a layer's work.
            worth = int(self.size * self._compile_share * sum(size for _, _, size in batch) / max(sources, 1))
            shards_of = [(wheel, number) for wheel, number, _ in batch]
            arguments = (shards_of, shop.site, shop.interpreter, shop.cache, worth)
            pool.submit(weight, work.compile_batch, *arguments, of=self)
        if not batches:
            self._write(pool)

    def take(self, record: LayerRecord | None, pool: Pool) -> None:
        """Go on after a batch, or take the finished layer's record."""
        self.record = record
        if record is None:
            self._uncompiled -= 1
            if not self._uncompiled:
                self._write(pool)

    def _write(self, pool: Pool) -> None:
        shop, share = self.shop, 1 - self._compile_share
        slim = self.step.slim or None if isinstance(self.step, WheelsStep) else None
        arguments = (self.key, self.step.title, self.wheels, shop.site, shop.cache, share, slim)
        pool.submit(self.size, work.write_layer, *arguments, of=self)

    def _installations(self) -> list[Installation | None]:
        return [work.read_installation(self.shop.cache, origin, self.shop.site) for origin in self._origins]


def make(layers: Sequence[WheelsLayer], claims: Claims, progress: Progress, jobs: int) -> None:
    """Inspect all wheels, then make what the cache lacks. Raises what a worker raises, and BuildError for a clash."""
    missing = [layer for layer in layers if layer.record is None]
    total = sum(layer.size for layer in missing)
    with contextlib.ExitStack() as stack:
        advance: Advance = lambda _: None  # noqa: E731
        if missing:
            missing[0].shop.cache.require(int(total * _MORE_ROOM) + _MARGIN, "making layers")
            what = f"making {len(missing)} layer{'s' if len(missing) > 1 else ''}"
            advance = stack.enter_context(progress.task(what, total)).advance
        pool = stack.enter_context(Pool(jobs, advance))
        for layer in layers:
            if not layer.exists:
                layer.inspect(pool)
        for layer, wheels in pool.results():
            layer.wheels = wheels
        for layer in layers:
            layer.claim(claims)
        for layer in missing:
            layer.compile(pool)
        for layer, record in pool.results():
            layer.take(record, pool)


Shard = tuple[WheelFile, int, int]  #: wheel, number, bytes of source


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
