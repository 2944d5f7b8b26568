"""Whether packages have code for the GPUs that the image is meant for."""

from collections.abc import Iterable, Iterator, Sequence

from graphcrate.checks.audit.packages import BASE, TORCH, Packages, short
from graphcrate.checks.audit.packages import name as name_of
from graphcrate.compat.facts import compiles_for, compute_capability, has_code, ordered
from graphcrate.compat.rules import capability_name
from graphcrate.model.audit import Contents, Finding, GpuCode, PackageCode


def of_packages(contents: Contents, packages: Packages) -> tuple[PackageCode, ...]:
    """Each package's code, of all its libraries together."""
    found = []
    for package in packages.with_binaries:
        codes = [contents.binaries[path].code for path in packages.binaries(package)]
        if any(code != GpuCode() for code in codes):
            version = packages.version(package)
            found.append(PackageCode(package=package.name, version=version, code=_together(codes)))
    return tuple(found)


def findings(contents: Contents, packages: Packages, gpus: Sequence[str]) -> Iterator[Finding]:
    """For each GPU model, the libraries that have no code for it.

    What NVIDIA's own libraries lack is not all they do (cuSPARSELt begins with 8.0), and those that nobody opens do
    not matter.
    """
    wanted: dict[str, list[str]] = {}
    for model in gpus:
        wanted.setdefault(compute_capability(model), []).append(model)
    named: dict[str, set[str]] = {}  # by whom
    for path, binary in contents.binaries.items():
        for name in (*binary.needed, *binary.mentions):
            named.setdefault(name, set()).add(path)
    for path, binary in sorted(contents.binaries.items()):
        owner, code = packages.owner(path), binary.code
        package = owner.name
        if owner != BASE and binary.code_fault:
            yield Finding(
                check="architectures",
                severity="warn",
                package=package,
                file=short(path),
                what=f"has code for GPUs that is not understood ({binary.code_fault})",
                breaks="nothing, as far as can be told: for which GPUs it is, is not known",
            )
        if owner == BASE or code == GpuCode():
            continue
        if _is_nvidias(package) and not named.get(binary.soname or name_of(path), set()) - {path}:
            continue
        for capability, models in wanted.items():
            if not runs_natively(code.sass, capability):
                yield from _finding(path, package, code, capability, capability_name(*models))


def _finding(path: str, package: str, code: GpuCode, capability: str, label: str) -> Iterator[Finding]:
    has = f"it has {', '.join((*code.sass, *code.some)) or 'no machine code'}"
    own = not _is_nvidias(package)
    if runs_natively(code.some, capability):
        if own:
            yield Finding(
                check="architectures",
                severity="note",
                package=package,
                file=short(path),
                what=f"has code for {label} in few of its parts: {has}",
                breaks="the others end in `no kernel image is available`, where they are made for newer GPUs alone",
            )
        return
    if any(compiles_for(ptx, capability) for ptx in code.ptx):
        yield Finding(
            check="architectures",
            severity="warn",
            package=package,
            file=short(path),
            what=f"has PTX alone for {label}: {has}",
            breaks="the driver compiles it at the first start, which is slow, and only if it is new enough",
            fix=_fix(package, capability, label),
        )
        return
    yield Finding(
        check="architectures",
        severity="fail" if own else "warn",
        package=package,
        file=short(path),
        what=f"has no code for {label}: {has}",
        breaks="`no kernel image is available for execution on the device`" if own else "what it does is not to be had",
        fix=_fix(package, capability, label),
    )


def _fix(package: str, capability: str, label: str) -> str:
    model = label.partition(" ")[0].rstrip(",").lower()
    if package == TORCH or _is_nvidias(package):
        return f"another torch: ./build.py explain --gpu {model}"
    return f"recompile {package} with TORCH_CUDA_ARCH_LIST={capability}: make image GPU={model}"


def _is_nvidias(package: str) -> bool:
    return package.startswith("nvidia-")


def runs_natively(sass: Iterable[str], capability: str) -> bool:
    """Whether any of this machine code runs. 9.0a runs on 9.0 alone, 10.0f on its family (CUDA programming guide)."""
    plain = []
    for name in sass:
        if name.endswith("a"):
            if name[:-1] == capability:
                return True
        else:
            plain.append(name.rstrip("f"))
    return has_code(plain, capability)


def _together(codes: Iterable[GpuCode]) -> GpuCode:
    codes = tuple(codes)
    sass = {name for code in codes for name in code.sass}
    return GpuCode(
        sass=ordered(sass),
        some=ordered({name for code in codes for name in code.some} - sass),
        ptx=ordered({name for code in codes for name in code.ptx}),
    )
