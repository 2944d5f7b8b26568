#!/usr/bin/env python3
"""Runs what examples/torch_check.py trains and multiplies over seeds, and writes where that lands into docs/smoke.md.

Needs torch alone: `python bench/torch_bands.py --seeds 24 --table`. On a GPU: `--device cuda`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import torch_check  # noqa: E402  examples/ is no package
from proof import stack  # noqa: E402
from proof.verdict import Proof  # noqa: E402

PAGE = ROOT / "docs" / "smoke.md"
BEGIN, END = "<!-- torch: written by bench/torch_bands.py -->\n", "<!-- end of torch -->\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--table", action="store_true", help="write the row into docs/smoke.md")
    options = parser.parse_args()
    proof = Proof("bands")
    torch = stack.load_torch(proof)
    device = stack.choose_device(torch, options.device, proof)
    ratios, errors = [], []
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        proof.metrics.clear()
        torch_check.multiply(torch, device, proof)
        first, last = torch_check.learn(torch, device, proof)
        ratios.append(last / first)
        errors.append(proof.metrics["product_error"])
    told = row(f"{proof.device}, {torch.__version__}", ratios, errors)
    print(told, end="")
    if options.table:
        write(told)


def row(where: str, ratios: list[float], errors: list[float]) -> str:
    """One line of the table."""
    return (
        f"| {where} | {len(ratios)} | {min(ratios):.3f} | {statistics.mean(ratios):.3f} | {max(ratios):.3f} "
        f"| {max(errors):.1e} |\n"
    )


def write(told: str) -> None:
    """Put the row into the page, in the place of an older one of the same device and version."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    head, rule, *rows = rest.split(END)[0].splitlines(keepends=True)
    where = told.split("|")[1]
    kept = [line for line in rows if line.split("|")[1] != where]
    table = "".join([head, rule, *sorted([*kept, told])])
    PAGE.write_text(f"{before}{BEGIN}{table}{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
