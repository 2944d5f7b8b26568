#!/usr/bin/env python3
"""Trains a GCN on sampled batches with several processes (DistributedDataParallel), as one model.

On one node or several; NCCL where each process has a GPU, else gloo. Alone it starts two processes; srun, torchrun or a
job script may start it once for each process, or with --per-node once for each node. Says what came of it as one JSON
line at the end. `--help` has the options. (One to copy: examples/multi_node.py.)
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `python -P` and PYTHONSAFEPATH leave it out

from proof import gcn, graphs, leaving, seats, stack
from proof.verdict import Fault, Layer, Proof, exit_with

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    import torch as torch_types
    from proof.seats import Seat

#: of the generated graph; docs/smoke.md tells how it was found
ACCURACY_BAND = (0.80, 0.95)
LOSS_RATIO = 0.6  #: the last epoch's loss is at most this share of the first's
ALONE = 2  #: processes, where nothing says how many


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=0, help="of split, weights and batches")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="fail when it takes longer")
    seats.add_options(parser, 8)
    return parser.parse_args(argv)


def take_part(options: argparse.Namespace, seat: Seat, proof: Proof) -> None:
    """One process's whole proof. Raises Fault."""
    proof.extra["seed"] = options.seed
    if seat.rank is None:
        share_cores(seat.here)
    torch = stack.load_torch(proof)
    complaints = stack.load_pyg(proof)
    device = stack.choose_device(torch, options.device, proof)
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    if gpus:
        device = torch.device("cuda", seat.local % gpus)
        torch.cuda.set_device(device)
    store, rank, world = seats.meet(torch, seat, proof)
    backend = agree(store, rank, world, backend_for(seat, gpus))
    seats.make_group(torch, backend, store, rank, world, proof)
    proof.enter(f"summing over {world} processes with {backend}", Layer.NETWORK)
    check_sum(torch, rank, world, device, proof)
    train(torch, gcn_of(torch, rank, world, device, options.seed, proof), proof)
    stack.raise_complaints(complaints)
    leaving.leave(store, rank, world, proof)


def share_cores(processes: int) -> None:
    """Give each process of this machine as many threads as it has cores of its own: more only wait for each other."""
    have = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(have) if have.isdigit() else len(os.sched_getaffinity(0))
    os.environ["OMP_NUM_THREADS"] = str(max(1, threads // processes))


def backend_for(seat: Seat, gpus: int) -> str:
    """Return the backend for so many visible GPUs: NCCL needs one for each process.

    What srun starts may see its own GPU alone.
    """
    own = seat.rank is not None or gpus >= seat.here
    return "nccl" if gpus and own else "gloo"


def agree(store: Any, rank: int, world: int, backend: str) -> str:  # noqa: ANN401  torch's
    """The backend that all processes can use: two kinds would wait for each other."""
    store.set(f"backend/{rank}", backend)
    told = {store.get(f"backend/{number}") for number in range(world)}
    return "nccl" if told == {b"nccl"} else "gloo"


def check_sum(torch: ModuleType, rank: int, world: int, device: torch_types.device, proof: Proof) -> None:
    """Sum known numbers over all processes. Raises Fault when the sum is wrong."""
    part = torch.full((1024,), rank + 1.0, device=device)
    torch.distributed.all_reduce(part)
    wanted = world * (world + 1) / 2
    if not bool((part == wanted).all()):
        raise Fault(Layer.NETWORK, f"the sum over {world} processes is {float(part[0])}, not {wanted}")
    proof.metrics["all_reduce"] = f"{torch.distributed.get_backend()} over {world}"


def gcn_of(
    torch: ModuleType, rank: int, world: int, device: torch_types.device, seed: int, proof: Proof
) -> gcn.Training:
    """The training on the generated graph. Raises Fault when the processes have made different ones."""
    proof.enter("making the graph", Layer.DATA)
    graph = graphs.tensors(graphs.generate())
    marks = [len(graph.y), graph.edge_index.size(1), float(graph.x.double().sum()), float(graph.y.sum())]
    gcn.check_equal(torch, torch.tensor(marks, dtype=torch.double, device=device), "graphs", Layer.DATA)
    training = gcn.Training(rank, world, graph, device, seed)
    proof.extra["sampler"] = "NeighborLoader" if training.by_pyg else "own"
    if not training.by_pyg and rank == 0:
        proof.say("neither pyg_lib nor torch_sparse is there for NeighborLoader: a sampler in plain torch draws")
    return training


def train(torch: ModuleType, training: gcn.Training, proof: Proof) -> None:
    """Train, test, and prove that all processes made one model. Raises Fault."""
    proof.enter(f"training on {proof.device}", Layer.TORCH)
    for epoch in range(1, gcn.EPOCHS + 1):
        loss, validation = training.epoch(), training.accuracy("validation")
        if training.rank == 0:
            proof.say(f"Epoch: {epoch:03d}, Loss: {loss:.4f}, Val: {validation:.4f}, {training.seconds[-1]:.2f} s")
    proof.enter("testing", Layer.TORCH)
    usual = training.seconds[1:]  # the first one warms up
    proof.metrics.update(
        epochs=gcn.EPOCHS,
        first_loss=round(training.losses[0], 4),
        last_loss=round(training.losses[-1], 4),
        validation_accuracy=round(validation, 4),
        test_accuracy=round(training.accuracy("test"), 4),
        accuracy_band=list(ACCURACY_BAND),
        iterations=gcn.EPOCHS * training.steps,
        iterations_per_second=round(len(usual) * training.steps / sum(usual), 2),
        seconds_per_epoch=round(sum(usual) / len(usual), 3),
    )
    proof.enter("comparing weights and gradients of all processes", Layer.TORCH)
    training.check(proof)
    proof.enter("judging", Layer.TRAINING)
    if found := objections(training.losses[0], training.losses[-1], proof.metrics["test_accuracy"]):
        raise Fault(Layer.TRAINING, "; ".join(found))


def objections(first: float, last: float, accuracy: float) -> list[str]:
    """List objections to a finished training; empty: passed."""
    found = []
    if not last <= LOSS_RATIO * first:
        found.append(f"the loss went from {first:.4f} to {last:.4f}, not to {LOSS_RATIO:g} of it or less")
    if not ACCURACY_BAND[0] <= accuracy <= ACCURACY_BAND[1]:
        found.append(f"test accuracy {accuracy:.4f} is outside [{ACCURACY_BAND[0]:.2f}, {ACCURACY_BAND[1]:.2f}]")
    return found


def suite() -> seats.Suite:
    """This program, as it starts and meets."""
    return seats.Suite("ddp", __file__, take_part, lambda _: ALONE)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 when all is well, 1 when not."""
    told = list(sys.argv[1:] if argv is None else argv)
    options = arguments(told)
    return seats.run(suite(), options, told)


if __name__ == "__main__":
    exit_with(main())
