"""Trains as examples/glt_check.py does over many seeds, and says where loss and accuracy land.

Run it in an image with GLT: `python bench/glt_bands.py --seeds 20`. The two processes sample themselves here, instead
of having each a process for it, which would be started anew for each seed; the batches are the same.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import glt_check  # noqa: E402  examples/ is no package
from proof import glt, machine, parts, sage  # noqa: E402
from proof.verdict import Proof, prove  # noqa: E402


class Quick(glt.Rank):
    """Samples the training's batches in its own process."""

    def training_loader(self) -> Any:  # noqa: ANN401
        options = self.world.glt.distributed.CollocatedDistSamplingWorkerOptions(
            master_addr=machine.LOOPBACK, master_port=self.meeting.ports[0]
        )
        return self.world.glt.distributed.DistNeighborLoader(
            self.dataset,
            list(glt.FAN_OUTS),
            self.world.torch.tensor(self.train),
            batch_size=glt.TRAINING_BATCH,
            shuffle=True,
            drop_last=True,
            with_edge=True,
            collect_features=True,
            to_device=self.world.device,
            worker_options=options,
        )


def without_edges(width: int, classes: int) -> Any:  # noqa: ANN401
    """The same network deaf to its neighbours."""
    model = MODEL(width, classes)
    whole = model.forward
    model.forward = lambda x, edge_index: whole(x, edge_index[:, :0])
    return model


MODEL = sage.network


def take_part(options: argparse.Namespace) -> int:
    parts.die_with_parent()
    glt.prepare()
    if options.deaf:
        sage.network = without_edges

    def rank(proof: Proof) -> None:
        world = glt.enter_world(options.device, proof, int(options.part))
        member = Quick(world, glt.Meeting(int(options.part), options.ports, options.folder), 0, proof)
        runs = []
        for seed in range(options.seeds):
            member.begin(seed)
            runs.append(sage.train(member))
        proof.metrics["runs"] = runs
        world.torch.distributed.barrier()

    return prove("glt", rank, None, parts.Part)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--deaf", action="store_true", help="without edges: what the words alone give")
    parser.add_argument("--part")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--ports", type=int, nargs=2)
    options = parser.parse_args()
    if options.part:
        return take_part(options)
    proof = Proof("glt")
    with tempfile.TemporaryDirectory() as folder, machine.free_ports(2) as ports:
        first = glt_check.arguments(["--device", options.device])
        alone = parts.run(
            {"alone": glt_check.command(first, "alone", Path(folder), options.device, ports)}, proof, None
        )
        told = ["--seeds", str(options.seeds), "--folder", folder, "--device", options.device, "--ports"]
        told += [*map(str, ports), *(["--deaf"] if options.deaf else [])]
        commands = {str(n): parts.program(__file__, "--part", str(n), *told) for n in range(glt.PARTS)}
        both = parts.run(commands, proof, None)
    runs = list(zip(*(both[str(n)]["metrics"]["runs"] for n in range(glt.PARTS)), strict=True))
    accuracies = [sage.accuracy_of(figures) for figures in runs]
    ratios = [max(each["last_loss"] / each["first_loss"] for each in figures) for figures in runs]
    print(alone["alone"]["versions"])
    print(
        f"{len(runs)} seeds: test accuracy {min(accuracies):.3f} … {max(accuracies):.3f}, mean "
        f"{statistics.mean(accuracies):.3f}, deviation {statistics.pstdev(accuracies):.3f}; loss, last/first "
        f"{min(ratios):.2f} … {max(ratios):.2f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
