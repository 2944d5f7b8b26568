"""Inside a job of Slurm: where this is, and steps of it."""

from collections.abc import Mapping

from graphcrate.compat.facts import slurm_ends
from graphcrate.engines.slurm import VARIABLES
from graphcrate.host import settings
from graphcrate.host.process import Completed
from graphcrate.model.errors import HostError

#: of a job step's environment: what a command started in it needs to find the job, and settings of pyxis, enroot and
#: its hooks
_INHERITED_IN_JOB = ("SLURM_", "SLURMD_", "SPANK_", "PYXIS_", "ENROOT_", "NVIDIA_", "MELLANOX_", "CUDA_VISIBLE_DEVICES")


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
