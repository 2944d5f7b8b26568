"""Ask Slurm's own commands: which partitions there are, what became of a job; cancel jobs. `scheduler` submits them."""

import math
from collections.abc import Mapping, Sequence

import msgspec

from graphcrate.engines.slurm import parse
from graphcrate.engines.slurm.parse import JobView, Partition
from graphcrate.host import process, settings
from graphcrate.model.errors import BuildError, HostError

#: what Slurm's commands read besides what all children get
VARIABLES = ("SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_ACCOUNT", "SLURM_ACCOUNT", "KRB5CCNAME")
#: of a job step's own surroundings, which a command started in it needs to find the job, and what a person tells
#: pyxis, enroot and its hooks
_INHERITED_IN_JOB = ("SLURM_", "SLURMD_", "SPANK_", "PYXIS_", "ENROOT_", "NVIDIA_", "MELLANOX_", "CUDA_VISIBLE_DEVICES")
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
