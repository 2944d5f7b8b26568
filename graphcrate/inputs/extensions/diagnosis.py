"""What a compiler's output says: the first error, not the last page, and what most likely lies behind it. Pure."""

import re

import msgspec

from graphcrate.model.lock import Compilation

#: an error as gcc, nvcc and its parts, the linker and the shell write it
_ERROR = re.compile(
    r"(:\s*(fatal\s+)?error\s*:|\):\s*(catastrophic\s+)?error\b|^nvcc (fatal|error)\b|^ptxas (fatal|error)\b|"
    r"^(nvlink|fatbinary) (fatal|error)\b|undefined reference to|\bld: cannot find|^#error|: out of memory\b|"
    r"Killed\b|died due to signal|No space left on device|: command not found)"
)
#: the last line of Python's traceback
_RAISED = re.compile(r"^\s*([A-Za-z_][\w.]*(Error|Exception|Exit)|DistutilsExecError)\b.*")
#: Python's words for a child that failed, which say less than the child's own
_HOLLOW = re.compile(r"could not be (built|compiled)|CompileError|LinkError|exit code|CalledProcessError")
_LIMIT = 400  #: characters of a line


class Diagnosis(msgspec.Struct, frozen=True):
    """The first error line of an output, and for its causes one sentence and the next command."""

    line: str
    cause: str
    next_step: str


def first_error(output: str) -> str:
    """The line that tells what went wrong first; the last one where none looks like it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    wanted = next((line for line in lines if _ERROR.search(line)), "")
    if not wanted:
        raised = [line for line in lines if _RAISED.match(line)]
        wanted = next((line for line in raised if not _HOLLOW.search(line)), "")
    if not wanted:
        wanted = lines[-1] if lines else "it said nothing"
    return wanted if len(wanted) <= _LIMIT else wanted[: _LIMIT - 1] + "…"


def diagnose(output: str, compilation: Compilation) -> Diagnosis:
    """What the output of a failed compile tells."""
    line = first_error(output)
    toolkit = compilation.toolkit
    cuda = f"CUDA {toolkit.version}" if toolkit is not None else "CUDA"
    asked = ", ".join(compilation.architectures)
    causes = (
        (
            r"unsupported GNU version|unsupported clang version|host compiler is not supported",
            f"{compilation.compiler} is too new a compiler for {cuda}.",
            "./build.py lock …    (takes the newest compiler that this CUDA knows, if the suite has one)",
        ),
        (
            r"[Uu]nsupported gpu architecture|Unknown CUDA arch|not defined for option 'gpu-(arch|code)",
            f"The nvcc of {cuda}, or this torch, makes no code for one of the architectures asked for: {asked}.",
            "GPU=v100 make image …    (other models: ./build.py list), or `architectures` in the recipe",
        ),
        (
            r"Killed|signal 9|out of memory|annot allocate memory|bad_alloc",
            "The kernel ended a compiler because the machine, or this job's limit, ran out of memory.",
            "run the same command again with a higher memory limit, or with fewer things running",
        ),
        (r"No space left on device", "The disk that holds the cache is full.", "GRAPHCRATE_CACHE=/path make image …"),
        (
            r"mismatches the version that was used to compile",
            f"torch was built for another CUDA than {cuda}.",
            "./build.py lock …    (chooses the toolkit by torch's CUDA)",
        ),
        (
            r"Python\.h: No such file",
            "The base with the compiler lacks the headers of its Python.",
            "./build.py lock …    (takes them into the base with the compiler)",
        ),
        (
            r"\.cuh?: No such file|(cu\w+|nv\w+|thrust/\S+|cub/\S+)\.(h|cuh|hpp): No such file|cannot find -l(cu|nv)",
            f"The toolkit of {cuda} lacks a header or library that the package wants.",
            "TOOLKIT=image make image …    (another provider of the toolkit)",
        ),
        (
            r"No module named|ImportError",
            "The build wants a Python package that is neither torch's nor one of the tools.",
            "EXTENSIONS=wheels make image …    (an image without what must be compiled)",
        ),
        (
            r"command not found|No such file or directory: '?\S*(g\+\+|gcc|nvcc)|command '\S+' failed: No such file",
            "The base has no such compiler.",
            "./build.py lock …    (locks the base with its compiler again)",
        ),
    )
    for pattern, cause, step in causes:
        if re.search(pattern, line):
            return Diagnosis(line, cause, step)
    return Diagnosis(
        line,
        "Its sources do not go with this torch or this compiler, most likely.",
        "EXTENSIONS=wheels make image …    (an image without what must be compiled), or lock another version of it",
    )
