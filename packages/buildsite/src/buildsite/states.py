"""A job as it stands, in words: how far it is, what it says, what came of it."""

import re
from typing import NamedTuple

import msgspec

from buildsite.queue import Kind, SiteJob, State
from graphcrate.model import codec, errors
from graphcrate.model.errors import UNREADABLE, GraphcrateError
from graphcrate.remote.questions import Question

#: a line that says how far something is: "fetching 4 files: 212 of 221 MB, 7 MB/s, 1 s left"
_FAR = re.compile(r".{1,300}?: (?P<done>\d{1,9}) of (?P<total>\d{1,9}) (?P<unit>[a-zA-Z]{1,20})(, .{0,80})?")
_STEP = re.compile(r"^step \d+ of \d+: .{1,200}$")
_ERROR = "graphcrate: "  #: before the error with which a command ends
_ADDRESS = re.compile(r"([a-z0-9][a-z0-9._-]*)/([A-Za-z0-9_][A-Za-z0-9_.-]*)")


class JobProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a job: `done` of `total` in `unit`, 0 where unknown; `ahead`: jobs that come before it."""

    state: State
    line: str = ""  #: the last one that it said
    step: str = ""
    done: int = 0
    total: int = 0
    unit: str = ""
    ahead: int = 0


class JobAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as the API tells it. `result`: what `--json` prints; `lines`: what is printed without it."""

    id: str
    kind: Kind
    state: State
    question: Question
    created: float
    begun: float
    ended: float
    note: str
    exit_code: int
    progress: JobProgress
    command: str
    image: str  #: "pyg/2.8.1-torch2.7.1-cu126", which it made
    lines: str
    log: str
    result: msgspec.Raw


class JobOutput(NamedTuple):
    """Output of a job: its result as lines, the commands that make the same at a shell, its log, its image.

    `error`: of a job that failed, read out of its result.
    """

    result: str
    command: str
    log: str
    progress: JobProgress
    image: str
    error: GraphcrateError | None


class _Sent(msgspec.Struct, frozen=True):
    lines: dict[str, str]


class _Made(msgspec.Struct, frozen=True):
    name: str
    tag: str


def progress(job: SiteJob, log: str, ahead: int) -> JobProgress:
    """Read the progress of a job out of the end of its log."""
    if job.is_over or job.state == "waiting":
        return JobProgress(state=job.state, ahead=ahead)
    lines = [text.strip() for text in log.splitlines()[-400:] if text.strip()]
    step = next((text for text in reversed(lines) if _STEP.match(text)), "")
    last = lines[-1][:400] if lines else ""
    far = _FAR.fullmatch(last)
    if far is None:
        return JobProgress(state=job.state, line=last, step=step)
    done, total = int(far["done"]), int(far["total"])
    return JobProgress(state=job.state, line=last, step=step, done=min(done, total), total=total, unit=far["unit"])


def result_lines(job: SiteJob, log: str) -> tuple[str, str]:
    """Part a job's log into what it did and what came of it: a plan, an error."""
    mark = _ERROR if job.state == "failed" else "plan for " if (job.kind, job.state) == ("plan", "done") else ""
    at = max(log.find(mark), log.rfind(f"\n{mark}") + 1) if mark else -1
    if at < 0 or not log[at:].startswith(mark):
        return log, ""
    return log[:at], log[at:].strip()


def failure(job: SiteJob, result: str) -> GraphcrateError | None:
    """Return the error with which a job ended; None for one that did not, or that its note words."""
    return for_user(errors.read(result.removeprefix(_ERROR), job.exit_code)) if result.startswith(_ERROR) else None


def error_lines(error: GraphcrateError) -> str:
    """Return an error as a command prints it."""
    return f"{_ERROR}{error}"


def for_user(error: GraphcrateError) -> GraphcrateError:
    """Return an error as users of the site read it: what is typed on its machine is not for them."""
    if error.of_machine:
        error.next_step = "ask whoever runs this site"
    return error


def made_image(job: SiteJob, printed: bytes) -> str:
    """Return the image that a job made, or made a file of, as addresses have it, or an empty text."""
    if job.kind == "build":
        if not (job.state == "done" or job.step):  # of what comes after the first command, no image depends
            return ""
        try:
            made = codec.decode(printed, _Made)
        except UNREADABLE:
            return ""
        address = f"{made.name}/{made.tag}"
        return address if _ADDRESS.fullmatch(address) else ""
    return job.image


def pull_line(printed: bytes) -> str:
    """Return the line that fetches a SIF from the registry, of what `publish --json` printed; empty for none."""
    try:
        return codec.decode(printed, _Sent).lines.get("apptainer", "")
    except UNREADABLE:
        return ""
