#!/usr/bin/env python3
"""Checks distributed training with GLT: partitions a graph as `partition.py` does, runs `train_distributed.py` twice.

Both are the programs that people run, as two nodes that meet over loopback. Every edge that they sample in the first
epoch is looked up in the graph itself. Says what it found as one JSON line at the end. `--help` has the options.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `python -P` and PYTHONSAFEPATH leave it out

from proof import graphs, machine, neighbours, parts
from proof.verdict import Fault, Layer, Proof, exit_with, prove

PARTS = 2
#: docs/smoke.md tells how these were found
ACCURACY_BAND = (0.80, 0.95)
LOSS_RATIO = 0.6  #: the last loss is at most this share of the first
SHARED_MEMORY = 96 << 20  #: bytes, where sampling is done in processes of its own
SECONDS_TO_CLEAR = 5.0  #: of the limit, to end all processes and say what they were doing
FAN_OUTS = (10, 5)
BATCH = 32
TRAINING = ("--epochs", "6", "--batch_size", str(BATCH), "--fan_outs", "10,5", "--hidden", "64", "--dropout", "0.5")
LEARNING = ("--lr", "0.01", "--channel_size", "16MB")
PROGRAMS = Path(__file__).resolve().parent.parent / "examples" / "glt"


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--seed", type=int, default=0, help="of the partition, the split and the weights")
    parser.add_argument("--sampling", choices=("workers", "collocated"), help="default: workers on a GPU")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="fail when it takes longer")
    return parser.parse_args(argv)


def partitioning(folder: Path, seed: int) -> list[str]:
    """The command of partition.py."""
    told = ["--num-partitions", str(PARTS), "--output", str(folder / "parts"), "--seed", str(seed)]
    return parts.program(str(PROGRAMS / "partition.py"), *told, "--part")


def training(options: argparse.Namespace, rank: int, folder: Path, ports: list[int]) -> list[str]:
    """The command of train_distributed.py as one of two nodes; with two GPUs each takes one."""
    told = ["--dataset", str(folder / "parts"), "--num_nodes", str(PARTS), "--node_rank", str(rank)]
    told += ["--master_addr", machine.LOOPBACK, "--num_training_procs", "1", "--device", options.device]
    names = ("training_pg_master_port", "train_loader_master_port", "test_loader_master_port")
    for name, port in zip(names, ports):
        told += [f"--{name}", str(port)]
    told += [*TRAINING, *LEARNING, "--seed", str(options.seed), "--record", str(folder), "--part"]
    told += ["--sampling", options.sampling]
    if machine.gpus() < PARTS:
        told += ["--backend", "gloo"]  # NCCL wants a GPU for each process
    return parts.program(str(PROGRAMS / "train_distributed.py"), *told, "--gpu", str(rank))


def run(options: argparse.Namespace, proof: Proof) -> None:
    """The whole proof, without torch: that is for the parts. Raises Fault."""
    deadline = None
    if options.limit:
        deadline = time.monotonic() + max(options.limit - SECONDS_TO_CLEAR, options.limit / 2)
    if options.sampling is None:
        options.sampling = "collocated" if options.device == "cpu" else "workers"
    if options.sampling == "workers":
        proof.enter("looking at the machine", Layer.MACHINE)
        proof.metrics["shared_memory_mib"] = machine.check_shared_memory(SHARED_MEMORY) // machine.MEBIBYTE
    try:
        scratch = tempfile.TemporaryDirectory(prefix="glt-distributed-")
    except OSError as error:
        raise Fault(Layer.MACHINE, f"no temporary folder can be made: {error}") from error
    with scratch as name, machine.free_ports(3) as ports:
        folder = Path(name)
        made = parts.run({"partition.py": partitioning(folder, options.seed)}, proof, deadline)["partition.py"]
        commands = {f"node {rank}": training(options, rank, folder, ports) for rank in range(PARTS)}
        told = parts.run(commands, proof, deadline)
        if "sm" in told["node 0"]:
            proof.extra["sm"] = told["node 0"]["sm"]
        proof.enter("judging", Layer.TRAINING)
        recorded = [read(folder / f"rank{rank}.jsonl") for rank in range(PARTS)]
    judge(made["metrics"], [told[f"node {rank}"]["metrics"] for rank in range(PARTS)], recorded, proof)


def read(path: Path) -> list[neighbours.Sample]:
    """Read what a node says it sampled in its first epoch, batch by batch. Raises Fault."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [
            neighbours.Sample(line["seeds"], line["nodes"], [(a, b, n) for a, b, n in line["edges"]]) for line in lines
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Fault(Layer.GLT, f"{path.name} has no record of what was sampled: {error}") from error


def judge(
    made: dict[str, Any], figures: list[dict[str, Any]], recorded: list[list[neighbours.Sample]], proof: Proof
) -> None:
    """Compare what came with the graph. Raises Fault when the figures are not those of a sound stack."""
    graph = graphs.generate()
    links = neighbours.link(graph.edges, len(graph.labels))
    if (made["nodes"], made["edges"]) != (len(graph.labels), len(links.sources)):
        raise Fault(Layer.GLT, f"the partitions have {made['nodes']} nodes and {made['edges']} edges")
    check_seeds(graphs.split(graph.labels, proof.extra["seed"]), recorded, made)
    edges = 0
    for rank, samples in enumerate(recorded):
        for number, sample in enumerate(samples):
            if found := neighbours.objections(sample, links, FAN_OUTS):
                raise Fault(Layer.GLT, f"node {rank}, batch {number}: " + "; ".join(found))
            edges += len(sample.edges)
    if not edges:
        raise Fault(Layer.GLT, "no edge was sampled")
    losses = [each["loss"] for each in figures[0]["epochs"]]
    proof.metrics.update(
        part_sizes=[part["nodes"] for part in made["parts"]],
        edges_compared=edges,
        first_loss=losses[0],
        last_loss=losses[-1],
        test_accuracy=figures[0]["test_accuracy"],
        accuracy_band=list(ACCURACY_BAND),
        epochs=len(losses),
        iterations_per_second=figures[0]["iterations_per_second"],
        sampling=figures[0]["sampling"],
        backend=figures[0]["backend"],
    )
    if found := objections(figures, losses, len(graphs.split(graph.labels, proof.extra["seed"]).test)):
        raise Fault(Layer.TRAINING, "; ".join(found))


def check_seeds(split: graphs.Split, recorded: list[list[neighbours.Sample]], made: dict[str, Any]) -> None:
    """Each training node once, each at one node; who has fewer takes some twice. Raises Fault."""
    drawn = [[seed for sample in samples for seed in sample.seeds] for samples in recorded]
    sets = [set(seeds) for seeds in drawn]
    if both := sets[0] & sets[1]:
        raise Fault(Layer.GLT, f"both nodes trained on {len(both)} same nodes")
    if sets[0] | sets[1] != set(split.train):
        wrong = (sets[0] | sets[1]) ^ set(split.train)
        raise Fault(Layer.GLT, f"{len(wrong)} nodes were trained on that should not be, or the other way round")
    most = max(part["train"] for part in made["parts"])
    for rank, seeds in enumerate(drawn):
        own = made["parts"][rank]["train"]
        if len(sets[rank]) != own or not own <= len(seeds) <= most:  # GLT lists what comes twice in a batch once
            raise Fault(Layer.GLT, f"node {rank} drew {len(seeds)} seeds, {len(sets[rank])} different ones, not {own}")


def objections(figures: list[dict[str, Any]], losses: list[float], tested: int) -> list[str]:
    """List objections to the training; empty: passed."""
    found = []
    if not losses[-1] <= LOSS_RATIO * losses[0]:
        found.append(f"the loss went from {losses[0]} to {losses[-1]}, not to {LOSS_RATIO:g} of it or less")
    accuracy = figures[0]["test_accuracy"]
    if any(each["test_accuracy"] != accuracy or each["tested"] != tested for each in figures):
        found.append(f"the nodes do not agree on {tested} test nodes and what is right of them")
    if not ACCURACY_BAND[0] <= accuracy <= ACCURACY_BAND[1]:
        found.append(f"test accuracy {accuracy:.4f} is outside [{ACCURACY_BAND[0]:.2f}, {ACCURACY_BAND[1]:.2f}]")
    return found


def main() -> int:
    """Returns 0 when all is well, 1 when not."""
    options = arguments()

    def body(proof: Proof) -> None:
        proof.extra["seed"] = options.seed
        run(options, proof)

    return prove("glt-distributed", body, options.limit)


if __name__ == "__main__":
    exit_with(main())
