"""Ask Slurm's own commands: squeue and sacct say what became of a job, sinfo what there is, scancel cancels.

sacct is asked second: sites without accounting have nothing behind it.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from graphcrate.host import arguments, process, settings
from graphcrate.model.errors import BuildError, HostError

#: what Slurm's commands read besides what all children get
VARIABLES = ("SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_ACCOUNT", "SLURM_ACCOUNT", "KRB5CCNAME")
SECONDS = 120  #: limit of a command that asks something; a busy controller is slow
#: what squeue and sacct are asked for, between bars: their default output changes with versions and sites
SQUEUE_FORMAT = "%i|%T|%N|%r"
SACCT_FORMAT = "JobID,State,NodeList,Reason"
#: squeue's states (man squeue, JOB STATE CODES) of a job before its start
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
#: and of one that ended
ENDED = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"),
        *("PREEMPTED", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL"),
    }
)
#: and of one that ended through Slurm or a node, not by its program
TAKEN_AWAY = ENDED - {"COMPLETED", "FAILED", "OUT_OF_MEMORY"}
#: reasons to wait for ever: what was asked for does not exist or is not allowed
HOPELESS = re.compile(
    r"BadConstraints|InvalidAccount|InvalidQOS|PartitionConfig|PartitionNodeLimit|PartitionTimeLimit|AccountNotAllowed|QOSNotAllowed|"
    r"(Assoc|QOS)Max\w+PerJob\w*|JobHeldAdmin|DependencyNeverSatisfied"
)
#: squeue's error about a job that the controller has forgotten, where it is the only one asked for
UNKNOWN_JOB = "Invalid job id"
ELSEWHERE = "log in to the cluster, or run it here: --runner apptainer, --runner embedded"


class JobView(msgspec.Struct, frozen=True):
    """The state of a job, in squeue's long words; empty: unknown."""

    state: str
    node: str = ""
    reason: str = ""  #: "None" reads as empty

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @property
    def words(self) -> str:
        """Describe it for an error: `NODE_FAIL on node7 (NodeDown)`."""
        node = f" on {self.node}" if self.node else ""
        return f"{self.state}{node}" + (f" ({self.reason})" if self.reason else "")


#: the view of every job while Slurm does not answer
SILENT = JobView("", reason="Slurm does not answer")


class Slurm(msgspec.Struct, frozen=True, kw_only=True):
    """A Slurm that answers. `version` as it prints it ("22.05.8")."""

    version: str
    environment: Mapping[str, str]

    def partitions(self) -> list[str]:
        """List the partitions that this user can see. Raises HostError when the controller does not answer."""
        return sorted({*self._ask("sinfo", "--noheader", "--format=%R").split()})

    def cores(self, partition: str) -> int:
        """Return the cores of a partition's smallest node, of the default one where none is named; 0 if unknown."""
        where = [f"--partition={partition}"] if partition else []
        lines = [line.split() for line in self._try("sinfo", "--noheader", "--format=%P %c", *where).splitlines()]
        counts = [re.match(r"\d+", line[1]) for line in lines if len(line) > 1 and (partition or line[0].endswith("*"))]
        return min((int(each[0]) for each in counts if each), default=0)

    def has_pyxis(self) -> bool:
        """Tell whether srun starts containers here."""
        return offers_pyxis(self._ask("srun", "--help"))

    def look(self, jobs: Sequence[str]) -> Mapping[str, JobView]:
        """Ask for the state of jobs; forgotten ones are missing. SILENT for all while the controller is away."""
        options = ["--noheader", "--array", "--states=all", f"--format={SQUEUE_FORMAT}"]
        try:
            views = read_jobs(self._run("squeue", *options, f"--jobs={','.join(jobs)}"))
        except BuildError as error:
            if UNKNOWN_JOB not in error.what:  # a controller that restarts or is too busy
                return dict.fromkeys(jobs, SILENT)
            views = {}
        # the controller forgets a job minutes after its end; accounting, where there is any, does not
        if unknown := [job for job in jobs if job not in views]:
            options = ["--noheader", "--parsable2", "--allocations", f"--format={SACCT_FORMAT}"]
            views |= read_jobs(self._try("sacct", *options, f"--jobs={','.join(unknown)}"))
        return {job: views[job] for job in jobs if job in views}

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel jobs, pending or running; ended ones stay as they are."""
        if jobs:
            self._try("scancel", "--quiet", strange=jobs)

    def _run(self, *command: str, strange: Sequence[str] = ()) -> str:
        argv = arguments.line(*command, strange=strange)
        return process.output(argv, environment=self.environment, timeout=SECONDS)

    def _ask(self, *command: str) -> str:
        try:
            return self._run(*command)
        except BuildError as error:
            raise HostError(
                f"Slurm does not answer {command[0]}",
                cause=error.what,
                next_step="scontrol ping    shows whether the controller is up",
            ) from error

    def _try(self, *command: str, strange: Sequence[str] = ()) -> str:
        """Return what the command prints; nothing where it fails: no accounting, a forgotten job."""
        try:
            return self._run(*command, strange=strange)
        except (BuildError, HostError):
            return ""


def find(environment: Mapping[str, str], elsewhere: str = ELSEWHERE) -> Slurm:
    """Find the Slurm of this machine. Raises HostError where it has no Slurm, with what to do `elsewhere`."""
    variables = settings.select_for_child(environment, VARIABLES)
    if process.find("sbatch") is None:
        cause = "sbatch is neither in PATH nor in the system's folders."
        raise HostError("Slurm is not installed here", cause=cause, next_step=elsewhere)
    done = process.run(arguments.line("sbatch", "--version"), environment=variables, timeout=SECONDS)
    if done.returncode:
        raise HostError(
            "Slurm does not work here", cause=" ".join(done.lines[-3:]), next_step=f"sbatch --version    ({elsewhere})"
        )
    return Slurm(version=done.lines[-1].removeprefix("slurm-wlm ").removeprefix("slurm "), environment=variables)


def read_jobs(text: str) -> dict[str, JobView]:
    """Parse lines of id, state, node and reason, by job id; steps are left out.

    As `squeue --noheader --states=all --format=SQUEUE_FORMAT` and
    `sacct --noheader --parsable2 --allocations --format=SACCT_FORMAT` print them.
    """
    views = {}
    for line in text.splitlines():
        job, state, node, reason = [part.strip() for part in f"{line}||||".split("|")[:4]]
        if job and state and "." not in job:
            # "CANCELLED by 1000"
            views[job] = JobView(state.split()[0], _known(node), _known(reason))
    return views


def _known(word: str) -> str:
    return "" if word in ("None", "(null)", "N/A", "(None)", "None assigned") else word


def offers_pyxis(srun_help: str) -> bool:
    """Tell whether this srun starts containers itself: NVIDIA's plugin pyxis adds the option."""
    return re.search(r"^\s*--container-image\b", srun_help, re.MULTILINE) is not None
