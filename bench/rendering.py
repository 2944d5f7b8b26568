"""How long rendering every text of every variant takes, with the start of Python. Run it with the project's Python."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = 5


def main() -> None:
    """Print the least, the median and the most of some runs, in seconds."""
    seconds = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            command = [sys.executable, "-E", "-s", str(ROOT / "build.py"), "render", "--output", folder]
            written = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
            seconds.append(time.monotonic() - start)
    least, most = min(seconds), max(seconds)
    print(f"{len(written)} variants: {least:.2f} s, median {statistics.median(seconds):.2f} s, most {most:.2f} s")


if __name__ == "__main__":
    main()
