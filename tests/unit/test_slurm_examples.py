"""The jobs of examples/slurm are what `job` prints for the commands that the tutorials say they were written by."""

import re
import shlex

import pytest

from graphcrate.cli import main

#: the tutorial, and the job that it submits
WRITTEN = [
    ("dna.md", "dna.sbatch"),
    ("dgx2.md", "dgx2_torch.sbatch"),
    ("multi-node.md", "multi_node_singularity.sbatch"),
    ("multi-node.md", "multi_node_pyxis.sbatch"),
]


@pytest.mark.parametrize(("page", "name"), WRITTEN)
def test_a_job_is_what_its_tutorial_says(page, name, project, tmp_path, monkeypatch, capsys):
    text = (project / "docs" / "tutorials" / page).read_text(encoding="utf-8")
    assert f"sbatch examples/slurm/{name}\n" in text
    runtime = "pyxis" if "pyxis" in name else "singularity"
    (command,) = re.findall(rf"^\./build\.py (job .*--runtime {runtime} .*) > \S+$", text, re.MULTILINE)
    image = shlex.split(command)[1]
    monkeypatch.chdir(tmp_path)
    (tmp_path / image).touch()
    monkeypatch.setattr("sys.argv", ["build.py", *shlex.split(command)])
    main.app(standalone_mode=False)
    assert capsys.readouterr().out == (project / "examples" / "slurm" / name).read_text(encoding="utf-8")
