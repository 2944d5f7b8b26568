"""Which host compilers Debian's suites have, which of them an nvcc takes, and what compiling goes by. Pure.

nvcc refuses a host compiler that is newer than what it was tested with; a distribution's own, newest one has the best
of everything else. So: the newest of the suite that the toolkit takes.
"""

from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Compilation
from graphcrate.model.plan import CUDA_HOME

#: suite → major versions of `g++-N` in its archives, its default last (seen in the archives, 2026-11)
SUITES = {"bullseye": (9, 10), "bookworm": (11, 12), "trixie": (12, 13, 14)}
#: Headers of the suite's own Python. `python3-dev` brings the same with distutils and lib2to3 besides.
PYTHON_HEADERS = "libpython3-dev"

#: What Debian's Python was compiled with has -g besides: a third of the work, for tables that are stripped off at the
#: end. setuptools up to 69 adds CFLAGS to that, for C++ too; 84 takes CFLAGS and CXXFLAGS in its place.
_FLAGS = "-DNDEBUG -fwrapv -O2 -g0"


def compiler_for(suite: str, newest_gcc: int | None = None) -> str:
    """Debian's package of the newest C++ compiler of a suite that is not above `newest_gcc` (None: the newest).

    Raises ResolutionError where the suite is not known or has only newer ones.
    """
    if suite not in SUITES:
        raise ResolutionError(
            f"which compilers Debian {suite} has is not known; known are {', '.join(SUITES)}",
            next_step="take one of these suites, or a channel that has wheels of the extensions",
        )
    fitting = [version for version in SUITES[suite] if newest_gcc is None or version <= newest_gcc]
    if not fitting:
        raise ResolutionError(
            f"every compiler of Debian {suite} is too new for this CUDA: it takes gcc {newest_gcc} and older",
            cause=f"nvcc checks its host compiler, and {suite} begins with gcc {min(SUITES[suite])}.",
            next_step="take an older suite in the recipe (base.suite), or a newer CUDA",
        )
    return f"g++-{max(fitting)}"


def packages(compiler: str) -> tuple[str, ...]:
    """What a base needs besides its own packages so that extensions can be compiled in it by this compiler."""
    return (compiler, PYTHON_HEADERS)


def programs(compiler: str) -> tuple[str, str]:
    """Names of the C and the C++ compiler of a package: "gcc-11" and "g++-11"."""
    return f"gcc-{compiler.removeprefix('g++-')}", compiler


def variables(compilation: Compilation) -> dict[str, str]:
    """The environment that sdists are compiled in, the same in the embedded build and in texts.

    PyG's extensions exist in a `_cpu` and a `_cuda` variant of everything. `FORCE_CUDA` makes both, though their
    `__init__` loads the CUDA one alone wherever it exists, and that one has the operators for the CPU too;
    `FORCE_ONLY_CUDA` leaves the other out. Others (graphlearn-torch) know neither, and go by `WITH_CUDA`.
    """
    c, cxx = programs(compilation.compiler)
    # Names of nvcc's temporary files and of sources would differ from one compile to the next, were they not stripped.
    found = {"CC": c, "CXX": cxx, "CFLAGS": _FLAGS, "CXXFLAGS": _FLAGS, "LDFLAGS": "-s -Wl,--build-id=none"}
    if compilation.toolkit is None:
        return found | {"FORCE_ONLY_CPU": "1", "WITH_CUDA": "OFF"}
    return found | {
        "CUDA_HOME": CUDA_HOME,
        "FORCE_CUDA": "1",
        "FORCE_ONLY_CUDA": "1",
        "NVCC_PREPEND_FLAGS": f"-ccbin {cxx}",
        "TORCH_CUDA_ARCH_LIST": ";".join(compilation.architectures),
        "WITH_CUDA": "ON",
    }
