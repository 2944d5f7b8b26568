#!/usr/bin/env python3
"""Checks every operator of the installed PyG extensions against dense PyTorch: results, gradients, samples.

Runs on the CPU and on every GPU. Says what it found as one JSON line at the end. `--help` has the options.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `python -P` and PYTHONSAFEPATH leave it out

from proof import stack
from proof.operators import cluster, geometric, matrices, scatter, sparse, spline, trace, walks
from proof.operators.examiner import Examiner
from proof.operators.ledger import Ledger
from proof.verdict import Fault, Layer, Proof, exit_with, prove

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from types import ModuleType

    import torch as torch_types


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="cpu: leave GPUs out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="fail when it takes longer")
    parser.add_argument(
        "--require",
        type=_extensions,
        default=(),
        metavar="NAME,…",
        help="fail when one of these is not installed: " + ", ".join(stack.EXTENSIONS),
    )
    return parser.parse_args(argv)


def _extensions(text: str) -> tuple[str, ...]:
    names = tuple(name.strip().replace("-", "_") for name in text.split(",") if name.strip())
    if unknown := sorted(set(names) - set(stack.EXTENSIONS)):
        raise argparse.ArgumentTypeError(f"no extension of PyG is called {', '.join(unknown)}")
    return names


def run(options: argparse.Namespace, proof: Proof) -> None:
    """The whole proof. Raises Fault."""
    proof.extra["seed"] = options.seed
    torch = stack.load_torch(proof)
    with_pyg = stack.installed("torch_geometric") is not None
    complaints = stack.load_pyg(proof) if with_pyg else []
    if not with_pyg:
        stack.load_extensions(proof)
    there = [name for name in stack.EXTENSIONS if name in proof.versions]
    proof.metrics["absent"] = absent = [name for name in stack.EXTENSIONS if name not in there]
    if absent:
        proof.say(f"not installed: {', '.join(absent)}")
    if missing := [name for name in options.require if name in absent]:
        raise Fault(Layer.EXTENSION, f"{', '.join(missing)} must be here and is not installed")
    if not there and not with_pyg:
        raise Fault(Layer.EXTENSION, "neither an extension nor PyG is installed: there is nothing to check")
    if not there:
        proof.say("no extension is installed: that PyG imports is all that can be said")
    devices = choose_devices(torch, options.device, proof)
    ledger, called = Ledger(), set[str]()
    try:
        for device in devices:
            check_device(torch, device, there, with_pyg, options.seed, ledger, proof, called)
    finally:
        proof.metrics.update(ledger.metrics())
    proof.enter("judging", Layer.EXTENSION)
    report_calls(torch, there, called, proof)
    stack.raise_complaints(complaints)
    if ledger.findings:
        raise Fault(Layer.EXTENSION, ledger.reason())


def choose_devices(torch: ModuleType, wanted: str, proof: Proof) -> list[torch_types.device]:
    """The CPU, and every GPU unless only the CPU is wanted. Raises Fault."""
    first = stack.choose_device(torch, wanted, proof)
    devices = [torch.device("cpu")]
    if first.type == "cuda":
        devices += [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    proof.metrics["devices"] = [str(device) for device in devices]
    return devices


def check_device(
    torch: ModuleType,
    device: torch_types.device,
    there: Collection[str],
    with_pyg: bool,
    seed: int,
    ledger: Ledger,
    proof: Proof,
    called: set[str],
) -> None:
    """Check all that is there on one device. Raises what sticks to the process; the rest is in the ledger."""
    if device.type == "cuda":
        torch.cuda.set_device(device)  # where pyg_lib launches its kernels, wherever its input lies
    families = {
        "torch_scatter": lambda examiner, library: scatter.check(examiner, library, "torch_scatter"),
        "torch_sparse": lambda examiner, library: (sparse.check(examiner, library), walks.check(examiner, library)),
        "torch_cluster": cluster.check,
        "torch_spline_conv": lambda examiner, library: spline.check(examiner, library, "torch_spline_conv"),
        "pyg_lib": matrices.check,
    }
    for name in there:
        proof.enter(f"checking {name} on {device}", Layer.EXTENSION)
        before, start = len(ledger.findings), proof.seconds
        torch.manual_seed(seed)
        library = importlib.import_module(name)
        if device.type == "cpu":
            check_build(torch, name, ledger)
        families[name](Examiner(torch, device, seed, ledger), library)
        if device.type == "cpu":  # a second, quick pass, for the profiler makes everything slow
            with trace.traced(torch, called):
                families[name](Examiner(torch, device, seed, Ledger(), quick=True), library)
        tell(proof, ledger, name, len(ledger.findings) - before, proof.seconds - start)
    if with_pyg:
        proof.enter(f"checking PyG on {device}", Layer.PYG)
        before, start = len(ledger.findings), proof.seconds
        torch.manual_seed(seed)
        geometric.check(Examiner(torch, device, seed, ledger), there)
        tell(proof, ledger, "PyG", len(ledger.findings) - before, proof.seconds - start)


def tell(proof: Proof, ledger: Ledger, name: str, wrong: int, seconds: float) -> None:
    """One line on what was checked."""
    outcome = f"complaints: {wrong}" if wrong else "all right"
    proof.say(f"{name}: {len(ledger.checked.get(name, ()))} operators, {outcome}, {seconds:.1f} s")
    for finding in ledger.findings[len(ledger.findings) - wrong :]:
        proof.say(f"  {finding}")


def check_build(torch: ModuleType, name: str, ledger: Ledger) -> None:
    """An extension without code for GPUs beside a torch with it fails on the first GPU: say so without one."""
    cuda_version = getattr(getattr(torch.ops, trace.NAMESPACES[name]), "cuda_version", None)
    if cuda_version is None or torch.version.cuda is None:
        return
    ledger.begin(f"{name}.cuda_version")
    if cuda_version() == -1:
        ledger.wrong(
            f"{name}.cuda_version", "build", f"compiled without CUDA, beside a torch for CUDA {torch.version.cuda}"
        )


def report_calls(torch: ModuleType, there: Collection[str], called: Collection[str], proof: Proof) -> None:
    """How many of the operators that were registered have run, and which have not."""
    known = {name: trace.registered(torch, name) for name in there}
    proof.metrics["registered"] = {name: len(operators) for name, operators in known.items()}
    proof.metrics["not_called"] = sorted(
        name for name in set().union(*known.values()) - set(called) if not name.endswith("::cuda_version")
    )


def main() -> int:
    """Returns 0 when all operators are right, 1 when not."""
    options = arguments()
    return prove("ops", lambda proof: run(options, proof), options.limit)


if __name__ == "__main__":
    exit_with(main())
