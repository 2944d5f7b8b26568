#!/usr/bin/env python3
"""Checks a PyTorch installation: versions, a product per GPU, a small training, and messages between processes.

Says what it found as one JSON line at the end. `--help` has the options.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `python -P` and PYTHONSAFEPATH leave it out

from proof import leaving, stack, verbs
from proof.verdict import Fault, Layer, Proof, exit_with, prove

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    import torch as torch_types

SIZE = 512  #: of the matrices
TOLERANCE = 1e-2  #: largest error of a product of standard normal numbers; TF32 keeps 10 bits of each factor
STEPS, LOSS_RATIO = 60, 0.2
RANKS = 2
SECONDS_TO_MEET = 60  #: for two processes on one machine


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="fail when it takes longer")
    return parser.parse_args(argv)


def run(options: argparse.Namespace, proof: Proof) -> None:
    """The whole proof. Raises Fault."""
    torch = stack.load_torch(proof)
    device = stack.choose_device(torch, options.device, proof)
    torch.manual_seed(options.seed)
    devices = [device]
    if device.type == "cuda":
        devices = gpus(torch, proof)
    for each in devices:
        proof.enter(f"multiplying matrices on {each}", Layer.TORCH)
        multiply(torch, each, proof)
    proof.enter(f"training on {device}", Layer.TORCH)
    first, last = learn(torch, device, proof)
    proof.metrics.update(first_loss=round(first, 4), last_loss=round(last, 4))
    if not (math.isfinite(last) and last <= LOSS_RATIO * first):
        raise Fault(Layer.TRAINING, f"the loss went from {first:.4f} to {last:.4f} in {STEPS} steps on {device}")
    reduce_everywhere(torch, devices, proof)
    verbs.load(proof)


def gpus(torch: ModuleType, proof: Proof) -> list[torch_types.device]:
    """All visible GPUs, each with code in this torch, and the versions of cuDNN and NCCL. Raises Fault."""
    proof.versions["cudnn"] = torch.backends.cudnn.version()
    proof.versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_available() else None
    found = []
    for number in range(torch.cuda.device_count()):
        name, capability = torch.cuda.get_device_name(number), torch.cuda.get_device_capability(number)
        proof.say(f"cuda:{number}  {name}  sm_{capability[0]}{capability[1]}")
        if complaint := stack.missing_kernels(capability, torch.cuda.get_arch_list()):
            raise Fault(Layer.TORCH, f"torch {torch.__version__} on cuda:{number} ({name}): {complaint}")
        found.append(torch.device("cuda", number))
    proof.metrics["gpus"] = len(found)
    return found


def multiply(torch: ModuleType, device: torch_types.device, proof: Proof) -> None:
    """One product on the device against float64 on the CPU. Raises Fault when it is wrong."""
    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    wanted = left.double() @ right.double()
    got = (left.to(device) @ right.to(device)).cpu().double()
    # Relative to the size of the entries, which are sums of SIZE products.
    error = float((got - wanted).abs().max()) / math.sqrt(SIZE)
    proof.metrics["product_error"] = max(error, proof.metrics.get("product_error", 0.0))
    proof.say(f"product on {device}: largest error {error:.1e}")
    if not error <= TOLERANCE:
        raise Fault(
            Layer.CUDA if device.type == "cuda" else Layer.TORCH, f"a product on {device} is off by {error:.1e}"
        )


def learn(torch: ModuleType, device: torch_types.device, proof: Proof) -> tuple[float, float]:
    """Teach a small convolutional network to tell rows from columns; returns the first and last loss."""
    functional = torch.nn.functional
    images = torch.rand(128, 1, 12, 12) * 0.3
    classes = torch.arange(128) % 2
    for number, image in enumerate(images):
        place = number % 12
        image[0, place, :] += float(number % 2)
        image[0, :, place] += float(1 - number % 2)
    images, classes = images.to(device), classes.to(device)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.AdaptiveMaxPool2d(3),
        torch.nn.Flatten(),
        torch.nn.Linear(72, 2),
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), classes)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if step % 10 == 0:
            proof.say(f"Step: {step:03d}, Loss: {losses[-1]:.4f}")
    return losses[0], losses[-1]


def reduce_everywhere(torch: ModuleType, devices: Sequence[torch_types.device], proof: Proof) -> None:
    """Sum a tensor over all GPUs with NCCL, or over processes with gloo. Raises Fault."""
    if not torch.distributed.is_available():
        proof.metrics["all_reduce"] = "torch.distributed is not built in"
        return
    if devices[0].type == "cuda":
        proof.enter(f"summing over {len(devices)} GPUs with NCCL", Layer.NETWORK)
        parts = [torch.full((1024,), number + 1.0, device=device) for number, device in enumerate(devices)]
        torch.cuda.nccl.all_reduce(parts)
        check_sums([float(part[0]) for part in parts], proof, "nccl")
    else:
        proof.enter(f"summing over {RANKS} processes with gloo", Layer.NETWORK)
        check_sums(gloo(torch), proof, "gloo")


def check_sums(sums: Sequence[float], proof: Proof, library: str) -> None:
    """Rank n gave n + 1; everyone must hold the sum of all. Raises Fault."""
    wanted = len(sums) * (len(sums) + 1) / 2
    proof.metrics["all_reduce"] = f"{library} over {len(sums)}"
    if any(value != wanted for value in sums):
        raise Fault(Layer.NETWORK, f"{library} summed to {list(sums)}, not to {wanted:g}")


def gloo(torch: ModuleType) -> list[float]:
    """The sums that each of two processes of this machine got. They meet in a file, so no port is opened."""
    with tempfile.TemporaryDirectory() as folder:
        processes = torch.multiprocessing.spawn(take_part, args=(folder,), nprocs=RANKS, join=False)
        while not processes.join(timeout=SECONDS_TO_MEET):
            pass
        return [float((Path(folder) / f"sum-{rank}").read_text(encoding="utf-8")) for rank in range(RANKS)]


def take_part(rank: int, folder: str) -> None:
    """One process's share of `gloo`."""
    import datetime

    import torch

    # Without a network card gloo would ask DNS for this machine's own name.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=RANKS,
        timeout=datetime.timedelta(seconds=SECONDS_TO_MEET),
    )
    part = torch.full((1024,), rank + 1.0)
    torch.distributed.all_reduce(part)
    (Path(folder) / f"sum-{rank}").write_text(str(float(part[0])), encoding="utf-8")
    store = torch.distributed.FileStore(f"{folder}/leaving", RANKS)
    leaving.leave(store, rank, RANKS, Proof("torch"))
    exit_with(0)


def main() -> int:
    """Returns 0 when all is well, 1 when not."""
    options = arguments()
    return prove("torch", lambda proof: run(options, proof), options.limit)


if __name__ == "__main__":
    exit_with(main())
