"""CUDA toolkits: from a lock's toolkit to a folder in the cache that works as /usr/local/cuda.

Made in a sandbox by the lines that the texts for engines have: of Debian's nvcc, unpacked and not installed (it asks
for glibc 2.7), with headers and the runtime from NVIDIA's wheels; from CUDA 13 on of those wheels alone; or taken out
of the layers of an image by digest. No runtime image holds any of it.
"""

import hashlib
import os
import re
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, cast

from graphcrate.artifacts import pull
from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.compat.facts.toolkits import COMPONENTS, PACKAGES, assembly
from graphcrate.compat.plan.image_config import SYSTEM_PATH
from graphcrate.host.context import Context
from graphcrate.host.disk.cache import Cache
from graphcrate.host.sandbox.sandbox import Exec, run_in
from graphcrate.host.sandbox.steps import Step
from graphcrate.inputs.bases.debs import fetch_debs
from graphcrate.model.command import ETC, LOCK_AGAIN, command
from graphcrate.model.errors import BuildError, LayoutError, ResolutionError
from graphcrate.model.lock import DebianToolkit, ImageToolkit, Toolkit, WheelToolkit
from graphcrate.model.plan import CUDA_HOME, toolkit_id
from graphcrate.oci import access, reference
from graphcrate.oci.blob import open_blob
from nsbox.box import Bind
from ocilayout import spec
from ocilayout.spec import LayerBlob

#: Raise it whenever the same toolkit would give another folder.
TOOLKIT_FORMAT = 1
_NEEDED_BYTES = 1_500_000_000  #: on the disk at most
_TIMEOUT = 600.0
#: The toolkit under each of its names, and whiteouts of any of them.
_WANTED = re.compile(r"usr/local/(?:(?:\.wh\.)?cuda(?:-[\d.]+)?(?:/|$)|\.wh\.\.wh\.\.opq$)")
#: Static libraries, more than half of the bytes: extensions are linked to shared ones. The runtime is for `nvcc a.cu`.
_LEFT_OUT = re.compile(r"/lib(?:64)?/lib(?!cudart|cudadevrt)[^/]*\.a$")
_GROWTH = 4  #: from a layer's compressed bytes to those on the disk, with what is unpacked


def cached(toolkit: Toolkit, base: str, cache: Cache) -> Path | None:
    """Return the toolkit's folder where the cache has it: then no files are needed. `base`: as for `prepare`."""
    folder = _folder(toolkit, base, cache)
    return folder if folder.is_dir() else None


def prepare(toolkit: Toolkit, files: Mapping[str, Path], rootfs: Path, ctx: Context, *, base: str) -> Path:
    """Return a folder in the cache that can be bound to CUDA_HOME, made where it is missing. Never to be written to.

    `files`: the toolkit's wheels by sha256. `rootfs`: a Debian with Python to work in; `base`: its `Base.identity`.
    Raises BaseDriftError, ResolutionError for an image without a toolkit, NetworkError, IntegrityError, BuildError,
    DiskFullError.
    """
    target, cache = _folder(toolkit, base, ctx.cache), ctx.cache
    if not target.is_dir():
        with cache.exclusively(f"toolkit-{target.parent.name}"):
            if not target.is_dir():
                with cache.folder() as folder:
                    if isinstance(toolkit, ImageToolkit):
                        made = _extract(toolkit, folder, ctx)
                    else:
                        made = _assemble(toolkit, files, rootfs, folder, ctx)
                    cache.adopt(made, target)
    return target


def _folder(toolkit: Toolkit, base: str, cache: Cache) -> Path:
    by = "" if isinstance(toolkit, ImageToolkit) else f" {base}"  # its programs put the others together
    key = hashlib.sha256(f"{toolkit_id(toolkit)} {TOOLKIT_FORMAT}{by}".encode()).hexdigest()
    return cache.path("toolkits", key, "cuda")


def _assemble(
    toolkit: DebianToolkit | WheelToolkit, files: Mapping[str, Path], rootfs: Path, folder: Path, ctx: Context
) -> Path:
    """Make the toolkit below `folder`, which is empty. Raises BuildError, HostError, what `debs.fetch_debs` raises."""
    what = f"CUDA toolkit {toolkit.version}"
    ctx.cache.require(_NEEDED_BYTES, f"the {what}")
    packages: dict[str, Path] = {}
    if isinstance(toolkit, DebianToolkit):
        debs = fetch_debs(toolkit.packages, toolkit.suite, ctx, listed=toolkit.listed, components=COMPONENTS, what=what)
        packages = {f"debs/{deb.name}": deb for deb in debs}
    packages |= {f"wheels/{package.file.name}": files[package.file.sha256] for package in toolkit.wheels}
    ctx.progress.note(f"toolkit: putting CUDA {toolkit.version} together, about 10 s")
    for name, source in packages.items():
        target = folder / "packages" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another disk, or one without hard links
            shutil.copyfile(source, target)
    made = folder / "cuda"
    made.mkdir()
    building = Exec(
        ["sh", "-ec", "\n".join(assembly(toolkit))],
        {"PATH": SYSTEM_PATH, "LC_ALL": "C.UTF-8"},
        [Bind(folder / "packages", PACKAGES, read_only=False), Bind(made, CUDA_HOME, read_only=False)],
        timeout=_TIMEOUT,
        step=Step.BUILD,
    )
    done = run_in(rootfs, building)
    if done.returncode:
        raise BuildError(
            f"the {what} cannot be put together: {done.lines[-1] if done.lines else 'no output'}",
            cause="A package has other contents than the one that was tried, or the base lacks dpkg or Python.",
            next_step=f"lock it again: {LOCK_AGAIN}, or with another toolkit: {command('image', ETC, toolkit='image')}",
        )
    return made


def _extract(toolkit: ImageToolkit, folder: Path, ctx: Context) -> Path:
    """Unpack the toolkit below `folder`. Raises ResolutionError where the image has none, LayoutError, NetworkError."""
    name = f"{toolkit.reference}@{toolkit.digest}"
    source = access.repository(reference.parse(name), ctx)
    manifest, _ = pull.documents(source, toolkit.digest, ctx.cache)
    size = sum(layer.size for layer in manifest.layers)
    ctx.cache.require(size * _GROWTH, f"the CUDA toolkit of {toolkit.reference}")
    pull.bring(source, toolkit.reference, manifest.layers, ctx)
    parts = []
    with ctx.progress.task(f"unpacking CUDA {toolkit.version}", size) as task:
        for number, layer in enumerate(manifest.layers):
            blob = LayerBlob(path=ctx.cache.blob(layer.digest), media_type=layer.media_type)
            with open_blob(blob, advance=task.advance) as stream:
                parts.append(_part(cast("IO[bytes]", stream), folder / f"{number}.tar", name))
    unpack([LayerBlob(path=part, media_type=spec.LAYER_TAR) for part in parts], folder / "image")
    # /usr/local/cuda is a link to the folder with the version, by Debian's alternatives.
    for home in sorted((folder / "image/usr/local").glob("cuda*")):
        if not home.is_symlink() and (home / "bin/nvcc").is_file():
            return home
    raise ResolutionError(
        f"{name} has no CUDA toolkit: there is no {CUDA_HOME}/bin/nvcc in it",
        cause="NVIDIA's images of the flavours base and runtime have none.",
        next_step=f"name a devel image, or take another toolkit: {command('image', ETC, toolkit='debian')}",
    )


def _part(stream: IO[bytes], target: Path, name: str) -> Path:
    """A tar of a layer's members that belong to the toolkit."""
    try:
        with (
            tarfile.open(fileobj=stream, mode="r|", encoding="utf-8") as layer,
            tarfile.open(target, "w", format=tarfile.PAX_FORMAT, encoding="utf-8") as part,
        ):
            for member in layer:
                if _is_wanted(member.name) and not (member.islnk() and not _is_wanted(member.linkname)):
                    part.addfile(member, layer.extractfile(member) if member.isreg() else None)
    except tarfile.TarError as error:
        raise LayoutError(f"a layer of {name} is malformed: {error}") from error
    return target


def _is_wanted(name: str) -> bool:
    path = name.removeprefix(".").strip("/")
    return _WANTED.match(path) is not None and _LEFT_OUT.search(path) is None
