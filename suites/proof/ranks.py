"""The rank of a process in its job, from the environment that srun, pyxis, torchrun or a job script gives it.

Of a Slurm job's own variables those of the step count: a batch script has SLURM_PROCID too, and is one process.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proof.verdict import Fault, Layer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOOPBACK = "127.0.0.1"
#: what torchrun sets, and what init_process_group reads
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
#: what pyxis sets by itself, of which variable of Slurm; the others come from enroot's hook 50-slurm-pytorch.sh, which
#: many sites leave out
OF_PYXIS = (("RANK", "SLURM_PROCID"), ("LOCAL_RANK", "SLURM_LOCALID"))
FIRST_PORT, PORTS = 20000, 12000  #: below those that Linux hands out by itself
PORTS_OF_A_JOB = 3  #: in a row, as GLT's training takes them (proof/node.py): the next job's begin behind them
MOST_RANKS = 1 << 16
TORCHRUN = "TORCHELASTIC_RUN_ID"


@dataclass(frozen=True)
class Place:
    """One process among `world`. `address` and `port`: where rank 0 may listen, and no other process of the job does.

    `local_rank` counts the processes of one node; `local_world`, their number, is 0 where nothing tells it. `how`: who
    started it, in words.
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    address: str = LOOPBACK
    port: int = 0
    how: str = "one process"

    @property
    def leads(self) -> bool:
        """Return whether this is rank 0."""
        return self.rank == 0


def from_environment(environment: Mapping[str, str]) -> Place:
    """Read it from RANK and its kin, else from Slurm's step; without either it is one process.

    A RANK and a LOCAL_RANK that are Slurm's own say nothing more than Slurm. Raises Fault of layer network for
    variables that are half set, no numbers, or contradict each other.
    """
    if any(environment.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")) and not _are_slurms(environment):
        return _from_names(environment)
    if environment.get("SLURM_STEP_NUM_TASKS") and environment.get("SLURM_PROCID"):
        return _from_slurm(environment)
    tasks = environment.get("SLURM_NTASKS", "1")
    if tasks.isdigit() and int(tasks) > 1:
        return Place(how=f"one process of a job with {tasks} tasks (srun would start one for each)")
    return Place()


def on_node(
    num_nodes: int, node_rank: int, per_node: int, local_rank: int, address: str, port: int, how: str = "by node"
) -> Place:
    """The place of one of `per_node` processes on each of `num_nodes` nodes, as PAI's DLC counts. Raises Fault."""
    if num_nodes < 1 or per_node < 1:
        raise _contradiction(f"{num_nodes} nodes with {per_node} processes each are none")
    if not 0 <= node_rank < num_nodes:
        raise _contradiction(f"--node_rank {node_rank} is not one of {num_nodes} nodes, which count from 0")
    if not 0 <= local_rank < per_node:
        raise _contradiction(f"process {local_rank} is not one of {per_node} on a node, which count from 0")
    _port(str(port), "--port")
    rank = node_rank * per_node + local_rank
    return Place(rank, num_nodes * per_node, local_rank, per_node, address, port, how)


def _are_slurms(environment: Mapping[str, str]) -> bool:
    """Return whether RANK and LOCAL_RANK are copied from Slurm by pyxis, and nothing tells the number of processes."""
    same = all(environment.get(name, "") == environment.get(slurm) for name, slurm in OF_PYXIS)
    return same and not environment.get("WORLD_SIZE")


def _from_names(environment: Mapping[str, str]) -> Place:
    absent = [name for name in NAMES if not environment.get(name)]
    if absent:
        raise _half_set(environment, absent)
    rank, world, local_rank = (_number(environment, name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    if not 0 <= rank < world:
        raise _contradiction(f"RANK={rank} is not one of WORLD_SIZE={world}, which count from 0")
    local_world = _number(environment, "LOCAL_WORLD_SIZE") if environment.get("LOCAL_WORLD_SIZE") else 0
    by_torchrun = TORCHRUN in environment
    if not by_torchrun and environment.get("SLURM_STEP_NUM_TASKS") == str(world):
        if environment.get("SLURM_PROCID", str(rank)) != str(rank):
            raise _contradiction(
                f"RANK={rank}, and Slurm's SLURM_PROCID={environment['SLURM_PROCID']}: RANK was probably set once "
                "before srun, which hands it to all; set it in each task, or unset it"
            )
        local_world = local_world or _tasks_here(environment)
    if local_rank >= (local_world or world) or local_world > world:
        raise _contradiction(
            f"LOCAL_RANK={local_rank}, {local_world or 'an unknown number of'} processes on this node and "
            f"WORLD_SIZE={world} do not go together"
        )
    port = _port(environment["MASTER_PORT"], "MASTER_PORT")
    how = "RANK and MASTER_ADDR" + (" under srun" if "SLURM_PROCID" in environment else "")
    if by_torchrun:
        port = port + 1 if port < 65535 else port - 1  # its agent listens on MASTER_PORT
        how = "torchrun"
    return Place(rank, world, local_rank, local_world, environment["MASTER_ADDR"], port, how)


def _from_slurm(environment: Mapping[str, str]) -> Place:
    rank, world = _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_STEP_NUM_TASKS")
    if not 0 <= rank < world:
        raise _contradiction(f"SLURM_PROCID={rank} is not one of SLURM_STEP_NUM_TASKS={world}")
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    address = environment.get("MASTER_ADDR") or next(expand(nodes), "")
    if world > 1 and not address:
        raise _contradiction("SLURM_STEP_NODELIST is empty, so that nobody knows where rank 0 is; set MASTER_ADDR")
    if environment.get("MASTER_PORT"):
        port = _port(environment["MASTER_PORT"], "MASTER_PORT")
    else:
        port = port_of(environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_STEP_ID", ""))
    local_rank = _number(environment, "SLURM_LOCALID")
    return Place(rank, world, local_rank, _tasks_here(environment), address or LOOPBACK, port, "srun")


def expand(nodelist: str) -> Iterator[str]:
    """The hosts of Slurm's short form, in order: `n[1-2,07],login` is n1, n2, n07, login. Raises Fault."""
    for item in _split(nodelist, nodelist):
        pieces: list[list[str]] = []
        for number, piece in enumerate(re.split(r"\[([^\[\]]*)\]", item)):
            if number % 2:
                pieces.append([each for part in piece.split(",") for each in _range(part, nodelist)])
            elif "[" in piece or "]" in piece:
                raise _no_nodelist(nodelist)
            else:
                pieces.append([piece])
        for parts in itertools.product(*pieces):
            yield "".join(parts)


def _split(text: str, whole: str) -> Iterator[str]:
    """At the commas outside brackets."""
    depth, item = 0, ""
    for letter in text:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if not 0 <= depth <= 1:
            raise _no_nodelist(whole)
        if letter == "," and depth == 0:
            yield item
            item = ""
        else:
            item += letter
    if depth:
        raise _no_nodelist(whole)
    if item:
        yield item


def _range(text: str, whole: str) -> list[str]:
    found = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text)
    if not found:
        raise _no_nodelist(whole)
    first, last = found.group(1), found.group(2) or found.group(1)
    if not int(first) <= int(last) < int(first) + MOST_RANKS:
        raise _no_nodelist(whole)
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def tasks_by_node(text: str) -> list[int]:
    """The number of tasks of each node, from Slurm's `2(x3),1`: 2, 2, 2, 1. Empty for what is not written so."""
    counts: list[int] = []
    for item in text.split(","):
        found = re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,5})\))?", item)
        if not found:
            return []
        counts += [int(found.group(1))] * int(found.group(2) or 1)
    return counts


def port_of(job: str, step: str) -> int:
    """The first of PORTS_OF_A_JOB that all processes of a job's step agree on, and hardly any other job there takes."""
    numbers = [int(text) for text in (job, step) if text.isdigit()]
    return FIRST_PORT + PORTS_OF_A_JOB * (sum(numbers) % (PORTS // PORTS_OF_A_JOB))


def _tasks_here(environment: Mapping[str, str]) -> int:
    counts = tasks_by_node(environment.get("SLURM_STEP_TASKS_PER_NODE", ""))
    node = environment.get("SLURM_NODEID", "")
    return counts[int(node)] if node.isdigit() and int(node) < len(counts) else 0


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) > MOST_RANKS:
        raise _contradiction(f"{name}={text!r} is no number of processes")
    return int(text)


def _port(text: str, name: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise _contradiction(f"{name}={text!r} is no port; ports are 1 to 65535")
    return int(text)


def _contradiction(what: str) -> Fault:
    return Fault(Layer.NETWORK, what)


def _no_nodelist(text: str) -> Fault:
    return _contradiction(f"{text!r} is no list of nodes as Slurm writes it, such as n[1-2,7]")


def _half_set(environment: Mapping[str, str], absent: list[str]) -> Fault:
    there = ", ".join(f"{name}={environment[name]}" for name in NAMES if environment.get(name))
    what = f"{there} but no {' and no '.join(absent)}: a process of several needs all of {', '.join(NAMES)}"
    if absent == ["LOCAL_RANK"]:
        what += (
            "; where RANK and WORLD_SIZE count nodes (PAI's DLC) `torchrun --nnodes=$WORLD_SIZE --node-rank=$RANK "
            "--master-addr=$MASTER_ADDR --master-port=$MASTER_PORT --nproc-per-node=N` starts the processes"
        )
    else:
        what += "; torchrun sets them, and enroot's hook 50-slurm-pytorch.sh does; one process alone needs none"
    return Fault(Layer.NETWORK, what)
