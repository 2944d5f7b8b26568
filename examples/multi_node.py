#!/usr/bin/env python3
"""Trains a GCN on sampled batches with several processes on one or more nodes (DistributedDataParallel).

Start it with srun (pyxis or Apptainer), torchrun, or as it is; `--ranks N` starts N processes on this machine. NCCL on
GPUs, gloo without. Rank 0 says what came of it as one JSON line at the end. `--help` has the options.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `python -P` and PYTHONSAFEPATH leave it out

from proof import data, gcn, group, machine, parts, ranks, sampling, stack
from proof.gcn import Stopwatch, Training
from proof.verdict import Fault, Layer, Proof, exit_with, prove
from proof.watch import PATIENCE, Watch, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    import torch as torch_types
    from proof.ranks import Place

#: of the generated graph with the training as it is by default; docs/smoke.md tells how it was found
ACCURACY_BAND = (0.80, 0.95)
LOSS_RATIO = 0.6  #: the last epoch's loss is at most this share of the first's, where the band counts
FEWEST_STEPS = 60  #: of the optimizer, for the band to count: more ranks make fewer
SECONDS_TO_CLEAR = 5.0  #: of the limit, to end all processes and say what they were doing
MOST_RANKS_HERE = 64
TOLD = ("dataset", "seed", "world", "backend", "started_by", "hosts", "sampler", "sm")


class Member(Proof):
    """The view of a rank other than 0: it speaks up only when something is wrong."""

    rank = -1

    def say(self, line: str) -> None:
        """Verdicts alone, of failures."""
        if line.startswith('{"suite"') and '"status": "failed"' in line:
            super().say(json.dumps({**json.loads(line), "rank": self.rank}))


class QuietPart(parts.Part):
    """The same where the one that started it listens: phases and verdicts are for that one."""

    def say(self, line: str) -> None:
        """What programs read."""
        if line.startswith("{"):
            super().say(line)


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends with exit code 2. The tutorial's names of options are taken too."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("--ranks", type=int, metavar="N", help="start N processes on this machine; else srun or torchrun starts them")
    add("--ngpu-per-node", "--ngpu_per_node", type=int, metavar="N", help="fail unless each node has N processes")
    add("--dataset", default="generated", metavar="generated|random|FILE.npz")
    add("--graph-nodes", type=int, default=100_000, metavar="N", help="of the random graph")
    add("--hidden", "--hidden-channels", "--hidden_channels", type=int, default=64)
    add("--layers", type=int, default=2)
    add("--lr", type=float, default=0.01)
    add("--epochs", type=int, default=6)
    add("--batch-size", "--batch_size", type=int, default=64, help="training nodes of each process in a batch")
    add("--fan-out", "--fan_out", type=int, default=50, help="neighbours sampled of each node")
    add("--sampler", choices=("auto", "pyg", "own"), default="auto", help="auto: NeighborLoader where PyG can sample")
    add("--seed", type=int, default=0, help="of split, weights, batches and the random graph")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--share", action="store_true", help="let processes share GPUs where there are too few; with gloo then")
    add("--port", type=int, help="where rank 0 listens; else MASTER_PORT, or one made of the Slurm job's number")
    add("--patience", type=float, default=PATIENCE, metavar="SECONDS", help="to wait for all processes (default 300)")
    add("--limit", type=float, metavar="SECONDS", help="fail when it takes longer")
    add("--part", type=int, help=argparse.SUPPRESS)  # how --ranks starts them
    options = parser.parse_args(argv)
    for name in ("ranks", "ngpu_per_node", "graph_nodes", "hidden", "layers", "lr", "epochs", "batch_size", "fan_out"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            parser.error(f"--{name.replace('_', '-')} {value}: must be more than 0")
    if not options.patience > 0 or (options.limit is not None and not options.limit > 0):
        parser.error("--patience and --limit must be more than 0")
    if options.port is not None and not 0 < options.port < 65536:
        parser.error(f"--port {options.port}: ports are 1 to 65535")
    if options.ranks is not None and options.ranks > MOST_RANKS_HERE:
        parser.error(f"--ranks {options.ranks}: at most {MOST_RANKS_HERE} are started on one machine")
    return options


def place_of(options: argparse.Namespace, environment: Mapping[str, str]) -> Place:
    """Who this process is. Raises Fault."""
    if options.part is not None:
        how = "--ranks on one machine"
        return ranks.on_node(1, 0, options.ranks, options.part, ranks.LOOPBACK, options.port or 0, how)
    place = ranks.from_environment(environment)
    if options.ranks is not None and place.world > 1:
        raise Fault(
            Layer.NETWORK,
            f"--ranks {options.ranks} starts processes itself, but this is rank {place.rank} of {place.world} by "
            f"{place.how} already: leave --ranks out, or start one process",
        )
    return place if options.port is None else replace(place, port=options.port)


def is_plain(options: argparse.Namespace, steps: int) -> bool:
    """Whether this is the training whose outcome is known."""
    usual = arguments([])
    names = ("dataset", "hidden", "layers", "lr", "epochs", "batch_size", "fan_out")
    return all(getattr(options, name) == getattr(usual, name) for name in names) and steps >= FEWEST_STEPS


def check_data(options: argparse.Namespace) -> None:
    """Find out before anything is started whether there is a graph. Raises Fault."""
    if options.dataset == "random":
        sampling.cut(options.graph_nodes)
    elif options.dataset != "generated" and not Path(options.dataset).is_file():
        raise Fault(Layer.DATA, f"--dataset: {options.dataset} is neither generated nor random nor a file")


def load(torch: ModuleType, options: argparse.Namespace) -> data.Tensors:
    """The graph, whole on each process. Raises Fault."""
    if options.dataset == "random":
        return gcn.random_graph(torch, options.graph_nodes, options.seed)
    return data.load(options.dataset, Path())


def backend_of(torch: ModuleType, device: torch_types.device, share: bool) -> str:
    """NCCL where each process has a GPU of its own. Raises Fault when this torch has no way at all."""
    distributed = torch.distributed
    if not distributed.is_available():
        raise Fault(Layer.TORCH, f"torch {torch.__version__} was built without torch.distributed")
    if device.type == "cuda" and not share:
        if not distributed.is_nccl_available():
            raise Fault(Layer.TORCH, f"torch {torch.__version__} was built without NCCL")
        return "nccl"
    return "gloo"


def run(options: argparse.Namespace, place: Place, proof: Proof) -> None:
    """One process's whole proof. Raises Fault."""
    proof.extra.update(dataset=options.dataset, seed=options.seed, world=place.world, started_by=place.how)
    proof.say(f"rank {place.rank} of {place.world}, started by {place.how}")
    proof.enter(f"looking for the {options.dataset} graph", Layer.DATA)
    check_data(options)
    proof.enter(f"waiting for {place.world} processes at {place.address}:{place.port}", Layer.NETWORK)
    with watching(place, proof, patience=options.patience) as watch:
        hosts = group.check_nodes(watch.members, options.ngpu_per_node)
        proof.extra["hosts"] = list(hosts)
        proof.say("; ".join(f"{host}: ranks {', '.join(map(str, here))}" for host, here in hosts.items()))
        torch = stack.load_torch(proof)
        complaints = stack.load_pyg(proof)
        device = stack.choose_device(torch, options.device, proof)
        share = options.share and device.type == "cuda" and _share(torch, place, proof)
        if device.type == "cuda":
            device = group.choose_gpu(torch, place, share)
        backend = proof.extra["backend"] = backend_of(torch, device, share)
        proof.enter(f"joining {place.world} processes with {backend}", Layer.NETWORK)
        group.join(torch, watch, backend, device, options.patience)
        proof.enter(f"summing over all processes and each node's with {backend}", Layer.NETWORK)
        group.check_sums(torch, watch, device, proof)
        train(torch, watch, device, options, proof)
        stack.raise_complaints(complaints)
        group.leave(torch, proof)


def _share(torch: ModuleType, place: Place, proof: Proof) -> bool:
    """Whether this node's processes have to share GPUs."""
    count = torch.cuda.device_count()
    if place.local_world and place.local_world <= count:
        return False
    proof.say(f"{place.local_world} processes share {count} GPU{'s' * (count > 1)}, with gloo: NCCL wants one for each")
    return True


def train(
    torch: ModuleType, watch: Watch, device: torch_types.device, options: argparse.Namespace, proof: Proof
) -> None:
    """Load, train, test, and prove that all processes made one model. Raises Fault."""
    proof.enter(f"loading the {options.dataset} graph", Layer.DATA)
    graph = load(torch, options)
    marks = [len(graph.y), graph.edge_index.size(1), float(graph.x.double().sum()), float(graph.y.sum())]
    group.check_equal(torch, torch.tensor(marks, dtype=torch.double, device=device), "graphs", Layer.DATA)
    training = Training(watch, graph, device, options)
    proof.extra["sampler"] = "NeighborLoader" if training.by_pyg else "own"
    if not training.by_pyg:
        proof.say(
            "neither pyg_lib nor torch_sparse is there for NeighborLoader: a sampler in plain torch draws instead"
        )
    sizes = {name: len(nodes) for name, nodes in training.parts.items()}
    proof.say(f"{len(graph.y)} nodes: {sizes}, {training.steps} batches an epoch on each process")

    proof.enter(f"training on {proof.device}", Layer.TORCH)
    watcher = Stopwatch(torch.cuda.synchronize if device.type == "cuda" else _nothing, options.epochs * training.steps)
    for epoch in range(1, options.epochs + 1):
        loss = training.epoch(watcher)
        validation = training.accuracy("validation")
        proof.say(f"Epoch: {epoch:03d}, Loss: {loss:.4f}, Val: {validation:.4f}, {watcher.epochs[-1]:.2f} s")
        proof.metrics.update(
            epochs=epoch,
            epochs_planned=options.epochs,
            first_loss=round(training.losses[0], 4),
            last_loss=round(loss, 4),
            validation_accuracy=round(validation, 4),
        )
    proof.enter("testing", Layer.TORCH)
    proof.metrics.update(
        test_accuracy=round(training.accuracy("test"), 4),
        iterations=options.epochs * training.steps,
        iterations_per_second=round(watcher.iterations_per_second, 2),
        seconds_per_epoch=round(watcher.seconds_per_epoch, 3),
    )
    proof.enter("comparing weights and gradients of all processes", Layer.TORCH)
    training.check(proof)
    judge(options, options.epochs * training.steps, proof)


def _nothing() -> None:
    """A CPU has done what it was asked to do."""


def judge(options: argparse.Namespace, steps: int, proof: Proof) -> None:
    """Raise Fault when a training whose outcome is known ended otherwise."""
    proof.enter("judging", Layer.TRAINING)
    if not is_plain(options, steps):
        return
    proof.metrics["accuracy_band"] = list(ACCURACY_BAND)
    first, last, accuracy = (proof.metrics[name] for name in ("first_loss", "last_loss", "test_accuracy"))
    found = []
    if not last <= LOSS_RATIO * first:
        found.append(f"the loss went from {first:.4f} to {last:.4f}, not to {LOSS_RATIO:g} of it or less")
    if not ACCURACY_BAND[0] <= accuracy <= ACCURACY_BAND[1]:
        found.append(f"test accuracy {accuracy:.4f} is outside [{ACCURACY_BAND[0]:.2f}, {ACCURACY_BAND[1]:.2f}]")
    if found:
        raise Fault(Layer.TRAINING, "; ".join(found))


# Started here


def start(options: argparse.Namespace, argv: Sequence[str], proof: Proof) -> None:
    """Start all processes of `--ranks` and put what rank 0 found into the proof. Raises Fault."""
    deadline = None
    if options.limit:
        deadline = time.monotonic() + max(options.limit - SECONDS_TO_CLEAR, options.limit / 2)
    proof.enter(f"looking for the {options.dataset} graph", Layer.DATA)
    check_data(options)
    proof.enter(f"starting {options.ranks} processes", Layer.MACHINE)
    have = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(have) if have.isdigit() else len(os.sched_getaffinity(0))
    os.environ["OMP_NUM_THREADS"] = str(max(1, threads // options.ranks))  # more only wait for each other
    with machine.free_ports(1) as (port,):
        program = str(Path(__file__).resolve())
        told = [*argv, "--port", str(options.port or port), "--part"]
        commands = {f"rank {rank}": parts.program(program, *told, str(rank)) for rank in range(options.ranks)}
        leader = parts.run(commands, proof, deadline)["rank 0"]
    proof.metrics.update(leader["metrics"])
    proof.extra.update({name: leader[name] for name in TOLD if name in leader})


def kind_of(place: Place, part: int | None) -> Callable[[str], Proof]:
    """How this process speaks: to people, to the one that started it, or only when something is wrong."""
    if part is not None:
        return parts.Part if place.leads else QuietPart
    if place.leads:
        return Proof

    def member(suite: str) -> Proof:
        proof = Member(suite)
        proof.rank = place.rank
        return proof

    return member


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 when all is well, 1 when not."""
    told = list(sys.argv[1:] if argv is None else argv)
    options = arguments(told)
    try:
        place = place_of(options, os.environ)
    except Fault as fault:
        return prove("ddp", _raise(fault), None)
    if options.ranks is not None and options.part is None:
        return prove("ddp", lambda proof: start(options, told, proof), options.limit)
    limit = options.limit
    if options.part is not None:
        parts.die_with_parent()
        limit = None  # that is for the process that started it
    return prove("ddp", lambda proof: run(options, place, proof), limit, kind_of(place, options.part))


def _raise(fault: Fault) -> Callable[[Proof], None]:
    def body(proof: Proof) -> None:
        proof.enter("finding out who this process is", Layer.NETWORK)
        raise fault

    return body


if __name__ == "__main__":
    exit_with(main())
