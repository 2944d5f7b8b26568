"""Trials: suites run in an image by some runner, here or as jobs of Slurm, one by one or as a matrix."""

from enum import StrEnum
from typing import Literal

import msgspec

from graphcrate.model.report import Artifact, SmokeReport

Device = Literal["auto", "cpu", "cuda"]


class TrialReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `test --json` prints, and `trial.json` beside the logs holds."""

    reference: str  #: as it was asked for
    runner: str
    artifact: Artifact
    suites: tuple[SmokeReport, ...]
    layout: str = ""  #: digest of the layout that the artifact was made from, where that is known


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What a job asks Slurm for, in sbatch's own words; empty: the site's default."""

    partition: str
    gres: str = ""  #: "gpu:1"
    time: str = ""  #: "30", "01:00:00"; empty: what the suites may take
    account: str = ""
    qos: str = ""
    cpus: int = 0  #: of the task; 0: the site's default


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a job does on its node. Paths are absolute: the folders are the same on all nodes."""

    artifact: Artifact
    suites: tuple[str, ...]
    device: Device
    folder: str  #: for logs and curves
    passes: str  #: the folder of what the image has passed, wherever that was
    packages: tuple[str, ...] = ()  #: what the image is said to have
    layout: str = ""  #: as in TrialReport
    rerun: bool = False  #: run what it has passed on such a node before, too
    proof: str = ""  #: stands for how the suites are run and judged


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """What a job gives back: a report for each suite, or the error that kept it from running them."""

    suites: tuple[SmokeReport, ...] = ()
    error: str = ""


class State(StrEnum):
    """Where a cell of the matrix stands."""

    NEW = "new"  #: no job yet
    QUEUED = "queued"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"  #: a suite failed
    LOST = "lost"  #: its job gave no report; the next call submits it again

    @property
    def is_finished(self) -> bool:
        """Whether there is a report, so that nothing is left to do."""
        return self in (State.PASSED, State.FAILED)

    @property
    def is_open(self) -> bool:
        """Whether a job of Slurm is under way."""
        return self in (State.QUEUED, State.RUNNING)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One image on one partition. `key` names it: same key, same trial."""

    key: str
    reference: str
    order: Order
    resources: Resources
    state: State = State.NEW
    job: str = ""
    why: str = ""  #: what it waits for, or why it has no report
    node: str = ""
    submitted: float = 0.0  #: Unix seconds
    gone: float = 0.0  #: since when Slurm says that it ended (or does not know it) while there is no report
    suites: tuple[SmokeReport, ...] = ()


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """The matrix's state file: every cell that was ever asked for."""

    cells: tuple[Cell, ...] = ()
    format: int = 1
