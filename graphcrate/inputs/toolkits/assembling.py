"""Packages to a toolkit, in a sandbox: by the same lines that the texts for engines have."""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from graphcrate.compat.planning import SYSTEM_PATH
from graphcrate.compat.toolkit_assembly import PACKAGES, assembly
from graphcrate.host.sandbox import Bind, run_in
from graphcrate.model.errors import BuildError
from graphcrate.model.lock import DebianToolkit, LockedPackage, WheelToolkit
from graphcrate.model.plan import CUDA_HOME

_LIKELY_SECONDS = 600.0


def assemble(toolkit: DebianToolkit | WheelToolkit, packages: Mapping[str, Path], rootfs: Path, folder: Path) -> Path:
    """The toolkit, in a new folder below `folder`. `packages`: their places by what they are called in PACKAGES.

    Raises BuildError when a package is not what it should be, HostError where nothing can be run in a sandbox.
    """
    room, made = folder / "packages", folder / "cuda"
    made.mkdir()
    for name, source in packages.items():
        _link(source, room / name)
    done = run_in(
        rootfs,
        ["sh", "-ec", "\n".join(assembly(toolkit))],
        environment={"PATH": SYSTEM_PATH, "LC_ALL": "C.UTF-8"},
        binds=[Bind(room, PACKAGES, read_only=False), Bind(made, CUDA_HOME, read_only=False)],
        timeout=_LIKELY_SECONDS,
    )
    if done.returncode:
        raise BuildError(
            f"the CUDA toolkit {toolkit.version} cannot be put together: {done.lines[-1] if done.lines else 'no word'}",
            cause="A package has other contents than the one that was tried, or the base lacks dpkg or Python.",
            next_step="lock anew: ./build.py lock …, or with another toolkit: TOOLKIT=image",
        )
    if not any(f"V{toolkit.version}" in line for line in done.lines):
        raise BuildError(
            f"the nvcc of the CUDA toolkit {toolkit.version} says that it is another: {' '.join(done.lines[-2:])}",
            next_step="lock anew: ./build.py lock …",
        )
    return made


def wheels(locked: Iterable[LockedPackage], files: Mapping[str, Path]) -> dict[str, Path]:
    """What `assemble` takes of a toolkit's wheels."""
    return {f"wheels/{package.file.name}": files[package.file.sha256] for package in locked}


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without hard links
        shutil.copyfile(source, target)
