"""Compiling extensions: which compilers Debian's suites have, what compiling goes by, headers that make it fast. Pure.

nvcc refuses a host compiler that is newer than what it was tested with; a distribution's own, newest one has the best
of everything else. So: the newest of the suite that the toolkit takes.

nvcc has no cross-compiler of its own: it makes code for the processor of its host compiler. That of another platform
than the default one is a cross-compiler, which runs on the default one.
"""

import re
from collections.abc import Iterable, Sequence

from graphcrate.compat.facts.facts import table
from graphcrate.compat.facts.suites import base_of, titled
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Compilation, DebianBase, LockedPackage
from graphcrate.model.plan import CUDA_HOME
from graphcrate.model.platform import DEFAULT, PLATFORMS, Platform

#: Headers of the suite's own Python. `python3-dev` brings the same with distutils and lib2to3 besides.
PYTHON_HEADERS = "libpython3-dev"
#: By it meson and CMake find the libraries of -dev packages.
FINDER = "pkg-config"
CROSS = "/opt/cross"  #: where the base of a cross-compiler is beside the image's own, while something is compiled
_RUSTC = re.compile(r"rustc(-[a-z0-9.]+)?")

#: What Debian's Python was compiled with has -g besides: a third of the work, for tables that are stripped off at the
#: end. setuptools up to 69 adds CFLAGS to that, for C++ too; 84 takes CFLAGS and CXXFLAGS in its place.
_FLAGS = "-DNDEBUG -fwrapv -O2 -g0"


#: stand-ins for torch's largest headers: path → lines
STAND_INS = {
    path: tuple(text.splitlines()) for path, text in table("compiled_extensions", dict[str, str], "headers").items()
}
_FOLDERS = table("compiled_extensions", dict[str, str], "folders")
SECONDS = table("compiled_extensions", dict[str, float], "seconds")


def compiler_for(suite: str, newest_gcc: int | None = None, platform: Platform = DEFAULT) -> str:
    """Debian's newest C++ compiler for a platform in a suite, not above `newest_gcc` (None: any), as its package.

    Raises ResolutionError for none.
    """
    versions = base_of(suite).gcc
    fitting = [version for version in versions if newest_gcc is None or version <= newest_gcc]
    if not fitting:
        raise ResolutionError(
            f"every compiler of {titled(suite)} is too new for this CUDA: it takes gcc {newest_gcc} and older",
            cause=f"nvcc checks its host compiler, and {suite} begins with gcc {min(versions)}.",
            next_step="take an older suite in the recipe (base.suite), or a newer CUDA",
        )
    return f"g++-{max(fitting)}" + ("" if platform == DEFAULT else f"-{platform.cross}")


def crosses_to(compiler: str) -> Platform | None:
    """Return the platform of a cross-compiler, by its package ("g++-12-aarch64-linux-gnu"); None for any other."""
    return next((row for row in PLATFORMS if compiler.endswith(f"-{row.cross}")), None)


def programs(compiler: str) -> tuple[str, str]:
    """The programs for C and C++ of a compiler's package: "aarch64-linux-gnu-gcc-12", "aarch64-linux-gnu-g++-12"."""
    if (platform := crosses_to(compiler)) is None:
        return compiler.replace("g++", "gcc"), compiler
    cxx = f"{platform.triplet}-{compiler.removesuffix(f'-{platform.cross}')}"
    return cxx.replace("g++", "gcc"), cxx


def packages(compiler: str) -> tuple[str, ...]:
    """List the packages that a base needs besides its own to compile extensions in it by this compiler.

    For a cross-compiler Python's headers are those of the other platform, which no base of this one takes.
    """
    return (compiler,) if crosses_to(compiler) else (compiler, PYTHON_HEADERS)


def headers(python: str) -> str:
    """The package with the headers of a Python ("3.11"), whichever platform it is for."""
    return f"libpython{python}-dev"


def besides(packages: Iterable[LockedPackage], suite: str, asked: Sequence[str] = ()) -> tuple[str, ...]:
    """List what a base needs beside the compiler: what the user `asked` for, and Rust where any of these is in Rust."""
    rust = base_of(suite).rust if any(package.rust for package in packages) else ()
    return tuple(dict.fromkeys((*asked, *rust)))


def rust_of(base: DebianBase) -> str:
    """The version of Rust in a base; empty where it has none."""
    programs = [package.version for package in base.packages if _RUSTC.fullmatch(package.name)]
    return next((version.partition("+")[0].partition("-")[0] for version in programs), "")


def variables(compilation: Compilation) -> dict[str, str]:
    """The environment that sdists are compiled in, the same in the embedded build and in texts.

    PyG's extensions exist in a `_cpu` and a `_cuda` variant of everything. `FORCE_CUDA` makes both, though their
    `__init__` loads the CUDA one alone wherever it exists, and that one has the operators for the CPU too;
    `FORCE_ONLY_CUDA` leaves the other out. Others (graphlearn-torch) know neither, and go by `WITH_CUDA`.
    """
    c, cxx = programs(compilation.compiler)
    # Names of nvcc's temporary files and of sources would differ from one compile to the next, were they not stripped.
    made = {"CC": c, "CXX": cxx, "CFLAGS": _FLAGS, "CXXFLAGS": _FLAGS, "LDFLAGS": "-s -Wl,--build-id=none"}
    if (platform := crosses_to(compilation.compiler)) is not None:
        made["AR"] = f"{platform.triplet}-ar"
    if compilation.toolkit is None:
        return made | {"FORCE_ONLY_CPU": "1", "WITH_CUDA": "OFF"}
    return made | {
        "CUDA_HOME": CUDA_HOME,
        "FORCE_CUDA": "1",
        "FORCE_ONLY_CUDA": "1",
        # nvcc takes the system's own g++, which may be newer than it can read.
        "NVCC_PREPEND_FLAGS": f"-ccbin {cxx}",
        "TORCH_CUDA_ARCH_LIST": ";".join(compilation.architectures),
        "WITH_CUDA": "ON",
    }


def folder_for(package: str) -> str | None:
    """The folder of a package's sdist that `STAND_INS` go to; None where that was not examined."""
    return _FOLDERS.get(package)
