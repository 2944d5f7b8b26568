"""Parse what Slurm's commands print. Pure.

The commands are asked for fields between bars, in a fixed order: their default output changes with versions and with
the site's settings.
"""

import re
from collections.abc import Sequence

import msgspec

#: squeue --format, sacct --format
SQUEUE_FORMAT = "%i|%T|%N|%r"
SACCT_FORMAT = "JobID,State,NodeList,Reason"
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


def jobs(text: str) -> dict[str, JobView]:
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


def has_pyxis(srun_help: str) -> bool:
    """Tell whether this srun starts containers itself: NVIDIA's plugin pyxis adds the option."""
    return re.search(r"^\s*--container-image\b", srun_help, re.MULTILINE) is not None


def last_error(lines: Sequence[str]) -> str:
    """Return the last error of sbatch, without its name before it."""
    errors = [line.strip() for line in lines if re.match(r"\s*(sbatch|srun|allocation failure).*:", line)]
    text = (errors or [line.strip() for line in lines if line.strip()] or [""])[-1]
    return re.sub(r"^(sbatch|srun): (error: )?", "", text)
