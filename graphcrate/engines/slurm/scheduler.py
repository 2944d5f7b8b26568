"""Where jobs go: what trials ask of a scheduler, and Slurm as one."""

import contextlib
import shlex
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

from graphcrate.engines.slurm import node, parse
from graphcrate.engines.slurm.cluster import SECONDS, Slurm, minutes
from graphcrate.engines.slurm.parse import JobView
from graphcrate.host import process, settings
from graphcrate.host.atomic import write_file
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.trial import Order, Resources, Returned
from graphcrate.model.unreadable import UNREADABLE
from graphcrate.smoke import suites

PAUSE = 2.0  #: seconds between two looks; the controller serves a whole cluster
SECONDS_TO_OPEN = 600  #: for what comes before the suites: an import from a registry, a slow file system
JOB_NAME = "graphcrate-test"
#: of a job around us: they would change the request, or give its processes ranks
_OF_A_JOB = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_")
_RANKS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
#: say which cluster is meant, and what a person or a site chose for all jobs; sbatch's options beat them
_CHOICES = (
    *("SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_CLUSTERS"),
    *("SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_RESERVATION", "SBATCH_CONSTRAINT"),
)


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
    """Slurm. A job runs `python -m graphcrate.engines.slurm.node ORDER RESULT` on a node.

    Orders, results and logs lie in one folder, which all nodes see under the same path.
    """

    def __init__(self, slurm: Slurm, folder: Path, root: Path, environment: Mapping[str, str]) -> None:
        """`root`: the folder that a node imports graphcrate from. `environment`: of this process; jobs inherit it."""
        self._slurm, self._folder, self._root, self._environment = slurm, folder.absolute(), root, environment
        self._read: dict[str, int] = {}

    def uninterrupted(self) -> AbstractContextManager[None]:
        return process.uninterrupted()

    def submit(self, orders: Sequence[Order], resources: Resources) -> list[str]:
        batch = self._folder / f"order-{uuid.uuid4().hex[:12]}"
        files = [Path(f"{batch}-{number}.json") for number in range(len(orders))]
        for file, order in zip(files, orders, strict=True):
            write_file(file, msgspec.json.encode(order))
        is_array = len(orders) > 1
        log = str(self._folder).replace("%", "%%") + ("/%A_%a.out" if is_array else "/%j.out")
        options = {**parameters(orders, resources), "output": log}
        if is_array:
            options["array"] = f"0-{len(orders) - 1}"
        words = [f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items()]
        try:
            answer = process.output(
                ["sbatch", "--parsable", *words],
                environment=submit_environment(self._environment),
                stdin=_script(self._root, batch, is_array=is_array).encode(),
                timeout=SECONDS,
            )
        except BuildError as error:
            for file in files:
                file.unlink(missing_ok=True)
            command, *complaints = error.what.splitlines()
            raise HostError(
                f"Slurm refuses the job: {parse.last_error(complaints or [command])}",
                next_step="sinfo    shows partitions and their nodes; --account, --gres, --time say what you want",
            ) from error
        job = answer.strip().splitlines()[-1].partition(";")[0]  # a federation adds the cluster
        return [f"{job}_{number}" for number in range(len(orders))] if is_array else [job]

    def look(self, jobs: Sequence[str]) -> Mapping[str, JobView]:
        return self._slurm.look(jobs)

    def returned(self, job: str) -> Returned | None:
        with contextlib.suppress(OSError):  # a network file system shows other nodes' files once the folder is touched
            self._folder.chmod(self._folder.stat().st_mode)
        try:
            return msgspec.json.decode(self._result(job).read_bytes(), type=Returned)
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            raise HostError(
                f"the result of job {job} cannot be read: {error}",
                cause="graphcrate on the node is another one.",
                next_step=f"less {self.log(job)}",
            ) from error

    def heard(self, job: str) -> list[str]:
        try:
            with self.log(job).open("rb") as stream:
                stream.seek(self._read.get(job, 0))
                text = stream.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._read[job] = self._read.get(job, 0) + len(whole)
        return whole.decode("utf-8", "replace").splitlines()

    def log(self, job: str) -> Path:
        return self._folder / f"{job}.out"

    def cancel(self, jobs: Sequence[str]) -> None:
        self._slurm.cancel(jobs)

    def forget(self, job: str) -> None:
        self._result(job).unlink(missing_ok=True)

    def now(self) -> float:
        return settings.now()

    def pause(self) -> None:
        settings.wait(PAUSE)

    def _result(self, job: str) -> Path:
        return self._folder / f"{job}.json"


def _script(root: Path, batch: Path, *, is_array: bool) -> str:
    """Write the batch script. Python replaces the shell, so that a signal of Slurm's reaches it."""
    task = "$SLURM_ARRAY_TASK_ID" if is_array else "0"
    job = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if is_array else "$SLURM_JOB_ID"
    order, result = f'{shlex.quote(str(batch))}-"{task}".json', f'{shlex.quote(str(batch.parent))}/"{job}".json'
    return (
        "#!/bin/sh\n"
        "unset PYTHONHOME\n"
        # in place of what a cluster's modules leave there
        f"export PYTHONPATH={shlex.quote(str(root))}\n"
        f"exec {shlex.quote(sys.executable)} -sP -m {node.__name__} {order} {result}\n"
    )


def submit_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what sbatch and the job inherit: everything but the variables of a job around us."""
    return {
        name: value
        for name, value in environment.items()
        if name in _CHOICES or not (name.startswith(_OF_A_JOB) or name in _RANKS)
    }


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
