"""Runs an example of others on generated data, to its end; for the tests beside it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE / "examples"
FIRST = "import generated; generated.install()\n"  #: line of an example that runs
FEW = 2  #: processes that read data, where an example wants 12 or 16


def run_example(name: str, *arguments: str, epochs: int = 0, seconds: float = 280.0) -> str:
    """Run examples/NAME until it ends with 0; returns what it printed. `epochs`: where it has no option for it."""
    path = EXAMPLES / name
    if not path.is_file():
        pytest.skip(f"{name} is not in this version")
    path.write_text(changed(path.read_text(encoding="utf-8"), epochs), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, path.name, *arguments],
        cwd=path.parent,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    told = done.stdout + done.stderr
    if done.returncode:
        pytest.fail(f"{name} ended with {done.returncode}: {last_line(done.stderr)}\n{told[-3000:]}", pytrace=False)
    return told


def last_line(text: str) -> str:
    """Return a program's last line: of a traceback, the error."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "without a word")


def has_gpu() -> bool:
    """Return whether torch sees a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def changed(text: str, epochs: int) -> str:
    """The source of an example that takes generated data, few processes and, if they are given, so many epochs.

    One that is changed already stays as it is: an example runs with several arguments, and again where it fails.
    Where there is no GPU, the CPU takes the place of the first.
    """
    if not has_gpu():
        text = text.replace("device = torch.device(0)", 'device = torch.device("cpu")')
    text = re.sub(r"\bnum_workers=(\d+)", lambda found: f"num_workers={min(int(found[1]), FEW)}", text)
    if epochs:
        text, number = re.subn(r"(for epoch in (?:tqdm\()?range\(1, )\d+(?=\))", rf"\g<1>{epochs + 1}", text)
        assert number, "its loop over epochs is written in another way"
    return text if text.startswith(FIRST) else f"{FIRST}{text}"
