"""A minimal Debian as a base: exactly the locked packages, as root or as a plain user, the same bytes anywhere."""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.compat.facts import identities, suites
from graphcrate.compat.plan.base_images import base_packages
from graphcrate.compat.plan.image_config import SYSTEM_PATH
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import synced
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.sealed import kept
from graphcrate.host.sandbox.emulation import is_native
from graphcrate.inputs import making
from graphcrate.inputs.bases import Base, listed
from graphcrate.inputs.bases.archive import SuiteArchive
from graphcrate.inputs.bases.debroot_errors import REGISTRY_INSTEAD
from graphcrate.inputs.bases.debs import fetch_debs
from graphcrate.inputs.bases.install import install, install_more
from graphcrate.inputs.bases.normalise import entries, private_keys
from graphcrate.inputs.emulators import prepare_emulator
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import DebianBase, DebianPackage, platform_of
from graphcrate.model.plan import LAYER_MTIME
from graphcrate.model.recipe import BaseSpec
from graphcrate.model.report import LayerRecord, PackageBytes
from graphcrate.oci.image import recorded, writing_errors
from ocilayout.layer import LAYER_FORMAT, LayerWriter
from ocilayout.spec import LayerBlob

#: Raise it whenever the same packages would give other bytes.
BASE_FORMAT = 2
_RECORD = "layer.json"
SCRATCH_BYTES = 500_000_000  #: what inflated .debs, the tree and the layer take at most


def lock(spec: BaseSpec, python: str, ctx: Context) -> DebianBase:
    """Lock the suite's packages of today for this base.

    Raises ResolutionError (Python, packages), NetworkError, HostError.
    """
    ctx.progress.note(f"base: asking {suites.titled(spec.suite)} for its packages")
    with ctx.cache.guard():
        base = lock_of(SuiteArchive(spec.suite, ctx, platform=spec.runs_on), spec, python)
        listed.keep(base, ctx.cache)
    return base


def lock_of(archive: SuiteArchive, spec: BaseSpec, python: str) -> DebianBase:
    """The same of lists that were read. Raises ResolutionError."""
    names = sorted({*base_packages(spec.suite), *suites.base_of(spec.suite).packages, *spec.packages})
    base = DebianBase(
        suite=spec.suite,
        packages=archive.resolve(names),
        listed=archive.listed,
        without_security=archive.lacks_security,
    )
    have = ".".join(python_version(base).split(".")[:2])
    if have != python:
        pythons = ", ".join(f"{name} {base.python}" for name, base in suites.bases().items())
        raise ResolutionError(
            f"{suites.titled(spec.suite)} has Python {have}, and the recipe needs {python}",
            next_step=f"choose the suite by its Python ({pythons}), {REGISTRY_INSTEAD}",
        )
    return base


def prepare(lock: DebianBase, ctx: Context, on_python: Callable[[Path], None] | None = None) -> Base:
    """Install the locked packages into a base in the cache; no list of packages is asked for.

    `on_python` gets a tree that the base's Python runs in, where one is there before the base: of this run.

    Raises BaseDriftError where no server has one of them, NetworkError where no server answers, HostError.
    """
    name, cache = key(lock), ctx.cache
    record, rootfs = record_path(lock, cache), _rootfs(lock, cache)
    if (layer := _cached(record, cache)) is None or not rootfs.is_dir():
        with cache.exclusively(f"base-{name}"), cache.guard():
            if (layer := _cached(record, cache)) is None:
                layer = _build(lock, ctx, on_python)
                cache.keep(record, msgspec.json.encode(layer))
            with ctx.progress.task(f"unpacking {suites.titled(lock.suite)}", layer.size) as task:
                blob = LayerBlob(path=cache.blob(layer.digest), media_type=layer.media_type)
                unpack((blob,), rootfs, advance=task.advance)
    return _base(lock, (layer,), rootfs, ctx)


def prepare_compiler(lock: DebianBase, base: DebianBase, ctx: Context) -> Base:
    """Install the locked packages for programs to run in alone: no layer is made of them.

    Where `base`, an image's, has a part of them, that is made first, and they are installed on a copy of its tree.
    No compiler runs in what a shared cache gave: else a compile that checks it would find what its signer wishes.
    Raises as `prepare`.
    """
    further, is_ours = beyond(lock, base), not any(making.is_kept(makers(each, ctx.cache)) for each in (lock, base))
    whole, rootfs = _rootfs(lock, ctx.cache), _grown(lock, ctx.cache)
    if is_ours and (not further or whole.is_dir()):
        return prepare(lock, ctx)
    if not rootfs.is_dir():
        below, further = (prepare(base, ctx), further) if is_ours else (None, lock.packages)
        with ctx.cache.exclusively(f"base-{key(lock)}"), ctx.cache.guard():
            if not rootfs.is_dir():
                _grow(lock, further, below, rootfs, ctx)
    return _base(lock, (), rootfs, ctx)


def beyond(lock: DebianBase, base: DebianBase) -> tuple[DebianPackage, ...]:
    """The packages of a lock that `base` lacks; none where one of its packages is not in the lock."""
    there = {package.file.sha256 for package in base.packages}
    locked = {package.file.sha256 for package in lock.packages}
    if lock.suite != base.suite or platform_of(lock) != platform_of(base) or not there <= locked:
        return ()
    return tuple(package for package in lock.packages if package.file.sha256 not in there)


def _grown(lock: DebianBase, cache: Cache) -> Path:
    """The folder of a base's tree that is of no layer."""
    return cache.path("bases", "debian", key(lock), "grown")


def _grow(lock: DebianBase, further: Sequence[DebianPackage], below: Base | None, rootfs: Path, ctx: Context) -> None:
    """Make the tree of a base from the layer of another one and these packages; of these alone without such a layer."""
    ctx.cache.require(SCRATCH_BYTES, f"the {suites.titled(lock.suite)} base with a compiler")
    debs = fetch_debs(further, lock.suite, ctx, listed=lock.listed)
    size = sum(path.stat().st_size for path in debs)
    with ctx.cache.folder() as folder:
        root = folder / "root"
        with ctx.progress.task(f"installing {len(debs)} more packages of {suites.titled(lock.suite)}", size) as task:
            if below is None:
                platform = platform_of(lock)
                install(debs, root, lock.suite, task.advance, platform, prepare_emulator(platform, ctx))
            else:
                layers = [LayerBlob(path=ctx.cache.blob(it.digest), media_type=it.media_type) for it in below.layers]
                unpack(layers, root)
                install_more(debs, root, task.advance, below.emulator)
        ctx.cache.adopt(root, rootfs)


def outline(lock: DebianBase, ctx: Context) -> Base | None:
    """Return a locked base without its layers, before it is made; None where an emulator has to run its programs."""
    if not is_native(platform_of(lock)) or not python_version(lock):
        return None
    return _base(lock, (), _rootfs(lock, ctx.cache), ctx)


def _rootfs(lock: DebianBase, cache: Cache) -> Path:
    """The folder that a base's layer is unpacked to."""
    return cache.path("bases", "debian", key(lock), "rootfs")


def _base(lock: DebianBase, layers: tuple[LayerRecord, ...], rootfs: Path, ctx: Context) -> Base:
    python = python_version(lock)
    return Base(
        layers=layers,
        rootfs=rootfs,
        python="/usr/bin/python" + ".".join(python.split(".")[:2]),
        python_version=python,
        identity=key(lock),
        glibc=glibc_version(lock),
        environment={"PATH": SYSTEM_PATH},
        labels={},
        platform=platform_of(lock),
        emulator=prepare_emulator(platform_of(lock), ctx),
    )


def key(lock: DebianBase) -> str:
    """Hash what a base's bytes depend on; where its packages were listed is not a part of it.

    Also what of its packages must not be in it, where they make such things.
    """
    files = " ".join(package.file.sha256 for package in lock.packages)
    parts = [lock.suite, files, str(BASE_FORMAT), str(LAYER_FORMAT)]
    parts += filter(None, [identities.key({package.name for package in lock.packages})])
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def python_version(lock: DebianBase) -> str:
    """Exact version of the base's Python, e.g. "3.11.2"."""
    return _upstream(lock, r"python3\.\d+")


def glibc_version(lock: DebianBase) -> str:
    """Version of the base's C library, e.g. "2.36"."""
    return _upstream(lock, r"libc6")


def made(lock: DebianBase, cache: Cache) -> LayerRecord | None:
    """The layer of a base that the cache has; None where it is to be made."""
    return _cached(record_path(lock, cache), cache)


def record_path(lock: DebianBase, cache: Cache) -> Path:
    """Return the path of the record of a base's layer, existing or not."""
    return cache.root.joinpath("bases", "debian", key(lock), _RECORD)


def makers(lock: DebianBase, cache: Cache) -> Path:
    """Return the folder of the record of who made a base, of one that came from a shared cache."""
    return cache.path("makers", "base", key(lock))


def _upstream(lock: DebianBase, name: str) -> str:
    """Version of a package without Debian's epoch and revision ("1:2.36-9+deb12u14" → "2.36"); empty without one."""
    version = next((package.version for package in lock.packages if re.fullmatch(name, package.name)), "")
    return version.rpartition(":")[2].partition("-")[0]


def _cached(record: Path, cache: Cache) -> LayerRecord | None:
    layer = kept(record, LayerRecord)
    if layer is None or not cache.blob(layer.digest).is_file():
        return None
    cache.use(record.parent)
    cache.use(cache.blob(layer.digest))
    return layer


def python_tree(on_python: Callable[[Path], None] | None, cache: Cache) -> Callable[[Path], None]:
    """Return what links the files that Python runs with into a tree of its own: dpkg goes on in the one that it gets.

    The same files are in the base at last, so what Python compiles is the same.
    """

    def link(root: Path) -> None:
        if on_python:
            tree = Path(tempfile.mkdtemp(prefix="python-", dir=cache.own), "root")
            shutil.copytree(root, tree, symlinks=True, copy_function=_link, ignore=_without_shared)
            on_python(tree)

    return link


def _link(source: str, target: str) -> None:
    """Give a file a second name; a copy where the disk has no hard links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _without_shared(folder: str, names: list[str]) -> list[str]:
    """Leave out what is below /usr/share and /var: most of a base's files, and nothing that Python is started with."""
    return names if folder.endswith(("/usr/share", "/var")) else []


@writing_errors()
def _build(lock: DebianBase, ctx: Context, on_python: Callable[[Path], None] | None) -> LayerRecord:
    ctx.cache.require(SCRATCH_BYTES, f"the {suites.titled(lock.suite)} base")
    platform = platform_of(lock)
    emulator = prepare_emulator(platform, ctx)
    debs = fetch_debs(lock.packages, lock.suite, ctx, listed=lock.listed)
    with ctx.cache.folder() as folder:
        root, partial = folder / "root", folder / "layer"
        size = sum(path.stat().st_size for path in debs)
        with ctx.progress.task(f"installing {len(debs)} packages of {suites.titled(lock.suite)}", size) as task:
            early = on_python if on_python and is_native(platform) else None
            owners = install(debs, root, lock.suite, task.advance, platform, emulator, python_tree(early, ctx.cache))
        keys = private_keys(root)
        for path in keys:
            ctx.progress.warn(
                f"base: /{path} is a private key that a package made at its installation, and is left out: "
                "every copy of the image would have it; make one where the image runs"
            )
        with synced(partial) as target:
            writer = LayerWriter(target, LAYER_MTIME)
            writer.raw_tar(entries(root, owners, lock.suite, keys))
            layer = writer.finish()
        ctx.cache.adopt(partial, ctx.cache.blob(layer.digest))
    owner = PackageBytes(name="debian", version=lock.suite, bytes=layer.unpacked_size)
    return recorded(layer, suites.titled(lock.suite), [owner])
