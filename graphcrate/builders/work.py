"""What worker processes do for the embedded builder: functions of values, which find and leave files in the cache."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.builders.form import LAYER_FORMAT
from graphcrate.host.cache import Cache
from graphcrate.model.lock import LockedPackage
from graphcrate.model.report import LayerRecord
from graphcrate.wheels import bytecode, sdist
from graphcrate.wheels.install import Site, place
from graphcrate.wheels.layer import WheelFile, write_wheels_layer
from graphcrate.wheels.wheel import open_wheel

Advance = Callable[[int], None]


class Contents(msgspec.Struct, frozen=True):
    """What a wheel brings into the image: path → hash of its content, and the sizes of its bytecode shards."""

    files: dict[str, str]
    shards: tuple[int, ...]  #: bytes of source


@contextlib.contextmanager
def opened_cache(root: Path) -> Iterator[Cache]:
    """The cache, for one piece of work."""
    cache = Cache(root)
    try:
        with cache.guard():
            yield cache
    finally:
        cache.close()


def contents_path(cache: Cache, origin: str, site: Site) -> Path:
    """Where the contents of a wheel lie (or will lie). `origin` tells the wheel: `sdist.origin` of its package."""
    return cache.path("contents", f"{LAYER_FORMAT}-{site.python}", f"{origin}.json")


def record_path(cache: Cache, key: str) -> Path:
    """Where the record of a layer lies (or will lie)."""
    return cache.path("layers", f"{key}.json")


def read_record(cache: Cache, key: str) -> LayerRecord | None:
    """The record of a finished layer whose blob is there with all its bytes; None otherwise."""
    try:
        record = msgspec.json.decode(record_path(cache, key).read_bytes(), type=LayerRecord)
        whole = cache.blob(record.digest).stat().st_size == record.size
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return record if whole else None


def read_contents(cache: Cache, origin: str, site: Site) -> Contents | None:
    """The contents of a wheel that was inspected before."""
    try:
        return msgspec.json.decode(contents_path(cache, origin, site).read_bytes(), type=Contents)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def make_wheel(
    _: Advance, package: LockedPackage, files: Mapping[str, Path], root: Path, environment: Mapping[str, str]
) -> Path:
    """Build the wheel of an sdist. `files`: sha256 → path."""
    with opened_cache(root) as cache:
        build = [files[wheel.file.sha256] for wheel in package.build]
        return sdist.build_wheel(package, files[package.file.sha256], build, cache, environment)


def inspect(_: Advance, wheels: Sequence[WheelFile], site: Site, root: Path) -> list[Contents]:
    """Check the wheels' structure and tell what they bring."""
    found = []
    with opened_cache(root) as cache:
        for source in wheels:
            contents = read_contents(cache, source.origin, site)
            if contents is None:
                with open_wheel(source.path) as wheel:
                    installation = place(wheel, site)
                    contents = Contents(
                        {placed.path: placed.identity for placed in installation.files},
                        tuple(shard.size for shard in bytecode.shards(installation, site)),
                    )
                cache.write(contents_path(cache, source.origin, site), msgspec.json.encode(contents))
            found.append(contents)
    return found


def compile_batch(
    advance: Advance,
    batch: Sequence[tuple[WheelFile, int]],
    site: Site,
    interpreter: bytecode.Interpreter,
    root: Path,
) -> None:
    """Compile these shards (wheel, number of shard); `advance` gets bytes of source."""
    with opened_cache(root) as cache, contextlib.ExitStack() as stack:
        jobs = []
        for source in dict.fromkeys(source for source, _ in batch):
            wheel = stack.enter_context(open_wheel(source.path))
            wanted = {number for other, number in batch if other == source}
            for shard in bytecode.shards(place(wheel, site), site):
                if shard.number in wanted:
                    target = bytecode.archive_path(cache, source.origin, interpreter.version, shard.number)
                    jobs.append(bytecode.Job(wheel, shard, target))
        bytecode.compile_shards(jobs, interpreter, cache)


def write_layer(
    advance: Advance, key: str, title: str, wheels: Sequence[WheelFile], site: Site, root: Path, share: float
) -> LayerRecord:
    """Write a layer of wheels, unless another build has done so meanwhile. `advance` gets this share of its bytes."""
    with opened_cache(root) as cache, cache.exclusively(f"layer-{key}"):
        record = read_record(cache, key)
        if record is None:
            record = write_wheels_layer(title, wheels, site, cache, lambda amount: advance(int(amount * share)))
            cache.write(record_path(cache, key), msgspec.json.encode(record))
    return record
