"""Rules on whether a stack runs on a target: each says what it finds, the first that rejects decides. Pure.

What is not known of the target is assumed and named; a missing fact of the stack makes the verdict `unknown`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec
from packaging.specifiers import SpecifierSet

from graphcrate.compat.facts import driver_table, facts, glt, gpu_table, packages, suites
from graphcrate.compat.facts.facts import numbers
from graphcrate.compat.variants.targets import Target
from graphcrate.model.audit import GpuVerdict
from graphcrate.model.command import command, filled, setting
from graphcrate.model.platform import DEFAULT, Platform, platform_named
from graphcrate.model.recipe import CHANNELS, Channel
from graphcrate.model.runtime import RUNTIMES
from graphcrate.model.words import listed

_DRIVERS = "CUDA 13.2 release notes, tables 2 and 3"
_MATRIX = "NVIDIA, CUDA Toolkit, Driver, and Architecture Matrix"
_COMPATIBILITY = "docs.nvidia.com/deploy/cuda-compatibility"
_BINARY = "CUDA programming guide, binary and PTX compatibility"
_PORTED = "graphcrate/compat/data/torch_ported.toml"
_GLT = "graphcrate/compat/data/glt.toml: measured on its wheels and torch's"

#: `native`: machine code for every GPU. `jit`: the driver compiles PTX first, which makes the first start slow.
#: `unknown`: not known, and nothing speaks against it.
Status = Literal["native", "jit", "unknown", "rejected"]
STATUSES: tuple[Status, ...] = get_args(Status)


class Software(msgspec.Struct, frozen=True, kw_only=True):
    """An image's software, as far as it matters to a machine."""

    torch: str  #: "2.0.1+cu118"; "*": not known yet
    torch_cuda: str  #: "11.7", or "cpu"
    python: str
    suite: str = ""  #: of its Debian; empty: another base
    extensions: tuple[str, ...] = ()  #: compiled ones, by their names in the recipe
    architectures: tuple[str, ...] = ()  #: that they are compiled for: "7.0", "8.0+PTX"
    nvcc: str = ""  #: version of what compiles them
    impossible: str = ""  #: why they cannot be compiled for the GPUs that were asked for
    torch_geometric: str = ""  #: version of PyG
    glt: str = ""  #: version of graphlearn-torch
    packages: tuple[str, ...] = ()  #: names of its distributions
    platform: str = DEFAULT.name  #: that it is for


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule's finding. `source`: who says so; `fix`: the nearest thing to change, where there is any."""

    rule: str
    what: str
    source: str
    fix: str = ""


class Judgement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reasons for the status (of a rejection the first), what is assumed, the oldest driver that it holds for.

    `lost`: what does not work on these GPUs though the stack runs. `by_driver`: it would run with another driver.
    """

    status: Status
    reasons: tuple[Reason, ...] = ()
    assumes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    driver: str = ""
    by_driver: bool = False

    @property
    def accepted(self) -> bool:
        return self.status != "rejected"


class Finding(NamedTuple):
    """A rule's finding on a stack and a target with one driver (empty: not known).

    `oldest`: the driver that an assumption needs; of several rules' the newest counts.
    """

    effect: Literal["rejects", "unknown", "jit", "assumes", "note", "loses"]
    what: str
    source: str = ""
    fix: str = ""
    oldest: str = ""


def judge(stack: Software, target: Target) -> Judgement:
    """The verdict with the driver that serves best, of several the oldest."""
    verdicts = [_judge(stack, target, driver) for driver in sorted(target.drivers, key=numbers) or [""]]
    return min(verdicts, key=lambda verdict: STATUSES.index(verdict.status))


def _judge(stack: Software, target: Target, driver: str) -> Judgement:
    by_effect: dict[str, list[Reason]] = {"unknown": [], "jit": [], "note": [], "loses": []}
    assumed = dict[str, str]()  # sentence → the oldest driver, where it is about one
    for name, rule in _RULES.items():
        for effect, what, source, fix, oldest in rule(stack, target, driver):
            if effect == "assumes":
                assumed[what] = oldest
            elif effect == "rejects":
                rest = _judge(stack, target, "") if name == "driver" else None
                if rest and not rest.accepted:
                    other = rest.reasons[0]  # besides the driver, which the user would update in vain
                    fix = f"no driver is enough: {other.what}" + (f"; {other.fix}" if other.fix else "")
                reason = Reason(rule=name, what=what, source=source, fix=fix)
                by_driver = rest is not None and rest.accepted
                return Judgement(status="rejected", reasons=(reason,), driver=driver, by_driver=by_driver)
            else:
                by_effect[effect].append(Reason(rule=name, what=what, source=source, fix=fix))
    status: Status = "unknown" if by_effect["unknown"] else "jit" if by_effect["jit"] else "native"
    return Judgement(
        status=status,
        reasons=(*by_effect["unknown"], *by_effect["jit"]),
        assumes=_newest(assumed),
        notes=tuple(dict.fromkeys(reason.what for reason in by_effect["note"])),
        lost=tuple(dict.fromkeys(reason.what for reason in by_effect["loses"])),
        driver=driver,
    )


def _newest(assumed: Mapping[str, str]) -> tuple[str, ...]:
    """Return the assumptions, of several on the driver the one that holds for all. `assumed`: each with its driver."""
    newest = max(filter(None, assumed.values()), key=numbers, default="")
    return tuple(what for what, oldest in assumed.items() if oldest in ("", newest))


def gpu_code(stack: Software, model: str) -> GpuVerdict:
    """Judge what a GPU runs of a stack by the code of torch, extensions and graphlearn-torch, for any driver."""
    if stack.torch_cuda == "cpu":
        return GpuVerdict(status="fails", why=f"torch {stack.torch} is for the CPU")
    target = Target(gpus=(model,))
    findings = [finding for rule in (_torch, _extensions, _glt_code) for finding in rule(stack, target, "")]
    lost = tuple(dict.fromkeys(finding.source for finding in findings if finding.effect == "loses"))
    verdicts: dict[str, Literal["fails", "unknown", "jit"]] = {"rejects": "fails", "unknown": "unknown", "jit": "jit"}
    for effect, status in verdicts.items():
        if why := next((finding.what for finding in findings if finding.effect == effect), ""):
            return GpuVerdict(status=status, why=why, lost=lost)
    return GpuVerdict(status="native", lost=lost)


def _platform(stack: Software, target: Target, driver: str) -> Iterator[Finding]:
    """Judge whether a stack is made for a platform, where it is another one than the default."""
    platform = platform_named(stack.platform)
    if platform == DEFAULT:
        return
    where, title = f"machines with {listed(target.gpus or ())} are {platform.title}", platform.title
    if facts.torch_build(stack.torch, stack.torch_cuda, platform) is None:
        what = f"{where}, and no build of torch {stack.torch} for CUDA {stack.torch_cuda} and {title} is known"
        yield Finding("rejects", what, _PORTED, f"a torch that has one: {_ported_torches(platform)}")


def _ported_torches(platform: Platform) -> str:
    return ", ".join(f"{build.torch} for CUDA {build.cuda}" for build in facts.builds_for(platform))


def _device(stack: Software, target: Target, driver: str) -> Iterator[Finding]:
    """Tell whether a GPU comes in at all."""
    if stack.torch_cuda != "cpu":
        if target.gpus == ():
            yield Finding("note", "there is no GPU: it computes on the CPU, and its CUDA libraries lie idle")
    elif target.gpus or target.drivers:  # a machine with a driver has a GPU, named or not
        idle = listed(target.gpus) if target.gpus else "the GPU, which was not named,"
        what, source = f"torch for the CPU leaves {idle} idle", "a torch for the CPU has no CUDA"
        yield Finding("rejects", what, source, "a variant for CUDA")


def _uses_gpu(stack: Software, target: Target) -> bool:
    return stack.torch_cuda != "cpu" and target.gpus != ()


def _driver(stack: Software, target: Target, driver: str) -> Iterator[Finding]:
    """The host's driver runs programs of its own CUDA, of older ones, and from CUDA 11 on of its major version."""
    if not _uses_gpu(stack, target):
        return
    oldest = driver_table.oldest_driver(stack.torch_cuda)
    if not oldest:
        yield Finding("unknown", f"which driver CUDA {stack.torch_cuda} needs is not known", _DRIVERS)
        return
    major, dashed = stack.torch_cuda.partition(".")[0], stack.torch_cuda.replace(".", "-")
    last = driver_table.last_branch(target.gpus or ())
    fix = f"driver >= {oldest}" + (f", up to R{last}" if last else "")
    if whom := _forward_compatible(target.gpus or ()):
        fix += f"; for {whom} NVIDIA's package cuda-compat-{dashed} may do instead"
    what = f"CUDA {major} needs driver {oldest} or newer"
    yield from of_these_gpus(driver, target.gpus or (), oldest)
    yield from _wants(driver, oldest, what, fix, _DRIVERS, target)


def of_these_gpus(driver: str, gpus: Iterable[str], oldest: str = "") -> Iterator[Finding]:
    """Reject a driver that does not know one of these GPUs yet, or no longer; yield nothing for an empty one.

    `oldest`: that the software needs besides, for the advice.
    """
    for model in gpus:
        last, first = driver_table.last_branch([model]), driver_table.first_driver(model)
        name = gpu_table.capability_name(model)
        if last and numbers(driver)[:1] > numbers(last):
            what = f"R{last} is the last driver branch for {name}, and this is {driver}"
            yield Finding("rejects", what, _MATRIX, f"a driver of the branch R{last}, or of an older one")
        elif driver and numbers(driver) < numbers(first)[: len(numbers(driver))]:
            what = f"drivers know {name} from {first} on, and this is {driver}"
            yield Finding("rejects", what, _MATRIX, f"driver >= {max(first, oldest, key=numbers)}")


def _forward_compatible(gpus: Sequence[str]) -> str:
    """Whom cuda-compat packages serve, in words; empty where not all. An architecture may be a data center GPU's."""
    bare = [gpu for gpu in gpus if gpu.startswith("sm_")]
    if bare:
        able = {
            capability for name, capability in gpu_table.all_gpus().items() if driver_table.forward_compatible(name)
        }
        bare = [gpu for gpu in bare if gpu_table.compute_capability(gpu) in able]
    if not all(gpu in bare or driver_table.forward_compatible(gpu) for gpu in gpus):
        return ""
    return f"data center GPUs of {listed(bare)}" if bare else "this GPU" if gpus else ""


def _wants(driver: str, oldest: str, what: str, fix: str, source: str, target: Target) -> Iterator[Finding]:
    """Rejects a driver that is older. One of which only the branch is known ("470") may be any of that branch."""
    have, want = numbers(driver), numbers(oldest)
    if not driver:
        first = max((oldest, *map(driver_table.first_driver, target.gpus or ())), key=numbers)
        yield Finding("assumes", f"driver {driver_table.drivers_from(first, target.gpus or ())}", oldest=first)
    elif have == want[: len(have)] and len(have) < len(want):
        yield Finding("assumes", f"driver {oldest} or newer, of the branch {driver}")
    elif have < want:
        yield Finding("rejects", f"{what}, and this is {driver}", source, fix)


class _Code(NamedTuple):
    """GPU code: whose, the driver that compiles its PTX, what to take instead, what to say where neither serves.

    `instead` is empty where nothing else has code: graphlearn-torch's wheels have machine code up to sm_75 alone.
    """

    owner: str
    sass: Sequence[str]
    ptx: Sequence[str]
    driver: str
    instead: str
    otherwise: Callable[[str, str], Finding]


def _runs(code: _Code, target: Target, driver: str) -> Iterator[Finding]:
    """Kernels run on each GPU, or the driver compiles their PTX, where it is as new as the toolkit that made that."""
    for model in target.gpus or ():
        capability, name = gpu_table.compute_capability(model), gpu_table.capability_name(model)
        if facts.has_code(code.sass, capability):
            continue
        if not any(facts.compiles_for(ptx, capability) for ptx in code.ptx):
            yield code.otherwise(name, capability)
            continue
        what = f"{code.owner} PTX alone for {name}"
        yield Finding("jit", f"{what}: the driver compiles it at the first start", _BINARY, code.instead)
        if code.driver:
            needed, fix = f"{what}, which drivers from {code.driver} on compile", f"driver >= {code.driver}"
            fix += f", or {code.instead}" if code.instead else ""
            yield from _wants(driver, code.driver, needed, fix, _COMPATIBILITY, target)
        else:
            yield Finding("unknown", f"{what}; which driver compiles that is not known", _COMPATIBILITY)


def _torch(stack: Software, target: Target, driver: str) -> Iterator[Finding]:
    """torch's own kernels for each GPU."""
    if not _uses_gpu(stack, target):
        return
    build = facts.torch_build(stack.torch, stack.torch_cuda, platform_named(stack.platform))
    title = f"torch {stack.torch} for CUDA {stack.torch_cuda}"
    if build is None:
        source = "graphcrate/compat/data/torch.toml has no entry"
        yield Finding("unknown", f"which GPUs {title} has code for is not known", source)
        return
    if target.gpus is None:
        models = [name for name, capability in gpu_table.gpus().items() if facts.has_code(build.sm, capability)]
        yield Finding("assumes", f"a GPU that {title} has code for: {', '.join(models)}")

    def otherwise(name: str, capability: str) -> Finding:
        if build.ptx is None:
            what = f"{title} has no machine code for {name}, and whether it has PTX is not known"
            return Finding("unknown", what, _who_says(build))
        return Finding("rejects", f"{title} has no code for {name}", _who_says(build), _torch_with(stack, capability))

    own = driver_table.own_driver(stack.torch_cuda)
    code = _Code(f"{title} has", build.sm, build.ptx or (), own, "a variant with machine code", otherwise)
    yield from _runs(code, target, driver)
    for model in target.gpus or ():
        yield from _lost(build, title, model)


def _lost(build: facts.TorchBuild, title: str, model: str) -> Iterator[Finding]:
    """Features that torch has no code for on a GPU. `source` of what is found is the feature."""
    capability = gpu_table.compute_capability(model)
    for stem, sass in build.features.items():
        only = packages.of_feature(stem)
        if only is None or facts.has_code(sass, capability) or facts.is_older(capability, only.since):
            continue
        other = f"; {only.fix}" if only.fix else ""
        what = f"{title} runs on {gpu_table.capability_name(model)}, all but {only.feature}{other}"
        yield Finding("loses", what, only.feature)


def _who_says(build: facts.TorchBuild) -> str:
    return f"{build.known}: {build.source}" if build.source else build.known


def _torch_with(stack: Software, capability: str) -> str:
    """Return the torch that has code: the same release for another CUDA, else the newest that has."""
    having = [build for build in facts.torch_builds() if facts.has_code(build.sm, capability)]
    version, name = stack.torch.partition("+")[0], f"sm_{capability.replace('.', '')}"
    best = max(
        having, key=lambda build: (build.torch == version, numbers(build.torch), numbers(build.cuda)), default=None
    )
    if best is None:
        return f"no torch is known to have {name}"
    if best.torch == version:
        return f"the CUDA {best.cuda} build of torch {version} has {name} ({best.known})"
    return f"the newest torch known to have {name} is {best.torch} for CUDA {best.cuda} ({best.known})"


def _extensions(stack: Software, target: Target, driver: str) -> Iterator[Finding]:
    """The extensions' kernels, as we would compile them."""
    if not _uses_gpu(stack, target) or not stack.extensions:
        return
    row = CHANNELS[Channel.PYG]  # whose pages were looked at
    is_listed = any(name.replace("_", "-") in row.libraries for name in stack.extensions)
    if is_listed and packages.has_wheels(stack.torch, stack.torch_cuda) is False:
        what = f"PyG's pages have no wheels for torch {stack.torch} and CUDA {stack.torch_cuda}"
        left_out = ", and pyg_lib is left out" if "pyg_lib" in stack.extensions else ""
        yield Finding("note", f"{what}: extensions are compiled{left_out}")
    if stack.impossible:
        fix = f"{setting(toolkit='image')}, or {setting(extensions='wheels')}"
        yield Finding("rejects", stack.impossible, "what nvcc makes, measured", fix)
        return
    names = listed(stack.extensions)

    def otherwise(name: str, capability: str) -> Finding:
        what = f"{names} are compiled for {', '.join(stack.architectures) or 'no GPU'}, and not for {name}"
        model = name.partition(" ")[0].lower()
        fix = f"recompile {names} with TORCH_CUDA_ARCH_LIST={capability}: {command('image', '…', gpu=model)}"
        return Finding("rejects", what, "the recipe's architectures", fix)

    sass = [name.removesuffix("+PTX") for name in stack.architectures]
    ptx = [name.removesuffix("+PTX") for name in stack.architectures if name.endswith("+PTX")]
    own = driver_table.own_driver(".".join(stack.nvcc.split(".")[:2]))
    instead = f"{setting(toolkit='image')}, where it is newer than nvcc {stack.nvcc}"
    yield from _runs(_Code(f"{names} have", sass, ptx, own, instead, otherwise), target, driver)


def _python(stack: Software, target: Target, driver: str) -> Iterator[Finding]:
    """The image's Python with what torch and PyG declare."""
    build = facts.torch_build(stack.torch, stack.torch_cuda, platform_named(stack.platform))
    release = packages.pyg_release(stack.torch_geometric)
    supported = [(f"torch {stack.torch}", build.python, _who_says(build))] if build is not None else []
    supported += [(f"PyG {release.version}", release.python, release.known)] if release is not None else []
    for name, python, source in supported:
        if python and not SpecifierSet(python).contains(stack.python):
            what = f"{name} needs Python {python}; the image has {stack.python}"
            yield Finding("rejects", what, source, f"a base with Python {python} in the recipe")


def _glt(stack: Software, target: Target, driver: str) -> Iterator[Finding]:
    """graphlearn-torch with this torch, and its kernels for each GPU."""
    if not stack.glt:
        return
    release = glt.known(stack.glt)
    version = stack.torch.partition("+")[0]
    judged = glt.judge(stack.glt, version, stack.torch_cuda, stack.python, stack.packages)
    if judged.reasons:
        other = release or glt.releases()[-1]
        wants = f"torch {listed(other.torch)} for CUDA {other.cuda} on Python {listed(other.python)}"
        fix = judged.next_step or f"{glt.NAME} {other.version} needs {wants}"
        yield Finding("rejects", judged.reasons[0].rstrip("."), _GLT, fix)
    else:
        yield from _glt_code(stack, target, driver)


def _glt_code(stack: Software, target: Target, driver: str) -> Iterator[Finding]:
    if not stack.glt:
        return
    name, release = f"{glt.NAME} {stack.glt}", glt.known(stack.glt)
    if release is None:
        yield Finding("unknown", f"nobody has checked {name}", _GLT)
    elif _uses_gpu(stack, target):

        def otherwise(gpu: str, capability: str) -> Finding:
            return Finding("rejects", f"{name} has no code for {gpu}", _GLT, "another GPU")

        code = _Code(f"{name} has", release.sass, release.ptx, release.driver, "", otherwise)
        yield from _runs(code, target, driver)


def _base(stack: Software, target: Target, driver: str) -> Iterator[Finding]:
    """The base's C library between the kernel below and the driver's libraries above."""
    suite = suites.bases().get(stack.suite)
    if suite is None:
        if stack.suite or target.kernel:
            what = "the base's C library is not known: which kernel it needs, `check` says of the built image"
            yield Finding("note", what)
        return
    has, newer = f"{suites.titled(stack.suite)} has {suite.glibc}", "a newer suite in the recipe"
    build = facts.torch_build(stack.torch, stack.torch_cuda, platform_named(stack.platform))
    if build is not None and build.glibc and numbers(suite.glibc) < numbers(build.glibc):
        yield Finding("rejects", f"torch {stack.torch} needs glibc {build.glibc}; {has}", _who_says(build), newer)
    if target.kernel and numbers(target.kernel) < numbers(suite.kernel):
        its = f"glibc {suite.glibc} of {suites.titled(stack.suite)}"
        what = f"{its} needs Linux {suite.kernel}, and this is {target.kernel}"
        yield Finding("rejects", what, suite.known, f"Linux {suite.kernel} or newer")
    limit = facts.limit("driver-glibc")
    if _uses_gpu(stack, target) and numbers(suite.glibc) < numbers(limit.since):
        yield Finding("rejects", f"the driver's libraries need glibc {limit.since}; {has}", limit.source, newer)
    lends = any(row.lends_libraries for name, row in RUNTIMES.items() if name in target.runtimes)
    if target.glibc and lends and numbers(suite.glibc) < numbers(target.glibc):
        what = f"glibc {suite.glibc} is older than the host's {target.glibc}: graphics libraries of --nv may not load"
        yield Finding("note", what)


def _runtime(stack: Software, target: Target, driver: str) -> Iterator[Finding]:
    """Judge the runtime that starts the image."""
    for limit in facts.limits().values():
        if what := limit.objection(target.runtimes.get(limit.runtime, "")):
            yield Finding("rejects" if limit.instead else "note", what, limit.source, filled(limit.instead))
    mounts = any(row.mounts for name, row in RUNTIMES.items() if name in target.runtimes)
    if mounts and target.kernel and numbers(target.kernel) < numbers(facts.limit("kernel-zstd").since):
        yield Finding(
            "note",
            f"Linux {target.kernel} mounts no SIF of zstd: an image for a named target gets gzip, others with "
            f"{setting(kernel=target.kernel)}",
        )


#: In the order in which they are asked.
_RULES: dict[str, Callable[[Software, Target, str], Iterator[Finding]]] = {
    "platform": _platform,
    "device": _device,
    "driver": _driver,
    "GPU code of torch": _torch,
    "GPU code of extensions": _extensions,
    "Python": _python,
    "graphlearn-torch": _glt,
    "C library and kernel": _base,
    "runtime": _runtime,
}
