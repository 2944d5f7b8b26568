"""Submit jobs to Slurm: a Python module that runs on a node.

A job gets an order and leaves a result, both JSON files in a folder that all nodes see.
"""

import contextlib
import math
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from graphcrate.engines.slurm import ELSEWHERE, SECONDS, Slurm, find
from graphcrate.host import arguments, process
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import writing
from graphcrate.model import codec
from graphcrate.model.command import ETC, command, for_shell
from graphcrate.model.errors import UNREADABLE, BuildError, HostError, UsageError
from graphcrate.model.runtime import BY_ENROOT
from graphcrate.model.suite import SUITES
from graphcrate.model.trial import CommandOrder, JobOrder, Resources, Returned
from graphcrate.render import slurm_batch
from graphcrate.smoke.own import programs
from graphcrate.smoke.suites import SECONDS_TO_SAY_SO

#: of a job around us: they would change the request, or give its processes ranks
_OF_A_JOB = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_")
_RANKS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
#: say which cluster is meant, and what the user or a site chose for all jobs; sbatch's options beat them
_CHOICES = (
    *("SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_CLUSTERS"),
    *("SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_RESERVATION", "SBATCH_CONSTRAINT"),
)
FOLDER = "slurm"  #: below the output folder: the jobs' orders, results and logs
NODE_PROGRAM = "graphcrate.engines.slurm_node"
JOB_NAME, COMMANDS_NAME = "graphcrate-test", "graphcrate-build"
SECONDS_TO_OPEN = 600  #: for what comes before the suites: an import from a registry, a slow file system


@dataclass
class Scheduler:
    """Jobs of one Slurm, with their orders, results and logs in a folder that all nodes see under the same path."""

    slurm: Slurm
    folder: Path
    environment: Mapping[str, str]  #: of this process; jobs inherit it
    _offsets: dict[str, int] = field(default_factory=dict)
    _orders: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()

    def submit_array(self, order: CommandOrder, resources: Resources, tasks: int) -> list[str]:
        """Submit an array of jobs with one order, and return their ids. Raises HostError when Slurm refuses."""
        first = self.submit(order, resources, tasks)
        file = self._orders.pop(first)
        jobs = [f"{first}_{number}" for number in range(tasks)]
        self._orders.update(dict.fromkeys(jobs, file))
        return jobs

    def submit(self, order: JobOrder, resources: Resources, tasks: int = 0) -> str:
        """Submit a job and return its id. Raises HostError when Slurm refuses. `tasks`: of an array; 0: one job."""
        file = self.folder / f"order-{uuid.uuid4().hex[:12]}.json"
        with writing(file, mode=0o600) as part:  # a word of a command may have a password
            part.write_bytes(msgspec.json.encode(order))
        log = str(self.folder).replace("%", "%%") + ("/%A_%a.out" if tasks else "/%j.out")
        options = {**parameters(order, resources), "output": log}
        if tasks:
            options["array"] = f"0-{tasks - 1}"
        # --no-requeue: a job whose node died would only look as if it waited, with no word of the node
        attached = [f"--{name}={value}" for name, value in options.items()]
        argv = arguments.line("sbatch", "--parsable", "--no-requeue", *attached)
        script = slurm_batch.script(
            file,
            root=Path(__file__).resolve().parents[2],
            python=sys.executable,
            module=NODE_PROGRAM,
            is_array=bool(tasks),
            has_container=not isinstance(order, CommandOrder) and order.artifact.engine in BY_ENROOT,
        )
        environment = submit_environment(self.environment)
        try:
            answer = process.output(argv, environment=environment, stdin=script.encode(), timeout=SECONDS)
        except BuildError as error:
            file.unlink(missing_ok=True)
            failed, *complaints = error.what.splitlines()
            raise HostError(
                f"Slurm refuses the job: {last_error(complaints or [failed])}",
                next_step=f"{command(ETC, time='08:00:00')}    (hours:minutes:seconds, or days-hours)"
                if "time specification" in error.what
                else "sinfo    shows partitions and their nodes; see also --account, --gres, --time",
            ) from error
        job = answer.strip().splitlines()[-1].partition(";")[0]  # a federation adds the cluster
        self._orders[job] = file
        return job

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel jobs, and remove orders that no node will take."""
        self.slurm.cancel(jobs)
        self.forget(jobs)

    def forget(self, jobs: Sequence[str]) -> None:
        """Remove the orders of jobs."""
        for job in jobs:
            self._orders[job].unlink(missing_ok=True)

    def log(self, job: str) -> Path:
        """Return the file of all that the job prints."""
        return self.folder / f"{job}.out"

    def left_behind(self, job: str) -> str:
        """Return the node on which a job may have left its container; empty where it removed it, or had none."""
        try:
            return self.log(job).with_suffix(slurm_batch.LEFT).read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    def new_lines(self, job: str) -> list[str]:
        """Read the whole lines that the job printed since the last call."""
        try:
            with self.log(job).open("rb") as stream:
                stream.seek(self._offsets.get(job, 0))
                text = stream.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._offsets[job] = self._offsets.get(job, 0) + len(whole)
        return whole.decode("utf-8", "replace").splitlines()

    def result(self, job: str) -> Returned | None:
        """Take the result of a job; None until there is one. Its log stays. Raises HostError for an invalid one."""
        with contextlib.suppress(OSError):  # a network file system shows other nodes' files once the folder is touched
            self.folder.chmod(self.folder.stat().st_mode)
        file = self.folder / f"{job}.json"
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return None
        try:
            returned = codec.decode(data, Returned)
        except UNREADABLE as error:
            raise HostError(
                f"invalid result of job {job}: {codec.explained(error, data)}",
                cause="The node runs another version of graphcrate.",
                next_step=f"less {for_shell(self.log(job))}",
            ) from error
        file.unlink()
        return returned


def connect(ctx: Context, output: Path, partitions: Sequence[str], elsewhere: str = ELSEWHERE) -> Scheduler:
    """Find this machine's Slurm, with jobs' files below `output`. Raises HostError, UsageError for a partition."""
    slurm = find(ctx.environment, elsewhere)
    known = slurm.partitions()
    if unknown := [name for name in partitions if name not in known]:
        raise UsageError(
            f"there is no partition {unknown[0]!r}; there are {', '.join(known) or 'none that you may use'}",
            next_step=command(ETC, partition=known[0]) if known else "ask the administrator of this cluster",
        )
    return Scheduler(slurm, output / FOLDER, ctx.environment)


def parameters(order: JobOrder, resources: Resources) -> dict[str, str]:
    """Return sbatch's long options for an order.

    The default time limit is what its suites may take; for a command it is the site's.
    """
    name, nodes, time = COMMANDS_NAME, 1, resources.time
    if not isinstance(order, CommandOrder):
        suites = [SUITES[name] for name in order.suites]
        limit = sum(max(suite.cpu_limit, suite.cuda_limit) + SECONDS_TO_SAY_SO for suite in suites)
        limit += sum(program.limit for program in programs(order.own))
        time = time or str(math.ceil((limit + SECONDS_TO_OPEN + slurm_batch.SECONDS_TO_LEAVE) / 60))
        name, nodes = JOB_NAME, order.nodes
    options = {
        "job-name": name,
        "partition": resources.partition,
        "time": time,
        "signal": slurm_batch.warning(time),
        "nodes": str(nodes),
        "ntasks": str(nodes),
        "ntasks-per-node": "1" if nodes > 1 else "",
        "gres": resources.gres,
        "account": resources.account,
        "qos": resources.qos,
        "cpus-per-task": str(resources.cpus or ""),
    }
    return {name: value for name, value in options.items() if value}


def submit_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what sbatch and the job inherit: everything but the variables of a job around us."""
    return {
        name: value
        for name, value in environment.items()
        if name in _CHOICES or not (name.startswith(_OF_A_JOB) or name in _RANKS)
    }


def last_error(lines: Sequence[str]) -> str:
    """Return the last error of sbatch, without its name before it."""
    errors = [line.strip() for line in lines if re.match(r"\s*(sbatch|srun|allocation failure).*:", line)]
    text = (errors or [line.strip() for line in lines if line.strip()] or [""])[-1]
    return re.sub(r"^(sbatch|srun): (error: )?", "", text)
