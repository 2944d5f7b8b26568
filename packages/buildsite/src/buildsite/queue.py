"""Jobs of a site as folders: what was asked, a log, results. They outlive the server.

    p0123…/  job.json          the question, who asked, the state; replaced as a whole
             requirements.txt  the file of the question, by its own name
             lock              held by the child process for as long as it runs
             log               its stderr, as on a terminal
             result            its stdout: the plan, the report; of further commands result1

A folder's name is the hash of its commands and its file: equal requests are one job, of several users too.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from buildsite.users import LimitError
from graphcrate.host import settings
from graphcrate.host.disk import documents
from graphcrate.host.disk.atomic import make_folder, write_file
from graphcrate.model import codec
from graphcrate.model.command import command
from graphcrate.model.errors import UNREADABLE, GraphcrateError, HostError, RecipeError
from graphcrate.model.lock import encode
from graphcrate.remote.questions import Question

#: of a job: read a dropped file; plan; build; make a file of an image that is there; put its SIF into a registry;
#: remove images, for the site
Kind = Literal["read", "plan", "build", "file", "send", "clean"]
State = Literal["waiting", "running", "done", "failed", "cancelled"]
ENDED: tuple[State, ...] = ("done", "failed", "cancelled")
#: of each kind at once; a build has the machine to itself
AT_ONCE: Mapping[Kind, int] = {"read": 2, "plan": 2, "build": 1, "file": 1, "send": 1, "clean": 1}
PLAN_SECONDS = 600.0  #: after which a plan is made again: indexes and mirrors change
ATTEMPTS = 3  #: of a job whose child process was killed
MOST_WAITING = 1000  #: jobs that wait or run
KEPT = 500  #: jobs that have ended
LARGEST_LOG = 256 << 10  #: bytes of its end that are shown
LAYOUT = "@layout"  #: a word of a further command: the image's layout, which the first one's report names
_TICK = 0.1
_GRACE = 30.0  #: seconds between the request to end and the end: a job of Slurm is cancelled meanwhile


class SiteJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was asked for."""

    id: str
    kind: Kind
    question: Question
    commands: tuple[tuple[str, ...], ...]  #: one after the other; what the first one prints is the result
    shown: tuple[str, ...]  #: what does the same at a shell
    user: str  #: who asked; empty where only this machine can
    others: tuple[str, ...] = ()  #: who asked for the same later
    image: str = ""  #: whose file it makes: "pyg/2.8.1-torch2.7.1-cu126"
    created: float
    minutes: float  #: that it may take
    state: State = "waiting"
    step: int = 0  #: of its commands
    begun: float = 0
    ended: float = 0
    attempts: int = 0
    note: str = ""  #: why it ended, where its log does not say so
    exit_code: int = 0  #: of the command that failed

    @property
    def is_over(self) -> bool:
        """Return whether it has ended."""
        return self.state in ENDED

    def is_of(self, user: str) -> bool:
        """Return whether a user asked for it."""
        return user in (self.user, *self.others)


class Running(Protocol):
    """A child process, as `host.process.Background`."""

    def poll(self) -> int | None:
        """Return its exit code; None while it runs, and less than 0 where it was killed or that is unknown."""

    def end(self, *, insist: bool = False) -> None:
        """Ask it to end, or end it."""


class JobQueue:
    """The jobs of a site. All but `work` is done at once, in the thread of the server."""

    def __init__(
        self,
        folder: Path,
        start: Callable[[tuple[str, ...], Path, str], Running],
        adopt: Callable[[Path], Running | None],
        at_once: Mapping[Kind, int] = AT_ONCE,
    ) -> None:
        """Read what an earlier server left. `start`: a command in a folder, its stdout in a file of this name."""
        self.root, self._start, self._running = folder, start, dict[str, Running]()
        self._at_once = at_once
        self.after: Callable[[SiteJob], None] = lambda _: None  #: called with each job that has ended
        self.keeps: Callable[[SiteJob], bool] = lambda _: False  #: whether an old job is not to be forgotten
        self._ending = dict[str, float]()  #: since when it was asked to end
        make_folder(folder)
        folder.chmod(0o700)  # of users of this machine, none sees what others of the site asked for
        self._jobs = {job.id: job for job in sorted(self._left(), key=lambda job: job.created)}
        for job in [job for job in self._jobs.values() if job.state == "running"]:
            if child := adopt(self.folder(job)):
                self._running[job.id] = child
            else:
                self._ended(job, -1)

    def _left(self) -> Iterator[SiteJob]:
        for folder in self.root.iterdir():
            with contextlib.suppress(RecipeError):
                job = documents.read(folder / "job.json", SiteJob, "a job of the site", command("serve"))
                if job and job.id == folder.name:
                    yield job
                    continue
            shutil.rmtree(folder, ignore_errors=True)

    def get(self, name: str) -> SiteJob | None:
        """Return the job of this name."""
        return self._jobs.get(name)

    def all(self, *kinds: Kind) -> list[SiteJob]:
        """Return the jobs of these kinds, the newest first."""
        return [job for job in reversed(self._jobs.values()) if job.kind in kinds]

    def ahead(self, job: SiteJob) -> int:
        """Return the number of jobs of its kind that run or wait before a job that waits."""
        before = list(self._jobs)[: list(self._jobs).index(job.id)] if job.state == "waiting" else ()
        return sum(not self._jobs[name].is_over and self._jobs[name].kind == job.kind for name in before)

    def waiting(self, user: str = "") -> int:
        """Return the number of jobs that wait or run, of a user or of all."""
        return sum(not job.is_over and (not user or job.is_of(user)) for job in self._jobs.values())

    def folder(self, job: SiteJob) -> Path:
        """Return the folder of a job."""
        return self.root / job.id

    def ask(self, job: SiteJob, most: int = MOST_WAITING) -> SiteJob:
        """Queue a job; return the equal one where that waits, runs or has succeeded, as one of this user's, too.

        `most`: jobs of the user that may wait or run. Raises LimitError.
        """
        if known := self._jobs.get(job.id):
            is_old = job.kind == "plan" and known.ended and job.created - known.ended > PLAN_SECONDS
            if not known.is_over or job.id in self._running or (known.state == "done" and not is_old):
                return known if known.is_of(job.user) else self._keep(known, others=(*known.others, job.user))
        if self.waiting(job.user) >= most:
            raise LimitError(
                f"{most} of your plans and builds wait or run already",
                cause="The site sets that limit.",
                next_step="cancel one, or wait until one has ended",
            )
        self._jobs.pop(job.id, None)
        shutil.rmtree(self.folder(job), ignore_errors=True)
        make_folder(self.folder(job))
        if name := job.question.file_name:
            write_file(self.folder(job) / name, job.question.text.encode())
        self._keep(job)
        for old in [old for old in self._jobs.values() if old.is_over and old.id not in self._running][:-KEPT]:
            if not self.keeps(old):
                self.forget(old)
        return job

    def forget(self, job: SiteJob) -> None:
        """Remove a job that has ended: the next equal one is done again."""
        if job.is_over and job.id not in self._running:
            self._jobs.pop(job.id, None)
            shutil.rmtree(self.folder(job), ignore_errors=True)

    def cancel(self, job: SiteJob, user: str = "") -> None:
        """End a job that waits or runs for a user; it goes on for others who asked for it."""
        others = [name for name in (job.user, *job.others) if name != user]
        if job.is_over:
            return
        if others and user:
            self._keep(job, user=others[0], others=tuple(others[1:]))
        else:
            self._end(job, "cancelled", "it was cancelled")

    def result(self, job: SiteJob) -> bytes:
        """Return what a job's first command printed; nothing while it runs, and of one that failed before."""
        with contextlib.suppress(OSError):
            return (self.folder(job) / "result").read_bytes()
        return b""

    def log(self, job: SiteJob, start: int = 0, most: int = LARGEST_LOG) -> tuple[bytes, int]:
        """Return what its log has from a byte on, whole lines, and where that ends; no more than its last bytes."""
        with contextlib.suppress(OSError), (self.folder(job) / "log").open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(start, size - most))
            data = log.read(most)
            if not job.is_over:
                data = data[: data.rfind(b"\n") + 1]
            return data, max(start, size - most) + len(data)
        return b"", start

    async def work(self, warn: Callable[[str], None]) -> None:
        """Start what waits and see what has ended, for ever; `warn` is told of a disk that is full."""
        while True:
            try:
                self.look()
            except (GraphcrateError, OSError) as error:
                warn(f"the queue waits a while: {error}")
                await asyncio.sleep(_GRACE)
            await asyncio.sleep(_TICK)

    def look(self) -> None:
        """See what has ended, and start what waits."""
        for name, child in list(self._running.items()):
            job, code = self._jobs[name], child.poll()
            if code is not None:
                del self._running[name]
                self._ending.pop(name, None)
                self._ended(job, code)
            elif name in self._ending:
                child.end(insist=settings.now() > self._ending[name] + _GRACE)
            elif settings.now() > job.begun + job.minutes * 60:
                self._end(job, "failed", f"it took more than {job.minutes:g} minutes, and was ended")
        for job in [job for job in self._jobs.values() if job.state == "waiting"]:
            running = sum(self._jobs[name].kind == job.kind for name in self._running)
            if running < self._at_once[job.kind] and job.id not in self._running:
                self._begin(job)

    def _begin(self, job: SiteJob) -> None:
        """Start the next command of a job."""
        begun = job.begun if job.step else settings.now()
        before, job = job, self._keep(job, state="running", begun=begun, attempts=job.attempts + (not job.step))
        try:
            words = tuple(self._layout(job) if word == LAYOUT else word for word in job.commands[job.step])
            name = f"result{job.step or ''}"
            self._running[job.id] = self._start(words, self.folder(job), name)
        except BlockingIOError:  # processes of the child that was killed are still ending
            self._keep(before, state="waiting")
        except (GraphcrateError, OSError) as error:
            self._keep(job, state="failed", ended=settings.now(), note=str(error))

    def _layout(self, job: SiteJob) -> str:
        """Return the layout that the first command made. Raises HostError where it does not say so."""
        try:
            return codec.decode(self.result(job), _Layout).layout
        except UNREADABLE as error:
            raise HostError(
                "the report of the image cannot be read", cause=str(error), next_step="build it once more"
            ) from error

    def _ended(self, job: SiteJob, code: int) -> None:
        """Note how a command ended. -1: unknown, but its result is whole or is not."""
        if job.is_over:  # it was cancelled, or took too long
            self.after(job)
            return
        if code == 0 or (code < 0 and self._is_whole(job)):
            if job.step + 1 < len(job.commands):
                self._begin(msgspec.structs.replace(job, step=job.step + 1))
            else:
                self.after(self._keep(job, state="done", ended=settings.now()))
        elif code < 0 and job.attempts < ATTEMPTS:
            self._keep(job, state="waiting", step=0)
        else:
            note = "its process was killed" if code < 0 else ""
            self.after(self._keep(job, state="failed", ended=settings.now(), note=note, exit_code=max(code, 0)))

    def _is_whole(self, job: SiteJob) -> bool:
        with contextlib.suppress(OSError, *UNREADABLE):
            codec.decode((self.folder(job) / f"result{job.step or ''}").read_bytes(), msgspec.Raw)
            return True
        return False

    def _end(self, job: SiteJob, state: State, note: str) -> None:
        self._keep(job, state=state, ended=settings.now(), note=note)
        if child := self._running.get(job.id):
            self._ending[job.id] = settings.now()
            child.end()

    def _keep(self, job: SiteJob, **changes: object) -> SiteJob:
        job = msgspec.structs.replace(job, **changes)
        write_file(self.folder(job) / "job.json", encode(job))
        self._jobs[job.id] = job
        return job


class _Layout(msgspec.Struct, frozen=True):
    """The report's layout."""

    layout: str
