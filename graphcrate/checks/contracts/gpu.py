"""Contracts between the image and the host's GPUs, driver, kernel and C library, and its packages' among each other."""

import re
from collections.abc import Mapping

from packaging.specifiers import SpecifierSet

from graphcrate.checks.contracts.check import absent, check, failed, passed, settings_check, since, unknown, warned
from graphcrate.compat.facts import driver_table, facts, glt, gpu_table
from graphcrate.compat.facts.facts import is_older
from graphcrate.compat.facts.slim import LABEL
from graphcrate.compat.variants import rules
from graphcrate.model.audit import GpuVerdict
from graphcrate.model.command import ETC, command, setting
from graphcrate.model.contract import CheckVerdict, Host, ImageView, Settings
from graphcrate.model.runtime import BY_NVIDIAS_HOOK, RUNTIMES

_DRIVER_GLIBC = facts.limit("driver-glibc").since  #: that NVIDIA's driver libraries are made for
_CONDITION = re.compile(r"(cuda|driver)\s*(>=|>|<=|<|==|=)\s*(\d+(?:\.\d+)*)")
_PYTHON = re.compile(r"/python(\d+\.\d+)/(?:site|dist)-packages$")
_ASK_DRIVER = "--driver VERSION    (nvidia-smi on the host shows it)"


def _without_cuda(view: ImageView) -> CheckVerdict | None:
    """The verdict on images that have nothing to do with a GPU, or may have."""
    if view.cuda:
        return passed("no CUDA in the image") if view.cuda == "cpu" else None
    return unknown("which CUDA is not known") if view.torch else absent(view, passed("no CUDA and no torch found"))


@check("driver new enough", *RUNTIMES, matching=r".*/libcuda\.so[.\d]*")
def driver(view: ImageView, host: Host) -> CheckVerdict:
    """The driver is the host's. It runs programs of its own CUDA version and older ones; from CUDA 11 on any of the
    same major version, but then it cannot compile PTX.
    Drivers know GPUs from a first to a last branch.
    Source: CUDA 13.2 release notes, tables 2 and 3; docs.nvidia.com/deploy/cuda-compatibility; NVIDIA, CUDA Toolkit,
    Driver, and Architecture Matrix
    """
    if answer := _without_cuda(view):
        return answer
    oldest, own = driver_table.oldest_driver(view.cuda), driver_table.own_driver(view.cuda)
    if not oldest:
        return unknown(f"CUDA {view.cuda}: which driver it needs is not known")
    if not host.driver:
        return unknown(f"CUDA {view.cuda} needs driver {driver_table.drivers_from(oldest, host.gpus)}", _ASK_DRIVER)
    for finding in rules.of_these_gpus(host.driver, host.gpus, oldest):
        return failed(finding.what, f"{finding.fix}    ({finding.source})")
    seen = f"driver {host.driver}, CUDA {view.cuda}"
    if not is_older(host.driver, oldest):
        if own and is_older(host.driver, own):
            return passed(f"{seen}: by minor-version compatibility, for GPUs that it has machine code for")
        return passed(seen)
    newest = driver_table.newest_cuda(host.driver)
    if any("/compat/libcuda.so" in path for path in view.files):
        fix = f"LD_LIBRARY_PATH=/usr/local/cuda/compat in the job, or a driver from {oldest} on"
        return warned(f"{seen}: only by the image's forward-compatibility libraries, on datacenter GPUs", fix)
    major = newest.partition(".")[0]
    instead = f"an image for CUDA {major}" if driver_table.oldest_driver(newest) else "an older image"
    needed = driver_table.drivers_from(oldest, host.gpus)
    return failed(f"{seen}, which needs {needed}", f"{instead}, or another driver")


@settings_check("states the driver that it needs", *BY_NVIDIAS_HOOK)
def require_cuda(view: ImageView, host: Host, settings: Settings) -> CheckVerdict:
    """nvidia-container-cli reads NVIDIA_REQUIRE_CUDA at the start and refuses a driver that is too old, with a clear
    message; a condition that is too strict refuses drivers that would do.
    Source: NVIDIA container toolkit on NVIDIA_REQUIRE_*; enroot 4.1.2, hook 98-nvidia.sh
    """
    variables = settings.variables
    required = variables.get("NVIDIA_REQUIRE_CUDA", "")
    if not required:
        seen = "NVIDIA_REQUIRE_CUDA is not set: an old driver shows only when CUDA starts"
        least = f"cuda>={view.cuda.partition('.')[0]}.0"
        return _without_cuda(view) or warned(seen, f"ENV NVIDIA_REQUIRE_CUDA={least}")
    if variables.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "true"):
        return passed(f"{required}, and the image switches the test off")
    if not host.driver:
        return unknown(required, _ASK_DRIVER)
    newest = driver_table.newest_cuda(host.driver)
    # Alternatives stand apart by spaces, what must hold together by commas (nvidia-container-cli --require).
    if any(_holds(alternative, newest, host.driver) for alternative in required.split()):
        return passed(f"{required}; driver {host.driver} knows CUDA {newest}")
    fix = "NVIDIA_DISABLE_REQUIRE=1 in the job where minor-version compatibility is enough, or a newer driver"
    return failed(f"{required}; driver {host.driver} knows CUDA {newest or 'of before 9.0'}: the start is refused", fix)


def _holds(alternative: str, newest: str, driver: str) -> bool:
    """Return whether a driver meets an alternative; what it says of brands counts as met."""
    has = {"cuda": newest or "0", "driver": driver}
    conditions = filter(None, map(_CONDITION.fullmatch, alternative.split(",")))
    return all(
        SpecifierSet(f"{'==' if sign == '=' else sign}{version}").contains(has[what])
        for what, sign, version in map(re.Match.groups, conditions)
    )


@check("machine code for the GPU", *RUNTIMES)
def gpu(view: ImageView, host: Host) -> CheckVerdict:
    """A torch or an extension without code for the GPU's architecture ends in `no kernel image is available for
    execution on the device`.
    Source: the architectures in torch's wheels, measured; PyG #5850, #3822, #1106
    """
    if not host.gpus:
        if view.cuda == "cpu":
            return passed("torch for the CPU, and no GPU was named")
        return unknown("no GPU was named", "--gpu v100")
    if view.cuda == "cpu":
        again = command("image", ETC, gpu=",".join(host.gpus).lower())
        return failed(f"torch {view.torch} is for the CPU", f"an image for CUDA: {again}")
    if not view.torch:
        return absent(view, unknown("no torch in the image"))
    codes = {model: rules.gpu_code(_stack(view), model) for model in host.gpus}
    for model, verdict in codes.items():
        if verdict.status == "fails":
            return failed(verdict.why, str(command("image", "…", gpu=model)))
    if unsure := next((verdict.why for verdict in codes.values() if verdict.status == "unknown"), ""):
        return unknown(unsure)
    lost = dict.fromkeys(feature for verdict in codes.values() for feature in verdict.lost)
    seen = f"torch {view.torch} runs on {', '.join(host.gpus)}"
    return passed(", all but ".join((seen, *lost)))


def by_capability(view: ImageView) -> Mapping[str, GpuVerdict]:
    """Judge, by its torch and its labels, what the GPUs of each listed capability run of an image."""
    cut = _label(view, LABEL)
    codes = {}
    for capability, models in gpu_table.models_by_capability().items():
        codes[capability] = rules.gpu_code(_stack(view), models[0])
        if cut and capability not in cut.split(","):
            codes[capability] = GpuVerdict(status="fails", why=f"it is cut to GPUs of compute capability {cut}")
    return codes


def _stack(view: ImageView) -> rules.Software:
    """Return the software with code for GPUs, as far as an image tells."""
    compiled = _compiled_for(view)
    return rules.Software(
        torch=view.torch,
        torch_cuda=view.cuda,
        python="",
        extensions=("extensions",) if compiled else (),
        architectures=tuple(compiled),
        nvcc=_nvcc(view),
        glt=view.distributions.get(glt.NAME, ""),
    )


def _compiled_for(view: ImageView) -> list[str]:
    """Architectures that the image says its extensions were compiled for."""
    return [
        name
        for name in re.split(r"[,;]", _label(view, "graphcrate.architectures"))
        if re.fullmatch(r"\d+\.\d+(\+PTX)?", name)
    ]


def _nvcc(view: ImageView) -> str:
    """CUDA version of the toolkit that made the PTX of extensions, which may be newer than torch's."""
    return ".".join(_label(view, "graphcrate.nvcc").split(".")[:2]) or view.cuda


def _label(view: ImageView, name: str) -> str:
    return view.settings.labels.get(name, "") if view.settings else ""


@check("cut to this GPU", *RUNTIMES)
def slim(view: ImageView, host: Host) -> CheckVerdict:
    """An image that was cut (SLIM) has code for the named GPUs alone; another ends in `no kernel image is available`.
    Source: CUDA programming guide, fatbinaries; docs/slim.md
    """
    label = _label(view, LABEL)
    if not label:
        return passed("nothing was cut")
    if not host.gpus:
        return unknown(f"it is cut to GPUs of compute capability {label}, and none was named", "--gpu v100")
    others = [model for model in host.gpus if gpu_table.compute_capability(model) not in label.split(",")]
    if others:
        return failed(
            f"it is cut to GPUs of compute capability {label}: {', '.join(others)} finds no code",
            f"the image without -slim, or {command('image', '…', gpu=','.join(others).lower(), slim='yes')}",
        )
    return passed(f"cut to {label}: {', '.join(host.gpus)}")


@check("C library new enough for the driver's libraries", *RUNTIMES)
def glibc(view: ImageView, host: Host) -> CheckVerdict:
    """The host's driver libraries are loaded into the image's programs, so the image's glibc has to have what they
    need. Apptainer brings libraries of the host's distribution too (libGLX and others), which need the host's own.
    Source: NVIDIA driver 550 README, minimum requirements (glibc 2.17); apptainer #2421, #945, #598
    """
    library = view.c_library
    if library is None:
        return absent(view, warned("no C library in a known place", "start from Debian, Ubuntu or a RHEL"))
    if library.name == "musl":
        if view.cuda == "cpu":
            return passed("musl, and no CUDA in the image")
        return failed("musl: neither NVIDIA's libraries nor PyPI's wheels of torch load", "start from Debian or Ubuntu")
    if not library.version:
        return unknown("glibc of an unknown version")
    if is_older(library.version, _DRIVER_GLIBC):
        return failed(f"glibc {library.version}; the driver's libraries need {_DRIVER_GLIBC}", "a newer base")
    if host.glibc and is_older(library.version, host.glibc):
        fix = f"a base with glibc {host.glibc}, or strike the library that is named from nvliblist.conf"
        return warned(f"glibc {library.version}, the host has {host.glibc}: its graphics libraries may not load", fix)
    return passed(f"glibc {library.version}")


@check("kernel new enough for the C library", *RUNTIMES)
def kernel(view: ImageView, host: Host) -> CheckVerdict:
    """glibc says in its ELF note which kernel it needs at least; on an older one every program ends with `FATAL: kernel
    too old`.
    Source: the note NT_GNU_ABI_TAG of the image's libc.so.6; glibc's INSTALL on --enable-kernel
    """
    library = view.c_library
    if library is None or not library.kernel:
        return unknown("which kernel the C library needs is not known")
    what = f"needs Linux {library.kernel}"
    unsure = unknown(what, "--kernel VERSION    (uname -r on the host shows it)")
    return since(what, "the host has", host.kernel, library.kernel, "an older base", unsure)


@check("graphlearn-torch that fits torch", *RUNTIMES)
def glt_fits(view: ImageView, host: Host) -> CheckVerdict:
    """Its wheels say nothing of the torch that they are built for: with another one its import ends in undefined
    symbols.
    Source: the symbols of its wheels and of torch's, compared; PAI's GLT tutorial installs one that does not fit
    """
    version = view.distributions.get(glt.NAME, "")
    if not version:
        return absent(view, passed("no graphlearn-torch in the image"))
    python = next((match[1] for path in view.packages if (match := _PYTHON.search(path))), "")
    if not (view.torch and view.cuda and python):
        return unknown(f"graphlearn-torch {version}; which torch, CUDA and Python is not known")
    judged = glt.judge(version, view.torch.partition("+")[0], view.cuda, python, set(view.distributions))
    seen = f"graphlearn-torch {version}, torch {view.torch}, Python {python}"
    if judged.absent:
        return failed(f"{seen}: {', '.join(judged.absent)} is missing", f"pip install {' '.join(judged.absent)}")
    if judged.reasons:
        other = f"another torch: {command('list')}"
        fix = f"pip install graphlearn-torch=={judged.fitting}" if judged.fitting else other
        return failed(f"{seen}: {judged.reasons[0]}", fix)
    return passed(seen)


@check("PTX that the driver compiles", *RUNTIMES)
def ptx(view: ImageView, host: Host) -> CheckVerdict:
    """For a GPU that an extension has no machine code for, the driver compiles its PTX: an older driver than the
    toolkit's own says `the provided PTX was compiled with an unsupported toolchain`.
    Source: the code in graphlearn-torch's wheels, measured; docs.nvidia.com/deploy/cuda-compatibility
    """
    version, compiled = view.distributions.get(glt.NAME, ""), _compiled_for(view)
    if not version and not any(name.endswith("+PTX") for name in compiled):
        return absent(view, passed("no extension is known to rely on it"))
    if not host.gpus:
        return unknown("no GPU was named", "--gpu v100")
    native = [name.removesuffix("+PTX") for name in compiled]
    release = glt.known(version)
    drivers: dict[str, str] = {}  # who needs which driver
    for model in host.gpus:
        capability = gpu_table.compute_capability(model)
        if release is not None and not facts.has_code(release.sass, capability):
            drivers[f"graphlearn-torch {version} on {model}"] = release.driver
        if compiled and not facts.has_code(native, capability):
            drivers[f"extensions on {model}"] = driver_table.own_driver(_nvcc(view))
    if not drivers:
        return passed(f"machine code for {', '.join(host.gpus)}")
    who, oldest = max(drivers.items(), key=lambda pair: facts.numbers(pair[1]))
    what = f"{who} needs driver {oldest or 'of its toolkit'} or newer"
    known, fix = host.driver if oldest else "", f"a newer driver, or {setting(gpu='…')} in the build"
    return since(what, "the host has", known, oldest, fix, unknown(what, "--driver VERSION"))
