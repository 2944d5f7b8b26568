"""What another build of a lock needs, as files of the cache that a bundle can hold; what is not there is fetched."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate import compiling, planning, wheelhouse
from graphcrate.bases import debian, pulled
from graphcrate.compat.toolkits import COMPONENTS
from graphcrate.destinations import whole
from graphcrate.host.workplace import Workplace
from graphcrate.model.bundle import Member
from graphcrate.model.lock import (
    DebianBase,
    DebianToolkit,
    ImageToolkit,
    Lock,
    LockedFile,
    RegistryBase,
    decode_lock,
)
from graphcrate.model.plan import content_id
from graphcrate.oci import reference, spec
from graphcrate.resolve.channels import Request as Sources
from graphcrate.resolve.fetch import fetch
from graphcrate.wheelhouse.shelf import folder as compiled_folder

_REPLACED = ("bases", "replaced")  #: where the cache has them
FILES, COMPILED, BLOBS, REPLACED = "files", "compiled", "blobs", "replaced"  #: folders of a bundle


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a bundle and where its bytes are."""

    member: Member
    source: Path


def gather(lock: Lock, sources: Sources, place: Workplace) -> Iterator[Supply]:
    """Every file of the lock, each once. Raises what `resolve.fetch` and the base's provider raise."""
    found: dict[str, Supply] = {}
    for supply in _each(lock, sources, place):
        found.setdefault(supply.member.path, supply)
    yield from (found[path] for path in sorted(found))


def _each(lock: Lock, sources: Sources, place: Workplace) -> Iterator[Supply]:
    cache, environment, progress = place.cache, place.environment, place.progress
    fetch(lock, sources, cache, environment, progress)
    packages = [package for package in lock.packages if not package.compiled]
    yield from _files(place, [one.file for package in packages for one in (package, *package.build)])
    yield from _base(lock.base, place)
    if lock.compilation is None:
        return
    compiling.files(lock, sources, cache, environment, progress)
    yield from _files(place, [package.file for package in lock.packages if package.compiled])
    yield from _base(lock.compilation.base, place)
    toolkit = lock.compilation.toolkit
    if isinstance(toolkit, DebianToolkit):
        what = f"CUDA toolkit {toolkit.version}"
        debian.fetch(toolkit.packages, toolkit.suite, cache, environment, progress, components=COMPONENTS, what=what)
    elif isinstance(toolkit, ImageToolkit):
        yield from _image(toolkit.reference, toolkit.digest, place)
    yield from _files(place, lock.compilation.files)
    yield from _wheels(lock, place)


def _files(place: Workplace, files: Sequence[LockedFile]) -> Iterator[Supply]:
    for file in files:
        member = Member(path=f"{FILES}/{file.sha256}/{file.name}", size=file.size, sha256=file.sha256)
        yield Supply(member=member, source=place.cache.file(file.sha256, file.name))


def _base(base: DebianBase | RegistryBase, place: Workplace) -> Iterator[Supply]:
    yield from _replaced(base, place)
    if isinstance(base, RegistryBase):
        yield from _image(base.reference, base.digest, place)
        return
    debian.fetch(base.packages, base.suite, place.cache, place.environment, place.progress)
    yield from _files(place, [package.file for package in base.packages])


def _replaced(base: DebianBase | RegistryBase, place: Workplace) -> Iterator[Supply]:
    """The records that say for which locked bases this one stands in (`resolve.base`)."""
    folder = place.cache.path(*_REPLACED)
    known = {path.stem: (path, _stand_in(path)) for path in sorted(folder.glob("*.json"))}
    wanted = {content_id(base)}
    while more := {key for key, (_, other) in known.items() if other in wanted} - wanted:
        wanted |= more
    for key in sorted(wanted & known.keys()):
        path = known[key][0]
        member = Member(path=f"{REPLACED}/{path.name}", size=path.stat().st_size, sha256=whole.sha256(path))
        yield Supply(member=member, source=path)


def _stand_in(path: Path) -> str:
    return content_id(msgspec.json.decode(path.read_bytes(), type=DebianBase | RegistryBase))


def _image(name: str, digest: str, place: Workplace) -> Iterator[Supply]:
    """Manifest, configuration and layers as the registry has them."""
    source = pulled.repository(reference.parse(f"{name}@{digest}"), place.environment)
    manifest, _ = pulled.documents(source, digest, place.cache)
    total = sum(layer.size for layer in manifest.layers)
    with place.progress.task(f"pulling {name}", total) as task:
        pulled.download(source, manifest.layers, place.cache, task.advance)
    size = place.cache.blob(digest).stat().st_size
    own = spec.Descriptor(media_type=spec.MANIFEST, digest=digest, size=size)
    for one in (own, manifest.config, *manifest.layers):
        sha256 = one.digest.removeprefix("sha256:")
        member = Member(path=f"{BLOBS}/{sha256}", size=one.size, sha256=sha256)
        yield Supply(member=member, source=place.cache.blob(one.digest))


def _wheels(lock: Lock, place: Workplace) -> Iterator[Supply]:
    """What was compiled, so that it need not be compiled again."""
    step = planning.compile_step(lock)
    found: Mapping[str, Path] = wheelhouse.cached(step, place.cache) if step else {}
    for sha256, wheel in found.items():
        path = f"{COMPILED}/{sha256}/{wheel.name}"
        member = Member(path=path, size=wheel.stat().st_size, sha256=whole.sha256(wheel))
        yield Supply(member=member, source=wheel)


def put_by(lock_bytes: bytes, taken: Mapping[str, Path], place: Workplace) -> None:
    """Let the next build find what a bundle brought beside files: compiled wheels, stand-ins, the lock itself.

    `taken`: members of `compiled/` and `replaced/` by path, each checked, in a folder of the cache. What is there
    already stays.
    """
    lock, cache = decode_lock(lock_bytes), place.cache
    step = planning.compile_step(lock)
    for package in step.packages if step else ():
        made = [path for name, path in taken.items() if name.startswith(f"{COMPILED}/{package.file.sha256}/")]
        if step is not None and len(made) == 1:
            cache.adopt(made[0].parent, compiled_folder(package, step, cache))
    for name, path in taken.items():
        target = cache.path(*_REPLACED, name.rpartition("/")[2])
        if name.startswith(f"{REPLACED}/") and not target.exists():
            cache.adopt(path, target)
    target = cache.path("resolutions", f"{lock.request_sha256}.json")
    if not target.exists():
        cache.write(target, lock_bytes)
