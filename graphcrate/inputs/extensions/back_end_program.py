"""Make the wheel of a source by its own back-end (PEP 517): a program for the image's own Python, in the sandbox.

Its build requirements are installed where it runs, so the back-end is asked in this very process. Compilers start as
the back-end has it (CMake with ninja, most of the time); what they may not do is for `launcher.py`.

Python 3.9, standard library. Orders come in the file that the argument names; all output goes to stdout.
"""

import importlib
import importlib.metadata
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: what auditwheel puts into the name of a library that it took in
HASH = re.compile(r"-[0-9a-f]{8}$")
#: the driver's library, which only a machine with a GPU has; linked against, as NVIDIA's own toolkits have it
STUBS = {"libcuda.so": "libcuda.so.1"}
#: preloaded by `launcher.py` where nvcc starts
SAME_NUMBER = "int getpid(void) { return 2; }\n"
#: a header that toolkits of locks lack (NVIDIA's is in a package of its own); the runtime library has what it declares
PROFILER = (
    "cuda_profiler_api.h",
    """#pragma once
#include <cuda_runtime_api.h>
#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);
#ifdef __cplusplus
}
#endif
""",
)
LACKS = "lacks the build requirement "  #: begins a line of output
COMPILERS = "compilers"  #: folder of links to `launcher.py`
#: names that builds start compilers by → the variable that says which is meant; nothing: the one of that name
NAMES = {"gcc": "CC", "cc": "CC", "g++": "CXX", "c++": "CXX", "gfortran": "", "nvcc": "", "cargo": "", "rustc": ""}


def main(orders: "dict[str, Any]") -> None:
    """Unpack, and have the back-end make its wheel."""
    os.umask(0o022)
    if "launcher" in orders:
        sort_folders()
        number_folders()
    folder = Path(orders["folder"])
    unpack(orders["sdist"], folder)
    link_libraries(Path(orders["libraries"]), Path(sysconfig.get_path("purelib")))
    if "CUDA_HOME" in os.environ:
        make_library(Path(orders["same_number"]), "-fPIC", source=SAME_NUMBER)
    if "crates" in orders:
        unpack_crates(**orders["crates"])
    if "launcher" in orders:
        link_compilers(Path(orders["launcher"]))
    if "toolkit" in orders:
        link_headers(Path(orders["headers"]), Path(sysconfig.get_path("purelib")), Path(orders["toolkit"]))
        link_toolkit(Path(os.environ["CUDA_HOME"]), Path(orders["toolkit"]), Path(orders["launcher"]))
    os.chdir(folder)
    sys.path[:0] = [str(folder / path) for path in orders["path"]]
    module, _, names = orders["back_end"].partition(":")
    hooks = importlib.import_module(module)
    for name in filter(None, names.split(".")):
        hooks = getattr(hooks, name)
    Path(orders["wheels"]).mkdir(parents=True)
    given = [orders["settings"]] if orders.get("settings") else []
    if "launcher" in orders and hasattr(hooks, "get_requires_for_build_wheel"):
        for line in lacking(hooks.get_requires_for_build_wheel(*given)):
            print(f"{LACKS}{line}", flush=True)
    print("wheel:", hooks.build_wheel(orders["wheels"], *given), flush=True)


class SortedFolder:
    """The entries of os.scandir for a folder, in order of name."""

    def __init__(self, entries: "Iterable[os.DirEntry[Any]]") -> None:
        self._entries = iter(sorted(entries, key=lambda entry: entry.name))

    def __iter__(self) -> "Iterator[os.DirEntry[Any]]":
        return self._entries

    def __next__(self) -> "os.DirEntry[Any]":
        return next(self._entries)

    def __enter__(self) -> "SortedFolder":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        """Nothing is open any more."""


def sort_folders() -> None:
    """Make what lists folders, `glob` and os.walk too, independent of the order that a disk has its files in: files
    are compiled and linked in that order."""
    names, scan = os.listdir, os.scandir

    def listdir(path: Any = ".") -> "list[Any]":  # noqa: ANN401
        return sorted(names(path))

    def scandir(path: Any = ".") -> SortedFolder:  # noqa: ANN401
        with scan(path) as entries:
            return SortedFolder(entries)

    # a wider type than these have
    os.listdir, os.scandir = listdir, scandir  # type: ignore[assignment]


def number_folders() -> None:
    """Give temporary folders a number, where tempfile gives them a random name: scikit-build-core installs to one, and
    CMake writes its path into what is installed (llama.pc of llama-cpp-python).
    """
    make, numbers = tempfile.mkdtemp, itertools.count()

    def mkdtemp(suffix: Any = None, prefix: Any = None, dir: Any = None) -> Any:  # noqa: ANN401
        if any(isinstance(part, bytes) for part in (suffix, prefix, dir)):
            return make(suffix, prefix, dir)
        while True:
            path = Path(dir or tempfile.gettempdir(), f"{prefix or 'tmp'}{next(numbers)}{suffix or ''}").absolute()
            try:
                path.mkdir(0o700)
            except FileExistsError:
                continue
            return str(path)

    tempfile.mkdtemp = mkdtemp


def link_compilers(launcher: Path) -> None:
    """Put the launcher before the compilers on PATH, under all of their names that there are."""
    folder = launcher.with_name(COMPILERS)
    folder.mkdir()
    triplet = sysconfig.get_config_var("MULTIARCH")  # Debian's GCC has names with it, and so has Python's sysconfig
    names = {**NAMES, f"{triplet}-gcc": "CC", f"{triplet}-g++": "CXX", os.environ["CC"]: "", os.environ["CXX"]: ""}
    programs = {name: shutil.which(os.environ[variable] if variable else name) for name, variable in names.items()}
    launcher.with_name("programs.json").write_text(json.dumps({name: path for name, path in programs.items() if path}))
    for name in filter(programs.get, programs):
        if name != "nvcc":  # `link_toolkit` has it
            (folder / name).symlink_to(launcher)


def lacking(requirements: "list[str]") -> "list[str]":
    """Those of a back-end's answer that are not installed in any version."""
    missing = []
    for line in requirements:
        name = re.match(r"[A-Za-z0-9._-]+", line.strip())
        try:
            importlib.metadata.version(name[0] if name else "")
        except (importlib.metadata.PackageNotFoundError, ValueError):
            missing.append(line)
    return missing


def unpack(sdist: str, folder: Path) -> None:
    """Unpack a source archive to a folder, which takes the place of the one folder in it.

    Its files become ours, readable, and programs where anybody may start them, as pip has it.
    """
    unpacked = Path(f"{folder}.unpacked")
    if sdist.endswith(".zip"):
        with zipfile.ZipFile(sdist) as archive:
            for info in archive.infolist():
                path = archive.extract(info, unpacked)
                if not info.is_dir() and info.external_attr >> 16 & 0o111:
                    Path(path).chmod(0o755)
    else:
        with tarfile.open(sdist) as tar:
            members = tar.getmembers()
            for member in members:
                member.mode = 0o755 if member.isdir() or member.mode & 0o111 else 0o644
                member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
            tar.extractall(unpacked, members)
    (inside,) = unpacked.iterdir()
    inside.rename(folder)
    unpacked.rmdir()


def unpack_crates(packed: str, folder: str, sha256: "dict[str, str]") -> None:
    """Unpack crates as `cargo vendor` would, each with the hash by which cargo knows it."""
    Path(folder).mkdir()
    for name, digest in sha256.items():
        target = Path(folder, name[: -len(".crate")])
        unpack(str(Path(packed, name)), target)
        (target / ".cargo-checksum.json").write_text(json.dumps({"files": {}, "package": digest}))


def link_libraries(target: Path, packages: Path) -> None:
    """Put links to the libraries of CUDA that the image's packages have where a linker looks for them.

    Wheels have `libcublas.so.11` alone, or `libcudart-d0da41ae.so.11.0` in torch's own folder.
    """
    target.mkdir()
    for path in [*sorted(packages.glob("torch/lib/lib*.so.*")), *sorted(packages.glob("nvidia/*/lib/lib*.so.*"))]:
        link = target / f"{HASH.sub('', path.name.partition('.so.')[0])}.so"
        link.unlink(missing_ok=True)
        link.symlink_to(path)
    if "CUDA_HOME" in os.environ:
        for name, soname in STUBS.items():
            make_library(target / name, f"-Wl,-soname,{soname}")


def link_headers(target: Path, packages: Path, toolkit: Path) -> None:
    """Put links to those headers of CUDA that wheels have and the toolkit lacks: nvtx3, cuDNN, cuFFT."""
    target.mkdir()
    for path in sorted(packages.glob("nvidia/*/include/*")):
        link = target / path.name
        if not (path.suffix == ".py" or (toolkit / "include" / path.name).exists() or link.is_symlink()):
            link.symlink_to(path)
    name, text = PROFILER
    if not ((toolkit / "include" / name).exists() or (target / name).exists()):
        (target / name).write_text(text)


def link_toolkit(target: Path, toolkit: Path, launcher: Path) -> None:
    """Make a toolkit of links, whose nvcc is the launcher: torch before 2.1 starts that alone.

    It is the only nvcc on PATH: CMake's FindCUDA, and FindCUDAToolkit up to 3.17, which projects bring copies of, look
    for headers and libraries in the folder above that of nvcc.
    """
    (target / "bin").mkdir(parents=True)
    for path in (*toolkit.iterdir(), *(toolkit / "bin").iterdir()):
        if path.name != "bin":
            (target / path.relative_to(toolkit)).symlink_to(launcher if path.name == "nvcc" else path)


def make_library(target: Path, *options: str, source: str = "") -> None:
    """Compile a library of a few lines of C."""
    command = [os.environ["CC"], "-shared", *options, "-x", "c", "-", "-o", str(target)]
    subprocess.run(command, input=source.encode(), check=True)


if __name__ == "__main__":
    del sys.path[0]
    main(json.loads(Path(sys.argv[1]).read_text()))
