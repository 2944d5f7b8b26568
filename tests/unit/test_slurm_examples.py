"""The jobs of examples/slurm are what `job` prints for the commands that the tutorials say they were written by."""

import re
import shlex

import pytest

from graphcrate import cli

#: the tutorial, and the job that it submits
WRITTEN = {"dna.md": "dna.sbatch", "dgx2.md": "dgx2_torch.sbatch"}


@pytest.mark.parametrize(("page", "name"), WRITTEN.items())
def test_a_job_is_what_its_tutorial_says(page, name, project, tmp_path, monkeypatch, capsys):
    text = (project / "docs" / "tutorials" / page).read_text(encoding="utf-8")
    assert f"sbatch examples/slurm/{name}\n" in text
    (command,) = re.findall(r"^\./build\.py (job .*) > \S+$", text, re.MULTILINE)
    image = shlex.split(command)[1]
    monkeypatch.chdir(tmp_path)
    (tmp_path / image).touch()
    monkeypatch.setattr("sys.argv", ["build.py", *shlex.split(command)])
    cli.app(standalone_mode=False)
    printed = capsys.readouterr().out.replace(f"image={tmp_path / image}\n", f"image={image}\n")
    assert printed == (project / "examples" / "slurm" / name).read_text(encoding="utf-8")
