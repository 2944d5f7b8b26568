"""CUDA toolkits: from a lock's toolkit to a folder in the cache that works as /usr/local/cuda.

For the time of a build, and for devel images; no runtime image holds any of it.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.model.lock import ImageToolkit, Toolkit
from graphcrate.model.plan import content_id

#: Raise it whenever the same toolkit would give another folder.
TOOLKIT_FORMAT = 1


def cached(toolkit: Toolkit, cache: Cache) -> Path | None:
    """Return the toolkit's folder where the cache has it: then no files are needed."""
    folder = _folder(toolkit, cache)
    return folder if folder.is_dir() else None


def prepare(
    toolkit: Toolkit,
    files: Mapping[str, Path],
    rootfs: Path,
    cache: Cache,
    environment: Mapping[str, str],
    progress: Progress,
) -> Path:
    """Return a folder in the cache that can be bound to CUDA_HOME, made where it is missing. Never to be written to.

    `files`: the toolkit's wheels by sha256. `rootfs`: a Debian with Python, in which packages are unpacked. Raises
    BaseDriftError when Debian has replaced a package, ResolutionError for an image without a toolkit, NetworkError,
    IntegrityError, BuildError, DiskFullError.
    """
    target = _folder(toolkit, cache)
    if not target.is_dir():
        with cache.exclusively(f"toolkit-{target.parent.name}"):
            if not target.is_dir():
                with cache.folder() as folder:
                    if isinstance(toolkit, ImageToolkit):
                        from graphcrate.inputs.toolkits.image import extract

                        made = extract(toolkit, folder, cache, environment, progress)
                    else:
                        from graphcrate.inputs.toolkits.packages import assemble

                        made = assemble(toolkit, files, rootfs, folder, cache, environment, progress)
                    cache.adopt(made, target)
    return target


def _folder(toolkit: Toolkit, cache: Cache) -> Path:
    key = hashlib.sha256(f"{content_id(toolkit)} {TOOLKIT_FORMAT}".encode()).hexdigest()
    return cache.path("toolkits", key, "cuda")
