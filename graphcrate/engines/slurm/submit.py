"""Slurm: who answers, what it knows of partitions and jobs; jobs are submitted through submitit.

submitit pickles a function, writes the batch script and brings the result back through a folder that all nodes see.
What becomes of a job is asked of Slurm itself: submitit asks sacct alone, which sites without accounting do not have.
"""

import contextlib
import math
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
#: tell Slurm's commands which cluster is meant
_WHERE = ("SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_CLUSTERS")
#: a person's or a site's choices for all jobs → the parameter that overrides them
_DEFAULTS = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_CONSTRAINT": "constraint",
}
SECONDS = 120  #: for a command that asks something; a busy controller takes its time
SIGNAL_SECONDS = 30  #: before the time limit, for submitit to say that it was reached
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
    """submitit's jobs in one folder, which must be there on all nodes under the same path."""

    def __init__(self, folder: Path, root: Path) -> None:
        """`root`: the project's folder, from which a node imports the function that it is to run."""
        self._folder, self._root = folder.absolute(), root
        self._read: dict[str, int] = {}

    def submit(
        self, function: Callable[..., Any], orders: Sequence[Any], parameters: Mapping[str, str | bool]
    ) -> list[str]:
        """One job for each order, all of them one array; returns their ids, in this order.

        `parameters` are sbatch's, by their long names without dashes; True for those that take no value. Raises
        HostError when Slurm refuses.
        """
        import submitit

        self._folder.mkdir(parents=True, exist_ok=True)
        with _as_asked(parameters):
            try:
                python = f"{shlex.quote(sys.executable)} -s"
                executor = submitit.SlurmExecutor(self._folder, max_num_timeout=0, python=python)
                executor.update_parameters(
                    # what a cluster's modules leave in PYTHONPATH is not for us
                    setup=["unset PYTHONHOME", f"export PYTHONPATH={shlex.quote(str(self._root))}"],
                    # submitit's own spelling, so that they replace its defaults
                    additional_parameters={name.replace("-", "_"): value for name, value in parameters.items()},
                    stderr_to_stdout=True,
                    use_srun=False,
                    signal_delay_s=SIGNAL_SECONDS,
                    wckey=None,
                )
                # submitit makes a single job of a single order
                jobs = executor.map_array(function, list(orders))
            except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
                said = parse.last_error(str(error).splitlines())
                raise HostError(
                    f"Slurm refuses the job: {said}",
                    next_step="sinfo    shows partitions and their nodes; --account, --gres, --time say what you want",
                ) from error
        return [str(job.job_id) for job in jobs]

    def log(self, job: str) -> Path:
        """All that the job says."""
        return self._folder / f"{job}_0_log.out"

    def heard(self, job: str) -> list[str]:
        """Whole lines that the job has said since the last call."""
        try:
            with self.log(job).open("rb") as stream:
                stream.seek(self._read.get(job, 0))
                text = stream.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._read[job] = self._read.get(job, 0) + len(whole)
        lines = whole.decode("utf-8", "replace").splitlines()
        return [line for line in lines if not line.startswith("submitit ")]

    def result(self, job: str) -> Any:  # noqa: ANN401
        """What the function gave back; None while it has not. Raises HostError where it broke off with a fault."""
        import submitit.core.utils

        self._refresh()
        path = self._folder / f"{job}_0_result.pkl"
        if not path.exists():
            return None
        outcome, value = submitit.core.utils.pickle_load(path)
        if outcome != "success":
            raise HostError(
                f"job {job} broke off: {str(value).strip().splitlines()[-1]}",
                cause="graphcrate on the node is another one, or the node lacks something.",
                next_step=f"less {self.log(job)}",
            )
        return value

    def forget(self, job: str) -> None:
        """Remove what is no longer needed of a finished job; its log stays."""
        script = self._folder / f"{job.partition('_')[0]}_submission.sh"
        for link in self._folder.glob(".submission_file_*"):  # what submitit calls it besides
            if link.is_symlink() and link.readlink().name == script.name:
                link.unlink(missing_ok=True)
        for name in (f"{job}_submitted.pkl", f"{job}_0_result.pkl", script.name):
            (self._folder / name).unlink(missing_ok=True)

    def _refresh(self) -> None:
        """A network file system shows what other nodes wrote once the folder is touched."""
        with contextlib.suppress(OSError):
            self._folder.chmod(self._folder.stat().st_mode)


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


@contextlib.contextmanager
def _as_asked(parameters: Mapping[str, object]) -> Iterator[None]:
    """An environment in which sbatch goes by the batch script: variables of a site or of a job around us beat that.

    submitit hands sbatch this process's own environment. Its warnings are of its habits, nothing for the terminal.
    """
    import submitit.helpers
    from submitit.core.utils import environment_variables

    chosen = [name for name, parameter in _DEFAULTS.items() if parameter not in parameters]
    kept = {name: settings.environment()[name] for name in (*_WHERE, *chosen) if name in settings.environment()}
    with warnings.catch_warnings(), submitit.helpers.clean_env(), environment_variables(**kept):
        warnings.simplefilter("ignore")
        yield
