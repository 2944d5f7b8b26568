#!/usr/bin/env python3
"""Counts how often two processes of a gloo group end, by the way in which they leave it.

For an image with PyG: `./build.py run NAME:TAG -- python bench/leaving.py examples`. Says for each way how many runs
ended by themselves; one that is still there after some seconds is killed, and its pair with it.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
from types import ModuleType

SECONDS = 60.0  #: for what takes one on an idle machine
NUMBERS = 1 << 22  #: of a sum that takes a while: 16 MiB


def lost(dist: ModuleType, torch: ModuleType) -> None:
    """The sum's tensor is gone in Python while gloo's thread still works on it."""
    dist.all_reduce(torch.ones(NUMBERS), async_op=True)
    dist.destroy_process_group()


def left(dist: ModuleType, torch: ModuleType) -> None:
    """As lost, but with no call at all: what Python does at its end."""
    dist.all_reduce(torch.ones(NUMBERS), async_op=True)


def waited(dist: ModuleType, torch: ModuleType) -> None:
    """The sum is done when its tensor goes, a moment ago: what a program does that sums in a function."""
    dist.all_reduce(torch.ones(NUMBERS))
    dist.destroy_process_group()


def kept(dist: ModuleType, torch: ModuleType) -> None:
    """The tensor is kept until the group is gone."""
    numbers = torch.ones(NUMBERS)
    dist.all_reduce(numbers)
    dist.destroy_process_group()
    del numbers


def failed(dist: ModuleType, torch: ModuleType) -> None:
    """An error while a sum waits for the other process, which works on something else."""
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(NUMBERS), async_op=True)
        raise RuntimeError("as it should")
    time.sleep(SECONDS * 2)


def together(dist: ModuleType, torch: ModuleType) -> None:
    """By `together` of examples/multi_node.py, with the tensor lost as above."""
    dist.all_reduce(torch.ones(NUMBERS), async_op=True)


def together_failed(dist: ModuleType, torch: ModuleType) -> None:
    """By the same, with the error of above: its end alone counts."""
    failed(dist, torch)


WAYS = {each.__name__: each for each in (lost, left, waited, kept, failed, together, together_failed)}


def part(way: str, rank: int, port: int, examples: str) -> None:
    """One process of a run."""
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    import torch
    import torch.distributed as dist

    if way.startswith("together"):
        sys.path.insert(0, examples)
        import multi_node

        with multi_node.together(rank, 2) as store:
            dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
            begin(way, dist, torch)
    else:
        dist.init_process_group("gloo")
        begin(way, dist, torch)


def begin(way: str, dist: ModuleType, torch: ModuleType) -> None:
    """Say that imports are over, then do it."""
    dist.barrier()
    print("ready", flush=True)
    WAYS[way](dist, torch)


def run(way: str, examples: str) -> str:
    """Run both processes; whether the first ended by itself, and with which exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, __file__, examples, "--part", way, "--port", str(port), "--rank"]
    pair = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for rank in range(2)
    ]
    for each in pair:
        assert each.stdout is not None
        while (line := each.stdout.readline()) != b"ready\n":  # gloo of later torch says that it is connected
            assert line, "it ended before it was ready"
    counted = pair[:1] if way.endswith("failed") else pair
    until = time.monotonic() + SECONDS
    while any(each.poll() is None for each in counted) and time.monotonic() < until:
        time.sleep(0.02)
    codes = [each.poll() for each in counted]
    for each in pair:
        each.kill()
        each.wait()
    return "hangs" if None in codes else f"ends with {' and '.join(map(str, codes))}"


def main() -> int:
    """Run all ways in turn."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("examples", nargs="?", default="/opt/graphcrate/examples")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part(options.part, options.rank, options.port, options.examples)
        return 0
    for way in options.ways:
        ends = [run(way, options.examples) for _ in range(options.runs)]
        print(f"{way:16} " + ", ".join(f"{ends.count(end)} x {end}" for end in dict.fromkeys(ends)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
