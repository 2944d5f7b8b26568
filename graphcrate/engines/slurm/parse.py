"""What Slurm's commands print, as values. Pure.

The commands are asked for fields between bars, in an order of our own: what they print unasked changes with versions
and with the site's settings.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

#: sinfo --format, squeue --format; %R and %T are last words of no list, and never contain a bar
SINFO_FORMAT = "%R|%a|%l|%G"
SQUEUE_FORMAT = "%i|%T|%N|%r"
#: squeue's states (man squeue, JOB STATE CODES) of a job that has not begun
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
#: and of one that came to an end
ENDED = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"),
        *("PREEMPTED", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL"),
    }
)
#: reasons to wait that no time heals: what was asked for does not exist or is not allowed
HOPELESS = re.compile(
    r"BadConstraints|InvalidAccount|InvalidQOS|PartitionNodeLimit|PartitionTimeLimit|AccountNotAllowed|QOSNotAllowed|"
    r"(Assoc|QOS)Max\w+PerJob\w*|JobHeldAdmin|DependencyNeverSatisfied"
)


#: what squeue says of a job that the controller has forgotten, where it was asked for no other
UNKNOWN_JOB = "Invalid job id"


class Partition(msgspec.Struct, frozen=True):
    """A partition: whether it takes jobs, its time limit and generic resources as sinfo words them."""

    name: str
    is_up: bool
    limit: str = ""
    gres: str = ""


class JobView(msgspec.Struct, frozen=True):
    """What Slurm says of a job. `state` in squeue's long words."""

    state: str
    node: str = ""
    reason: str = ""  #: "None" reads as empty
    exit_code: str = ""  #: "0:15" is exit code and signal, where it is known

    @property
    def is_silent(self) -> bool:
        """Whether this is no news at all."""
        return not self.state

    @property
    def is_waiting(self) -> bool:
        return self.state in WAITING

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @property
    def words(self) -> str:
        """For an error: `NODE_FAIL on node7 (NodeDown)`."""
        place = f" on {self.node}" if self.node else ""
        details = [self.reason, f"exit code {self.exit_code}" if self.exit_code not in ("", "0:0") else ""]
        told = ", ".join(detail for detail in details if detail)
        return f"{self.state}{place}" + (f" ({told})" if told else "")


#: of every job while Slurm does not answer
SILENT = JobView("", reason="Slurm does not answer")


def partitions(text: str) -> tuple[Partition, ...]:
    """Of `sinfo --noheader --format=SINFO_FORMAT`: each partition once, in Slurm's order."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        name, available, limit, gres = _fields(line, 4)
        if not name:
            continue
        value = Partition(name, available == "up", limit, "" if gres == "(null)" else gres)
        known = found.get(name, value)
        # one line for each kind of node
        both = ",".join(dict.fromkeys(part for part in (known.gres, value.gres) if part))
        found[name] = msgspec.structs.replace(known, gres=both)
    return tuple(found.values())


def queue(text: str) -> Mapping[str, JobView]:
    """Of `squeue --noheader --array --states=all --format=SQUEUE_FORMAT`, by job id ("12", "12_3")."""
    found = {}
    for line in text.splitlines():
        job, state, node, reason = _fields(line, 4)
        if job and state:
            found[job] = JobView(state.split()[0], _known(node), _known(reason))
    return found


def scontrol_jobs(text: str) -> Mapping[str, JobView]:
    """Of `scontrol --oneliner show job ID`: one line a job, `Name=value` with blanks between.

    A task of an array has the array's id and its number, which may be a range ("0-3,7%2") while they wait together.
    """
    found = {}
    for line in text.splitlines():
        values = dict(re.findall(r"(?:^|\s)([A-Za-z:/]+)=(\S*)", line))
        if "JobId" not in values or "JobState" not in values:
            continue
        view = JobView(
            values["JobState"], _known(values.get("NodeList", "")), _known(values.get("Reason", "")),
            values.get("ExitCode", ""),
        )  # fmt: skip
        array, task = values.get("ArrayJobId"), values.get("ArrayTaskId")
        jobs = [f"{array}_{number}" for number in numbers(task)] if array and task else [values["JobId"]]
        found.update(dict.fromkeys(jobs, view))
    return found


def accounting(text: str) -> Mapping[str, JobView]:
    """Of `sacct --noheader --parsable2 --allocations --format=JobID,State,NodeList,Reason,ExitCode`."""
    found = {}
    for line in text.splitlines():
        job, state, node, reason, code = _fields(line, 5)
        if job and state and "." not in job:
            # "CANCELLED by 1000"
            found[job] = JobView(state.split()[0], _known(node), _known(reason), code)
    return found


def numbers(text: str) -> list[int]:
    """The tasks that an array's range names: "0-3,7%2" are 0, 1, 2, 3 and 7; "0-6:2" are 0, 2, 4 and 6."""
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        if match := re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part):
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            found += range(first, last + 1, max(step, 1))
    return found


def has_pyxis(srun_help: str) -> bool:
    """Whether this srun can start containers by itself: NVIDIA's plugin pyxis adds the option."""
    return re.search(r"^\s*--container-image\b", srun_help, re.MULTILINE) is not None


def last_error(lines: Sequence[str]) -> str:
    """What sbatch complains of, without its name before it."""
    spoken = [line.strip() for line in lines if re.match(r"\s*(sbatch|srun|allocation failure).*:", line)]
    text = (spoken or [line.strip() for line in lines if line.strip()] or [""])[-1]
    return re.sub(r"^(sbatch|srun): (error: )?", "", text)


def _fields(line: str, count: int) -> list[str]:
    parts = [part.strip() for part in line.split("|", count - 1)]
    return parts + [""] * (count - len(parts))


def _known(word: str) -> str:
    return "" if word in ("None", "(null)", "N/A", "(None)", "None assigned") else word
