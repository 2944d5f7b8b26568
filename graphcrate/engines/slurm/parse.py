"""Parse what Slurm's commands print. Pure.

The commands are asked for fields between bars, in a fixed order: their default output changes with versions and with
the site's settings.
"""

import re
from collections.abc import Sequence

import msgspec

#: sinfo --format, squeue --format, sacct --format
SINFO_FORMAT = "%R|%a|%G"
SQUEUE_FORMAT = "%i|%T|%N|%r"
SACCT_FORMAT = "JobID,State,NodeList,Reason,ExitCode"
#: squeue's states (man squeue, JOB STATE CODES) of a job that has not started
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
#: and of one that ended
ENDED = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"),
        *("PREEMPTED", "REVOKED", "LAUNCH_FAILED", "RECONFIG_FAIL"),
    }
)
#: reasons to wait for ever: what was asked for does not exist or is not allowed
HOPELESS = re.compile(
    r"BadConstraints|InvalidAccount|InvalidQOS|PartitionNodeLimit|PartitionTimeLimit|AccountNotAllowed|QOSNotAllowed|"
    r"(Assoc|QOS)Max\w+PerJob\w*|JobHeldAdmin|DependencyNeverSatisfied"
)
#: squeue's error about a job that the controller has forgotten, where it is the only one asked for
UNKNOWN_JOB = "Invalid job id"


class Partition(msgspec.Struct, frozen=True):
    """A partition: whether it takes jobs, and its generic resources as sinfo prints them."""

    name: str
    is_up: bool
    gres: str = ""


class JobView(msgspec.Struct, frozen=True):
    """The state of a job, in squeue's long words; empty: unknown."""

    state: str
    node: str = ""
    reason: str = ""  #: "None" reads as empty
    exit_code: str = ""  #: "0:15" is exit code and signal; empty: unknown

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
        code = f"exit code {self.exit_code}" if self.exit_code not in ("", "0:0") else ""
        details = ", ".join(detail for detail in (self.reason, code) if detail)
        return f"{self.state}{node}" + (f" ({details})" if details else "")


#: the view of every job while Slurm does not answer
SILENT = JobView("", reason="Slurm does not answer")


def partitions(text: str) -> tuple[Partition, ...]:
    """Parse `sinfo --noheader --format=SINFO_FORMAT`: each partition once, in Slurm's order."""
    by_name: dict[str, Partition] = {}
    for line in text.splitlines():
        name, available, gres = _fields(line, 3)
        if name:
            value = Partition(name, available == "up", _known(gres))
            known = by_name.get(name, value)
            # one line for each kind of node
            both = ",".join(dict.fromkeys(part for part in (known.gres, value.gres) if part))
            by_name[name] = msgspec.structs.replace(known, gres=both)
    return tuple(by_name.values())


def jobs(text: str) -> dict[str, JobView]:
    """Parse lines of id, state, node, reason and perhaps exit code, by job id ("12", "12_3"); steps are left out.

    As `squeue --noheader --array --states=all --format=SQUEUE_FORMAT` and
    `sacct --noheader --parsable2 --allocations --format=SACCT_FORMAT` print them.
    """
    views = {}
    for line in text.splitlines():
        job, state, node, reason, code = _fields(line, 5)
        if job and state and "." not in job:
            # "CANCELLED by 1000"
            views[job] = JobView(state.split()[0], _known(node), _known(reason), code)
    return views


def details(text: str, job: str) -> JobView | None:
    """Find a job in `scontrol --oneliner show job ID`: one line a job, `Name=value` with blanks between."""
    for line in text.splitlines():
        values = dict(re.findall(r"(?:^|\s)([A-Za-z:/]+)=(\S*)", line))
        if job in (values.get("JobId"), f"{values.get('ArrayJobId')}_{values.get('ArrayTaskId')}"):
            node, reason, code = (values.get(name, "") for name in ("NodeList", "Reason", "ExitCode"))
            return JobView(values.get("JobState", ""), _known(node), _known(reason), code)
    return None


def has_pyxis(srun_help: str) -> bool:
    """Tell whether this srun starts containers itself: NVIDIA's plugin pyxis adds the option."""
    return re.search(r"^\s*--container-image\b", srun_help, re.MULTILINE) is not None


def last_error(lines: Sequence[str]) -> str:
    """Return the last error of sbatch, without its name before it."""
    errors = [line.strip() for line in lines if re.match(r"\s*(sbatch|srun|allocation failure).*:", line)]
    text = (errors or [line.strip() for line in lines if line.strip()] or [""])[-1]
    return re.sub(r"^(sbatch|srun): (error: )?", "", text)


def _fields(line: str, count: int) -> list[str]:
    return [part.strip() for part in (line + "|" * count).split("|")[:count]]


def _known(word: str) -> str:
    return "" if word in ("None", "(null)", "N/A", "(None)", "None assigned") else word
