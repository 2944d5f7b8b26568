"""The line of an output that says why a compile ended: of compilers, linkers, back-ends, cargo and Python. Pure."""

import re
from collections.abc import Sequence

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
_BUILD_SCRIPT = "error: failed to run custom build command"
#: of the crate pkg-config, before 0.3.26 and since
_LACKING = re.compile(
    r"could not find system library '[^']+' required by the '[^']+' crate|"
    r"The system library `[^`]+` required by crate `[^`]+` was not found"
)
_LIMIT = 400  #: characters of a line


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
    """Find the fault in the words of a crate's build.rs: the library that pkg-config lacks, else its panic."""
    if lacking := next(filter(None, map(_LACKING.search, lines)), None):
        return lacking[0]
    panic = next((number for number, line in enumerate(lines) if "panicked at " in line), -1)
    return lines[panic + 1] if 0 <= panic < len(lines) - 1 else lines[-1]
