"""Wasted space of an image: CUDA libraries twice or never opened, a toolkit beside the wheels."""

import re
from collections.abc import Iterator, Mapping
from posixpath import basename

from graphcrate.checks.audit.loading import Loader
from graphcrate.checks.audit.packages import BASE, Packages, short
from graphcrate.model.allowance import Check
from graphcrate.model.audit import AuditFinding, Contents, Severity
from graphcrate.model.words import size
from treeaudit.values import Binary

#: CUDA's own libraries, which wheels (nvidia-*, torch before 2.0) and toolkits bring
_CUDA = re.compile(
    r"lib(cublas|cublasLt|cudart|cudnn|cufft|cufftw|cufile|cupti|curand|cusolver|cusolverMg|cusparse|cusparseLt|nccl"
    r"|npp[a-z]*|nvblas|nvgraph|nvjpeg|nvJitLink|nvrtc|nvToolsExt|nvshmem_host)(-[0-9a-f]{8})?\.so([.\d]*)"
)
_NOTABLE = 1_000_000  #: bytes; what is smaller is not worth a line


def findings(contents: Contents, packages: Packages, loader: Loader) -> Iterator[AuditFinding]:
    """All of them, with the bytes that each costs."""
    cuda = {path: binary for path, binary in contents.binaries.items() if _CUDA.fullmatch(basename(path))}
    outside = {path for path in cuda if any(path.startswith(f"{folder}/") for folder in contents.toolkit)}
    in_wheels = {path: binary for path, binary in cuda.items() if path not in outside and packages.owner(path) != BASE}
    breaks = "nothing, but every node pulls it, and LD_LIBRARY_PATH may mix the two"
    fix = "start from an image without CUDA: the wheels bring what torch needs"
    for folder, cost in sorted(contents.toolkit.items()) if in_wheels and not contents.meant else ():
        what = f"a CUDA toolkit of {size(cost)} beside the CUDA libraries of the wheels"
        yield AuditFinding("toolkit", "warn", BASE.name, folder, what, breaks, fix, cost)
    inside = {path: binary for path, binary in cuda.items() if path not in outside}
    copied = dict(_copies(packages, inside))
    for path, first in copied.items():
        what = f"is a second copy of {short(first)} ({packages.owner(first).name})"
        owner = packages.owner(path)
        # of a wheel that both brings and requires it none can be taken away
        is_required = packages.owner(first) in packages.required(owner)
        fix = "" if is_required else "remove one of the two: they may even be mixed"
        yield _finding(packages, "copies", path, cuda[path], what, fix)
    for path in _unused(contents, loader, {path: file for path, file in in_wheels.items() if path not in copied}):
        yield _finding(packages, "unused", path, cuda[path], "no other library links it or names it", "")


def _copies(packages: Packages, cuda: Mapping[str, Binary]) -> Iterator[tuple[str, str]]:
    """(second copy, first) of libraries with one name, without the hash of a wheel's repair."""
    seen: dict[str, str] = {}
    for path in sorted(cuda, key=lambda path: (packages.owner(path) == BASE, path)):
        key = _CUDA.sub(r"\1\3", basename(path)).split(".")[:2]
        first = seen.setdefault(".".join(key), path)
        if first != path:
            yield path, first


def _unused(contents: Contents, loader: Loader, cuda: Mapping[str, Binary]) -> list[str]:
    """Large libraries that nothing links and nothing names, directly or by way of others that are used."""
    names: dict[str, list[str]] = {}
    for path, binary in cuda.items():
        for name in {binary.soname, basename(path)} - {""}:
            names.setdefault(name, []).append(path)
            names.setdefault(name.partition(".so")[0] + ".so", []).append(path)
    waiting = [path for path in contents.binaries if path not in cuda]
    used = set[str]()
    while waiting:
        current = waiting.pop()
        binary = contents.binaries[current]
        reached = {path for name in (*binary.needed, *binary.mentions) for path in names.get(name, ())}
        if not binary.fault:
            reached |= cuda.keys() & loader.closure(current)[0]
        waiting += reached - used
        used |= reached
    return sorted(path for path in cuda.keys() - used if cuda[path].size >= _NOTABLE)


def _finding(packages: Packages, check: Check, path: str, binary: Binary, what: str, fix: str) -> AuditFinding:
    severity: Severity = "warn" if fix else "note"
    breaks = "nothing, but every node pulls it"
    return packages.finding(check, severity, path, f"{what}: {size(binary.size)}", breaks, fix, binary.size)
