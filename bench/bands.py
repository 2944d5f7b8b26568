#!/usr/bin/env python3
"""Runs a suite over many seeds and says where its figures land, for the bands in suites/ and docs/dev/suites.md.

Needs what the suite needs, so run it inside an image or in an environment that has it:

    python bench/bands.py dna.py --seeds 20 -- --until-proven --every 3
    python bench/bands.py glt_distributed.py --seeds 5
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SUITES = Path(__file__).resolve().parent.parent / "suites"


def main() -> int:
    """Return 1 when a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=sorted(path.name for path in SUITES.glob("*.py")))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("more", nargs="*", metavar="-- OPTION", help="options of the suite")
    options = parser.parse_args()
    runs: dict[str, list[float]] = {}
    failed = 0
    for seed in range(options.seeds):
        command = [sys.executable, SUITES / options.suite, "--seed", str(seed), *options.more]
        done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=False)
        verdict = json.loads(done.stdout.splitlines()[-1])
        print(f"seed {seed}: {verdict['status']} {verdict['reason']}", flush=True)
        failed += verdict["status"] != "passed"
        for name, value in figures(verdict["metrics"]):
            runs.setdefault(name, []).append(value)
    for name, values in runs.items():
        print(
            f"{name}, {len(values)} seeds: {min(values):.3g} … {max(values):.3g}, mean {statistics.mean(values):.3g}, "
            f"deviation {statistics.pstdev(values):.2g}"
        )
    return 1 if failed else 0


def figures(metrics: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a verdict, by name."""
    for name, value in metrics.items():
        if isinstance(value, dict):
            yield from figures(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + name, float(value)


if __name__ == "__main__":
    sys.exit(main())
