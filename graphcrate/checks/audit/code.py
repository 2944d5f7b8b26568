"""Whether packages have code for the GPUs that the image is meant for."""

from collections.abc import Iterator, Sequence
from posixpath import basename

from graphcrate.checks.audit.packages import BASE, TORCH, Packages
from graphcrate.compat.facts import compiles_for, compute_capability, has_code, is_older, ordered
from graphcrate.compat.packages import of_feature
from graphcrate.compat.rules import capability_name
from graphcrate.model.audit import Contents, Finding, GpuCode, PackageCode, Severity


def of_packages(contents: Contents, packages: Packages) -> tuple[PackageCode, ...]:
    """Each package's code, of all its libraries together."""
    found = []
    for package in packages.with_binaries():
        codes = [contents.binaries[path].code for path in packages.binaries(package)]
        sass = {name for code in codes for name in code.sass}
        some = ordered({name for code in codes for name in code.some} - sass)
        together = GpuCode(sass=ordered(sass), some=some, ptx=ordered({name for code in codes for name in code.ptx}))
        if together != GpuCode():
            found.append(PackageCode(package=package.name, version=packages.version(package), code=together))
    return tuple(found)


def findings(contents: Contents, packages: Packages, gpus: Sequence[str]) -> Iterator[Finding]:
    """For each GPU model, the libraries that have no code for it.

    Of NVIDIA's own, those that nobody opens do not matter. What a library of one feature lacks is a note.
    """
    wanted: dict[str, list[str]] = {}
    for model in gpus:
        wanted.setdefault(compute_capability(model), []).append(model)
    libraries = [path for one in packages.with_binaries() if one.name == TORCH for path in packages.binaries(one)]
    for_cuda = any(basename(path).startswith(("libtorch_cuda", "libc10_cuda")) for path in libraries)
    if gpus and libraries and not for_cuda:
        what = "is PyTorch for the CPU: it has no code for any GPU"
        fix = f"make image GPU={gpus[0].lower()}    takes a PyTorch for CUDA"
        yield packages.finding("architectures", "fail", libraries[0], what, "the GPU stays idle", fix)
        return
    named: dict[str, set[str]] = {}  # by whom
    for path, binary in contents.binaries.items():
        for name in (*binary.needed, *binary.mentions):
            named.setdefault(name, set()).add(path)
    for path, binary in sorted(contents.binaries.items()):
        if (owner := packages.owner(path)) == BASE:
            continue
        if binary.code_fault:
            what = f"has code for GPUs that is not understood ({binary.code_fault})"
            breaks = "nothing, as far as is known: for which GPUs it is, is not known"
            yield packages.finding("architectures", "warn", path, what, breaks)
        is_named = named.get(binary.soname or basename(path), set()) - {path}
        if binary.code == GpuCode() or (_is_nvidias(owner.name) and not is_named):
            continue
        for capability, models in wanted.items():
            if lacks := _lacks(path, binary.code, owner.name, capability, capability_name(*models)):
                yield packages.finding("architectures", lacks[0], path, *lacks[1:])


def _lacks(
    path: str, code: GpuCode, package: str, capability: str, label: str
) -> tuple[Severity, str, str, str] | None:
    """(severity, what, what breaks, fix) of a library that does not run natively as a whole."""
    has = f"it has {', '.join((*code.sass, *code.some)) or 'no machine code'}"
    own = not _is_nvidias(package)
    if has_code(code.sass, capability):
        return None
    if has_code(code.some, capability):
        breaks = "the others end in `no kernel image is available`, where they are made for newer GPUs alone"
        return ("note", f"has code for {label} in few of its parts: {has}", breaks, "") if own else None
    fix = _fix(package, capability, label)
    if any(compiles_for(ptx, capability) for ptx in code.ptx):
        breaks = "the driver compiles it at the first start, which is slow, and only if it is new enough"
        return "warn", f"has PTX alone for {label}: {has}", breaks, fix
    if only := of_feature(path):
        breaks = f"{only.feature}; all else works"
        return "note", f"has no code for {label}: {has}", breaks, "" if is_older(capability, only.since) else fix
    breaks = "`no kernel image is available for execution on the device`" if own else "its functions fail"
    return "fail" if own else "warn", f"has no code for {label}: {has}", breaks, fix


def _fix(package: str, capability: str, label: str) -> str:
    model = label.partition(" ")[0].rstrip(",").lower()
    if package == TORCH or _is_nvidias(package):
        return f"another torch: ./build.py explain --gpu {model}"
    return f"recompile {package} with TORCH_CUDA_ARCH_LIST={capability}: make image GPU={model}"


def _is_nvidias(package: str) -> bool:
    return package.startswith("nvidia-")
