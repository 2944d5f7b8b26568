#!/usr/bin/env python3
"""Finds where DNAConv's accuracy lands over seeds, for the bands in examples/dna.py and the table in docs/smoke.md.

Needs torch and torch_geometric, so run it inside an image or in an environment that has both:

    python bench/smoke_bands.py --seeds 20                    # as the smoke test stops on a CPU
    python bench/smoke_bands.py --seeds 3 --mode full         # all 200 epochs, as on a GPU
    python bench/smoke_bands.py --seeds 3 --mode features     # no edges: what the words alone give, up to 60 epochs
    python bench/smoke_bands.py --table                       # writes the table of all records into docs/smoke.md

Each run is one line of the record file, and a seed that is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import dna  # noqa: E402  examples/ is no package
from proof import data, graphs, stack  # noqa: E402
from proof.verdict import Proof  # noqa: E402

PAGE = ROOT / "docs" / "smoke.md"
BEGIN, END = "<!-- bands: written by bench/smoke_bands.py -->\n", "<!-- end of bands -->\n"
#: mode → (epochs, stop when proven, use the edges, what the table says)
MODES = {
    "proven": (200, True, True, "until proven (as on a CPU)"),
    "full": (200, False, True, "200 epochs (as on a GPU)"),
    "features": (60, False, False, "60 epochs without edges"),
}
EVERY = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--mode", choices=MODES, default="proven")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--records", type=Path, default=Path("smoke_bands.jsonl"))
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    records = read(options.records)
    if options.table:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}{table(records)}{END}{rest.split(END)[1]}", encoding="utf-8")
        print(table(records), end="")
        return
    done = {(record["mode"], record["seed"]) for record in records}
    for seed in range(options.seeds):
        if (options.mode, seed) in done:
            continue
        record = measure(options.mode, seed, options.device)
        with options.records.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")
        print(json.dumps({key: value for key, value in record.items() if key != "points"}), flush=True)


def read(path: Path) -> list[dict]:
    """The records so far."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def measure(mode: str, seed: int, wanted: str) -> dict:
    """Train once; what the smoke test would have judged, with the whole curve."""
    epochs, stop, edges, _ = MODES[mode]
    proof = Proof("bands")
    torch = stack.load_torch(proof)
    stack.load_pyg(proof)
    device = stack.choose_device(torch, wanted, proof)
    graph = data.from_graph(graphs.generate())
    if not edges:
        graph = data.Tensors(graph.x, graph.edge_index[:, :0], graph.y, graph.classes)
    training = dna.Training(graph, device, seed)
    start = time.perf_counter()
    while training.epoch < epochs:
        training.step()
        if training.epoch % EVERY == 0 or training.epoch == epochs:
            training.evaluate()
            if stop and dna.is_proven(training.points, training.first_loss):
                break
    chosen = dna.best(training.points)
    return {
        "mode": mode,
        "seed": seed,
        "device": proof.device,
        "torch": torch.__version__,
        "pyg": proof.versions["pyg"],
        "epochs": training.epoch,
        "seconds": round(time.perf_counter() - start, 1),
        "test": chosen.test,
        "last_test": training.points[-1].test,
        "loss_ratio": training.loss / training.first_loss,
        "points": [point.as_list() for point in training.points],
    }


def table(records: list[dict]) -> str:
    """Markdown: one row per mode, device and version."""
    lines = [
        "| run | device, torch, PyG | seeds | epochs | test accuracy: least | mean | most | loss, last/first |\n",
        "|---|---|---|---|---|---|---|---|\n",
    ]
    groups: dict[tuple[str, str], list[dict]] = {}
    for record in records:
        groups.setdefault((record["mode"], f"{record['device']}, {record['torch']}, {record['pyg']}"), []).append(
            record
        )
    for (mode, where), group in sorted(groups.items(), key=lambda item: (list(MODES).index(item[0][0]), item[0][1])):
        tests, epochs = [record["test"] for record in group], [record["epochs"] for record in group]
        span = str(epochs[0]) if min(epochs) == max(epochs) else f"{min(epochs)} … {max(epochs)}"
        lines.append(
            f"| {MODES[mode][3]} | {where} | {len(group)} | {span} | {min(tests):.3f} | {statistics.mean(tests):.3f} "
            f"| {max(tests):.3f} | {max(record['loss_ratio'] for record in group):.2f} |\n"
        )
    return "".join(lines)


if __name__ == "__main__":
    main()
