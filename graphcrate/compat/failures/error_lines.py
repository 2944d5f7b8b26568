"""Lines of an error that mean the same of every package, or of one that is known for it. Pure."""

import re

import msgspec

from graphcrate.compat.facts.facts import table_reader
from graphcrate.compat.failures.cuda import OF_TOOLKIT
from graphcrate.model.command import AGAIN, LOCK_AGAIN, command, filled, setting
from graphcrate.model.lock import Compilation

WHEELS_ALONE = str(command("image", "…", extensions="wheels"))
_UNKNOWN = (
    "Its sources do not go with this torch or this compiler, most likely.",
    f"{WHEELS_ALONE}    (an image without what must be compiled), or lock another version of it",
)
#: in an error line → cause, next step
_CAUSES = (
    (
        r"unsupported GNU version|unsupported clang version|host compiler is not supported|Python\.h: No such file|"
        r"mismatches the version that was used to compile|command not found|command '\S+' failed: No such file|"
        r"No such file or directory: '?\S*(g\+\+|gcc|nvcc)",
        "The compiler that is locked ({compiler}) is absent, or does not go with {cuda}, this torch or this Python.",
        f"{LOCK_AGAIN}    (locks base, compiler and toolkit again, so that they fit)",
    ),
    (
        r"[Uu]nsupported gpu architecture|Unknown CUDA arch|not defined for option 'gpu-(arch|code)",
        "The nvcc of {cuda}, or this torch, makes no code for one of the architectures asked for: {asked}.",
        f"{command('image', '…', gpu='v100')}    (other models: {command('list', gpus=True)}), or `architectures` in "
        "the recipe",
    ),
    (
        r"Killed|signal 9|out of memory|annot allocate memory|bad_alloc",
        "The kernel ended a compiler because the machine, or this job's limit, ran out of memory.",
        "run the same command again with a higher memory limit, or with fewer things running",
    ),
    (
        r"No space left on device|Disk quota exceeded",
        "The disk that holds the cache is full, or this user's quota on it.",
        f"GRAPHCRATE_CACHE=/path {AGAIN}",
    ),
    (
        OF_TOOLKIT.pattern,
        "The toolkit of {cuda} lacks a header or library that the package wants.",
        f"{command('image', '…', toolkit='image')}    (another provider of the toolkit)",
    ),
    (
        r'namespace "thrust" has no member',  # MinkowskiEngine 0.5.4: its issues 594 and 601
        "Its sources are of before CUDA 12, whose thrust no longer includes all of its own headers.",
        f"an older CUDA ({setting(cuda='11.8')}), or those headers by a variable: "
        + setting(
            build_env="NVCC_PREPEND_FLAGS=-include thrust/execution_policy.h -include thrust/remove.h "
            "-include thrust/unique.h"
        ).both(),
    ),
    (
        r"incomplete type .{1,3}(PyFrameObject|struct _frame)|longintrepr\.h: No such|"
        r"has no member named .{0,3}(tp_print|curexc_type|exc_type|use_tracing|ob_refcnt)\b",
        "It, or what Cython or pybind11 made of it, is written for an older Python than the image has.",
        _UNKNOWN[1],
    ),
    (
        r"urlopen error|[Nn]ame resolution|[Cc]ould not resolve host|Network is unreachable|Name or service not known",
        "Its build fetches something, and what is compiled reaches no network.",
        f"{setting(build_env='NAME=VALUE')} with the variable by which it compiles instead, if it has one; or a folder "
        f"that has what it fetches: {setting(with_='./folder')}",
    ),
    (
        r"PyArray_[A-Z][A-Z0-9]*\b.{1,3} undeclared|PyArray_Descr.{1,40} has no member named|old_defines\.h: No such",
        "It is written for numpy 1, and is compiled against numpy 2.",
        f"{command('image', '…', cuda='11.8')}    (its stack has numpy 1), or ask for a newer version of it",
    ),
    (
        r"No module named|ImportError",
        "The build needs a Python package that is neither torch's nor one of the tools.",
        f"{WHEELS_ALONE}    (an image without what must be compiled)",
    ),
)


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """A package's build that ends with such a `line`, for a reason that the line does not have."""

    package: str
    line: str
    because: str
    instead: str
    source: str


_known = table_reader("back_ends", tuple[_Known, ...], "failure")


def of_any(line: str, compilation: Compilation) -> tuple[str, str]:
    """Likely cause and next step of an error line, whichever package it is of."""
    cause, step = next((advice for pattern, *advice in _CAUSES if re.search(pattern, line)), _UNKNOWN)
    toolkit = compilation.toolkit
    cause = cause.format(
        compiler=compilation.compiler,
        cuda=f"CUDA {toolkit.version}" if toolkit is not None else "CUDA",
        asked=", ".join(compilation.architectures),
    )
    return cause, step


def of_package(name: str, line: str) -> tuple[str, str] | None:
    """Cause and next step of a line that is known of this package (normalised name); None of most."""
    row = next((row for row in _known() if row.package == name and row.line in line), None)
    return (row.because, filled(row.instead)) if row else None
