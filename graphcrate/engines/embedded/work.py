"""What worker processes do for the embedded builder: functions of values, which find and leave files in the cache."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.artifacts.wheel import check_tags, open_wheel
from graphcrate.engines.backend import LAYER_FORMAT
from graphcrate.host.cache import Cache, kept, kept_bytes
from graphcrate.host.workers import Advance
from graphcrate.inputs.wheels import bytecode, sdist
from graphcrate.inputs.wheels.install import Installation, Site, place
from graphcrate.inputs.wheels.layer import WheelFile, write_wheels_layer
from graphcrate.model.errors import UNREADABLE, CacheError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import Slim
from graphcrate.model.report import LayerRecord


def installation_path(cache: Cache, origin: str, site: Site) -> Path:
    """Where it is kept (or will be) where a wheel's files go."""
    return cache.path("installations", f"{LAYER_FORMAT}-{site.python}", f"{origin}.msgpack")


def read_installation(cache: Cache, origin: str, site: Site) -> Installation | None:
    """Where the files of a wheel go that was inspected before."""
    data = kept_bytes(installation_path(cache, origin, site))
    try:
        return None if data is None else msgspec.msgpack.decode(data, type=Installation)
    except UNREADABLE:
        return None


def record_path(cache: Cache, key: str) -> Path:
    """Where the record of a layer lies (or will lie)."""
    return cache.path("layers", f"{key}.json")


def read_record(cache: Cache, key: str) -> LayerRecord | None:
    """The record of a finished layer whose blob is there with all its bytes; None otherwise."""
    record = kept(record_path(cache, key), LayerRecord)
    with contextlib.suppress(FileNotFoundError):
        if record is not None and cache.blob(record.digest).stat().st_size == record.size:
            return record
    return None


def inspect(
    _: Advance,
    packages: Sequence[tuple[LockedPackage, str]],
    files: Mapping[str, Path],
    site: Site,
    cache: Cache,
    environment: Mapping[str, str],
) -> list[WheelFile]:
    """The wheels of packages (with their origins), those of sdists built; where their files go is kept in the cache.

    `files`: sha256 → path, of a compiled package its wheel.
    """
    wheels = []
    with cache.guard():
        for package, origin in packages:
            path, sha256 = files[package.file.sha256], package.file.sha256
            if package.is_sdist and not package.compiled:
                build = [files[wheel.file.sha256] for wheel in package.build]
                path = sdist.build_wheel(package, path, build, cache, environment)
            if package.is_sdist or package.compiled:
                sha256 = ""  # nobody promised the hash of what was built here
            check_tags(path.name, site.python, site.glibc)
            if read_installation(cache, origin, site) is None:
                with open_wheel(path) as opened:
                    installation = place(opened, site)
                cache.keep(installation_path(cache, origin, site), msgspec.msgpack.encode(installation))
            wheels.append(
                WheelFile(name=package.name, version=package.version, path=path, origin=origin, sha256=sha256)
            )
    return wheels


def compile_batch(
    advance: Advance,
    batch: Sequence[tuple[WheelFile, int]],
    site: Site,
    interpreter: bytecode.InsidePython,
    cache: Cache,
    worth: int,
) -> None:
    """Compile these shards (wheel, number of shard); `advance` gets the bytes of wheels that this is `worth`."""
    with cache.guard():
        jobs = []
        for wheel in dict.fromkeys(wheel for wheel, _ in batch):
            wanted = {number for other, number in batch if other == wheel}
            for number, shard in enumerate(bytecode.shards(installed(cache, wheel, site), site)):
                if number in wanted:
                    jobs.append(bytecode.Job(wheel.path, shard, wheel.bytecode[number]))
        bytecode.compile_shards(jobs, interpreter, cache)
    advance(worth)


def write_layer(
    advance: Advance,
    key: str,
    title: str,
    wheels: Sequence[WheelFile],
    site: Site,
    cache: Cache,
    share: float,
    slim: Slim | None,
) -> LayerRecord:
    """Write a layer of wheels, unless another build has done so meanwhile. `advance` gets this share of its bytes."""
    with cache.guard(), cache.exclusively(f"layer-{key}"):
        record = read_record(cache, key)
        if record is None:
            files = [(wheel, installed(cache, wheel, site)) for wheel in wheels]
            record = write_wheels_layer(title, files, site, cache, lambda amount: advance(int(amount * share)), slim)
            cache.keep(record_path(cache, key), msgspec.json.encode(record))
    return record


def installed(cache: Cache, wheel: WheelFile, site: Site) -> Installation:
    """Where the files of an inspected wheel go. Raises CacheError when that is gone."""
    installation = read_installation(cache, wheel.origin, site)
    if installation is None:
        raise CacheError(
            f"{installation_path(cache, wheel.origin, site)} is gone",
            cause="Something removed it from the cache while this build ran.",
            next_step="run the same command again",
        )
    return installation
