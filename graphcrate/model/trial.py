"""Tests of images: suites run by some runner, here or as jobs of Slurm, one by one or as a matrix.

A job of Slurm may have a command of ours as its order, too.
"""

from enum import StrEnum
from typing import Literal

import msgspec

from graphcrate.model.platform import DEFAULT
from graphcrate.model.report import Artifact, OwnTests, SmokeReport, StartUp

Device = Literal["auto", "cpu", "cuda"]


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """A trial's report, as `test --json` prints it, and `trial.json` beside the logs holds it."""

    reference: str  #: as given on the command line
    runner: str
    artifact: Artifact
    suites: tuple[SmokeReport, ...]
    layout: str = ""  #: digest of the layout that the artifact was made from, where it is known
    proof: str = ""  #: the kind of device that was asked for and the versions of the suites


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """A job's request to Slurm, as sbatch's options; empty: the site's default."""

    partition: str = ""
    gres: str = ""  #: "gpu:1"
    time: str = ""  #: "30", "01:00:00"; empty: the sum of the suites' limits
    account: str = ""
    qos: str = ""
    cpus: int = 0  #: of the task; 0: the site's default


class CommandOrder(msgspec.Struct, frozen=True, kw_only=True, tag="command"):
    """A command of ours for a job, in its absolute `folder`; its stdout goes to the file `printed`, if any."""

    words: tuple[str, ...]  #: after the program's name
    program: str = ""  #: as it was typed, where it was: what is printed has it
    typed: str = ""  #: the whole command as the user typed it, of which next steps are made
    folder: str
    printed: str = ""


class TrialOrder(msgspec.Struct, frozen=True, kw_only=True, tag="suites"):
    """Suites to run in an image, here or by a job on its node. Paths are absolute: nodes have the same folders."""

    reference: str = ""  #: as given on the command line
    runner: str = ""
    artifact: Artifact
    suites: tuple[str, ...]
    device: Device
    folder: str  #: for logs and curves
    passes: str  #: the folder of the image's past results, the same for all runners
    packages: tuple[str, ...] = ()  #: in the image, as its report lists them
    layout: str = ""  #: as in TrialReport
    rerun: bool = False  #: run also what it passed on such a node before
    own: OwnTests = OwnTests()  #: run after the suites
    starts: tuple[StartUp, ...] = ()  #: what runs by itself in the image: suites run without it
    nodes: int = 1  #: of a job of Slurm, for suites that spread
    platform: str = DEFAULT.name  #: that the image's programs run on


JobOrder = TrialOrder | CommandOrder


class Stopped(StrEnum):
    """The cause that kept a job from its end, where it is one of these: each has a remedy of its own."""

    REFUSED = "refused"
    NEVER = "never"  #: can start
    LATE = "late"  #: did not start in time
    TIME = "time"  #: its limit
    MEMORY = "memory"


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job: a report for each suite, a command's exit code, or the error that stopped it."""

    suites: tuple[SmokeReport, ...] = ()
    error: str = ""
    stopped: Stopped | None = None
    exit_code: int = 0


class State(StrEnum):
    """State of a cell of the matrix."""

    NEW = "new"  #: no job yet
    QUEUED = "queued"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"  #: a suite failed
    LOST = "lost"  #: without a report

    @property
    def is_open(self) -> bool:
        """Return whether a job is pending or running."""
        return self in (State.QUEUED, State.RUNNING)


class JobCell(msgspec.Struct, frozen=True, kw_only=True):
    """An order with the job that carries it out."""

    order: JobOrder
    resources: Resources
    state: State = State.NEW
    job: str = ""
    why: str = ""  #: what it waits for, or why it has no report
    stopped: Stopped | None = None  #: the kind of it
    node: str = ""
    submitted: float = 0.0  #: Unix seconds
    gone: float = 0.0  #: when Slurm first called it ended or unknown while there was no report
    suites: tuple[SmokeReport, ...] = ()
    exit_code: int = 0  #: of a command


class MatrixCell(JobCell, frozen=True, kw_only=True):
    """One image on one partition."""

    order: TrialOrder


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `test --matrix --json`."""

    cells: tuple[MatrixCell, ...]
