"""The jobs that `job` prints, before shellcheck."""

from pathlib import Path

import pytest

from tests.lint.linters import shellcheck

JOBS = Path(__file__).resolve().parent.parent / "unit" / "jobs"
SCRIPTS = sorted([*JOBS.glob("*.sbatch"), *JOBS.glob("*.sh")])


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing_in_jobs(path):
    text = path.read_text()
    assert shellcheck(text, "bash" if text.startswith("#!/bin/bash\n") else "sh") == ""


def test_there_are_jobs_to_look_at():
    assert {path.suffix for path in SCRIPTS} == {".sbatch", ".sh"}
