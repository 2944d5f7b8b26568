"""Contracts inside the image: what its packages want of each other, and their PTX of the driver."""

import re

from graphcrate.checks.contracts.check import EVERYWHERE, absent, check, failed, passed, unknown
from graphcrate.checks.contracts.gpu import compiled_for
from graphcrate.checks.contracts.view import is_older
from graphcrate.compat import facts, glt
from graphcrate.model.contract import Host, ImageView, Verdict

_PYTHON = re.compile(r"/python(\d+\.\d+)/(?:site|dist)-packages$")


@check(
    "graphlearn-torch that fits torch",
    *EVERYWHERE,
    reason="Its wheels say nothing of the torch that they are built for: with another one its import ends in undefined "
    "symbols.",
    source="the symbols of its wheels and of torch's, compared; PAI's GLT tutorial installs one that does not fit",
)
def glt_fits(view: ImageView, host: Host) -> Verdict:
    version = view.distributions.get(glt.NAME, "")
    if not version:
        return absent(view, passed("no graphlearn-torch in the image"))
    python = next((found[1] for path in view.packages if (found := _PYTHON.search(path))), "")
    if not (view.torch and view.cuda and python):
        return unknown(f"graphlearn-torch {version}; which torch, CUDA and Python is not known")
    judged = glt.judge(version, view.torch.partition("+")[0], view.cuda, python, set(view.distributions))
    told = f"graphlearn-torch {version}, torch {view.torch}, Python {python}"
    if judged.absent:
        return failed(f"{told}: {', '.join(judged.absent)} is missing", f"pip install {' '.join(judged.absent)}")
    if judged.reasons:
        fix = f"pip install graphlearn-torch=={judged.fitting}" if judged.fitting else "another torch: ./build.py list"
        return failed(f"{told}: {judged.reasons[0]}", fix)
    return passed(told)


@check(
    "PTX that the driver compiles",
    *EVERYWHERE,
    reason="For a GPU that an extension has no machine code for, the driver compiles its PTX: an older driver than the "
    "toolkit's own says `the provided PTX was compiled with an unsupported toolchain`.",
    source="the code in graphlearn-torch's wheels, measured; docs.nvidia.com/deploy/cuda-compatibility",
)
def ptx(view: ImageView, host: Host) -> Verdict:
    version, compiled = view.distributions.get(glt.NAME, ""), compiled_for(view)
    if not version and not any(name.endswith("+PTX") for name in compiled):
        return absent(view, passed("no extension is known to rely on it"))
    if not host.gpus:
        return unknown("no GPU was named", "--gpu v100")
    label = view.settings.labels.get("graphcrate.nvcc", "") if view.settings else ""
    nvcc = ".".join(label.split(".")[:2]) or view.cuda  # the toolkit that made the PTX, which may be newer than torch's
    native = [name.removesuffix("+PTX") for name in compiled]
    release = glt.known(version)
    wanted: dict[str, str] = {}  # who needs which driver
    for model in host.gpus:
        capability = facts.compute_capability(model)
        if release is not None and not facts.has_code(release.sass, capability):
            wanted[f"graphlearn-torch {version} on {model}"] = release.driver
        if compiled and not facts.has_code(native, capability):
            wanted[f"extensions on {model}"] = facts.own_driver(nvcc)
    if not wanted:
        return passed(f"machine code for {', '.join(host.gpus)}")
    who, oldest = max(wanted.items(), key=lambda pair: facts.numbers(pair[1]))
    if not host.driver or not oldest:
        return unknown(f"{who} wants driver {oldest or 'of its toolkit'} or newer", "--driver VERSION")
    if is_older(host.driver, oldest):
        return failed(
            f"{who} wants driver {oldest}, the host has {host.driver}", "a newer driver, or GPU=… in the build"
        )
    return passed(f"{who}; driver {host.driver} compiles it")


CHECKS = (glt_fits, ptx)
