"""A minimal Debian as a base: exactly the locked packages, as root or as a plain user, the same bytes anywhere."""

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.compat.planning import DEBIAN_PACKAGES, SYSTEM_PATH
from graphcrate.host.cache import Cache, kept
from graphcrate.host.context import Context
from graphcrate.inputs.bases import Base, BaseDriftError
from graphcrate.inputs.bases.archive import REGISTRY_INSTEAD, Archive
from graphcrate.inputs.bases.install import install
from graphcrate.inputs.bases.normalise import entries
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import DebianBase, DebianPackage
from graphcrate.model.plan import LAYER_MTIME, content_id
from graphcrate.model.recipe import BaseSpec
from graphcrate.model.report import LayerRecord, Owner
from graphcrate.model.words import joined
from graphcrate.oci.layer import LAYER_FORMAT, LayerWriter
from graphcrate.oci.spec import LayerBlob

#: Raise it whenever the same packages would give other bytes.
BASE_FORMAT = 2
#: bookworm wants one of usrmerge and this; usrmerge would bring all of Perl
EXTRA_PACKAGES = {"bookworm": ("usr-is-merged",)}
SCRATCH_BYTES = 500_000_000  #: what inflated .debs, the tree and the layer take at most


def lock(spec: BaseSpec, python: str, ctx: Context) -> DebianBase:
    """What the suite has today for this base. Raises ResolutionError (Python, packages), NetworkError, HostError."""
    ctx.progress.note(f"base: asking Debian {spec.suite} for its packages")
    wanted = sorted({*DEBIAN_PACKAGES, *EXTRA_PACKAGES.get(spec.suite, ()), *spec.packages})
    with ctx.cache.guard():
        archive = Archive(spec.suite, ctx.cache, ctx.environment)
        base = DebianBase(suite=spec.suite, packages=archive.resolve(wanted))
    have = ".".join(python_version(base).split(".")[:2])
    if have != python:
        raise ResolutionError(
            f"Debian {spec.suite} has Python {have}, and the recipe needs {python}",
            next_step="choose the suite by its Python (bullseye 3.9, bookworm 3.11, trixie 3.13), " + REGISTRY_INSTEAD,
        )
    return base


def prepare(lock: DebianBase, ctx: Context) -> Base:
    """Install the locked packages into a base in the cache. Raises BaseDriftError where one was replaced, HostError."""
    key = hashlib.sha256(f"{content_id(lock)} {BASE_FORMAT} {LAYER_FORMAT}".encode()).hexdigest()
    cache = ctx.cache
    record, rootfs = cache.path("bases", "debian", key, "layer.json"), cache.path("bases", "debian", key, "rootfs")
    if (layer := _cached(record, cache)) is None or not rootfs.is_dir():
        with cache.exclusively(f"base-{key}"), cache.guard():
            if (layer := _cached(record, cache)) is None:
                layer = _build(lock, ctx)
                cache.keep(record, msgspec.json.encode(layer))
            with ctx.progress.task(f"unpacking Debian {lock.suite}", layer.size) as task:
                blob = LayerBlob(path=cache.blob(layer.digest), media_type=layer.media_type)
                unpack((blob,), rootfs, advance=task.advance)
    python = python_version(lock)
    return Base(
        layers=(layer,),
        rootfs=rootfs,
        python="/usr/bin/python" + ".".join(python.split(".")[:2]),
        python_version=python,
        glibc=_upstream(lock, r"libc6"),
        environment={"PATH": SYSTEM_PATH},
        labels={},
    )


def python_version(lock: DebianBase) -> str:
    """Exact version of the base's Python, e.g. "3.11.2"."""
    return _upstream(lock, r"python3\.\d+")


def _upstream(lock: DebianBase, name: str) -> str:
    """Version of a package without Debian's epoch and revision ("1:2.36-9+deb12u14" → "2.36")."""
    version = next(package.version for package in lock.packages if re.fullmatch(name, package.name))
    return version.rpartition(":")[2].partition("-")[0]


def _cached(record: Path, cache: Cache) -> LayerRecord | None:
    layer = kept(record, LayerRecord)
    return layer if layer is not None and cache.blob(layer.digest).is_file() else None


def _build(lock: DebianBase, ctx: Context) -> LayerRecord:
    ctx.cache.require(SCRATCH_BYTES, f"the Debian {lock.suite} base")
    debs = fetch(lock.packages, lock.suite, ctx)
    with ctx.cache.folder() as folder:
        root, partial = folder / "root", folder / "layer"
        size = sum(path.stat().st_size for path in debs)
        with ctx.progress.task(f"installing {len(debs)} packages of Debian {lock.suite}", size) as task:
            owners = install(debs, root, lock.suite, task.advance)
        with partial.open("wb") as target:
            writer = LayerWriter(target, LAYER_MTIME)
            writer.raw_tar(entries(root, owners, lock.suite))
            layer = writer.finish(f"Debian {lock.suite}")
            target.flush()
            os.fsync(target.fileno())
        ctx.cache.adopt(partial, ctx.cache.blob(layer.digest))
    owner = Owner(name="debian", version=lock.suite, bytes=layer.unpacked_size)
    return msgspec.structs.replace(layer, owners=(owner,))


def fetch(
    packages: Sequence[DebianPackage],
    suite: str,
    ctx: Context,
    *,
    components: Sequence[str] = (),
    what: str = "base",
) -> list[Path]:
    """The locked .debs in the cache, in this order, their hashes checked. `what` they are for stands in messages.

    Raises BaseDriftError when the archives have replaced one, NetworkError, IntegrityError, HostError.
    """
    cache = ctx.cache
    places = {package: cache.file(package.file.sha256, package.file.name) for package in packages}
    absent = [package for package, place in places.items() if not place.is_file()]
    if absent:
        with cache.folder() as folder:
            archive = Archive(suite, cache, ctx.environment, components)
            check_drift(suite, absent, archive.available([package.name for package in absent]), what)
            total = sum(package.file.size for package in absent)
            with ctx.progress.task(f"Debian {suite}: {len(absent)} packages", total) as task:
                archive.download(absent, folder, task.advance)
            for package in absent:
                cache.adopt(folder / package.file.name, places[package])
    return list(places.values())


def check_drift(
    suite: str, wanted: Iterable[DebianPackage], available: Iterable[DebianPackage], what: str = "base"
) -> None:
    """Raises BaseDriftError unless the archives have each of these very files."""
    there = set(available)
    newest = {package.name: package.version for package in there}
    gone = [package for package in wanted if package not in there]
    if not gone:
        return
    shown = joined((f"{one.name} {one.version} (now {newest.get(one.name, 'absent')})" for one in gone), most=5)
    raise BaseDriftError(
        f"the lock's Debian {suite} {what} is out of date: {shown}",
        cause="Debian's archives keep only the newest version of a package; these have newer ones by now.",
        next_step="lock again: ./build.py lock …",
    )
