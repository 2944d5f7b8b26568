"""GPU code of packages, compared with the GPUs that the image is meant for."""

from collections.abc import Iterator, Mapping, Sequence
from posixpath import basename
from typing import Literal

import msgspec

from graphcrate.checks.audit.packages import BASE, TORCH, Packages
from graphcrate.compat.facts import gpu_code
from graphcrate.compat.facts.facts import is_older, ordered
from graphcrate.compat.facts.gpu_table import capability_name, compute_capability, models_by_capability
from graphcrate.compat.facts.packages import of_feature
from graphcrate.model.audit import AuditFinding, Contents, GpuVerdict, PackageCode, Severity
from graphcrate.model.command import command
from treeaudit.values import GpuCode

_USUAL = "A100"  #: the GPU that is named where code is for it and for others
_UNREADABLE = "has code for GPUs that is not understood"
_STATUSES: Mapping[Severity, Literal["fails", "jit"]] = {"fail": "fails", "warn": "jit"}


def of_packages(contents: Contents, packages: Packages) -> tuple[PackageCode, ...]:
    """Each package's code, of all its libraries together."""
    rows = []
    for package in packages.with_binaries():
        codes = [contents.binaries[path].code for path in packages.binaries(package)]
        sass = {name for code in codes for name in code.sass}
        some = ordered({name for code in codes for name in code.some} - sass)
        together = GpuCode(sass=ordered(sass), some=some, ptx=ordered({name for code in codes for name in code.ptx}))
        if together != GpuCode():
            rows.append(PackageCode(package=package.name, version=packages.version(package), code=together))
    return tuple(rows)


def verdicts(contents: Contents, packages: Packages) -> Mapping[str, GpuVerdict]:
    """Judge, for the GPUs of each listed capability ("7.0"), what they run of an image."""
    return {
        capability: msgspec.structs.replace(
            _verdict(tuple(findings(contents, packages, models[:1]))), lost=_lost(contents, packages, capability)
        )
        for capability, models in models_by_capability().items()
    }


def _verdict(findings: Sequence[AuditFinding]) -> GpuVerdict:
    """Sum up the findings on one GPU. What NVIDIA's libraries lack leaves other ways."""
    for severity, status in _STATUSES.items():
        for finding in findings:
            if finding.severity == severity and not gpu_code.is_nvidias(finding.package, finding.file):
                why = f"{finding.package} {finding.file}: {finding.what}"
                return GpuVerdict(status="unknown" if _UNREADABLE in finding.what else status, why=why)
    return GpuVerdict(status="native")


def _lost(contents: Contents, packages: Packages, capability: str) -> tuple[str, ...]:
    """Features that are made for a GPU and have no code for it, or code in few parts where the library is not NVIDIA's.

    libtorch_cuda_linalg of torch 2.15 has MAGMA for 8.0 and newer, and kernels of torch itself for 7.5 too.
    """
    features = dict[str, None]()
    for path in _with_code(contents, packages):
        only, serves = of_feature(path), gpu_code.serves(contents.binaries[path].code, capability)
        if only is None or is_older(capability, only.since):
            continue
        is_nvidias = gpu_code.is_nvidias(packages.owner(path).name, path)
        if serves == "none" or (serves == "few" and not is_nvidias):
            features[only.feature] = None
    return tuple(features)


def findings(contents: Contents, packages: Packages, gpus: Sequence[str]) -> Iterator[AuditFinding]:
    """For each GPU model, the libraries that have no code for it. What a library of one feature lacks is a note."""
    models_of: dict[str, list[str]] = {}
    for model in gpus:
        models_of.setdefault(compute_capability(model), []).append(model)
    libraries = [
        path for package in packages.with_binaries() if package.name == TORCH for path in packages.binaries(package)
    ]
    for_cuda = any(basename(path).startswith(("libtorch_cuda", "libc10_cuda")) for path in libraries)
    if gpus and libraries and not for_cuda and not contents.left:  # those may be in a layer that was not read
        what = "is PyTorch for the CPU: it has no code for any GPU"
        fix = f"{command('image', '…', gpu=gpus[0].lower())}    takes a PyTorch for CUDA"
        yield packages.finding("architectures", "fail", libraries[0], what, "the GPU stays idle", fix)
        return
    for path, binary in sorted(contents.binaries.items()):
        if binary.code_fault and packages.owner(path) != BASE:
            what = f"{_UNREADABLE} ({binary.code_fault})"
            breaks = "nothing, as far as is known: for which GPUs it is, is not known"
            yield packages.finding("architectures", "warn", path, what, breaks)
    for path in _with_code(contents, packages):
        code, owner = contents.binaries[path].code, packages.owner(path)
        for capability, models in models_of.items():
            if lacks := _lacks(path, code, owner.name, capability, capability_name(*models)):
                yield packages.finding("architectures", lacks[0], path, *lacks[1:])


def _with_code(contents: Contents, packages: Packages) -> Iterator[str]:
    """Libraries of packages that have code; of NVIDIA's those alone that another library links or names."""
    named: dict[str, set[str]] = {}  # by whom
    for path, binary in contents.binaries.items():
        for name in (*binary.needed, *binary.mentions):
            named.setdefault(name, set()).add(path)
    for path, binary in sorted(contents.binaries.items()):
        if (owner := packages.owner(path)) == BASE or not gpu_code.tells(path, binary.code):
            continue
        is_named = named.get(binary.soname or basename(path), set()) - {path}
        if is_named or not gpu_code.is_nvidias(owner.name, path):
            yield path


def _lacks(
    path: str, code: GpuCode, package: str, capability: str, label: str
) -> tuple[Severity, str, str, str] | None:
    """(severity, what, what breaks, fix) of a library that does not run natively as a whole."""
    serves, own = gpu_code.serves(code, capability), not gpu_code.is_nvidias(package, path)
    if serves == "native":
        return None
    only, fix = of_feature(path), _fix(path, code, package, capability, label)
    lacks = {"jit": "PTX alone for {}", "few": "code for {} in few of its parts", "none": "no code for {}"}
    what = f"has {lacks[serves].format(label)}: it has {', '.join((*code.sass, *code.some)) or 'no machine code'}"
    if serves == "jit":
        breaks = "the driver compiles it at the first start, which is slow, and only if it is new enough"
        return "note" if only else "warn", what, breaks, fix
    if serves == "few" and not own:
        return None
    if only:
        why = only.fix or ("" if is_older(capability, only.since) else fix)
        return "note", what, f"{only.feature}; all else works", why
    if serves == "few" and package != TORCH:
        breaks = "the others end in `no kernel image is available`, where they are made for newer GPUs alone"
        return "note", what, breaks, ""
    breaks = "`no kernel image is available for execution on the device`" if own else "its functions fail"
    return "fail" if own else "warn", what, breaks, fix


def _fix(path: str, code: GpuCode, package: str, capability: str, label: str) -> str:
    """Say what to do where a library's code is not for a GPU. A package that was compiled may have come as a wheel."""
    model = label.partition(" ")[0].rstrip(",").lower()
    if package == TORCH or gpu_code.is_nvidias(package, path):
        return f"another torch: {command('explain', gpu=model)}"
    compiled = f"recompile {package} with TORCH_CUDA_ARCH_LIST={capability}: {command('image', '…', gpu=model)}"
    served = [models[0] for other, models in models_by_capability().items() if gpu_code.serves(code, other) == "native"]
    if not served:
        return compiled
    known = _USUAL if _USUAL in served else served[0]
    return f"{compiled}; as it is it runs on {known}: {command('image', '…', gpu=known.lower())}"
