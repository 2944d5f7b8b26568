#!/usr/bin/env python3
"""The matrix of .github/workflows/images.yml: `./build.py list --json` in, one line of JSON out.

    ./build.py list --json | .ci/matrix.py [RECIPE [CUDA]]

One job for each candidate, so that a fall-back is built too where the preferred one is available. Candidates that take
torch from a person's own folder are left out. Python 3.9 is enough. Ends with 2 where nothing is left.
"""

import json
import sys
from typing import Any


def main(variants: list[dict[str, Any]], recipe: str = "", cuda: str = "") -> int:
    """Prints the matrix of these variants, narrowed to a recipe and a CUDA version; returns the exit code."""
    chosen = [job for job in jobs(variants) if recipe in ("", job["recipe"]) and cuda in ("", job["cuda"])]
    if not chosen:
        sys.stderr.write(f"matrix: no image for recipe {recipe or 'any'}, CUDA {cuda or 'any'}; see ./build.py list\n")
        return 2
    sys.stdout.write(json.dumps({"include": chosen}) + "\n")
    return 0


def jobs(variants: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return a job of the workflow for each candidate that `list --json` describes.

    The short tag (cu116) is the preferred candidate's, also where the only one is a fall-back by its name.
    """
    built = [variant for variant in variants if variant["channels"][0] != "local"]
    preferred = {(variant["recipe"], variant["cuda"]): variant["candidate"] for variant in reversed(built)}
    return [
        {
            "recipe": variant["recipe"],
            "cuda": variant["cuda"],
            "candidate": variant["candidate"],
            "channel": variant["channels"][0],
            "tag": (
                label(variant["cuda"])
                if preferred[variant["recipe"], variant["cuda"]] == variant["candidate"]
                else variant["tag"]
            ),
            "lock": f"images/{variant['recipe']}/{label(variant['cuda'])}/{variant['candidate']}.lock.json",
        }
        for variant in built
    ]


def label(cuda: str) -> str:
    """The folder's name below images/NAME: cu118, cpu."""
    return cuda if cuda == "cpu" else "cu" + cuda.replace(".", "")


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin), *sys.argv[1:]))
