"""Toolkits of packages, assembled in a sandbox by the same lines that the texts for engines have.

Of Debian's nvcc (contrib and non-free), unpacked and not installed, with headers and the runtime from NVIDIA's wheels:
its programs ask for no newer glibc than 2.7, so one of a newer suite runs on all that torch's wheels run on. Or, from
CUDA 13 on, of NVIDIA's wheels alone.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from graphcrate.compat.planning import SYSTEM_PATH
from graphcrate.compat.toolkits import COMPONENTS, PACKAGES, assembly
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox import Bind, run_in
from graphcrate.inputs.bases import debian
from graphcrate.model.errors import BuildError
from graphcrate.model.lock import DebianToolkit, WheelToolkit
from graphcrate.model.plan import CUDA_HOME

_NEEDED_BYTES = 1_500_000_000  #: on the disk at most
_TIMEOUT = 600.0


def assemble(
    toolkit: DebianToolkit | WheelToolkit,
    files: Mapping[str, Path],
    rootfs: Path,
    folder: Path,
    cache: Cache,
    environment: Mapping[str, str],
    progress: Progress,
) -> Path:
    """Make the toolkit in a new folder below `folder`, which is empty.

    Raises BaseDriftError when the archive has replaced a package, BuildError when one is not what it should be,
    HostError where nothing can be run in a sandbox.
    """
    what = f"CUDA toolkit {toolkit.version}"
    cache.require(_NEEDED_BYTES, f"the {what}")
    packages: dict[str, Path] = {}
    if isinstance(toolkit, DebianToolkit):
        wanted, suite = toolkit.packages, toolkit.suite
        debs = debian.fetch(wanted, suite, cache, environment, progress, components=COMPONENTS, what=what)
        packages = {f"debs/{deb.name}": deb for deb in debs}
    packages |= {f"wheels/{package.file.name}": files[package.file.sha256] for package in toolkit.wheels}
    progress.note(f"toolkit: putting CUDA {toolkit.version} together, about 10 s")
    for name, source in packages.items():
        _link(source, folder / "packages" / name)
    made = folder / "cuda"
    made.mkdir()
    done = run_in(
        rootfs,
        ["sh", "-ec", "\n".join(assembly(toolkit))],
        environment={"PATH": SYSTEM_PATH, "LC_ALL": "C.UTF-8"},
        binds=[Bind(folder / "packages", PACKAGES, read_only=False), Bind(made, CUDA_HOME, read_only=False)],
        timeout=_TIMEOUT,
    )
    if done.returncode:
        raise BuildError(
            f"the {what} cannot be put together: {done.lines[-1] if done.lines else 'no output'}",
            cause="A package has other contents than the one that was tried, or the base lacks dpkg or Python.",
            next_step="lock it again: ./build.py lock …, or with another toolkit: TOOLKIT=image",
        )
    if not any(f"V{toolkit.version}" in line for line in done.lines):
        raise BuildError(
            f"the nvcc of the {what} says that it is another: {' '.join(done.lines[-2:])}",
            next_step="lock it again: ./build.py lock …",
        )
    return made


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without hard links
        shutil.copyfile(source, target)
