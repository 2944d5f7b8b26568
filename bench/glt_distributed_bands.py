"""Runs examples/glt/check.py over many seeds, and says where loss and accuracy land.

Run it in an image with GLT: `python bench/glt_distributed_bands.py --seeds 20`. Each seed is the whole suite: another
partition, another split, other weights. It goes on where an earlier call with the same `--kept` ended.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

CHECK = Path(__file__).resolve().parent.parent / "examples" / "glt" / "check.py"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kept", type=Path, default=Path("glt-distributed.jsonl"), help="a verdict a line")
    options = parser.parse_args()
    kept = options.kept.read_text().splitlines() if options.kept.is_file() else []
    verdicts = [json.loads(line) for line in kept]
    for seed in range(len(verdicts), options.seeds):
        command = [sys.executable, str(CHECK), "--device", options.device, "--seed", str(seed)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        line = done.stdout.splitlines()[-1]
        print(line, flush=True)
        with options.kept.open("a") as stream:
            stream.write(f"{line}\n")
        verdicts.append(json.loads(line))
    print(f"failed: {[each['reason'] for each in verdicts if each['status'] != 'passed']}")
    metrics = [each["metrics"] for each in verdicts if "test_accuracy" in each["metrics"]]
    accuracies = [each["test_accuracy"] for each in metrics]
    ratios = [each["last_loss"] / each["first_loss"] for each in metrics]
    seconds = [each["seconds"] for each in verdicts]
    print(verdicts[0]["versions"])
    print(
        f"{len(metrics)} seeds: test accuracy {min(accuracies):.3f} … {max(accuracies):.3f}, mean "
        f"{statistics.mean(accuracies):.3f}, deviation {statistics.pstdev(accuracies):.3f}; loss, last/first "
        f"{min(ratios):.2f} … {max(ratios):.2f}; edges {min(each['edges_compared'] for each in metrics)} … "
        f"{max(each['edges_compared'] for each in metrics)}; seconds {min(seconds):.0f} … {max(seconds):.0f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
