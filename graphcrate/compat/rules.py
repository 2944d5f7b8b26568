"""Whether a stack runs on a target: each rule says what it finds, the first that rejects decides. Pure.

What is not known of the target is assumed and named; what nobody knows of the stack makes the verdict `unknown`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec
from packaging.specifiers import SpecifierSet

from graphcrate.compat import drivers, facts, glt, pyg, runtimes
from graphcrate.compat.drivers import numbers
from graphcrate.model.target import STATUSES, Reason, Software, Status, Target, Verdict
from graphcrate.model.words import listed

DRIVERS = "CUDA 13.2 release notes, tables 2 and 3"
COMPATIBILITY = "docs.nvidia.com/deploy/cuda-compatibility"
_BINARY = "CUDA programming guide, binary and PTX compatibility"
_CPU = "cpu"

Effect = Literal["rejects", "unknown", "jit", "assumes", "note"]


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule says of a stack on a target with one driver (empty: not known)."""

    effect: Effect
    what: str
    source: str = ""
    fix: str = ""


Rule = Callable[[Software, Target, str], Iterator[_Found]]


def judge(stack: Software, target: Target) -> Verdict:
    """The verdict with the driver that serves best, of several the oldest."""
    verdicts = [_judge(stack, target, driver) for driver in sorted(target.drivers, key=numbers) or [""]]
    return min(verdicts, key=lambda verdict: STATUSES.index(verdict.status))


def capability_name(model: str, *more: str) -> str:
    """ "V100 (sm_70)", "H100, H200 (sm_90)", or "sm_70" of a bare architecture. `more`: models of the same one."""
    code = f"sm_{facts.compute_capability(model).replace('.', '')}"
    names = [name for name in map(facts.gpu_model, (model, *more)) if name != code]
    return f"{', '.join(names)} ({code})" if names else code


def _judge(stack: Software, target: Target, driver: str) -> Verdict:
    assumes: list[str] = []
    notes: list[str] = []
    reasons: dict[str, list[Reason]] = {"unknown": [], "jit": []}
    for name, rule in RULES.items():
        for found in rule(stack, target, driver):
            reason = Reason(rule=name, what=found.what, source=found.source, fix=found.fix)
            if found.effect == "rejects":
                return Verdict(status="rejected", reasons=(_beyond(reason, stack, target),), driver=driver)
            if found.effect in reasons:
                reasons[found.effect].append(reason)
            else:
                (assumes if found.effect == "assumes" else notes).append(found.what)
    status: Status = "unknown" if reasons["unknown"] else "jit" if reasons["jit"] else "native"
    return Verdict(
        status=status,
        reasons=(*reasons["unknown"], *reasons["jit"]),
        assumes=tuple(dict.fromkeys(assumes)),
        notes=tuple(dict.fromkeys(notes)),
        driver=driver,
    )


def _beyond(reason: Reason, stack: Software, target: Target) -> Reason:
    """The reason; where it is the driver, with what else is in the way: a person would update it in vain."""
    if reason.rule != "driver":
        return reason
    rest = _judge(stack, target, "")
    if rest.accepted:
        return reason
    other = rest.reasons[0]
    fix = f"no driver is enough: {other.what}" + (f"; {other.fix}" if other.fix else "")
    return msgspec.structs.replace(reason, fix=fix)


def _device(stack: Software, target: Target, driver: str) -> Iterator[_Found]:
    """Whether a GPU comes in at all."""
    if stack.torch_cuda != _CPU:
        if target.gpus == ():
            yield _Found(effect="note", what="there is no GPU: it computes on the CPU, and its CUDA libraries lie idle")
        return
    if target.gpus or target.drivers:  # whoever names a driver has a GPU, named or not
        idle = listed(target.gpus) if target.gpus else "the GPU, which was not named,"
        yield _Found(
            effect="rejects",
            what=f"torch for the CPU leaves {idle} idle",
            source="a torch for the CPU has no CUDA",
            fix="a variant for CUDA",
        )


def _uses_gpu(stack: Software, target: Target) -> bool:
    return stack.torch_cuda != _CPU and target.gpus != ()


def _driver(stack: Software, target: Target, driver: str) -> Iterator[_Found]:
    """The host's driver runs programs of its own CUDA, of older ones, and from CUDA 11 on of its major version."""
    if not _uses_gpu(stack, target):
        return
    oldest = drivers.oldest_driver(stack.torch_cuda)
    if not oldest:
        yield _Found(effect="unknown", what=f"which driver CUDA {stack.torch_cuda} wants is not known", source=DRIVERS)
        return
    major, dashed = stack.torch_cuda.partition(".")[0], stack.torch_cuda.replace(".", "-")
    fix = f"driver >= {oldest}"
    if whom := _forward_compatible(target.gpus or ()):
        fix += f"; for {whom} NVIDIA's package cuda-compat-{dashed} may do instead"
    yield from _wants(driver, oldest, f"CUDA {major} wants driver {oldest} or newer", fix, DRIVERS)


def _forward_compatible(gpus: Sequence[str]) -> str:
    """Whom cuda-compat packages serve, in words; empty where not all. An architecture may be a data center GPU's."""
    able = {capability for name, capability in facts.all_gpus().items() if drivers.forward_compatible(name)}
    bare = [gpu for gpu in gpus if gpu.startswith("sm_") and facts.compute_capability(gpu) in able]
    if not all(gpu in bare or drivers.forward_compatible(gpu) for gpu in gpus):
        return ""
    return f"data center GPUs of {listed(bare)}" if bare else "this GPU" if gpus else ""


def _wants(driver: str, oldest: str, what: str, fix: str, source: str) -> Iterator[_Found]:
    """Rejects a driver that is older. One of which only the branch is known ("470") may be any of that branch."""
    have, want = numbers(driver), numbers(oldest)
    if not driver:
        yield _Found(effect="assumes", what=f"driver {oldest} or newer")
    elif have == want[: len(have)] and len(have) < len(want):
        yield _Found(effect="assumes", what=f"driver {oldest} or newer, of the branch {driver}")
    elif have < want:
        yield _Found(effect="rejects", what=f"{what}, and this is {driver}", source=source, fix=fix)


def _torch(stack: Software, target: Target, driver: str) -> Iterator[_Found]:
    """torch's own kernels for each GPU."""
    if not _uses_gpu(stack, target):
        return
    build = facts.torch_build(stack.torch, stack.torch_cuda)
    told = f"torch {stack.torch} for CUDA {stack.torch_cuda}"
    if build is None:
        source = "graphcrate/compat/data/torch.toml has no entry"
        yield _Found(effect="unknown", what=f"which GPUs {told} has code for is not known", source=source)
        return
    source = _who_says(build)
    if target.gpus is None:
        models = [name for name, capability in facts.gpus().items() if facts.has_code(build.sm, capability)]
        yield _Found(effect="assumes", what=f"a GPU that {told} has code for: {', '.join(models)}")
        return
    for model in target.gpus:
        capability = facts.compute_capability(model)
        if facts.has_code(build.sm, capability):
            continue
        name = capability_name(model)
        if build.ptx is None:
            what = f"{told} has no machine code for {name}, and whether it has PTX is not known"
            yield _Found(effect="unknown", what=what, source=source)
        elif any(facts.compiles_for(ptx, capability) for ptx in build.ptx):
            own = drivers.own_driver(stack.torch_cuda)
            yield from _compiled_by_driver(
                f"{told} has PTX alone for {name}", own, driver, "a variant with machine code"
            )
        else:
            fix = _torch_with_code(stack, capability)
            yield _Found(effect="rejects", what=f"{told} has no code for {name}", source=source, fix=fix)


def _who_says(build: facts.TorchBuild) -> str:
    return f"{build.known}: {build.source}" if build.source else build.known


def _torch_with_code(stack: Software, capability: str) -> str:
    """Which torch has code: the same release for another CUDA, else the newest that has."""
    having = [build for build in facts.torch_builds() if facts.has_code(build.sm, capability)]
    version = stack.torch.partition("+")[0]
    same = [build for build in having if build.torch == version]
    name = f"sm_{capability.replace('.', '')}"
    if same:
        best = max(same, key=lambda build: numbers(build.cuda))
        return f"the CUDA {best.cuda} build of torch {version} has {name} ({best.known})"
    if having:
        best = max(having, key=lambda build: (numbers(build.torch), numbers(build.cuda)))
        return f"the newest torch known to have {name} is {best.torch} for CUDA {best.cuda} ({best.known})"
    return f"no torch is known to have {name}"


def _compiled_by_driver(what: str, own: str, driver: str, fix: str) -> Iterator[_Found]:
    """PTX runs where the driver is as new as the toolkit that made it."""
    yield _Found(effect="jit", what=f"{what}: the driver compiles it at the first start", source=_BINARY, fix=fix)
    if not own:
        yield _Found(effect="unknown", what=f"{what}; which driver compiles that is not known", source=COMPATIBILITY)
        return
    wanted = f"{what}, which drivers from {own} on compile"
    yield from _wants(driver, own, wanted, f"driver >= {own}, or {fix}", COMPATIBILITY)


def _extensions(stack: Software, target: Target, driver: str) -> Iterator[_Found]:
    """The extensions' kernels, as we would compile them."""
    if not _uses_gpu(stack, target) or not stack.extensions:
        return
    if pyg.has_wheels(stack.torch, stack.torch_cuda) is False:
        what = (
            f"PyG's pages have no wheels for torch {stack.torch} and CUDA {stack.torch_cuda}: extensions are compiled"
        )
        yield _Found(effect="note", what=f"{what}, and pyg_lib is left out" if "pyg_lib" in stack.extensions else what)
    if stack.impossible:
        fix = "TOOLKIT=image, or EXTENSIONS=wheels"
        yield _Found(effect="rejects", what=stack.impossible, source="what nvcc makes, measured", fix=fix)
        return
    sass = [name.removesuffix("+PTX") for name in stack.architectures]
    ptx = [name.removesuffix("+PTX") for name in stack.architectures if name.endswith("+PTX")]
    for model in target.gpus or ():
        capability = facts.compute_capability(model)
        name, names = capability_name(model), listed(stack.extensions)
        rebuilt = f"TORCH_CUDA_ARCH_LIST={capability}"
        if facts.has_code(sass, capability):
            continue
        if any(facts.compiles_for(one, capability) for one in ptx):
            own = drivers.own_driver(".".join(stack.nvcc.split(".")[:2]))
            fix = f"TOOLKIT=image, where it is newer than nvcc {stack.nvcc}"
            yield from _compiled_by_driver(f"{names} have PTX alone for {name}", own, driver, fix)
        else:
            what = f"{names} are compiled for {', '.join(stack.architectures) or 'no GPU'}, and not for {name}"
            fix = f"recompile {names} with {rebuilt}: make image GPU={model.lower()}"
            yield _Found(effect="rejects", what=what, source="the recipe's architectures", fix=fix)


def _python(stack: Software, target: Target, driver: str) -> Iterator[_Found]:
    """The image's Python with what torch and PyG declare."""
    build = facts.torch_build(stack.torch, stack.torch_cuda)
    release = next((one for one in pyg.releases() if one.version == stack.torch_geometric), None)
    wanted = [(f"torch {stack.torch}", build.python, _who_says(build))] if build is not None else []
    wanted += [(f"PyG {release.version}", release.python, release.known)] if release is not None else []
    for name, python, source in wanted:
        if python and not SpecifierSet(python).contains(stack.python):
            what = f"{name} wants Python {python}; the image has {stack.python}"
            yield _Found(effect="rejects", what=what, source=source, fix=f"a base with Python {python} in the recipe")


def _glt(stack: Software, target: Target, driver: str) -> Iterator[_Found]:
    """graphlearn-torch with this torch, and its kernels for each GPU."""
    if not stack.glt:
        return
    source = "graphcrate/compat/data/glt.toml: measured on its wheels and torch's"
    version = stack.torch.partition("+")[0]
    judged = glt.judge(stack.glt, version, stack.torch_cuda, stack.python, stack.packages)
    release = next((one for one in glt.releases() if one.version == stack.glt), None)
    for reason in judged.reasons[:1]:
        fix = judged.next_step or _torch_for_glt(release or glt.releases()[-1])
        yield _Found(effect="rejects", what=reason.rstrip("."), source=source, fix=fix)
        return
    if release is None:
        yield _Found(effect="unknown", what=f"nobody has checked {glt.NAME} {stack.glt}", source=source)
        return
    for model in target.gpus or () if _uses_gpu(stack, target) else ():
        capability = facts.compute_capability(model)
        if facts.has_code(release.sass, capability):
            continue
        what = f"{glt.NAME} {stack.glt} has PTX alone for {capability_name(model)}"
        if any(facts.compiles_for(ptx, capability) for ptx in release.ptx):
            yield from _compiled_by_driver(what, release.driver, driver, "a GPU up to sm_75")
        else:
            no_code = f"{glt.NAME} {stack.glt} has no code for {capability_name(model)}"
            yield _Found(effect="rejects", what=no_code, source=source, fix="another GPU")


def _torch_for_glt(release: glt.Release) -> str:
    """What a release wants, where no release wants what there is."""
    return (
        f"{glt.NAME} {release.version} wants torch {listed(release.torch)} for CUDA {release.cuda} on Python "
        f"{listed(release.python)}"
    )


def _base(stack: Software, target: Target, driver: str) -> Iterator[_Found]:
    """The base's C library between the kernel below and the driver's libraries above."""
    limits = runtimes.known()
    suite = limits.suites.get(stack.suite)
    if suite is None:
        if stack.suite or target.kernel:
            what = "the base's C library is not known: which kernel it wants, `check` tells of the built image"
            yield _Found(effect="note", what=what)
        return
    build = facts.torch_build(stack.torch, stack.torch_cuda)
    if build is not None and build.glibc and numbers(suite.glibc) < numbers(build.glibc):
        what = f"torch {stack.torch} wants glibc {build.glibc}; Debian {stack.suite} has {suite.glibc}"
        yield _Found(effect="rejects", what=what, source=_who_says(build), fix="a newer suite in the recipe")
    if target.kernel and numbers(target.kernel) < numbers(suite.kernel):
        what = f"glibc {suite.glibc} of Debian {stack.suite} needs Linux {suite.kernel}, and this is {target.kernel}"
        yield _Found(effect="rejects", what=what, source=suite.known, fix=f"Linux {suite.kernel} or newer")
    wanted = limits.driver_glibc
    if _uses_gpu(stack, target) and numbers(suite.glibc) < numbers(wanted.since):
        what = f"the driver's libraries want glibc {wanted.since}; Debian {stack.suite} has {suite.glibc}"
        yield _Found(effect="rejects", what=what, source=wanted.source, fix="a newer suite in the recipe")
    if target.glibc and "apptainer" in target.runtimes and numbers(suite.glibc) < numbers(target.glibc):
        what = f"glibc {suite.glibc} is older than the host's {target.glibc}: graphics libraries of --nv may not load"
        yield _Found(effect="note", what=what)


def _runtime(stack: Software, target: Target, driver: str) -> Iterator[_Found]:
    """How the image gets there."""
    limits = runtimes.known()
    apptainer = target.runtimes.get("apptainer", "")
    if apptainer and numbers(apptainer) < numbers(limits.sif.since):
        what = f"SIF needs Singularity {limits.sif.since}, and this is {apptainer}"
        fix = "a folder: ./build.py convert REF --to rootfs"
        yield _Found(effect="rejects", what=what, source=limits.sif.source, fix=fix)
    enroot = target.runtimes.get("pyxis", "")
    if enroot and numbers(enroot) < numbers(limits.enroot_oci.since):
        what = f"enroot {enroot} reads no OCI manifest: push it with skopeo copy --format v2s2"
        yield _Found(effect="note", what=what)
    mounts = "apptainer" in target.runtimes  # enroot unpacks
    if mounts and target.kernel and numbers(target.kernel) < numbers(limits.kernel_zstd.since):
        what = f"Linux {target.kernel} mounts no SIF of zstd: convert with gzip, which is the default"
        yield _Found(effect="note", what=what)


#: In the order in which they are asked.
RULES: dict[str, Rule] = {
    "device": _device,
    "driver": _driver,
    "GPU code of torch": _torch,
    "GPU code of extensions": _extensions,
    "Python": _python,
    "graphlearn-torch": _glt,
    "C library and kernel": _base,
    "runtime": _runtime,
}
