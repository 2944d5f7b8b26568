"""Places of the processes of a suite that spans a machine or a job: who starts them, and how they meet.

Alone, such a program starts the processes of this machine. srun, torchrun or a job script may start it once for each
process, or with --per-node once for each node.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from proof import machine, node, parts, ranks
from proof.verdict import Fault, Layer, Proof, prove

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

SECONDS_TO_MEET = 300
SECONDS_TO_CLEAR = 5.0  #: of the limit, to end all processes and say what they were doing
#: of a part's verdict, what its starter says itself
KNOWN = ("suite", "status", "device", "seconds", "metrics", "versions", "layer", "phase", "reason")


def add_options(parser: argparse.ArgumentParser, most: int) -> None:
    """Add the options that say how many processes there are, and those by which a program starts itself."""
    parser.add_argument("--ranks", type=int, choices=range(1, most + 1), metavar="N", help="processes of this node")
    parser.add_argument("--per-node", action="store_true", help="it was started once for each node, not each process")
    # How the program starts itself: number of a process here, how many, node and number of nodes, where they meet.
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--here", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--node", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--meet", nargs=2, help=argparse.SUPPRESS)


class Seat(NamedTuple):
    """A process's rank and its meeting point. `rank` is None where nodes count their processes first."""

    address: str
    port: int
    node: int
    nodes: int
    local: int
    here: int  #: processes of this node; 0: not known
    rank: int | None = None
    world: int = 0

    @property
    def leads(self) -> bool:
        """Return whether it is rank 0."""
        return self.rank == 0 if self.rank is not None else (self.node, self.local) == (0, 0)


class Follower(Proof):
    """The proof of a node or a process whose verdict another one gives: it speaks of its failure alone."""

    def __init__(self, suite: str, name: str) -> None:
        super().__init__(suite)
        self._name = name

    def enter(self, phase: str, suspect: Layer) -> None:
        """As a Proof's, silently."""
        self.phase, self.suspect = phase, suspect

    def say(self, line: str) -> None:
        """As a Proof's, with its name; a process of a node has its own."""
        super().say(line if line.startswith("process ") else f"{self._name}: {line}")

    def tell(self, fault: Fault | None) -> None:
        """Say why it failed, as a line for people."""
        if fault:
            self.say(f"{fault.layer.value}: {fault} (while {self.phase})")


class Suite(NamedTuple):
    """A program that spans a job. `file` is its own."""

    name: str
    file: str
    take_part: Callable[[argparse.Namespace, Seat, Proof], None]  #: one process's whole proof; raises Fault
    processes: Callable[[argparse.Namespace], int]  #: of this node, where --ranks does not say it


def run(suite: Suite, options: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run as a process that something started, or start this node's; 0 when all is well, 1 when not."""
    if options.part is not None:
        parts.die_with_parent()
        seat = seat_of(options)
        kind = parts.Part if seat.leads else parts.QuietPart
        return prove(suite.name, lambda proof: suite.take_part(options, seat, proof), None, kind)
    try:
        place = ranks.from_environment(os.environ)
    except Fault as fault:
        error = fault
        return prove(suite.name, lambda _: _raise(error), None)
    kind_of = kind_at(options, place)
    return prove(suite.name, lambda proof: begin(suite, options, argv, place, proof), options.limit, kind_of)


def begin(suite: Suite, options: argparse.Namespace, argv: Sequence[str], place: ranks.Place, proof: Proof) -> None:
    """Begin as a node that starts its processes, or as one process of those that something else started."""
    if place.world == 1 or options.per_node:
        start(suite, options, argv, place if place.world > 1 else ranks.Place(), proof)
        return
    counts = (0, place.world, place.local_rank, place.local_world)
    suite.take_part(options, Seat(place.address, place.port, *counts, rank=place.rank, world=place.world), proof)


def start(suite: Suite, options: argparse.Namespace, argv: Sequence[str], place: ranks.Place, proof: Proof) -> None:
    """Start this node's processes, and put what rank 0 found into the proof. Raises Fault."""
    deadline = None
    if options.limit:
        deadline = time.monotonic() + max(options.limit - SECONDS_TO_CLEAR, options.limit / 2)
    here = options.ranks or suite.processes(options)
    proof.enter(f"starting {here} process{'es' if here > 1 else ''}", Layer.MACHINE)
    with contextlib.ExitStack() as kept:
        port = place.port or kept.enter_context(machine.free_ports(1))[0]
        common = [*argv, "--here", str(here), "--node", str(place.rank), str(place.world)]
        common += ["--meet", place.address, str(port)]
        program = str(Path(suite.file).resolve())
        commands = {
            f"process {local} of node {place.rank}" if place.world > 1 else f"rank {local}": parts.program(
                program, *common, "--part", str(local)
            )
            for local in range(here)
        }
        leader = next(iter(parts.run(commands, proof, deadline).values()))
    proof.metrics.update(leader.get("metrics", {}))
    proof.extra.update({name: value for name, value in leader.items() if name not in KNOWN})


def seat_of(options: argparse.Namespace) -> Seat:
    """The place of a process that this program started."""
    address, port = options.meet
    return Seat(address, int(port), *options.node, options.part, options.here)


def kind_at(options: argparse.Namespace, place: ranks.Place) -> Callable[[str], Proof]:
    """Rank 0, or the first node, gives the verdict; the others speak of failures alone."""
    name = f"{'node' if options.per_node else 'rank'} {place.rank}"
    return Proof if place.leads else lambda suite: Follower(suite, name)


def meet(torch: ModuleType, seat: Seat, proof: Proof) -> tuple[Any, int, int]:
    """Meet all processes: torch's store, which rank 0 serves, this one's rank, and how many there are. Raises Fault."""
    proof.enter(f"waiting for all processes at {seat.address}:{seat.port}", Layer.NETWORK)
    distributed = torch.distributed
    if not distributed.is_available():
        raise Fault(Layer.TORCH, f"torch {torch.__version__} was built without torch.distributed")
    interface = machine.interface_to(seat.address)
    if seat.rank is None and seat.nodes > 1 and seat.leads and os.environ.get("GLOO_SOCKET_IFNAME") != "lo":
        node.check_interface(interface, ranks.Place(0, seat.nodes, address=seat.address))
    if interface:  # gloo would ask DNS for our own name
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    if interface == "lo":
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    wait = datetime.timedelta(seconds=SECONDS_TO_MEET)
    store = distributed.TCPStore(seat.address, seat.port, None, seat.leads, wait, wait_for_workers=False)
    rank, world = (seat.rank, seat.world) if seat.rank is not None else count(store, seat)
    return store, rank, world


def make_group(torch: ModuleType, backend: str, store: Any, rank: int, world: int, proof: Proof) -> None:  # noqa: ANN401
    """Make the process group of those who met in this store. Raises Fault."""
    distributed = torch.distributed
    if backend == "nccl" and not distributed.is_nccl_available():
        raise Fault(Layer.TORCH, f"torch {torch.__version__} was built without NCCL")
    proof.extra.update(world=world, backend=backend)
    wait = datetime.timedelta(seconds=SECONDS_TO_MEET)
    kept = distributed.PrefixStore("group", store)
    distributed.init_process_group(backend, store=kept, rank=rank, world_size=world, timeout=wait)


def count(store: Any, seat: Seat) -> tuple[int, int]:  # noqa: ANN401  torch's
    """Number all processes by their nodes, which may have different numbers of them."""
    if seat.local == 0:
        store.set(f"here/{seat.node}", str(seat.here))
    counts = [int(store.get(f"here/{number}")) for number in range(seat.nodes)]
    return sum(counts[: seat.node]) + seat.local, sum(counts)


def _raise(fault: Fault) -> None:
    raise fault
