"""The compilers' ground: the base with the compiler, or of a cross-compiler the image's own base with that one beside.

setup.py asks Python and torch what they were built for, so these are the image's, run by an emulator. Compilers,
assembler, linker and nvcc are programs of this machine, and as fast as ever: an emulator has the kernel start those.
They are in a folder of their own, with their loader and libraries where Debian has them (multiarch): no path of one
platform is one of another's.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from graphcrate.compat.facts.compilers import CROSS
from graphcrate.host.sandbox.emulation import Emulator
from graphcrate.inputs.bases import Base
from graphcrate.inputs.bases.deb import extract, inflate_member
from graphcrate.model.errors import IntegrityError
from graphcrate.model.lock import Compilation, platform_of
from graphcrate.model.platform import platform_named
from nsbox.box import Bind

_INCLUDE = "usr/include"


class Ground(NamedTuple):
    """A root file system to compile in, what is bound into it, and what runs its programs."""

    rootfs: Path
    python: str  #: absolute path inside
    binds: Sequence[Bind] = ()
    emulator: Emulator | None = None


def prepare(compilation: Compilation, base: Base, build_base: Base, files: Mapping[str, Path], folder: Path) -> Ground:
    """Prepare a compiling step's root. `base`: the image's; `files`: sha256 → path; `folder`: an empty one for headers.

    Raises IntegrityError for a package of headers that is broken.
    """
    if (cross := compilation.crossed) is None:
        return Ground(build_base.rootfs, build_base.python)
    folder.mkdir()
    for package in cross.headers:
        deb = files[package.file.sha256]
        extract(folder / "deb", inflate_member(deb, folder / "deb"), folder / "root")
    include, target = folder / "root" / _INCLUDE, platform_named(cross.platform)
    if include.is_symlink() or not include.is_dir():
        raise IntegrityError(f"{', '.join(package.file.name for package in cross.headers)}: there are no headers in it")
    here, runs = build_base.rootfs, platform_of(compilation.base)
    # Where the kernel, the loader, and absolute paths in linkers' scripts have them.
    places = [runs.loader_folder, f"usr/lib/{runs.triplet}", f"usr/{target.triplet}", "usr/lib/gcc-cross"]
    binds = [Bind(here, CROSS), Bind(include, f"/{_INCLUDE}"), *(Bind(here / place, f"/{place}") for place in places)]
    return Ground(base.rootfs, base.python, binds, base.emulator)
