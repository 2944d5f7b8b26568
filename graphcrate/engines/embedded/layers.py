"""The layers of a plan, made side by side in three steps each.

Of each layer the wheels are inspected when they have arrived, those of sdists built before. Then its sources are
compiled in batches, when the image's Python is there, and the layer is written, the one that most work hangs on first.
"""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from graphcrate.artifacts.formats import packed
from graphcrate.artifacts.wheel import check_tags, open_wheel
from graphcrate.compat.facts.slim import SLIM_FORMAT
from graphcrate.compat.plan.planning import LAYER_FORMAT
from graphcrate.engines.backend import WatchesLayer
from graphcrate.engines.embedded.unpacked_images import GROWTH
from graphcrate.host.arrivals import Arrivals
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.sealed import kept, kept_bytes
from graphcrate.host.progress import Progress
from graphcrate.host.workers import Advance, Pool
from graphcrate.inputs import extensions
from graphcrate.inputs.wheels import bytecode, wheel_build
from graphcrate.inputs.wheels.install import INSTALLATION_FORMAT, Installation, place
from graphcrate.inputs.wheels.layer import Claims, WheelFile, write_wheels_layer
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, CacheError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import CompileStep, FilesStep, Slim, ToolkitStep, WheelsStep, content_id
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.report import LayerRecord, StartUp
from ocilayout import layer as stream
from sifsquash.values import Compression

#: Bytes of source that one start of the sandbox compiles, unless a single shard has more.
BATCH = 20_000_000
#: Room that layers need beyond their wheels: bytecode and its archives.
_MORE_ROOM = 1.1
_MARGIN = 200 << 20
#: A byte of source takes as long to compile as this many bytes of a wheel take to copy (measured).
COMPILE_WEIGHT = 15
#: An sdist takes as long to build as this many bytes of a wheel take to copy: it begins early, not alone at the end.
BUILD_WEIGHT = 200_000_000
#: Bytes of wheels up to which a process does it all itself: starting another one takes longer than it would spare.
ALONE = 8 << 20


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """State that all layers of one build share, and the work on them that worker processes do.

    `files`: sha256 → path; `compiled`: sha256 of a compiled sdist → its wheel, for layers of compiled packages alone;
    `environment` is that of child processes.
    """

    python: str  #: "3.11"
    glibc: str  #: "2.36"
    interpreter: bytecode.InsidePython
    files: Mapping[str, Path]
    cache: Cache
    environment: Mapping[str, str]
    platform: Platform = DEFAULT
    compiled: dict[str, Path] = field(default_factory=dict)
    unpacks: bool = False  #: layers of wheels are unpacked while they are written
    packs: Compression | None = None  #: they are packed for a squashfs, too
    watch: Callable[[Cache, bool], AbstractContextManager[WatchesLayer]] | None = None  #: a function of a module

    def key(self, step: WheelsStep | CompileStep | ToolkitStep | FilesStep) -> str:
        """Hash what a layer's bytes depend on: the step, and the base whose programs make a part of them."""
        if isinstance(step, FilesStep):
            return self.key_but_for_base(step)
        by_base = (bytecode.BYTECODE_FORMAT, self.interpreter.base, self.key_but_for_base(step))
        return hashlib.sha256(repr(by_base).encode()).hexdigest()

    def key_but_for_base(self, step: WheelsStep | CompileStep | ToolkitStep | FilesStep) -> str:
        """Hash the part of a layer's bytes that no program of the base decides."""
        parts = [LAYER_FORMAT, stream.LAYER_FORMAT, self.python, self.glibc, self.interpreter.version, content_id(step)]
        if isinstance(step, CompileStep):  # how sources are compiled can change, and the step stays as it is
            parts += [extensions.key(package, step, self.cache) for package in step.packages]
        elif isinstance(step, WheelsStep) and step.slim is not msgspec.UNSET:
            parts += [SLIM_FORMAT]
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def record(self, key: str) -> LayerRecord | None:
        """The record of a finished layer whose blob is there with all its bytes; None otherwise."""
        record = kept(self.cache.path("layers", f"{key}.json"), LayerRecord)
        with contextlib.suppress(FileNotFoundError):
            if record is not None and (blob := self.cache.blob(record.digest)).stat().st_size == record.size:
                self.cache.use(blob)
                return record
        return None

    def keep(self, key: str, record: LayerRecord) -> LayerRecord:
        """Keep the record of a layer whose blob is in the cache."""
        self.cache.keep(self.cache.path("layers", f"{key}.json"), msgspec.json.encode(record))
        return record

    def installation(self, origin: str) -> Installation | None:
        """The places of the files of a wheel that was inspected before."""
        data = kept_bytes(self.installation_path(origin))
        try:
            return None if data is None else codec.unpack(data, Installation)
        except UNREADABLE:
            return None

    def installation_path(self, origin: str) -> Path:
        """Return the path of the record of a wheel's places, existing or not."""
        form = f"{LAYER_FORMAT}.{INSTALLATION_FORMAT}-{self.python}"
        return self.cache.path("installations", form, f"{origin}.msgpack")

    def installed(self, wheel: WheelFile) -> Installation:
        """The places of an inspected wheel's files. Raises CacheError when the record is gone."""
        installation = self.installation(wheel.origin)
        if installation is None:
            raise CacheError(
                f"{self.installation_path(wheel.origin)} is gone",
                cause="Something removed it from the cache while this build ran.",
                next_step="run the same command again",
            )
        return installation

    def inspect(self, _: Advance, packages: Sequence[tuple[LockedPackage, str]]) -> list[WheelFile]:
        """The wheels of packages (with their origins), those of sdists built; keep where their files go."""
        files = {**self.files, **self.compiled}
        wheels = []
        with self.cache.guard():
            for package, origin in packages:
                path, sha256 = files[package.file.sha256], package.file.sha256
                if package.is_sdist and not package.compiled:
                    build = [files[wheel.file.sha256] for wheel in package.build]
                    path = wheel_build.build_wheel(package, path, build, self.cache, self.environment)
                if package.is_sdist or package.compiled:
                    sha256 = ""  # there is no promised hash of what was built here
                check_tags(path.name, self.python, self.glibc, self.platform)
                with open_wheel(path) as opened:  # also where a shared cache gave a record: this layer is ours
                    installation = place(opened, self.python)
                self.cache.keep(self.installation_path(origin), msgspec.msgpack.encode(installation))
                wheels.append(
                    WheelFile(name=package.name, version=package.version, path=path, origin=origin, sha256=sha256)
                )
        return wheels

    def compile(
        self, advance: Advance, batch: Sequence[bytecode.BytecodeShard], worth: int, python: bytecode.InsidePython
    ) -> None:
        """Compile these shards; `advance` gets the bytes of wheels that this is `worth`."""
        with self.cache.guard():
            bytecode.compile_shards(batch, python, self.cache)
        advance(worth)

    def write(
        self,
        advance: Advance,
        keys: tuple[str, str],
        title: str,
        wheels: Sequence[WheelFile],
        share: float,
        slim: Slim | None,
    ) -> LayerRecord:
        """Write a layer of wheels, unless another build has done so meanwhile. `advance`: this share of its bytes.

        `keys`: of the layer, and that without its base. After an update of the base its Python most often makes the
        same bytecode: then the layer is the one that there was, which the hashes of that bytecode tell.
        """
        key, same = keys[0], _with_bytecode(keys[1], wheels)
        with self.cache.guard(), self.cache.exclusively(f"layer-{key}"):
            if (record := self.record(key)) is not None:
                return record
            if (record := self.record(same)) is not None:
                return self.keep(key, record)
            files = [(wheel, self.installed(wheel)) for wheel in wheels]
            counted: Advance = lambda amount: advance(int(amount * share))  # noqa: E731
            with self.watch(self.cache, self.unpacks) if self.watch else contextlib.nullcontext() as watch:
                copies = watch.copies if watch else ()
                record = write_wheels_layer(
                    title, files, self.python, self.cache, counted, slim, copies, unpack=self.unpacks, pack=self.packs
                )
                if watch:
                    watch.remember(record.digest)
            self.keep(same, record)
            return self.keep(key, record)


def _with_bytecode(key: str, wheels: Sequence[WheelFile]) -> str:
    """The key of a layer by the bytecode that it gets."""
    made = [hashlib.sha256(bundle.read_bytes()).hexdigest() for wheel in wheels for bundle in wheel.bytecode]
    return hashlib.sha256(repr((bytecode.BYTECODE_FORMAT, key, made)).encode()).hexdigest()


@dataclass
class WheelsLayer:
    """A layer of wheels on its way from step to record."""

    step: WheelsStep | CompileStep
    shop: Workshop
    wheels: list[WheelFile] = field(default_factory=list)  #: in the order of the step's packages
    _uncompiled: int = 0  #: batches
    _share: float = 1.0  #: of the work on the layer that a byte of its wheels is

    def __post_init__(self) -> None:
        step = self.step
        self.key = self.shop.key(step)
        self.record = self.shop.record(self.key)
        self.size = sum(package.file.size for package in step.packages)  #: of wheels and sdists
        self._origins = [
            extensions.key(package, step, self.shop.cache)
            if isinstance(step, CompileStep)
            else wheel_build.origin(package)
            for package in step.packages
        ]

    @property
    def exists(self) -> bool:
        """Return whether the cache has the layer and its check data: then nothing of the step's files is needed."""
        return self.record is not None and None not in map(self.shop.installation, self._origins)

    @property
    def weight(self) -> int:
        """Return how much work it is, in bytes of wheels."""
        return self.size + BUILD_WEIGHT * any(each.is_sdist and not each.compiled for each in self.step.packages)

    def installation_paths(self) -> list[Path]:
        """Return the paths of the records of its wheels, existing or not."""
        return [self.shop.installation_path(origin) for origin in self._origins]

    def inspect(self, pool: Pool, arrivals: Arrivals) -> None:
        """Submit the look at the wheels, when they have arrived; of sdists they are built first."""
        packages = list(zip(self.step.packages, self._origins, strict=True))
        files = [each.file.sha256 for package in self.step.packages for each in (package, *package.build)]
        pool.submit(self.weight, self.shop.inspect, packages, of=self, after=arrivals.of(files))

    def claim(self, claims: Claims) -> None:
        """Check the layer's paths against those of the others. Raises BuildError."""
        for package, origin in zip(self.step.packages, self._origins, strict=True):
            installation = self.shop.installation(origin)
            for placed in installation.files if installation else ():
                claims.claim(f"{package.name} {package.version}", placed.path, placed.identity)

    def starts(self) -> tuple[StartUp, ...]:
        """Say what of its wheels runs by itself in the image."""
        installations = map(self.shop.installation, self._origins)
        return tuple(start for installation in installations if installation for start in installation.starts)

    def compile(self, pool: Pool, python: Future[bytecode.InsidePython]) -> None:
        """Submit the batches of sources that are to be compiled; the layer itself where there are none."""
        missing: list[bytecode.BytecodeShard] = []
        shop = self.shop
        for number, wheel in enumerate(self.wheels):
            shards = bytecode.shards(shop.installed(wheel), shop.python)
            own = shop.interpreter
            paths = [bytecode.bundle_path(shop.cache, wheel.origin, own, each) for each in range(len(shards))]
            self.wheels[number] = dataclasses.replace(wheel, bytecode=tuple(paths))
            jobs = (bytecode.BytecodeShard(wheel.path, shard, path) for shard, path in zip(shards, paths, strict=True))
            missing += [job for job in jobs if not job.target.is_file()]
        weight = self.size + COMPILE_WEIGHT * sum(job.size for job in missing)
        # The bar counts the wheels' bytes: compiling is its share of a layer's work.
        self._share = self.size / weight if missing else 1.0
        batches = list(batched(missing))
        self._uncompiled = len(batches)
        for batch in batches:
            worth = int(self._share * COMPILE_WEIGHT * sum(job.size for job in batch))
            pool.submit(weight, shop.compile, batch, worth, python, of=self)
        if not batches:
            self._write(pool)

    def take(
        self, result: list[WheelFile] | LayerRecord | None, pool: Pool, python: Future[bytecode.InsidePython]
    ) -> None:
        """Go on after the look at the wheels or after a batch, or take the finished layer's record."""
        if isinstance(result, list):
            self.wheels = result
            if self.record is None:
                self.compile(pool, python)
        elif result is not None:
            self.record = result
        else:
            self._uncompiled -= 1
            if not self._uncompiled:
                self._write(pool)

    def _write(self, pool: Pool) -> None:
        slim = self.step.slim or None if isinstance(self.step, WheelsStep) else None
        keys = self.key, self.shop.key_but_for_base(self.step)
        pool.submit(self.size, self.shop.write, keys, self.step.title, self.wheels, self._share, slim, of=self)


def make(
    layers: Sequence[WheelsLayer],
    claims: Claims,
    progress: Progress,
    jobs: int,
    arrivals: Arrivals,
    python: Future[bytecode.InsidePython],
) -> None:
    """Inspect all wheels, and make what the cache lacks. Raises what a worker raises, and BuildError for a clash.

    `arrivals`: files that may be on their way; `python`: what compiles, when it is there.
    """
    missing = [layer for layer in layers if layer.record is None]
    total = sum(layer.size for layer in missing)
    with contextlib.ExitStack() as stack:
        advance: Advance = lambda _: None  # noqa: E731
        if missing:
            shop = missing[0].shop
            growth = _MORE_ROOM + (GROWTH if shop.unpacks else 0) + (packed.GROWTH if shop.packs else 0)
            shop.cache.require(int(total * growth) + _MARGIN, "making layers")
            what = f"making {len(missing)} layer{'s' if len(missing) > 1 else ''}"
            advance = stack.enter_context(progress.task(what, total)).advance
        absent = [layer for layer in layers if not layer.exists]
        pool = stack.enter_context(Pool(jobs if _is_worth_workers(absent) else 0, advance))
        for layer in absent:
            layer.inspect(pool, arrivals)
        unseen = len(absent)
        if not unseen:
            _claim_all(layers, claims)
        for layer, result in pool.results():
            layer.take(result, pool, python)
            if isinstance(result, list):
                unseen -= 1
                if not unseen:
                    _claim_all(layers, claims)


def _is_worth_workers(layers: Sequence[WheelsLayer]) -> bool:
    """Return whether layers are more work than starting the processes that would do it side by side."""
    return sum(layer.weight for layer in layers) > ALONE


def _claim_all(layers: Sequence[WheelsLayer], claims: Claims) -> None:
    """Check the paths of all layers, in the plan's order: the first owner of a path is the same in each build."""
    for layer in layers:
        layer.claim(claims)


def batched(jobs: Sequence[bytecode.BytecodeShard]) -> Iterator[list[bytecode.BytecodeShard]]:
    """Neighbours together until a batch has `BATCH` bytes of source."""
    batch: list[bytecode.BytecodeShard] = []
    for job in jobs:
        if batch and sum(other.size for other in batch) + job.size > BATCH:
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch
