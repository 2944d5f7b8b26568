#!/usr/bin/env python3
"""Cuts a graph into partitions for distributed training with GLT, one for each node (machine). Never asks anything.

The folder that it writes is what `train_distributed.py --dataset` takes. Says what it did as one JSON line at the end.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "suites"))

from proof import glt, ogb_files, partitions, parts, sources, stack
from proof.partitions import Request
from proof.verdict import Fault, Layer, Proof, exit_with, prove


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    names = ", ".join(("generated", *ogb_files.NAMES))
    parser.add_argument("--dataset", default="generated", help=f"{names}, a folder, or a file .npz")
    parser.add_argument(
        "--root", "--root_dir", "--root-dir", type=Path, default=Path("data"), help="where OGB's data sets lie"
    )
    parser.add_argument("--num-partitions", "--num_partitions", type=int, default=2, help="as many as nodes train")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="default: ROOT/NAME-in-NUMBER")
    parser.add_argument("--seed", type=int, default=0, help="of the partition, and of the split where there is none")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="fail when it takes longer")
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)  # phases as lines for a program
    options = parser.parse_args(argv)
    if options.num_partitions < 1:
        parser.error("--num-partitions must be 1 or more")
    if options.output is None:
        options.output = options.root / f"{Path(options.dataset).stem}-in-{options.num_partitions}"
    return options


def run(options: argparse.Namespace, proof: Proof) -> None:
    """Make the folder, unless it is there already. Raises Fault."""
    proof.enter("looking at what is there", Layer.DATA)
    proof.device = "cpu"
    source = sources.find(options.dataset, options.root)
    request = Request(options.dataset, source.sha256(), options.num_partitions, options.seed)
    try:
        known = partitions.is_there(options.output, request)
    except OSError as error:
        raise Fault(Layer.DATA, f"--output {options.output} cannot be looked at: {error.strerror}") from error
    if known:
        proof.say(f"{options.output} is there already: {request}")
    else:
        torch = stack.load_torch(proof)
        partitions.make(source, request, options.output, (torch, glt.load_glt(proof)), proof)
        proof.say(f"{options.output} is made: {request}")
    found = partitions.read(options.output)
    for number, sizes in enumerate(found.parts):
        proof.say(f"part {number}: " + ", ".join(f"{value} {name}" for name, value in sizes.items()))
    proof.metrics.update(
        output=str(options.output.absolute()),
        made=not known,
        nodes=found.nodes,
        edges=found.edges,
        in_channel=found.in_channel,
        out_channel=found.out_channel,
        parts=[dict(part) for part in found.parts],
        graph_sha256=found.graph_sha256,
    )


def main() -> int:
    """Returns 0 when the folder is there, 1 when not."""
    options = arguments()
    kind = parts.Part if options.part else Proof
    return prove("glt-partition", lambda proof: run(options, proof), options.limit, kind)


if __name__ == "__main__":
    exit_with(main())
