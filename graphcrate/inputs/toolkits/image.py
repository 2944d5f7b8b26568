"""The toolkit of an image such as NVIDIA's devel ones, by digest: /usr/local/cuda out of its layers, nothing else."""

import posixpath
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, cast

from graphcrate.artifacts import pull
from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.model.errors import LayoutError, ResolutionError
from graphcrate.model.lock import ImageToolkit
from graphcrate.model.plan import CUDA_HOME
from graphcrate.oci import reference, spec
from graphcrate.oci.blob import open_blob
from graphcrate.oci.spec import LayerBlob

#: The toolkit under each of its names, the links that lead to it, and whiteouts of any of them.
_WANTED = re.compile(r"(?:usr/local|etc/alternatives)/(?:\.wh\.)?cuda(?:-[\d.]+)?(?:/|$)|usr/local/\.wh\.\.wh\.\.opq$")
#: Static libraries, more than half of the bytes: extensions are linked to shared ones. The runtime is for `nvcc a.cu`.
_LEFT_OUT = re.compile(r"/lib(?:64)?/lib(?!cudart|cudadevrt)[^/]*\.a$")
_MOST_LINKS = 8
_GROWTH = 4  #: from a layer's compressed bytes to those on the disk, with what is unpacked


def extract(
    toolkit: ImageToolkit, folder: Path, cache: Cache, environment: Mapping[str, str], progress: Progress
) -> Path:
    """Unpack the toolkit below `folder`. Raises ResolutionError where the image has none, LayoutError, NetworkError."""
    name = f"{toolkit.reference}@{toolkit.digest}"
    source = pull.repository(reference.parse(name), environment)
    manifest, _ = pull.documents(source, toolkit.digest, cache)
    size = sum(layer.size for layer in manifest.layers)
    cache.require(size * _GROWTH, f"the CUDA toolkit of {toolkit.reference}")
    with progress.task(f"pulling {toolkit.reference}", size) as task:
        pull.download(source, manifest.layers, cache, task.advance)
    parts = []
    with progress.task(f"unpacking CUDA {toolkit.version}", size) as task:
        for number, layer in enumerate(manifest.layers):
            blob = LayerBlob(path=cache.blob(layer.digest), media_type=layer.media_type)
            with open_blob(blob, advance=task.advance) as stream:
                parts.append(_part(cast("IO[bytes]", stream), folder / f"{number}.tar", name))
    unpack([LayerBlob(path=part, media_type=spec.LAYER_TAR) for part in parts], folder / "image")
    return _resolve_home(folder / "image", name)


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


def _resolve_home(image: Path, name: str) -> Path:
    """Follow CUDA_HOME inside the image through the links of Debian's alternatives."""
    path = CUDA_HOME.strip("/")
    for _ in range(_MOST_LINKS):
        if not (image / path).is_symlink():
            break
        link = str((image / path).readlink())
        path = posixpath.normpath(posixpath.join("/", posixpath.dirname(path), link)).strip("/")
    if (image / path).is_symlink() or not (image / path / "bin" / "nvcc").is_file():
        raise ResolutionError(
            f"{name} has no CUDA toolkit: there is no {CUDA_HOME}/bin/nvcc in it",
            cause="NVIDIA's images of the flavours base and runtime have none.",
            next_step="name a devel image, or take another toolkit: TOOLKIT=debian",
        )
    return image / path
