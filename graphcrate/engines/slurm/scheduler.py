"""Where jobs go: what trials ask of a scheduler, and Slurm as one."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from graphcrate.engines.slurm import node
from graphcrate.engines.slurm.parse import JobView
from graphcrate.engines.slurm.submit import Jobs, Slurm, minutes
from graphcrate.host import process, settings
from graphcrate.model.errors import HostError
from graphcrate.model.trial import Order, Resources, Returned
from graphcrate.model.unreadable import UNREADABLE
from graphcrate.smoke import suites

PAUSE = 2.0  #: seconds between two looks; the controller serves a whole cluster
SECONDS_TO_OPEN = 600  #: for what comes before the suites: an import from a registry, a slow file system
JOB_NAME = "graphcrate-test"


class Scheduler(Protocol):
    """A batch system. Ids of jobs are its own words."""

    def uninterrupted(self) -> AbstractContextManager[None]:
        """Puts off an interrupt to its end: for a submission and what writes down its jobs."""

    def submit(self, orders: Sequence[Order], resources: Resources) -> list[str]:
        """One job for each order, together one array; their ids. Raises HostError when it refuses."""

    def look(self, jobs: Sequence[str]) -> Mapping[str, JobView]:
        """What it says of jobs; those that it does not know are missing."""

    def returned(self, job: str) -> Returned | None:
        """What a job gave back; None while it has not. Raises HostError for what cannot be read."""

    def heard(self, job: str) -> list[str]:
        """Lines that a job has said since the last call."""

    def log(self, job: str) -> Path:
        """Where all lies that a job has said."""

    def cancel(self, jobs: Sequence[str]) -> None:
        """Take jobs back, running or not."""

    def forget(self, job: str) -> None:
        """Remove what is left of a job that has given back what it had; its log stays."""

    def now(self) -> float:
        """Unix time in seconds."""

    def pause(self) -> None:
        """Wait until another look is worth while."""


class SlurmScheduler:
    """Slurm, with the jobs' files in a folder that all nodes see."""

    def __init__(self, slurm: Slurm, jobs: Jobs) -> None:
        self._slurm, self._jobs = slurm, jobs

    def uninterrupted(self) -> AbstractContextManager[None]:
        return process.uninterrupted()

    def submit(self, orders: Sequence[Order], resources: Resources) -> list[str]:
        encoded = [msgspec.json.encode(order) for order in orders]
        return self._jobs.submit(node.__name__, encoded, parameters(orders, resources))

    def look(self, jobs: Sequence[str]) -> Mapping[str, JobView]:
        return self._slurm.look(jobs)

    def returned(self, job: str) -> Returned | None:
        text = self._jobs.result(job)
        try:
            return None if text is None else msgspec.json.decode(text, type=Returned)
        except UNREADABLE as error:
            raise HostError(
                f"the result of job {job} cannot be read: {error}",
                cause="graphcrate on the node is another one.",
                next_step=f"less {self.log(job)}",
            ) from error

    def heard(self, job: str) -> list[str]:
        return self._jobs.new_lines(job)

    def log(self, job: str) -> Path:
        return self._jobs.log(job)

    def cancel(self, jobs: Sequence[str]) -> None:
        self._slurm.cancel(jobs)

    def forget(self, job: str) -> None:
        self._jobs.remove_result(job)

    def now(self) -> float:
        return settings.now()

    def pause(self) -> None:
        settings.wait(PAUSE)


def parameters(orders: Sequence[Order], resources: Resources) -> dict[str, str | bool]:
    """sbatch's long options for an array of these orders. Its time is what the longest of them may take.

    A job whose node dies is not started again by Slurm: that would look as if it waited, with no word of the node.
    """
    longest = max(sum(_limit(name) for name in order.suites) for order in orders)
    asked = {
        "job-name": JOB_NAME,
        "partition": resources.partition,
        "time": resources.time or minutes(longest + SECONDS_TO_OPEN),
        "nodes": "1",
        "ntasks": "1",
        "gres": resources.gres,
        "account": resources.account,
        "qos": resources.qos,
        "cpus-per-task": str(resources.cpus or ""),
    }
    return {"no-requeue": True, **{name: value for name, value in asked.items() if value}}


def _limit(name: str) -> float:
    suite = suites.SUITES[name]
    return max(suite.cpu_limit, suite.cuda_limit) + suites.SECONDS_TO_SAY_SO
