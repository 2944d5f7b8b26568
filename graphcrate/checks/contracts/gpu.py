"""Contracts between the image and the host's GPUs, driver, kernel and C library."""

import re

from graphcrate.checks.contracts.check import (
    EVERYWHERE,
    absent,
    check,
    configured,
    failed,
    has_gpu_code,
    passed,
    unknown,
    warned,
)
from graphcrate.checks.contracts.view import is_older
from graphcrate.compat import facts
from graphcrate.compat.rules import capability_name
from graphcrate.model.contract import Host, ImageView, Settings, Verdict

#: glibc that NVIDIA's driver libraries are made for
_DRIVER_GLIBC = facts.limits().driver_glibc.since
_WANTED = re.compile(r"cuda\s*(>=|>|=|==)\s*(\d+(?:\.\d+)*)")
_ASK_DRIVER = "--driver VERSION    (nvidia-smi on the host shows it)"


def _no_gpu_code(view: ImageView) -> Verdict | None:
    """The verdict on images that have nothing to do with a GPU, or may have."""
    answer = has_gpu_code(view)
    if answer is None:
        return (
            absent(view, passed("no CUDA and no torch found")) if not view.torch else unknown("which CUDA is not known")
        )
    return None if answer else passed("no CUDA in the image")


@check(
    "driver new enough",
    *EVERYWHERE,
    reason="The driver is the host's. It runs programs of its own CUDA version and older ones; from CUDA 11 on any "
    "of the same major version, but then it cannot compile PTX.",
    source="CUDA 13.2 release notes, tables 2 and 3; docs.nvidia.com/deploy/cuda-compatibility",
)
def driver(view: ImageView, host: Host) -> Verdict:
    if (answer := _no_gpu_code(view)) is not None:
        return answer
    oldest, own = facts.oldest_driver(view.cuda), facts.own_driver(view.cuda)
    if not oldest:
        return unknown(f"CUDA {view.cuda}: which driver it wants is not known")
    if not host.driver:
        return unknown(f"CUDA {view.cuda} wants driver {oldest} or newer", _ASK_DRIVER)
    told = f"driver {host.driver}, CUDA {view.cuda}"
    if not is_older(host.driver, oldest):
        if own and is_older(host.driver, own):
            return passed(f"{told}: by minor-version compatibility, for GPUs that it has machine code for")
        return passed(told)
    newest = facts.newest_cuda(host.driver)
    if any("/compat/libcuda.so" in path for path in view.files):
        fix = f"LD_LIBRARY_PATH=/usr/local/cuda/compat in the job, or a driver from {oldest} on"
        return warned(f"{told}: only by the image's forward-compatibility libraries, on datacenter GPUs", fix)
    major = newest.partition(".")[0]
    instead = f"an image for CUDA {major}" if facts.oldest_driver(newest) else "an older image"
    return failed(f"{told}, which wants {oldest} or newer", f"{instead}, or update the driver")


@check(
    "states the driver that it wants",
    *("docker", "pyxis", "pai"),
    reason="nvidia-container-cli reads NVIDIA_REQUIRE_CUDA at the start and refuses a driver that is too old, with a "
    "clear message; a condition that is too strict refuses drivers that would do.",
    source="NVIDIA container toolkit on NVIDIA_REQUIRE_*; enroot 4.1.2, hook 98-nvidia.sh",
)
@configured
def require_cuda(view: ImageView, host: Host, settings: Settings) -> Verdict:
    variables = settings.variables
    wanted = variables.get("NVIDIA_REQUIRE_CUDA", "")
    if not wanted:
        answer = _no_gpu_code(view)
        if answer is not None:
            return answer
        least = f"cuda>={view.cuda.partition('.')[0]}.0"
        return warned(
            "NVIDIA_REQUIRE_CUDA is not set: an old driver shows only when CUDA starts",
            f"ENV NVIDIA_REQUIRE_CUDA={least}",
        )
    if variables.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "true"):
        return passed(f"{wanted}, and the image switches the test off")
    if not host.driver:
        return unknown(wanted, _ASK_DRIVER)
    newest = facts.newest_cuda(host.driver)
    # Alternatives stand apart by spaces, what must hold together by commas (nvidia-container-cli --require).
    if any(_holds(alternative, newest, host.driver) for alternative in wanted.split()):
        return passed(f"{wanted}; driver {host.driver} knows CUDA {newest}")
    fix = "NVIDIA_DISABLE_REQUIRE=1 in the job where minor-version compatibility is enough, or a newer driver"
    return failed(f"{wanted}; driver {host.driver} knows CUDA {newest or 'of before 9.0'}: the start is refused", fix)


def _holds(alternative: str, newest: str, driver: str) -> bool:
    """Whether a driver meets an alternative; what it says of brands counts as met."""
    for condition in alternative.split(","):
        if found := _WANTED.fullmatch(condition):
            sign, version = found[1], found[2]
            if is_older(newest, version) or (sign == ">" and facts.numbers(newest) == facts.numbers(version)):
                return False
            if sign in ("=", "==") and facts.numbers(newest) != facts.numbers(version):
                return False
        elif found := re.fullmatch(r"driver\s*(>=|>|<=|<)\s*(\d+(?:\.\d+)*)", condition):
            this, other = facts.numbers(driver), facts.numbers(found[2])
            if not {">=": this >= other, ">": this > other, "<=": this <= other, "<": this < other}[found[1]]:
                return False
    return True


@check(
    "machine code for the GPU",
    *EVERYWHERE,
    reason="A torch or an extension without code for the GPU's architecture ends in `no kernel image is available for "
    "execution on the device`.",
    source="the architectures in torch's wheels, measured; PyG #5850, #3822, #1106",
)
def gpu(view: ImageView, host: Host) -> Verdict:
    if not host.gpus:
        if view.cuda == "cpu":
            return passed("torch for the CPU, and no GPU was named")
        return unknown("no GPU was named", "--gpu v100")
    if view.cuda == "cpu":
        return failed(f"torch {view.torch} is for the CPU", "an image for CUDA: make image CUDA=… GPU=…")
    if not view.torch:
        return absent(view, unknown("no torch in the image"))
    compiled = compiled_for(view)
    known = True
    for model in host.gpus:
        capability = facts.compute_capability(model)
        label = capability_name(model)
        fix = f"make image GPU={model}"
        runs = facts.torch_runs_on(view.torch, view.cuda, capability)
        if runs is False:
            return failed(f"torch {view.torch} has no code for {label}", fix)
        if compiled and not _any_runs(compiled, capability):
            return failed(f"extensions are compiled for {', '.join(compiled)}, and not for {label}", fix)
        known = known and runs is True
    if not known:
        return unknown(f"which GPUs torch {view.torch} for CUDA {view.cuda} has code for is not known")
    return passed(f"torch {view.torch} runs on {', '.join(host.gpus)}")


def compiled_for(view: ImageView) -> list[str]:
    """Architectures that the image says its extensions were compiled for."""
    settings = view.settings
    label = settings.labels.get("graphcrate.architectures", "") if settings else ""
    return [name for name in re.split(r"[,;]", label) if re.fullmatch(r"\d+\.\d+(\+PTX)?", name)]


def _any_runs(compiled: list[str], capability: str) -> bool:
    """Machine code of the same major version, or PTX of any older one."""
    if facts.has_code([name.removesuffix("+PTX") for name in compiled], capability):
        return True
    return any(not is_older(capability, name.removesuffix("+PTX")) for name in compiled if name.endswith("+PTX"))


@check(
    "C library new enough for the driver's libraries",
    *EVERYWHERE,
    reason="The host's driver libraries are loaded into the image's programs, so the image's glibc has to have what "
    "they want. Apptainer brings libraries of the host's distribution besides (libGLX and others), which want the "
    "host's own.",
    source="NVIDIA driver 550 README, minimum requirements (glibc 2.17); apptainer #2421, #945, #598",
)
def glibc(view: ImageView, host: Host) -> Verdict:
    library = view.c_library
    if library is None:
        return absent(view, warned("no C library in a known place", "start from Debian, Ubuntu or a RHEL"))
    if library.name == "musl":
        gpu = has_gpu_code(view)
        if gpu is False:
            return passed("musl, and no CUDA in the image")
        return failed("musl: neither NVIDIA's libraries nor PyPI's wheels of torch load", "start from Debian or Ubuntu")
    if not library.version:
        return unknown("glibc of an unknown version")
    if is_older(library.version, _DRIVER_GLIBC):
        return failed(f"glibc {library.version}; the driver's libraries want {_DRIVER_GLIBC}", "a newer base")
    if host.glibc and is_older(library.version, host.glibc):
        fix = f"a base with glibc {host.glibc}, or strike the library that is named from nvliblist.conf"
        return warned(f"glibc {library.version}, the host has {host.glibc}: its graphics libraries may not load", fix)
    return passed(f"glibc {library.version}")


@check(
    "kernel new enough for the C library",
    *EVERYWHERE,
    reason="glibc says in its ELF note which kernel it needs at least; on an older one every program ends with `FATAL: "
    "kernel too old`.",
    source="the note NT_GNU_ABI_TAG of the image's libc.so.6; glibc's INSTALL on --enable-kernel",
)
def kernel(view: ImageView, host: Host) -> Verdict:
    library = view.c_library
    if library is None or not library.kernel:
        return unknown("which kernel the C library needs is not known")
    if not host.kernel:
        return unknown(f"needs Linux {library.kernel}", "--kernel VERSION    (uname -r on the host shows it)")
    told = f"needs Linux {library.kernel}, the host has {host.kernel}"
    return failed(told, "an older base") if is_older(host.kernel, library.kernel) else passed(told)


CHECKS = (driver, require_cuda, gpu, glibc, kernel)
