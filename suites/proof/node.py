"""One node's share of a distributed training: its place, its ports, its processes, and what came of them."""

from __future__ import annotations

import contextlib
import ipaddress
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import threading
import traceback
from typing import TYPE_CHECKING, Any

from proof import glt, machine, partitions, parts, ranks, stack, supervised
from proof.supervised import Meeting, Worker
from proof.verdict import Fault, Layer, Proof, blame, exit_with

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from types import ModuleType

    from proof.partitions import Partitions

GROUP_PORT = 11111  #: the others follow it
HOW = "node and number on it"  #: who is who
SECONDS_TO_END = 3.0  #: for the other processes of this node, once one has failed
SHARED = 48 << 20  #: bytes of /dev/shm beside the partition itself


def find_place(options: argparse.Namespace, environment: Mapping[str, str]) -> ranks.Place:
    """Find out which node this is: by the options, else as srun or torchrun says, else the only one. Raises Fault."""
    given = [options.num_nodes, options.node_rank, options.master_addr]
    if all(each is None for each in given):
        return ranks.from_environment(environment)
    nodes = 1 if options.num_nodes is None else options.num_nodes
    if nodes > 1 and None in (options.node_rank, options.master_addr):
        raise Fault(
            Layer.NETWORK,
            f"--num_nodes={nodes} wants --node_rank (0 … {nodes - 1}, another on each node) and --master_addr "
            "(the address of node 0); under srun leave all three out",
        )
    port = options.training_pg_master_port or GROUP_PORT
    return ranks.on_node(nodes, options.node_rank or 0, 1, 0, options.master_addr or ranks.LOOPBACK, port, HOW)


def choose_ports(options: argparse.Namespace, place: ranks.Place) -> dict[str, int]:
    """The ports of node 0 by the option that names them; the first is the job's, the others follow. Raises Fault."""
    names = ("training_pg_master_port", "train_loader_master_port", "test_loader_master_port")
    first = options.training_pg_master_port or place.port or GROUP_PORT
    chosen: dict[str, int] = {}
    for name in names:
        chosen[name] = getattr(options, name) or (max(chosen.values()) + 1 if chosen else first)
    if len(set(chosen.values())) < len(chosen) or max(chosen.values()) > 65535:
        told = ", ".join(f"--{name}={port}" for name, port in chosen.items())
        raise Fault(Layer.NETWORK, f"the ports must be different ones up to 65535: {told}")
    return chosen


def check_interface(interface: str, place: ranks.Place) -> None:
    """Raise Fault where node 0's name means this machine alone: it would tell the others to look for it at home.

    An address that was given as loopback's is meant so, as are processes that are all on one machine; nothing may tell
    how many are (0).
    """
    if interface != "lo" or place.local_world in (0, place.world):
        return
    with contextlib.suppress(ValueError):
        if place.address == "localhost" or ipaddress.ip_address(place.address).is_loopback:
            return
    raise Fault(
        Layer.NETWORK,
        f"{place.address!r}, the name of node 0, is an address of loopback on {socket.gethostname()} (/etc/hosts often "
        "says so of a machine's own name), where no other machine reaches it: --master_addr, under srun MASTER_ADDR, "
        "takes the one that all reach (`hostname -I` on node 0), or 127.0.0.1 where all nodes are on one machine",
    )


def run(options: argparse.Namespace, proof: Proof) -> None:
    """Train as this node. Raises Fault."""
    proof.enter("looking at the partition", Layer.DATA)
    found = partitions.read(options.dataset)
    place = find_place(options, os.environ)
    partitions.check_number(found, place.world, options.dataset)
    _check_channels(options, found)
    proof.say(f"node {place.rank} of {place.world}, node 0 is {place.address}")
    ports = choose_ports(options, place)
    proof.enter("looking at the machine", Layer.MACHINE)
    interface = machine.interface_to(place.address)
    check_interface(interface, place)
    if place.leads:
        machine.check_ports({f"--{name}": port for name, port in ports.items()})
    glt.prepare(interface)
    _share_cores(options)
    torch = stack.load_torch(proof)
    stack.load_pyg(proof)
    modules = (torch, glt.load_glt(proof))
    device = stack.choose_device(torch, options.device, proof)
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    per_node = options.num_training_procs or max(1, gpus // max(place.local_world, 1))
    if options.backend is None:
        # NCCL wants a GPU for each process
        options.backend = "nccl" if max(per_node * place.local_world, options.gpu + per_node) <= gpus else "gloo"
    meeting = Meeting(place.world, place.rank, per_node, place.address, *ports.values())
    _check_sizes(options, found, meeting, proof)
    first = options.gpu + place.local_rank * per_node  # a machine may have the processes of several nodes
    proof.enter(f"loading partition {place.rank}", Layer.DATA)
    if device.type == "cuda":
        torch.cuda.set_device(first % gpus)  # features stay with the GPU that is the current one while GLT loads them
    dataset = supervised.load_dataset(modules, options.dataset, meeting, device.type == "cuda")
    if per_node == 1:
        figures = _work(modules, meeting, found, options, (0, first), dataset, proof)
    else:
        figures = _spread(meeting, found, options, first, dataset, proof)
    proof.metrics.update(
        nodes=place.world,
        processes=meeting.world,
        backend=options.backend,
        sampling=options.sampling,
        batch_size=options.batch_size,
        dataset=found.request.dataset,
        node_rank=place.rank,
        **figures,
    )


def _share_cores(options: argparse.Namespace) -> None:
    """Keep processes that compute on the same cores from waiting for one another in loops; no effect on a GPU."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if options.num_training_procs and options.num_training_procs > 1:
        threads = max(1, len(os.sched_getaffinity(0)) // options.num_training_procs)
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))


def _check_channels(options: argparse.Namespace, found: Partitions) -> None:
    """The tutorials give the widths of the data by hand; the folder knows them. Raises Fault where both differ."""
    for name in ("in_channel", "out_channel"):
        given, known = getattr(options, name), getattr(found, name)
        if given is not None and given != known:
            raise Fault(Layer.DATA, f"--{name}={given}, and {options.dataset} has {known}; the option may be left out")


def _check_sizes(options: argparse.Namespace, found: Partitions, meeting: Meeting, proof: Proof) -> None:
    """Enough seeds, and enough shared memory where processes share the partition. Raises Fault."""
    if 0 in supervised.shares(found, "train", meeting):
        raise Fault(Layer.DATA, f"{meeting.per_node} processes on each node are more than some part has training nodes")
    if meeting.per_node == 1 and options.sampling == "collocated":
        return  # nothing is shared
    part = found.parts[meeting.node_rank]
    needed = SHARED + part["bytes"] + 8 * (2 * found.nodes + found.edges)
    try:
        free = machine.check_shared_memory(needed)
    except Fault as fault:
        raise Fault(
            fault.layer, f"{fault}. Or share nothing: --num_training_procs=1 --sampling=collocated, which is slower"
        ) from fault
    proof.metrics["shared_memory_mib"] = free // machine.MEBIBYTE


def _work(
    modules: tuple[ModuleType, ModuleType],
    meeting: Meeting,
    found: Partitions,
    options: argparse.Namespace,
    numbers: tuple[int, int],
    dataset: Any,  # noqa: ANN401  GLT has no types
    proof: Proof,
) -> dict[str, Any]:
    """Train as one process. `numbers`: of the process on its node, and of the node's first GPU."""
    torch, _ = modules
    local_rank, first = numbers
    place = ranks.on_node(
        meeting.nodes, meeting.node_rank, meeting.per_node, local_rank, meeting.address, meeting.group_port, HOW
    )
    device = torch.device("cpu")
    if proof.device != "cpu":
        device = torch.device("cuda", (first + local_rank) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    worker = Worker(modules, place, meeting, found, options, device, proof)
    worker.dataset = dataset
    supervised.watch_helpers(proof)
    proof.enter(f"waiting for all {place.world} processes at {meeting.address}", Layer.NETWORK)
    try:
        worker.join()
        figures = worker.train()
        worker.part()
    finally:
        machine.remove_segments({os.getpid()})
    return figures


# Several processes on this node


class Reporting(Proof):
    """The proof of one of several processes of a node: its verdict goes to the process that started it."""

    def __init__(self, writer: Any, talks: bool) -> None:  # noqa: ANN401  a connection; typeshed has two of them
        super().__init__("glt-train")
        self._writer, self._talks, self._sending = writer, talks, threading.Lock()

    def say(self, line: str) -> None:
        """As a Proof's; the others would say the same."""
        if self._talks:
            super().say(line)

    def tell(self, fault: Fault | None) -> None:
        """Report once, from any thread."""
        with self._sending, contextlib.suppress(OSError):
            if not self._writer.closed:
                outcome = {"fault": f"{fault} (while {self.phase})", "layer": fault.layer.value} if fault else {}
                self._writer.send({**outcome, "metrics": self.metrics})
                self._writer.close()


def _spread(
    meeting: Meeting,
    found: Partitions,
    options: argparse.Namespace,
    first: int,
    dataset: Any,  # noqa: ANN401
    proof: Proof,
) -> dict[str, Any]:
    """A process for each GPU, all on one dataset in shared memory; the figures. Raises Fault of the first to fail."""
    proof.enter(f"training in {meeting.per_node} processes", Layer.TORCH)
    context = multiprocessing.get_context("spawn")
    processes: list[Any] = []
    readers: list[multiprocessing.connection.Connection] = []
    try:
        for local_rank in range(meeting.per_node):
            reader, writer = context.Pipe(duplex=False)
            told = (writer, meeting, found, options, (local_rank, first), dataset, proof.device)
            process = context.Process(target=_take_part, args=told)
            process.start()
            writer.close()
            processes.append(process)
            readers.append(reader)
        outcomes = _gather(processes, readers, meeting)
    finally:
        _end(processes)
    return outcomes[0]["metrics"]


def _gather(processes: list[Any], readers: list[Any], meeting: Meeting) -> list[dict[str, Any]]:
    """Gather the processes' results. Raises Fault as soon as one has failed."""
    outcomes: list[Any] = [None] * len(processes)
    while not all(isinstance(each, dict) for each in outcomes):
        waiting = [reader for reader, each in zip(readers, outcomes) if each is None]
        for reader in multiprocessing.connection.wait(waiting):
            local_rank = readers.index(reader)
            rank = meeting.node_rank * meeting.per_node + local_rank
            try:
                outcome = reader.recv()
            except EOFError:
                processes[local_rank].join(SECONDS_TO_END)
                layer, how = parts.ending(processes[local_rank].exitcode or 0, Layer.TORCH)
                raise Fault(layer, f"rank {rank} {how}; its last lines are above, if there are any") from None
            if "fault" in outcome:
                raise Fault(Layer(outcome["layer"]), f"rank {rank}: {outcome['fault']}")
            outcomes[local_rank] = outcome
    return outcomes


def _end(processes: list[Any]) -> None:
    """End what still runs: politely, then not."""
    for process in processes:
        process.join(SECONDS_TO_END)
        if process.is_alive():
            process.terminate()
            process.join(SECONDS_TO_END)
        if process.is_alive():
            process.kill()
            process.join()
    machine.remove_segments({process.pid for process in processes})


def _take_part(
    writer: Any,  # noqa: ANN401
    meeting: Meeting,
    found: Partitions,
    options: argparse.Namespace,
    numbers: tuple[int, int],
    dataset: Any,  # noqa: ANN401
    device: str,
) -> None:
    """The life of one of several processes."""
    parts.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that started it ends it
    proof = Reporting(writer, talks=numbers[0] == 0)
    proof.device = device
    try:
        torch = stack.load_torch(proof)
        proof.metrics = _work((torch, glt.load_glt(proof)), meeting, found, options, numbers, dataset, proof)
        proof.tell(None)
    except BaseException as error:
        if not isinstance(error, Fault):
            traceback.print_exc()
        what = str(error) if isinstance(error, Fault) else f"{type(error).__name__}: {error}"
        proof.tell(Fault(blame(error, proof.suspect), what))
    exit_with(0)  # a library's own shutdown must not change what was told
