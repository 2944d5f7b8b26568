#!/usr/bin/env python3
"""Trains a GCN on sampled batches with several processes of this machine (DistributedDataParallel), as one model.

NCCL where each process has a GPU, else gloo. Says what came of it as one JSON line at the end. `--help` has the
options. (One to copy: examples/multi_node.py.)
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `python -P` and PYTHONSAFEPATH leave it out

from proof import gcn, graphs, leaving, parts, stack
from proof.verdict import Fault, Layer, Proof, exit_with, prove

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    import torch as torch_types

#: of the generated graph; docs/smoke.md tells how it was found
ACCURACY_BAND = (0.80, 0.95)
LOSS_RATIO = 0.6  #: the last epoch's loss is at most this share of the first's
SECONDS_TO_CLEAR = 5.0  #: of the limit, to end all processes and say what they were doing
SECONDS_TO_MEET = 300
TOLD = ("seed", "world", "backend", "sampler", "sm")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ranks", type=int, choices=range(1, 9), default=2, metavar="N", help="processes (2)")
    parser.add_argument("--seed", type=int, default=0, help="of split, weights and batches")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="fail when it takes longer")
    # How this program starts itself: the number of a process, and the folder to meet in.
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def start(options: argparse.Namespace, argv: Sequence[str], proof: Proof) -> None:
    """Start all processes, and put what rank 0 found into the proof. Raises Fault."""
    deadline = None
    if options.limit:
        deadline = time.monotonic() + max(options.limit - SECONDS_TO_CLEAR, options.limit / 2)
    proof.enter(f"starting {options.ranks} processes", Layer.MACHINE)
    have = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(have) if have.isdigit() else len(os.sched_getaffinity(0))
    os.environ["OMP_NUM_THREADS"] = str(max(1, threads // options.ranks))  # more only wait for each other
    with tempfile.TemporaryDirectory(prefix="ddp-") as folder:
        program = str(Path(__file__).resolve())
        commands = {
            f"rank {rank}": parts.program(program, *argv, "--folder", folder, "--part", str(rank))
            for rank in range(options.ranks)
        }
        leader = parts.run(commands, proof, deadline)["rank 0"]
    proof.metrics.update(leader["metrics"])
    proof.extra.update({name: leader[name] for name in TOLD if name in leader})


def take_part(options: argparse.Namespace, proof: Proof) -> None:
    """One process's whole proof. Raises Fault."""
    rank, world = options.part, options.ranks
    proof.extra.update(seed=options.seed, world=world)
    torch = stack.load_torch(proof)
    complaints = stack.load_pyg(proof)
    device = stack.choose_device(torch, options.device, proof)
    backend = proof.extra["backend"] = join(torch, device, options)
    if device.type == "cuda":
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    proof.enter(f"summing over {world} processes with {backend}", Layer.NETWORK)
    check_sum(torch, rank, world, device, proof)
    train(torch, gcn_of(torch, rank, world, device, options.seed, proof), proof)
    stack.raise_complaints(complaints)
    torch.distributed.barrier()  # torch's own end of a group was seen to hang: the process ends without it
    leaving.leave(torch.distributed.FileStore(f"{options.folder}/leaving", world), rank, world, proof)


def join(torch: ModuleType, device: torch_types.device, options: argparse.Namespace) -> str:
    """Meet the other processes in a file, so that no port is opened; returns the backend. Raises Fault."""
    distributed = torch.distributed
    if not distributed.is_available():
        raise Fault(Layer.TORCH, f"torch {torch.__version__} was built without torch.distributed")
    on_gpus = device.type == "cuda" and torch.cuda.device_count() >= options.ranks  # NCCL wants one for each
    if on_gpus and not distributed.is_nccl_available():
        raise Fault(Layer.TORCH, f"torch {torch.__version__} was built without NCCL")
    backend = "nccl" if on_gpus else "gloo"
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = "lo"  # gloo would ask DNS for our own name
    distributed.init_process_group(
        backend,
        init_method=f"file://{options.folder}/meeting",
        rank=options.part,
        world_size=options.ranks,
        timeout=datetime.timedelta(seconds=SECONDS_TO_MEET),
    )
    return backend


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
    if not training.by_pyg:
        proof.say("neither pyg_lib nor torch_sparse is there for NeighborLoader: a sampler in plain torch draws")
    return training


def train(torch: ModuleType, training: gcn.Training, proof: Proof) -> None:
    """Train, test, and prove that all processes made one model. Raises Fault."""
    proof.enter(f"training on {proof.device}", Layer.TORCH)
    for epoch in range(1, gcn.EPOCHS + 1):
        loss, validation = training.epoch(), training.accuracy("validation")
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
    """What speaks against a finished training; empty: passed."""
    found = []
    if not last <= LOSS_RATIO * first:
        found.append(f"the loss went from {first:.4f} to {last:.4f}, not to {LOSS_RATIO:g} of it or less")
    if not ACCURACY_BAND[0] <= accuracy <= ACCURACY_BAND[1]:
        found.append(f"test accuracy {accuracy:.4f} is outside [{ACCURACY_BAND[0]:.2f}, {ACCURACY_BAND[1]:.2f}]")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 when all is well, 1 when not."""
    told = list(sys.argv[1:] if argv is None else argv)
    options = arguments(told)
    if options.part is None:
        return prove("ddp", lambda proof: start(options, told, proof), options.limit)
    parts.die_with_parent()
    kind = parts.Part if options.part == 0 else parts.QuietPart
    return prove("ddp", lambda proof: take_part(options, proof), None, kind)


if __name__ == "__main__":
    exit_with(main())
