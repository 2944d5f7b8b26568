"""Runs a smoke suite over many seeds and prints where its figures land: what the bands in docs/smoke.md rest on.

    .venv/bin/python -m bench.smoke_bands dna --seeds 20 --python /path/to/python      where torch and PyG are
    .venv/bin/python -m bench.smoke_bands glt --seeds 20 --image glt:<tag>             in an image
    .venv/bin/python -m bench.smoke_bands ddp --seeds 3 --arguments='--ranks 3'        with other arguments

Each seed is the whole program, with other weights, splits and batches, as its suite starts it. Its verdict is a line of
the record file, and a seed that is there already is not run again.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphcrate import smoke

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Returns 1 when a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=smoke.SUITES)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--python", default=sys.executable, help="of the environment that has torch")
    parser.add_argument("--image", help="NAME:TAG below dist/, in place of an environment")
    parser.add_argument("--records", type=Path, help="default: SUITE_bands.jsonl")
    parser.add_argument("--arguments", help="of the program, in place of the suite's")
    given = parser.parse_args()
    records = given.records or Path(f"{given.suite}_bands.jsonl")
    kept = records.read_text(encoding="utf-8").splitlines() if records.is_file() else []
    verdicts = [json.loads(line) for line in kept]
    for seed in range(len(verdicts), given.seeds):
        done = subprocess.run(command(given, seed), stdout=subprocess.PIPE, encoding="utf-8", check=False, cwd=ROOT)
        line = done.stdout.splitlines()[-1]
        print(line, flush=True)
        verdicts.append(json.loads(line))
        with records.open("a", encoding="utf-8") as stream:
            stream.write(f"{line}\n")
    print("\n".join(table(verdicts)))
    return int(any(verdict["status"] != "passed" for verdict in verdicts))


def command(given: argparse.Namespace, seed: int) -> list[str]:
    """What runs the suite's program with this seed."""
    suite = smoke.SUITES[given.suite]
    own = suite.cuda if given.device == "cuda" else suite.cpu
    words = [
        *(own if given.arguments is None else shlex.split(given.arguments)),
        "--device",
        given.device,
        "--seed",
        str(seed),
    ]
    if given.image:
        inside = ["python", f"{smoke.EXAMPLES}/{suite.program}", *words]
        return [sys.executable, "-E", "-s", str(ROOT / "build.py"), "run", given.image, "--", *inside]
    return [given.python, str(ROOT / "examples" / suite.program), *words]


def table(verdicts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Markdown: the least, the mean, the most and the deviation of each figure of the runs that passed."""
    passed = [verdict for verdict in verdicts if verdict["status"] == "passed"]
    yield f"{len(passed)} of {len(verdicts)} seeds passed"
    yield from (f"{verdict['device']}: {verdict['reason']}" for verdict in verdicts if verdict not in passed)
    if not passed:
        return
    yield f"{passed[-1]['device']}, {', '.join(f'{name} {value}' for name, value in passed[-1]['versions'].items())}\n"
    yield "| figure | seeds | least | mean | most | deviation |"
    yield "|---|---|---|---|---|---|"
    columns: dict[str, list[float]] = {}
    for verdict in passed:
        for name, value in figures(verdict["metrics"]):
            columns.setdefault(name, []).append(value)
    for name, values in columns.items():
        cells = (min(values), statistics.mean(values), max(values), statistics.pstdev(values))
        yield f"| {name} | {len(values)} | {' | '.join(f'{cell:.4g}' for cell in cells)} |"


def figures(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers among a verdict's metrics, those of groups as `group.name`; and the last loss by the first."""
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from figures(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", value
    if metrics.get("first_loss") and "last_loss" in metrics:
        yield f"{prefix}last/first loss", metrics["last_loss"] / metrics["first_loss"]


if __name__ == "__main__":
    sys.exit(main())
