"""Run jobs with Slurm's own commands: sbatch submits, squeue and sacct say what became of a job, scancel cancels.

A job is a Python module run on a node. It gets an order and leaves a result, both JSON files in a folder that all nodes
see. sacct is asked second: sites without accounting have nothing behind it.
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

from graphcrate.compat.facts import slurm_ends
from graphcrate.host import arguments, process, settings
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import writing
from graphcrate.host.process import Completed
from graphcrate.model import codec
from graphcrate.model.command import ETC, command, for_shell
from graphcrate.model.errors import UNREADABLE, BuildError, HostError, UsageError
from graphcrate.model.runtime import BY_ENROOT
from graphcrate.model.suite import SUITES
from graphcrate.model.trial import CommandOrder, JobOrder, Resources, Returned
from graphcrate.render import slurm_batch
from graphcrate.smoke.own import programs
from graphcrate.smoke.suites import SECONDS_TO_SAY_SO

#: what Slurm's commands read besides what all children get
VARIABLES = ("SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_ACCOUNT", "SLURM_ACCOUNT", "KRB5CCNAME")
#: of a job step's environment: what a command started in it needs to find the job, and settings of pyxis, enroot and
#: its hooks
_INHERITED_IN_JOB = ("SLURM_", "SLURMD_", "SPANK_", "PYXIS_", "ENROOT_", "NVIDIA_", "MELLANOX_", "CUDA_VISIBLE_DEVICES")
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
SECONDS = 120  #: limit of a command that asks something; a busy controller is slow
SECONDS_TO_OPEN = 600  #: for what comes before the suites: an import from a registry, a slow file system
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
        """Take the result of a job; None while there is none. Its log stays. Raises HostError for an invalid one."""
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


def job_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command inside a job: what all children get, and the variables of the job."""
    inside = {name: value for name, value in environment.items() if name.startswith(_INHERITED_IN_JOB)}
    return settings.select_for_child(environment, VARIABLES) | inside


def here() -> Mapping[str, str]:
    """In a job: `node`, `partition` and `job`, as far as Slurm sets them; empty elsewhere."""
    environment = settings.environment()
    facts = {
        "node": environment.get("SLURMD_NODENAME"),
        "partition": environment.get("SLURM_JOB_PARTITION"),
        "job": environment.get("SLURM_JOB_ID"),
    }
    return {name: value for name, value in facts.items() if value}


def own_job() -> str:
    """Return the id of the job that this process is in, of a task of an array ARRAY_TASK; empty outside of one."""
    environment = settings.environment()
    if array := environment.get("SLURM_ARRAY_JOB_ID"):
        return f"{array}_{environment.get('SLURM_ARRAY_TASK_ID', '')}"
    return environment.get("SLURM_JOB_ID", "")


def step_words(nodes: int) -> list[str]:
    """Return the words of a step with a task on each of so many nodes of the job."""
    each = ["--ntasks-per-node=1"] if nodes > 1 else []
    return ["srun", "--quiet", "--unbuffered", f"--ntasks={nodes}", f"--nodes={nodes}", *each]


def raise_if_taken_away(done: Completed) -> None:
    """Raise HostError for a step that Slurm or a node took away: nothing is known of what ran in it."""
    if done.returncode and (why := slurm_ends.taken_away(done.lines)):
        raise HostError(
            f"Slurm took the step away: {why}",
            next_step="sinfo -R; sacct --jobs=JOB    say what became of the node and the job; then run it again",
        )


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


def last_error(lines: Sequence[str]) -> str:
    """Return the last error of sbatch, without its name before it."""
    errors = [line.strip() for line in lines if re.match(r"\s*(sbatch|srun|allocation failure).*:", line)]
    text = (errors or [line.strip() for line in lines if line.strip()] or [""])[-1]
    return re.sub(r"^(sbatch|srun): (error: )?", "", text)
