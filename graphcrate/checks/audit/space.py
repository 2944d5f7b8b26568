"""What an image carries for nothing: CUDA libraries twice or that nobody opens, a toolkit beside the wheels."""

import re
from collections.abc import Iterator, Mapping

from graphcrate.checks.audit.loading import Loader
from graphcrate.checks.audit.packages import BASE, Packages, short
from graphcrate.model.audit import Binary, Check, Contents, Finding

#: CUDA's own libraries, which wheels (nvidia-*, torch of before 2.0) and toolkits bring
_CUDA = re.compile(
    r"lib(cublas|cublasLt|cudart|cudnn|cufft|cufftw|cufile|cupti|curand|cusolver|cusolverMg|cusparse|cusparseLt|nccl"
    r"|npp[a-z]*|nvblas|nvgraph|nvjpeg|nvJitLink|nvrtc|nvToolsExt|nvshmem_host)(-[0-9a-f]{8})?\.so([.\d]*)"
)
_NOTABLE = 1_000_000  #: bytes; what is smaller is not worth a line


def findings(contents: Contents, packages: Packages, loader: Loader) -> Iterator[Finding]:
    """All of them, with the bytes that each costs."""
    cuda = {path: binary for path, binary in contents.binaries.items() if _CUDA.fullmatch(path.rpartition("/")[2])}
    outside = {path for path in cuda if any(path.startswith(f"{folder}/") for folder in contents.toolkit)}
    in_wheels = {path: binary for path, binary in cuda.items() if path not in outside and packages.owner(path) != BASE}
    yield from _toolkits(contents, in_wheels)
    inside = {path: binary for path, binary in cuda.items() if path not in outside}
    copied = dict(_copies(packages, inside))
    for path, first in copied.items():
        what = f"is a second copy of {short(first)} ({packages.owner(first).name})"
        owner = packages.owner(path)
        if packages.owner(first) in packages.required(owner):
            fix = ""  # a wheel that both brings and requires it: nobody can take one away
        else:
            fix = "remove one of the two: they may even be mixed"
        yield _finding(packages, "copies", path, cuda[path], what, fix)
    yield from _unused(contents, packages, loader, {path: one for path, one in in_wheels.items() if path not in copied})


def _toolkits(contents: Contents, in_wheels: Mapping[str, Binary]) -> Iterator[Finding]:
    if contents.meant or not in_wheels:
        return
    for folder, size in sorted(contents.toolkit.items()):
        yield Finding(
            check="toolkit",
            severity="warn",
            package=BASE.name,
            file=folder,
            what=f"a CUDA toolkit of {_told(size)} beside the CUDA libraries of the wheels",
            breaks="nothing, but every node pulls it, and LD_LIBRARY_PATH may mix the two",
            fix="start from an image without CUDA: the wheels bring what torch needs",
            bytes=size,
        )


def _copies(packages: Packages, cuda: Mapping[str, Binary]) -> Iterator[tuple[str, str]]:
    """(second copy, first) of libraries with one name, whatever a wheel's repair added to it."""
    seen: dict[str, str] = {}
    for path in sorted(cuda, key=lambda path: (packages.owner(path) == BASE, path)):
        found = _CUDA.fullmatch(path.rpartition("/")[2])
        assert found is not None
        version = found[3].strip(".").split(".")[0]
        key = f"{found[1]}.{version}"
        if key in seen:
            yield path, seen[key]
        else:
            seen[key] = path


def _unused(contents: Contents, packages: Packages, loader: Loader, cuda: Mapping[str, Binary]) -> Iterator[Finding]:
    """Libraries that nothing links and nothing names, directly or by way of others that are used."""
    names: dict[str, list[str]] = {}
    for path, binary in cuda.items():
        for one in {binary.soname, path.rpartition("/")[2]} - {""}:
            names.setdefault(one, []).append(path)
            names.setdefault(one.partition(".so")[0] + ".so", []).append(path)
    waiting = [path for path in contents.binaries if path not in cuda]
    used = set[str]()
    while waiting:
        current = waiting.pop()
        binary = contents.binaries[current]
        reached = {path for one in (*binary.needed, *binary.mentions) for path in names.get(one, ())}
        reached |= set(loader.closure(current)[0]) & cuda.keys() if not binary.fault else set()
        waiting += reached - used
        used |= reached
    for path in sorted(cuda.keys() - used):
        if cuda[path].size >= _NOTABLE:
            yield _finding(packages, "unused", path, cuda[path], "no other library links it or names it", "")


def _finding(packages: Packages, check: Check, path: str, binary: Binary, what: str, fix: str) -> Finding:
    return Finding(
        check=check,
        severity="warn" if fix else "note",
        package=packages.owner(path).name,
        file=short(path),
        what=f"{what}: {_told(binary.size)}",
        breaks="nothing, but every node pulls it",
        fix=fix,
        bytes=binary.size,
    )


def _told(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
