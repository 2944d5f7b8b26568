"""Run jobs with Slurm's own commands: sbatch submits, squeue and sacct tell what became of a job, scancel cancels.

A job is a Python module run on a node. It gets an order and leaves a result, both JSON files in a folder that all nodes
see. sacct is asked second: sites without accounting have nothing behind it.
"""

import contextlib
import math
import shlex
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.engines.slurm import parse
from graphcrate.engines.slurm.parse import JobView, Partition
from graphcrate.host import process, settings
from graphcrate.host.atomic import write_file
from graphcrate.model.errors import BuildError, HostError

#: what Slurm's commands read besides what all children get
VARIABLES = ("SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_ACCOUNT", "SLURM_ACCOUNT", "KRB5CCNAME")
#: of a job step's own surroundings, which a command started in it needs to find the job, and what a person tells
#: pyxis, enroot and its hooks
_INHERITED_IN_JOB = ("SLURM_", "SLURMD_", "SPANK_", "PYXIS_", "ENROOT_", "NVIDIA_", "MELLANOX_", "CUDA_VISIBLE_DEVICES")
#: of a job around us: they would change the request, or give its processes ranks
_OF_A_JOB = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_")
_RANKS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
#: say which cluster is meant, and what a person or a site chose for all jobs; sbatch's options beat them
_CHOICES = (
    *("SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_CLUSTERS"),
    *("SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_RESERVATION", "SBATCH_CONSTRAINT"),
)
SECONDS = 120  #: for a command that asks something; a busy controller takes its time
ELSEWHERE = "log in to the cluster, or run it here: --runner apptainer, --runner embedded"


class Slurm(msgspec.Struct, frozen=True, kw_only=True):
    """A Slurm that answers. `version` as it says ("22.05.8")."""

    version: str
    environment: Mapping[str, str]

    def partitions(self) -> tuple[Partition, ...]:
        """All that this user can see. Raises HostError when the controller does not answer."""
        return parse.partitions(self._ask("sinfo", "--noheader", f"--format={parse.SINFO_FORMAT}"))

    def has_pyxis(self) -> bool:
        """Whether srun starts containers here."""
        return parse.has_pyxis(self._ask("srun", "--help"))

    def look(self, jobs: Sequence[str]) -> Mapping[str, JobView]:
        """What Slurm says of these jobs; those that it has forgotten are missing. SILENT of all while it is away."""
        if not jobs:
            return {}
        options = ["--noheader", "--array", "--states=all", f"--format={parse.SQUEUE_FORMAT}"]
        try:
            told = process.output(
                ["squeue", *options, f"--jobs={','.join(jobs)}"], environment=self.environment, timeout=SECONDS
            )
        except BuildError as error:
            if parse.UNKNOWN_JOB not in error.what:  # a controller that restarts or is too busy
                return dict.fromkeys(jobs, parse.SILENT)
            told = ""
        found = dict(parse.queue(told))
        # the controller forgets a job minutes after its end; accounting, where there is any, does not
        if lost := [job for job in jobs if job not in found]:
            fields = "--format=JobID,State,NodeList,Reason,ExitCode"
            told = self._try("sacct", "--noheader", "--parsable2", "--allocations", fields, f"--jobs={','.join(lost)}")
            found |= parse.accounting(told)
        for job in (job for job in jobs if job in found and found[job].is_ended):
            # how it ended: squeue does not say with which code
            details = parse.scontrol_jobs(self._try("scontrol", "--oneliner", "show", "job", job))
            found[job] = details.get(job, found[job])
        return {job: found[job] for job in jobs if job in found}

    def cancel(self, jobs: Sequence[str]) -> None:
        """Take jobs out of the queue, running or not; those that have ended stay as they are."""
        if jobs:
            self._try("scancel", "--quiet", *jobs)

    def _ask(self, *command: str) -> str:
        try:
            return process.output(command, environment=self.environment, timeout=SECONDS)
        except BuildError as error:
            raise HostError(
                f"Slurm does not answer {command[0]}",
                cause=error.what,
                next_step="scontrol ping    shows whether the controller is up",
            ) from error

    def _try(self, *command: str) -> str:
        """What the command prints; nothing where it fails: no accounting, a job that is forgotten."""
        try:
            return process.output(command, environment=self.environment, timeout=SECONDS)
        except (BuildError, HostError):
            return ""


def find(environment: Mapping[str, str]) -> Slurm:
    """The Slurm of this machine. Raises HostError where there is none."""
    variables = settings.select_for_child(environment, VARIABLES)
    for program in ("sbatch", "srun", "squeue", "sinfo", "scancel", "scontrol"):
        if process.find(program) is None:
            raise HostError(
                "Slurm is not installed here",
                cause=f"{program} was found neither in PATH nor in the system's folders.",
                next_step=ELSEWHERE,
            )
    told = process.run(["sbatch", "--version"], environment=variables, timeout=SECONDS)
    if told.returncode:
        raise HostError(
            "Slurm does not work here", cause=" ".join(told.lines[-3:]), next_step=f"sbatch --version    ({ELSEWHERE})"
        )
    return Slurm(version=told.lines[-1].removeprefix("slurm-wlm ").removeprefix("slurm "), environment=variables)


def job_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a command gets that is started inside a job: what children get, and what tells it of the job."""
    inside = {name: value for name, value in environment.items() if name.startswith(_INHERITED_IN_JOB)}
    return settings.select_for_child(environment, VARIABLES) | inside


class Jobs:
    """Jobs with their orders, results and logs in one folder, which all nodes see under the same path."""

    def __init__(self, folder: Path, root: Path, environment: Mapping[str, str]) -> None:
        """`root`: the folder from which a node imports the module. `environment`: of this process; jobs inherit it."""
        self._folder, self._root, self._environment = folder.absolute(), root, environment
        self._read: dict[str, int] = {}

    def submit(self, module: str, orders: Sequence[bytes], parameters: Mapping[str, str | bool]) -> list[str]:
        """Submit a job for each order, several as one array; return their ids, in this order.

        The job runs `python -m MODULE ORDER RESULT`. `parameters`: sbatch's long options without dashes; True for one
        without a value. Raises HostError when Slurm refuses.
        """
        batch = self._folder / f"order-{uuid.uuid4().hex[:12]}"
        files = [Path(f"{batch}-{number}.json") for number in range(len(orders))]
        for file, order in zip(files, orders, strict=True):
            write_file(file, order)
        is_array = len(orders) > 1
        log = str(self._folder).replace("%", "%%") + ("/%A_%a.out" if is_array else "/%j.out")
        options = {**parameters, "output": log, **({"array": f"0-{len(orders) - 1}"} if is_array else {})}
        words = [f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items()]
        script = _script(module, self._root, batch, is_array=is_array)
        environment = submit_environment(self._environment)
        try:
            answer = process.output(
                ["sbatch", "--parsable", *words], environment=environment, stdin=script.encode(), timeout=SECONDS
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

    def log(self, job: str) -> Path:
        """Return the file of all that the job prints."""
        return self._folder / f"{job}.out"

    def new_lines(self, job: str) -> list[str]:
        """Read the whole lines that the job printed since the last call."""
        try:
            with self.log(job).open("rb") as stream:
                stream.seek(self._read.get(job, 0))
                text = stream.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._read[job] = self._read.get(job, 0) + len(whole)
        return whole.decode("utf-8", "replace").splitlines()

    def result(self, job: str) -> bytes | None:
        """Read the result of a job; None while there is none."""
        with contextlib.suppress(OSError):  # a network file system shows other nodes' files once the folder is touched
            self._folder.chmod(self._folder.stat().st_mode)
        with contextlib.suppress(FileNotFoundError):
            return self._result(job).read_bytes()
        return None

    def remove_result(self, job: str) -> None:
        """Remove the result of a finished job; its log stays."""
        self._result(job).unlink(missing_ok=True)

    def _result(self, job: str) -> Path:
        return self._folder / f"{job}.json"


def _script(module: str, root: Path, batch: Path, *, is_array: bool) -> str:
    """Write the batch script. Python replaces the shell, so that a signal of Slurm's reaches it."""
    task = "$SLURM_ARRAY_TASK_ID" if is_array else "0"
    job = "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if is_array else "$SLURM_JOB_ID"
    order, result = f'{shlex.quote(str(batch))}-"{task}".json', f'{shlex.quote(str(batch.parent))}/"{job}".json'
    return (
        "#!/bin/sh\n"
        "unset PYTHONHOME\n"
        # in place of what a cluster's modules leave there
        f"export PYTHONPATH={shlex.quote(str(root))}\n"
        f"exec {shlex.quote(sys.executable)} -sP -m {module} {order} {result}\n"
    )


def submit_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what sbatch and the job inherit: everything but the variables of a job around us."""
    return {
        name: value
        for name, value in environment.items()
        if name in _CHOICES or not (name.startswith(_OF_A_JOB) or name in _RANKS)
    }


def minutes(seconds: float) -> str:
    """A time for sbatch: whole minutes, rounded up."""
    return str(max(1, math.ceil(seconds / 60)))


def here() -> Mapping[str, str]:
    """In a job: `node`, `partition` and `job`, as far as Slurm tells; empty elsewhere."""
    names = {"node": "SLURMD_NODENAME", "partition": "SLURM_JOB_PARTITION"}
    found = {
        name: settings.environment()[variable]
        for name, variable in names.items()
        if settings.environment().get(variable)
    }
    array, task = settings.environment().get("SLURM_ARRAY_JOB_ID"), settings.environment().get("SLURM_ARRAY_TASK_ID")
    job = f"{array}_{task}" if array and task else settings.environment().get("SLURM_JOB_ID")
    return found | ({"job": job} if job else {})
