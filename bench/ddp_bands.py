"""Trains as examples/multi_node.py does over many seeds, and says where loss and accuracy land.

Run it where torch and PyG are: `python bench/ddp_bands.py --seeds 20 --ranks 2`. `--deaf` leaves the edges out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import multi_node  # noqa: E402  examples/ is no package
from proof import data, gcn, group, machine, parts, ranks, stack  # noqa: E402
from proof.verdict import Proof, prove  # noqa: E402
from proof.watch import watching  # noqa: E402

MODEL = gcn.network


def without_edges(graph: Any, options: Any) -> Any:  # noqa: ANN401
    """The same network deaf to its neighbours."""
    model = MODEL(graph, options)
    whole = model.forward
    model.forward = lambda x, edge_index: whole(x, edge_index[:, :0])
    return model


def take_part(options: argparse.Namespace) -> int:
    parts.die_with_parent()
    if options.deaf:
        gcn.network = without_edges

    def body(proof: Proof) -> None:
        place = ranks.on_node(1, 0, options.ranks, options.part, ranks.LOOPBACK, options.port)
        with watching(place, proof) as watch:
            torch = stack.load_torch(proof)
            stack.load_pyg(proof)
            device = stack.choose_device(torch, options.device, proof)
            group.join(torch, watch, "gloo", device, 300)
            graph = data.load("generated", Path())
            runs = []
            for seed in range(options.seeds):
                told = multi_node.arguments(["--seed", str(seed), "--sampler", options.sampler])
                training = gcn.Training(watch, graph, device, told)
                clock = gcn.Stopwatch(lambda: None, told.epochs * training.steps)
                for _ in range(told.epochs):
                    training.epoch(clock)
                figures = [training.accuracy("validation"), training.accuracy("test")]
                runs.append([*figures, training.losses[-1] / training.losses[0]])
                proof.say(f"seed {seed}: validation {figures[0]:.4f}, test {figures[1]:.4f}, loss {runs[-1][2]:.2f}")
                training.check(proof)
            proof.metrics["runs"] = runs
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()

    return prove("ddp", body, None, multi_node.kind_of(ranks.Place(options.part, options.ranks), options.part))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--sampler", default="auto")
    parser.add_argument("--deaf", action="store_true", help="without edges: what the words alone give")
    parser.add_argument("--part", type=int)
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    if options.part is not None:
        return take_part(options)
    proof = Proof("ddp")
    with machine.free_ports(1) as (port,):
        commands = {
            f"rank {rank}": parts.program(__file__, *sys.argv[1:], "--port", str(port), "--part", str(rank))
            for rank in range(options.ranks)
        }
        told = parts.run(commands, proof, None)["rank 0"]
    for name, values in zip(("validation", "test", "loss"), zip(*told["metrics"]["runs"], strict=True), strict=True):
        print(
            f"{name}, {len(values)} seeds, {options.ranks} ranks: {min(values):.3f} … {max(values):.3f}, "
            f"mean {statistics.mean(values):.3f}, deviation {statistics.pstdev(values):.3f}"
        )
    print(json.dumps(told["versions"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
