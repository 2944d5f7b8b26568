"""Find the libraries that decide whether a GPU runs a package, and what they have code for together. Pure.

The audit of an image and the facts of `torch.toml` go by this one rule, so that `explain` promises what an audit finds.
"""

from collections.abc import Collection, Mapping
from typing import Literal, get_args

from graphcrate.compat.facts.facts import compiles_for, has_code, ordered
from graphcrate.compat.facts.gpu_table import all_gpus
from graphcrate.compat.facts.packages import elsewhere, of_feature
from graphcrate.compat.facts.slim import is_nvidias_library
from graphcrate.model.errors import IntegrityError
from treeaudit.values import GpuCode

#: How code serves a GPU, the best first. `native`: machine code in most parts; `jit`: PTX in most, which the driver
#: compiles; `few`: machine code in fewer parts.
Serves = Literal["native", "jit", "few", "none"]
_ORDER: tuple[Serves, ...] = get_args(Serves)


def serves(code: GpuCode, capability: str) -> Serves:
    """Tell how a library's code serves a GPU."""
    if has_code(code.sass, capability):
        return "native"
    if any(compiles_for(ptx, capability) for ptx in code.ptx):
        return "jit"
    return "few" if has_code(code.some, capability) else "none"


def all_serve(codes: Collection[GpuCode], capability: str) -> Serves:
    """Tell how libraries that are all needed serve a GPU."""
    return max((serves(code, capability) for code in codes), key=_ORDER.index, default="native")


def is_nvidias(package: str, path: str) -> bool:
    """Return whether a library is one of NVIDIA's, of its own package (normalised name) or brought along by another."""
    return package.startswith("nvidia-") or is_nvidias_library(path.rpartition("/")[2])


def tells(path: str, code: GpuCode) -> bool:
    """Return whether a library has code, and all of it where code for GPUs usually is."""
    if code == GpuCode():
        return False
    here = [entry for entry in elsewhere() if path.rpartition("/")[2].startswith(entry.stem)]
    return not any(code == GpuCode(sass=(name,)) for entry in here for name in entry.section)


def deciding(package: str, codes: Mapping[str, GpuCode]) -> dict[str, GpuCode]:
    """Those of a package's libraries (normalised name; code by path) without which a GPU does not run it.

    NVIDIA's serve some functions each, or have other ways; a library of one feature serves that.
    """
    return {
        path: code
        for path, code in codes.items()
        if tells(path, code) and not is_nvidias(package, path) and of_feature(path) is None
    }


def together(package: str, codes: Mapping[str, GpuCode]) -> GpuCode:
    """Intersect the code of a package's deciding libraries: a GPU is served by it as by all of them.

    Raises IntegrityError where no such list says the same.
    """
    ours = deciding(package, codes).values()
    if not ours:
        return GpuCode()
    every = {name for code in ours for name in (*code.sass, *code.some)}
    sass = {name for code in ours for name in code.sass if all_serve(ours, name.rstrip("af")) == "native"}
    ptx = {name for code in ours for name in code.ptx if all(_no_newer(code, name) for code in ours)}
    combined = GpuCode(sass=ordered(sass), some=ordered(every - sass), ptx=ordered(ptx))
    for capability in dict.fromkeys(all_gpus().values()):
        of_combined, of_all = serves(combined, capability), all_serve(ours, capability)
        if of_combined != of_all and {of_combined, of_all} != {"few", "none"}:
            raise IntegrityError(
                f"{package} has code for {capability} in another way in each library: {', '.join(codes)}",
                cause="No list of architectures for all of them says what each GPU runs.",
            )
    return combined


def _no_newer(code: GpuCode, ptx: str) -> bool:
    """Return whether a library has PTX that serves each GPU which this PTX serves."""
    return any(name == ptx or (name[-1] not in "af" and compiles_for(name, ptx.rstrip("af"))) for name in code.ptx)
