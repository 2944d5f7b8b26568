"""A toolkit that NVIDIA publishes as wheels, nvcc included: CUDA 13 and newer."""

from collections.abc import Mapping
from pathlib import Path

from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.inputs.toolkits.assembling import assemble, wheels
from graphcrate.inputs.toolkits.cache import ROOM_NEEDED, kept
from graphcrate.model.lock import WheelToolkit


def prepare(
    toolkit: WheelToolkit,
    files: Mapping[str, Path],
    rootfs: Path,
    cache: Cache,
    environment: Mapping[str, str],
    progress: Progress,
) -> Path:
    """As `Provider` has it."""

    def make(folder: Path) -> Path:
        cache.require(ROOM_NEEDED, f"the CUDA toolkit {toolkit.version}")
        progress.note(f"toolkit: putting CUDA {toolkit.version} together, about 10 s")
        return assemble(toolkit, wheels(toolkit.wheels, files), rootfs, folder)

    return kept(toolkit, cache, make)
