#!/usr/bin/env python3
"""Checks operators of each installed PyG extension, and PyG itself, against dense PyTorch: result and gradient.

The rows are `proof.operators`. Runs on the CPU and on every GPU. Says what it found as one JSON line at the end.
`--help` has the options.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import re
import sys
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `python -P` and PYTHONSAFEPATH leave it out

from proof import stack
from proof.choices import CHOICES
from proof.operators import BANDS as BANDS  # what the page on suites has
from proof.operators import OPERATORS, Wrong, compare, wanted_by_pyg
from proof.samples import SAMPLES
from proof.verdict import Fault, Layer, Proof, blame, exit_with, prove

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from types import ModuleType

    import torch as torch_types

CLIQUES, CLIQUE, STRIDE = 4, 9, 7  #: the last has no divisor in common with the number of nodes
#: what torch_sparse says without METIS, and PyG where neither it nor pyg_lib is there
NO_METIS = re.compile("Not compiled with METIS|requires (either 'pyg-lib' or )?'torch-sparse'")
#: what PyG does by a library, or by the one that took its place
LOST = {
    "torch_cluster": "kNN, radius, FPS, nearest, graclus, voxel_grid and random walks",
    "torch_spline_conv": "SplineConv",
}
#: the names under which the extensions register their operators
NAMESPACES = {"pyg_lib": "pyg", **{name: name for name in stack.EXTENSIONS if name != "pyg_lib"}}
#: switches of torch_geometric.typing, as far as a version has them
SWITCHES = {name: f"WITH_{name.upper()}" for name in stack.EXTENSIONS}


@dataclass
class Findings:
    """The findings: what was checked, how far off it was, and what is wrong."""

    checked: list[str] = field(default_factory=list)
    largest: dict[str, float] = field(default_factory=dict)
    wrong: list[dict[str, str]] = field(default_factory=list)

    def note(self, operator: str, where: str, what: object) -> None:
        """Note a wrong operator: an error with the layer that its words name."""
        text, layer = str(what), Layer.EXTENSION
        if isinstance(what, Exception) and not isinstance(what, Wrong):
            text, layer = f"{type(what).__name__}: {what}", blame(what, layer)
        text = " ".join(text.split())[:300]
        self.wrong.append({"operator": operator, "where": where, "what": text, "layer": layer.value})

    @contextlib.contextmanager
    def noting(self, operator: str, where: str) -> Iterator[None]:
        """Note what is raised, but for what sticks to the process: every later operator would be blamed."""
        try:
            yield
        except Exception as error:
            if "CUDA error" in str(error):
                raise
            self.note(operator, where, error)

    def reason(self) -> str:
        """All that is wrong, as a sentence."""
        return "; ".join(f"{each['operator']} ({each['where']}): {each['what']}" for each in self.wrong)


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; wrong usage ends with exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="cpu: leave GPUs out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="fail when it takes longer")
    names = ", ".join(stack.EXTENSIONS)
    parser.add_argument(
        "--require", type=_extensions, default=(), metavar="NAME,…", help=f"fail when one is not installed: {names}"
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
    devices = choose_devices(torch, options.device, proof)
    findings = Findings()
    try:
        for device in devices:
            check_device(torch, device, there, with_pyg, options.seed, findings, proof)
    finally:
        proof.metrics.update(operators=findings.checked, largest_error=findings.largest, failed=findings.wrong)
    proof.enter("judging", Layer.EXTENSION)
    stack.raise_complaints(complaints)
    if findings.wrong:
        raise Fault(Layer(findings.wrong[0]["layer"]), findings.reason())


def choose_devices(torch: ModuleType, wanted: str, proof: Proof) -> list[torch_types.device]:
    """The CPU, and every GPU unless only the CPU is asked for. Raises Fault."""
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
    findings: Findings,
    proof: Proof,
) -> None:
    """Check all that is there on one device. Raises what sticks to the process; the rest is in `findings`."""
    if device.type == "cuda":
        torch.cuda.set_device(device)  # where pyg_lib launches its kernels, wherever its input lies
    for name in (*there, *(("PyG",) if with_pyg else ())):
        proof.enter(f"checking {name} on {device}", Layer.PYG if name == "PyG" else Layer.EXTENSION)
        before, random = len(findings.wrong), torch.Generator().manual_seed(seed)
        with findings.noting(f"{name}.{'typing' if name == 'PyG' else 'operators'}", f"on {device}"):
            if name == "PyG":
                for extension in switched_off(importlib.import_module("torch_geometric.typing"), there):
                    raise Wrong(f"{extension} is installed and PyG has switched it off")
            elif device.type == "cpu":
                check_build(torch, name)
            check(torch, device, name, random, findings)
            if name == "PyG" and device.type == "cpu":
                lacking(proof)
                clusters(torch, findings, proof)
        for each in findings.wrong[before:]:
            proof.say(f"  {each['operator']} ({each['where']}): {each['what']}")
        proof.say(f"{name} on {device}: {'wrong' if len(findings.wrong) > before else 'all right'}")


def switched_off(typing: object, installed: Collection[str]) -> list[str]:
    """The installed extensions that PyG does not use."""
    return [name for name, switch in SWITCHES.items() if name in installed and not getattr(typing, switch, True)]


def check_build(torch: ModuleType, name: str) -> None:
    """An extension without code for GPUs beside a torch with it fails on the first GPU: say so without one."""
    cuda_version = getattr(getattr(torch.ops, NAMESPACES[name]), "cuda_version", None)
    if cuda_version is not None and torch.version.cuda is not None and cuda_version() == -1:
        raise Wrong(f"compiled without CUDA, beside a torch for CUDA {torch.version.cuda}")


def check(
    torch: ModuleType, device: torch_types.device, name: str, random: torch_types.Generator, findings: Findings
) -> None:
    """Check the operators of one extension. A wrong one is in `findings`, and does not hide the next."""
    for operator in OPERATORS[name](torch, device) if name in OPERATORS else ():
        for kind in operator.kinds:
            findings.checked.append(f"{operator.name}, {kind} on {device}")
            with findings.noting(operator.name, f"{kind} on {device}"):
                error = compare(torch, device, operator, kind, random)
                findings.largest[kind] = max(findings.largest.get(kind, 0.0), float(f"{error:.2g}"))
    for rows in (CHOICES, SAMPLES):
        for choice in rows[name](torch, random) if name in rows else ():
            if device.type == "cpu" or choice.cuda:
                findings.checked.append(f"{choice.name} on {device}")
                with findings.noting(choice.name, f"on {device}"):
                    choice.check(device)


def lacking(proof: Proof) -> None:
    """Note what PyG cannot do without a library that is not installed."""
    for library, what in LOST.items():
        wanted, is_there = wanted_by_pyg(library)
        if not is_there:
            proof.metrics.setdefault("without", []).append(f"{what} ({wanted})")
            proof.say(f"without {wanted}: PyG has no {what}")


def clusters(torch: ModuleType, findings: Findings, proof: Proof) -> None:
    """ClusterData and ClusterLoader on cliques in a ring: METIS has to find them. Raises Wrong.

    Without METIS that is noted, where nothing says that the image has it.
    """
    loader, data = importlib.import_module("torch_geometric.loader"), importlib.import_module("torch_geometric.data")
    count = CLIQUES * CLIQUE
    place = [number * STRIDE % count for number in range(count)]  # no clique's nodes stand together
    pairs = itertools.permutations(range(count), 2)
    edges = [(place[a], place[b]) for a, b in pairs if a // CLIQUE == b // CLIQUE or abs(a - b) in (1, count - 1)]
    nodes = sorted(range(count), key=place.__getitem__)
    graph = data.Data(
        x=torch.tensor([[node] for node in nodes]), edge_index=torch.tensor([*zip(*sorted(edges))]), num_nodes=count
    )
    try:
        parts = loader.ClusterData(graph, num_parts=CLIQUES, log=False)
    except (ImportError, RuntimeError) as error:
        if not NO_METIS.search(str(error)):
            raise
        if source := brings_metis():
            raise Wrong(f"ClusterData finds no METIS, which {source} should bring: {error}") from error
        proof.metrics.setdefault("without", []).append("METIS")
        proof.say("without METIS: ClusterData is not there")
        return
    findings.checked.append("PyG.ClusterData on cpu")
    found = sorted(sorted(batch.x.flatten().tolist()) for batch in loader.ClusterLoader(parts, batch_size=1))
    if sorted(itertools.chain(*found)) != [*range(count)]:
        raise Wrong(f"ClusterLoader gives {sum(map(len, found))} nodes, not each of {count} once")
    if found != [[*range(first, first + CLIQUE)] for first in range(0, count, CLIQUE)]:
        raise Wrong(f"METIS does not find {CLIQUES} cliques of {CLIQUE} nodes in a ring: {found}")


def brings_metis() -> str:
    """Name what of this image is to bring METIS: its files, version or PyG say so; empty where nothing does."""
    sparse = stack.installed("torch_sparse")
    if sparse and "+" in sparse:  # a wheel of PyG's site
        return f"torch_sparse {sparse}"
    if sparse and any(path.name == "LICENSE.METIS.txt" for path in metadata.files("torch_sparse") or ()):
        return f"torch_sparse {sparse}, which has the licence of METIS,"
    return "pyg_lib" if getattr(importlib.import_module("torch_geometric.typing"), "WITH_METIS", False) else ""


def main() -> int:
    """Returns 0 when all operators are right, 1 when not."""
    options = arguments()
    return prove("ops", lambda proof: run(options, proof), options.limit)


if __name__ == "__main__":
    exit_with(main())
