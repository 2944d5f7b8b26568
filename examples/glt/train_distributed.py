#!/usr/bin/env python3
"""Trains GraphSAGE on a partitioned graph, on several nodes (machines) with one or more processes each, with GLT.

Run it on every node, with the folder that `partition.py` made for as many nodes. Under srun with one task on each node
it finds its place by itself; elsewhere `--num_nodes`, `--node_rank` and `--master_addr` tell it. See `--help`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "suites"))

from proof import node, parts
from proof.verdict import Fault, Layer, Proof, exit_with, prove

if __name__ == "__mp_main__":  # a process that GLT starts for sampling; it would outlive the training
    parts.die_with_parent()


def option(name: str) -> tuple[str, ...]:
    """`--num_nodes`, as GLT's own programs write it, and `--num-nodes`."""
    return tuple(dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}")))


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--dataset", type=Path, required=True, metavar="FOLDER", help="what partition.py made")
    where = parser.add_argument_group("nodes", "under srun, one task on each node, leave them out")
    where.add_argument(*option("num_nodes"), type=int, help="as many as the folder has partitions")
    where.add_argument(*option("node_rank"), type=int, help="0 …: which node this is, and which partition it holds")
    where.add_argument(*option("master_addr"), metavar="ADDRESS", help="of node 0")
    where.add_argument(*option("num_training_procs"), type=int, help="on each node; default: one for each GPU, else 1")
    for name, what in (
        ("training_pg_master_port", "for torch's process group; default 11111, under srun one of the job's own"),
        ("train_loader_master_port", "for sampling; default: the port above + 1"),
        ("test_loader_master_port", "for sampling while testing; default: the next one"),
    ):
        where.add_argument(*option(name), type=int, metavar="PORT", help=what)
    where.add_argument("--patience", type=float, default=600, metavar="SECONDS", help="for all nodes to come")
    how = parser.add_argument_group("training")
    how.add_argument("--epochs", type=int, default=10)
    how.add_argument(*option("batch_size"), type=int, default=512, help="seeds in each step of each process")
    how.add_argument("--lr", *option("learning_rate"), type=float, default=0.003)
    how.add_argument("--hidden", type=int, default=256, help="channels of hidden layers")
    how.add_argument("--dropout", type=float, default=0.0)
    how.add_argument(*option("fan_outs"), type=numbers, default=(15, 10, 5), metavar="N,…", help="neighbours by hop")
    how.add_argument("--seed", type=int, default=0, help="of the weights")
    how.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    how.add_argument("--gpu", type=int, default=0, metavar="NUMBER", help="the first of this node's, counted from 0")
    how.add_argument("--backend", choices=("nccl", "gloo"), help="default: nccl with a GPU for each process")
    how.add_argument(
        "--sampling", choices=("workers", "collocated"), default="workers", help="in other processes or not"
    )
    how.add_argument("--workers", type=int, default=1, help="sampling processes for each training process")
    how.add_argument(*option("channel_size"), default="1GB", help="shared memory for sampled batches")
    how.add_argument(*option("in_channel"), type=int, help="checked against the folder, which knows it")
    how.add_argument(*option("out_channel"), type=int, help="checked against the folder, which knows it")
    told = parser.add_argument_group("results")
    told.add_argument("--results", type=Path, metavar="FILE.json", help="the verdict with all epochs, by node 0")
    told.add_argument("--record", type=Path, metavar="FOLDER", help="write what the first epoch sampled, for a check")
    told.add_argument("--limit", type=float, metavar="SECONDS", help="fail when it takes longer")
    told.add_argument("--part", action="store_true", help=argparse.SUPPRESS)  # phases as lines for a program
    options = parser.parse_args(argv)
    for name in ("epochs", "batch_size", "hidden", "workers", "num_training_procs"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name} must be 1 or more")
    return options


def numbers(text: str) -> tuple[int, ...]:
    """`15,10,5`; also GLT's `[15,10,5]`."""
    found = tuple(int(each) for each in text.strip("[] ").split(","))
    if min(found) < 1:
        raise ValueError
    return found


def run(options: argparse.Namespace, proof: Proof) -> None:
    """Look at where results go, then train. Raises Fault."""
    for path in (options.results and options.results.absolute().parent, options.record):
        if path and not path.is_dir():
            raise Fault(Layer.DATA, f"there is no folder {path} to write into")
    node.run(options, proof)
    if options.results and proof.metrics["node_rank"] == 0:
        written = {"device": proof.device, **proof.metrics, "versions": proof.versions}
        temporary = options.results.with_name(f".{options.results.name}.tmp")
        temporary.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
        temporary.replace(options.results)
        proof.say(f"results are in {options.results}")


def main() -> int:
    """Returns 0 when the training ended well, 1 when not."""
    options = arguments()
    return prove("glt-train", lambda proof: run(options, proof), options.limit, parts.Part if options.part else Proof)


if __name__ == "__main__":
    exit_with(main())
