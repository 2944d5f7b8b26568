#!/usr/bin/env python3
"""Checks GraphLearn-for-PyTorch (GLT): samples, partitions a graph in two, trains GraphSAGE from both parts at once.

Two processes of this machine hold a part each and sample from both, as a distributed training does. What is sampled
is compared with the graph itself. Says what it found as one JSON line at the end. `--help` has the options.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `python -P` and PYTHONSAFEPATH leave it out

from proof import glt, leaving, machine, parts, sage
from proof.verdict import Fault, Layer, Proof, exit_with, prove

#: docs/smoke.md tells how these were found
ACCURACY_BAND = (0.80, 0.95)
LOSS_RATIO = 0.6  #: the last loss is at most this share of the first
SHARED_MEMORY = 48 << 20  #: bytes; a real training needs more
ENOUGH_SHARED_MEMORY = 1 << 30  #: below this a real training may die of SIGBUS
SECONDS_TO_CLEAR = 5.0  #: of the limit, to end all processes and say what they were doing

if __name__ == "__mp_main__":  # a process that GLT starts for sampling; it would outlive its part
    parts.die_with_parent()


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--seed", type=int, default=0, help="of the partition, the split and the weights")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="fail when it takes longer")
    # How this program starts itself: `alone`, or the number of a process; with the folder and the ports to meet at.
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ports", type=int, nargs=2, default=(0, 0), help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def command(options: argparse.Namespace, part: str, folder: Path, device: str, ports: list[int]) -> list[str]:
    """The command of a part."""
    told = ["--part", part, "--folder", str(folder), "--device", device, "--seed", str(options.seed), "--ports"]
    return parts.program(str(Path(__file__).resolve()), *told, *map(str, ports))


def run(options: argparse.Namespace, proof: Proof) -> None:
    """The whole proof, without torch: that is for the parts. Raises Fault."""
    deadline = None
    if options.limit:
        deadline = time.monotonic() + max(options.limit - SECONDS_TO_CLEAR, options.limit / 2)
    proof.enter("looking at the machine", Layer.MACHINE)
    free = machine.check_shared_memory(SHARED_MEMORY)
    proof.metrics["shared_memory_mib"] = free // machine.MEBIBYTE
    if free < ENOUGH_SHARED_MEMORY:
        proof.say(
            f"/dev/shm has {free // machine.MEBIBYTE} MiB free: enough for this check, too few for many trainings "
            "(`docker run --shm-size=1g`)"
        )
    try:
        scratch = tempfile.TemporaryDirectory(prefix="glt-check-")
    except OSError as error:
        raise Fault(Layer.MACHINE, f"no temporary folder can be made: {error}") from error
    with scratch as folder, machine.free_ports(2) as ports:
        alone = parts.run(
            {"one process": command(options, "alone", Path(folder), options.device, ports)}, proof, deadline
        )["one process"]
        proof.metrics.update(alone["metrics"])
        if "sm" in alone:
            proof.extra["sm"] = alone["sm"]
        device = "cpu" if alone["device"] == "cpu" else "cuda"
        told = parts.run(
            {f"process {rank}": command(options, str(rank), Path(folder), device, ports) for rank in range(glt.PARTS)},
            proof,
            deadline,
        )
    judge([told[f"process {rank}"]["metrics"] for rank in range(glt.PARTS)], proof)


def judge(figures: list[dict[str, float]], proof: Proof) -> None:
    """Put the processes' figures together. Raises Fault when they are not those of a sound stack."""
    proof.enter("judging", Layer.TRAINING)
    proof.metrics.update(
        distributed_edges_compared=sum(each["edges_compared"] for each in figures),
        remote_edges=sum(each["remote_edges"] for each in figures),
        first_loss=round(max(each["first_loss"] for each in figures), 4),
        last_loss=round(max(each["last_loss"] for each in figures), 4),
        test_accuracy=round(sage.accuracy_of(figures), 4),
        accuracy_band=list(ACCURACY_BAND),
        epochs=glt.EPOCHS,
    )
    if found := sage.objections(figures, ACCURACY_BAND, LOSS_RATIO):
        raise Fault(Layer.TRAINING, "; ".join(found))


def take_part(options: argparse.Namespace) -> int:
    """One part's share; its verdict is for the process that started it."""
    parts.die_with_parent()
    os.environ["TMPDIR"] = str(options.folder)  # PyG and multiprocessing leave files in it
    glt.prepare()

    def alone(proof: Proof) -> None:
        world = glt.enter_world(options.device, proof)
        glt.sample_alone(world, proof)
        glt.partition(world, options.folder, options.seed, proof)

    def rank(proof: Proof) -> None:
        world = glt.enter_world(options.device, proof, int(options.part))
        meeting = glt.Meeting(int(options.part), options.ports, options.folder)
        member = glt.Rank(world, meeting, options.seed, proof)
        member.check()
        proof.metrics.update(sage.train(member))
        proof.enter("parting", Layer.NETWORK)  # the other process may still ask for neighbours
        store = world.torch.distributed.FileStore(str(options.folder / "leaving"), glt.PARTS)
        leaving.leave(store, int(options.part), glt.PARTS, proof)

    return prove("glt", alone if options.part == "alone" else rank, None, parts.Part)


def main() -> int:
    """Returns 0 when all is well, 1 when not."""
    options = arguments()
    if options.part is not None:
        return take_part(options)
    return prove("glt", lambda proof: run(options, proof), options.limit)


if __name__ == "__main__":
    exit_with(main())
