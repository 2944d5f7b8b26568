"""Linters and type checker, as `make lint` calls them."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "arguments",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]],
    ids=["ruff", "format", "mypy"],
)
def test_clean(project, arguments):
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=project, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
