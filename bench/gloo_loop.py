#!/usr/bin/env python3
"""Compares the suite `nccl` with a loop of `all_reduce` written by hand: two gloo processes, the same sizes, one run.

For an image with torch: `./build.py run NAME:TAG -- python bench/gloo_loop.py suites`. Prints for each size the seconds
of a call and their ratio, beside that of the loop to itself, which is the noise. All alternate, and of several rounds
the quickest counts.
"""

import argparse
import datetime
import multiprocessing
import os
import socket
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

RANKS = 2
SIZES = [4 << power for power in range(10, 23, 2)]  #: bytes
REPEATS = 30


def by_hand(torch: ModuleType, numbers: Any) -> float:  # noqa: ANN401  torch is in the image alone
    """Seconds of a call, as a user would time it."""
    for _ in range(5):
        torch.distributed.all_reduce(numbers)
    begin = time.perf_counter()
    for _ in range(REPEATS):
        torch.distributed.all_reduce(numbers)
    return (time.perf_counter() - begin) / REPEATS


def work(rank: int, suites: Path, port: int, rounds: int) -> None:
    """One rank: both ways in turn, round by round, so that what else the machine does meets both."""
    sys.path.insert(0, str(suites))
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    from proof import collectives, leaving, verdict

    wait = datetime.timedelta(seconds=60)
    store = torch.distributed.TCPStore("127.0.0.1", port, None, rank == 0, wait, wait_for_workers=False)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=wait)
    torch.set_num_threads(1)
    group = collectives.Group(torch, rank, RANKS, torch.device("cpu"), "gloo")
    buffers = collectives.Buffers(group, SIZES[-1])
    for size in SIZES:
        loop, suite, again = [], [], []
        for _ in range(rounds):
            loop.append(group.mean(by_hand(torch, torch.ones(size // 4))))
            suite.append(collectives.one_size(group, buffers, "all_reduce", size, REPEATS * loop[-1])[0].seconds)
            again.append(group.mean(by_hand(torch, torch.ones(size // 4))))
        if rank == 0:
            first, ours, second = min(loop), min(suite), min(again)
            times = f"loop {first * 1e6:9.1f} us  suite {ours * 1e6:9.1f} us"
            print(f"{size:>10} B  {times}  suite/loop {ours / first:.2f}  loop/loop {second / first:.2f}", flush=True)
    leaving.leave(store, rank, RANKS, verdict.Proof("nccl"))
    verdict.exit_with(0)  # torch's own end of a group was seen to hang


def main() -> int:
    """Start both ranks, and wait for them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("suites", type=Path, nargs="?", default=Path("/opt/graphcrate/suites"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=work, args=(rank, options.suites, port, options.rounds)) for rank in range(RANKS)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    return max(abs(each.exitcode or 0) for each in ranks)


if __name__ == "__main__":
    sys.exit(main())
