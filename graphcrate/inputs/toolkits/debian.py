"""Debian's nvcc (contrib and non-free), unpacked and not installed, with headers and the runtime from NVIDIA's wheels.

Its programs ask for no newer glibc than 2.7: one of a newer suite runs on all that torch's wheels run on.
"""

from collections.abc import Mapping
from pathlib import Path

from graphcrate.compat.toolkits import COMPONENTS
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.inputs.bases import debian
from graphcrate.inputs.toolkits.assembling import assemble, wheels
from graphcrate.inputs.toolkits.cache import ROOM_NEEDED, kept
from graphcrate.model.lock import DebianToolkit


def prepare(
    toolkit: DebianToolkit,
    files: Mapping[str, Path],
    rootfs: Path,
    cache: Cache,
    environment: Mapping[str, str],
    progress: Progress,
) -> Path:
    """As `Provider` has it. Raises BaseDriftError when the archive has replaced a locked package."""

    def make(folder: Path) -> Path:
        cache.require(ROOM_NEEDED, f"the CUDA toolkit {toolkit.version}")
        debs = debian.fetch(
            toolkit.packages,
            toolkit.suite,
            cache,
            environment,
            progress,
            components=COMPONENTS,
            what=f"CUDA toolkit {toolkit.version}",
        )
        progress.note(f"toolkit: putting CUDA {toolkit.version} together, about 10 s")
        packages = {f"debs/{deb.name}": deb for deb in debs} | wheels(toolkit.wheels, files)
        return assemble(toolkit, packages, rootfs, folder)

    return kept(toolkit, cache, make)
