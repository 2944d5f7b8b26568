"""Images cut to some GPUs: what may be cut, by whose terms, and what the image says of it. Pure.

A library for CUDA holds machine code for every GPU generation that its authors chose, and a GPU loads one part of it.
The code of the others is overwritten by zeros (`inputs.wheels.slim`), which take no room in a layer or a squashfs.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from graphcrate.compat.facts import facts, gpu_table
from graphcrate.model.command import command, setting, without
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import Lock, LockedPackage
from graphcrate.model.plan import Plan, Slim, WheelsStep
from graphcrate.model.report import LayerRecord

#: `yes`: libraries whose licence lets anybody change them; `all`: NVIDIA's own too
Choice = Literal["no", "yes", "all"]
#: Raise it whenever the same library would be cut otherwise. Part of the keys of layers and images that are cut.
SLIM_FORMAT = 4
LABEL = "graphcrate.slim"  #: capabilities that the image has code for, "7.0,8.0"
VARIABLE = "GRAPHCRATE_ANY_GPU"  #: set: the image starts on any GPU
#: sections of the agreements, as the wheels have them: docs/terms.md
TERMS = "sections 1.2 and 2.3 of the CUDA Toolkit's EULA, 2.2 of cuDNN's: not modified, handed on unmodified alone"
LARGE = 1 << 20  #: bytes of a wheel or a library from which on there is something to win
#: NVIDIA's packages under a free licence: NCCL is BSD, as torch and PyG's are free too
_FREE = re.compile(r"nvidia-nccl-.*")
_NVIDIA = re.compile(r"(nvidia|cuda)-.*")
#: NVIDIA's libraries, which PyTorch's own index has inside of torch's wheel, and torchvision's wheels bring along
_LIBRARIES = re.compile(
    r"lib(cu(blas|blasLt|dnn|fft|fftw|rand|solver|solverMg|sparse|sparseLt|pti|dart|file|dss|tensor)"
    r"|nv(rtc|rtc-builtins|JitLink|ToolsExt|blas|jpeg|perf\w*|shmem\w*|vm)|npp\w*|checkpoint|pcsamplingutil)[-._]"
)
_LIBRARY = re.compile(r"\.so(\.\d+)*$")
#: capabilities that an image was cut to and run on a GPU of: docs/performance.md, "On a GPU"
RUN_ON = {"9.0": "H100"}


def wanted(choice: Choice, gpus: str, lock: Lock) -> Slim | None:
    """Return a request's cut of an image; None for all of it. Raises UsageError without GPUs."""
    if choice == "no":
        return None
    if lock.torch_cuda == "cpu":
        raise UsageError("an image for CPUs has no GPU code to cut", next_step=without("slim"))
    if not gpus:
        again = command("image", "…", cuda=lock.cuda, gpu="v100", slim=choice)
        raise UsageError(
            f"{setting(slim=choice)} cuts an image to some GPUs, and none is named",
            next_step=f"{again}    (or {setting(target='dgx2')}; several: {setting(gpu='v100,a100')})",
        )
    compiled = lock.compilation.architectures if lock.compilation else ()
    return Slim(
        capabilities=gpu_table.architectures_for(gpus),
        ptx=any(name.endswith("+PTX") for name in compiled),
        everything=choice == "all",
    )


def is_nvidias(package: str) -> bool:
    """Return whether NVIDIA's terms are on a package (normalised name)."""
    return bool(_NVIDIA.fullmatch(package)) and not _FREE.fullmatch(package)


def is_from_nvidia(package: str) -> bool:
    """Return whether NVIDIA publishes a package (normalised name), under any licence."""
    return bool(_NVIDIA.fullmatch(package))


def is_nvidias_library(name: str) -> bool:
    """Return whether a library of this name is one of NVIDIA's, NCCL too; torch's wheel may bring it along."""
    return bool(_LIBRARIES.match(name)) or name.startswith("libnccl.")


def applies(packages: Iterable[LockedPackage], slim: Slim) -> bool:
    """Return whether one of these packages may be cut."""
    return any(package.file.size >= LARGE and (slim.everything or not is_nvidias(package.name)) for package in packages)


def may_cut(package: str, path: str, size: int, slim: Slim) -> bool:
    """Return whether a file of a package (normalised name) is a library that may be cut."""
    name = path.rpartition("/")[2]
    if size < LARGE or not _LIBRARY.search(name):
        return False
    return slim.everything or not (is_nvidias(package) or _LIBRARIES.match(name))


def suffix(slim: Slim, *, named: bool) -> str:
    """Return a tag's suffix for it, `-sm70-slim`. `named`: it says the architectures before."""
    architectures = "" if named else "".join(f"-sm{name.replace('.', '')}" for name in slim.capabilities)
    return f"{architectures}-slim" + ("-all" if slim.everything else "")


def plan_lines(plan: Plan) -> list[str]:
    """Return a plan's lines on what is cut, what stays whole and why; empty where nothing is cut."""
    steps = plan.of(WheelsStep)
    slim = next((step.slim for step in steps if step.slim is not msgspec.UNSET), None)
    if slim is None:
        return []
    packages = [package for step in steps for package in step.packages]
    cut = [
        package
        for package in packages
        if not package.compiled and applies((package,), slim) and _may_have_code(package.name)
    ]
    whole = [
        package
        for package in packages
        if is_nvidias(package.name) and not slim.everything and package.file.size >= 20 * LARGE
    ]
    lines = [
        f"  slim      GPU code for {', '.join(slim.capabilities)} alone: {', '.join(package.name for package in cut)}"
    ]
    if whole:
        size = sum(package.file.size for package in whole) / 1e6
        names = ", ".join(package.name for package in whole)
        lines.append(
            f"            whole by NVIDIA's terms ({TERMS}), {size:.0f} MB: {names}; {setting(slim='all')} cuts them "
            "too"
        )
    elif slim.everything:
        lines.append(f"            NVIDIA's own libraries too: {TERMS}. The image is for your own use")
    lines.append(f"            {shown(slim.capabilities)}: docs/slim.md says what was shown")
    return lines


def shown(capabilities: Sequence[str]) -> str:
    """Tell whether images cut to these capabilities were run on such GPUs."""
    not_run = [name for name in capabilities if name not in RUN_ON]
    if not_run:
        return f"not yet run on a GPU of {', '.join(not_run)}"
    return f"such images were run on {', '.join(RUN_ON[name] for name in capabilities)}"


def saved(layers: Sequence[LayerRecord]) -> str:
    """Say what cutting has saved, as one sentence; empty where nothing was cut."""
    made = [layer for layer in layers if layer.cut]
    if not made:
        return ""
    less = sum(file.before - file.packed for layer in made for file in layer.cut)
    size = sum(layer.size for layer in layers)
    zeros = sum(file.bytes for layer in made for file in layer.cut)
    text = (
        f"slim: {size / 1e6:.0f} MB packed, {less / 1e6:.0f} MB less than whole; "
        f"{zeros / 1e6:.0f} MB of code in {sum(len(layer.cut) for layer in made)} libraries are zeros"
    )
    whole = [f"{file.path.rpartition('/')[2]} ({file.whole})" for layer in made for file in layer.cut if file.whole]
    return text + (f"; parts with several modules stay whole: {', '.join(whole)}" if whole else "")


def _may_have_code(name: str) -> bool:
    return name.startswith(("torch", "pyg-lib", "nvidia-", "cuda-", "dgl", "xformers", "cupy"))


def guard(slim: Slim) -> str:
    """`sitecustomize.py` of the image: Python ends with one sentence where no GPU of the node is one of these."""
    known = {name.replace("_", ""): capability for name, capability in gpu_table.all_gpus().items()}
    values = {
        "@GPUS@": msgspec.json.format(msgspec.json.encode(known), indent=4).decode(),
        "@HAS@": msgspec.json.encode(slim.capabilities).decode(),
        "@VARIABLE@": VARIABLE,
    }
    text = facts.data("sitecustomize.py.in").decode()
    for name, value in values.items():
        text = text.replace(name, value)
    return text
