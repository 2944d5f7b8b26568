"""Output of compilers and of the program in the sandbox: progress for eyes, a failure's first error and its cause."""

import json
import re
from collections import deque
from collections.abc import Sequence

from graphcrate.host import settings
from graphcrate.host.progress import Progress
from graphcrate.model.command import IMAGE_AGAIN, LOCK_AGAIN, command, setting
from graphcrate.model.lock import Compilation

#: an error as gcc, nvcc and its parts, the linker and the shell write it
_ERROR = re.compile(
    r"(:\s*(fatal\s+)?error\s*:|\):\s*(catastrophic\s+)?error\b|^nvcc (fatal|error)\b|^ptxas (fatal|error)\b|"
    r"^(nvlink|fatbinary) (fatal|error)\b|undefined reference to|\bld: cannot find|^#error|: out of memory\b|"
    r"Killed\b|died due to signal|No space left on device|Disk quota exceeded|: command not found|: ERROR: |"
    r"^CMake Error\b|^error(\[E\d+\])?: )"
)
#: the last line of Python's traceback
_RAISED = re.compile(r"^\s*([A-Za-z_][\w.]*(Error|Exception|Exit)|DistutilsExecError)\b.*")
#: Python's words for a child that failed, which say less than the child's own
_HOLLOW = re.compile(r"could not be (built|compiled)|CompileError|LinkError|exit code|CalledProcessError")
WHEELS_ALONE = str(command("image", "…", extensions="wheels"))
#: a header or library of CUDA that is absent
OF_TOOLKIT = re.compile(
    r"\.cuh?: No such file|(cu\w+|nv\w+|nccl|thrust/\S+|cub/\S+)\.(h|cuh|hpp): No such file|cannot find -l(cu|nv)"
)
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
        f"GRAPHCRATE_CACHE=/path {IMAGE_AGAIN}",
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
_BUILD_SCRIPT = "error: failed to run custom build command"
#: of the crate pkg-config, before 0.3.26 and since
_LACKING = re.compile(
    r"could not find system library '[^']+' required by the '[^']+' crate|"
    r"The system library `[^`]+` required by crate `[^`]+` was not found"
)
_LIMIT = 400  #: characters of a line
SECONDS = 20.0  #: between two lines


class Watcher:
    """Read the events that the program in the sandbox writes. Other lines (a traceback, a complaint) are strays."""

    def __init__(self, names: Sequence[str], progress: Progress) -> None:
        self._names, self._progress = ", ".join(names), progress
        self._uncounted, self._slower = set(names), set[str]()
        self._total = self._done = 0
        self._weight = self._finished = 0.0  #: of all files that are known, of those that are compiled
        self._begin = self._shown = settings.now()
        self.built: set[str] = set()
        self.failed = ""  #: name of the package
        self.source = ""  #: the file that failed
        self.log = ""  #: with its compiler's output, as the program names it
        self.strays: deque[str] = deque(maxlen=200)

    def read(self, line: str) -> None:
        """Read a line: an event as JSON, or a stray."""
        try:
            message = json.loads(line)
            event = message["event"]
        except (ValueError, TypeError, KeyError):
            self.strays.append(line)
            return
        name, source = message.get("package", ""), message.get("source", "")
        if event == "files":
            self._uncounted.discard(name)
            self._total += message["count"]
            self._weight += message["weight"]
        elif event == "compiled":
            self._done += 1
            self._finished += message["weight"]
            self._show()
        elif event == "slower" and name not in self._slower:
            self._slower.add(name)
            self._progress.note(
                f"compiling: {name} needs more than the small headers, in {source} at least; what does gets torch's "
                f"own and takes longer ({first_error(message['output'])})"
            )
        elif event == "fewer":
            self._progress.note(
                f"compiling: the kernel ended a compiler for lack of memory; from here {message['jobs']} at a time, "
                f"and {source} again"
            )
        elif event == "built":
            self.built.add(name)
        elif event == "failed" and not self.failed:
            self.failed, self.source, self.log = name, source, message.get("log", "")

    def _show(self) -> None:
        now = settings.now()
        last = not self._uncounted and self._done == self._total
        if last or now - self._shown >= SECONDS:
            self._shown = now
            estimable = self._finished * 10 >= self._weight > 0  # before a tenth is done it would be a guess
            left = (now - self._begin) * (self._weight - self._finished) / self._finished if estimable else 0
            about = "" if last or not left else f", about {left:.0f} s left"
            self._progress.note(f"compiling {self._names}: {self._done}/{self._total} files{about}")


def _beyond_trials(lines: Sequence[str]) -> list[str]:
    """The lines but for distutils' trials of what there is, which may fail; one after which setup.py ends counts."""
    kept, trial, last = list[str](), list[str](), list[str]()
    for line in lines:
        if trial or ("_configtest." in line and not line.startswith("removing: ")):
            trial.append(line)
            if line in ("failure.", "success!"):
                trial, last = [], trial
        elif not line.startswith("removing: _configtest."):
            kept += [*last, line] if line.startswith("error: ") else [line]
            last = []
    return kept + trial


def first_error(output: str) -> str:
    """The first line that looks like an error; the last one where none does."""
    lines = _beyond_trials([line.strip() for line in output.splitlines() if line.strip()])
    at = next((number for number, line in enumerate(lines) if _ERROR.search(line)), None)
    chosen = "" if at is None else lines[at]
    if at is not None and chosen.startswith("CMake Error"):  # what is wrong is in the lines below
        chosen = " ".join(lines[at : at + 3])
    if at is not None and chosen.startswith(_BUILD_SCRIPT):  # of a crate: what it wrote is below what it was asked
        chosen = f"{chosen}: {_of_build_script(lines[at:])}"
    if at is not None and chosen.endswith("not supported by the following packages:"):  # by this rustc
        chosen = " ".join(lines[at : at + 2])
    if not chosen:
        raised = [line for line in lines if _RAISED.match(line)]
        chosen = next((line for line in raised if not _HOLLOW.search(line)), "")
    if not chosen:  # of a step that ninja ran: below the step and its command
        failed = next((number for number, line in enumerate(lines) if line.startswith("FAILED: ")), len(lines))
        chosen = next(iter(lines[failed + 2 : failed + 3]), "")
    if not chosen:
        chosen = lines[-1] if lines else "it said nothing"
    return chosen if len(chosen) <= _LIMIT else chosen[: _LIMIT - 1] + "…"


def _of_build_script(lines: Sequence[str]) -> str:
    """What is wrong by the words of a crate's build.rs: the library that pkg-config lacks, else its panic."""
    if lacking := next(filter(None, map(_LACKING.search, lines)), None):
        return lacking[0]
    panic = next((number for number, line in enumerate(lines) if "panicked at " in line), -1)
    return lines[panic + 1] if 0 <= panic < len(lines) - 1 else lines[-1]


def diagnose(output: str, compilation: Compilation) -> tuple[str, str, str]:
    """The first error line of a failed compile, its likely cause and the next step."""
    line, toolkit = first_error(output), compilation.toolkit
    cause, step = next((advice for pattern, *advice in _CAUSES if re.search(pattern, line)), _UNKNOWN)
    cause = cause.format(
        compiler=compilation.compiler,
        cuda=f"CUDA {toolkit.version}" if toolkit is not None else "CUDA",
        asked=", ".join(compilation.architectures),
    )
    return line, cause, step
