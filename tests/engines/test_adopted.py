"""A Dockerfile, a definition and a script as recipes: each is adopted, built and run, the first one tested too."""

from pathlib import Path

import pytest

from tests.engines.workplace import Workplace, call, small_stack

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("uv", "user namespaces", "apptainer")]

BASE = "pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime"
TRAIN = """\
import os, sys
import tabulate, torch
print("trained", os.getcwd(), sys.argv[1:], torch.ones(2).sum().item())
"""
FILES = {
    "Dockerfile": f"""\
FROM {BASE}
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y --no-install-recommends tree && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/gnn
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY mypkg ./mypkg
CMD ["python", "-m", "mypkg.train", "--epochs", "1"]
""",
    "gnn.def": f"""\
Bootstrap: docker
From: {BASE}

%files
    requirements.txt /opt/requirements.txt
    mypkg /opt/gnn/mypkg

%post
    apt-get -y update && apt-get -y install tree
    pip install -r /opt/requirements.txt

%runscript
    cd /opt/gnn
    exec python -m mypkg.train --epochs 1
""",
    "install.sh": """\
#!/bin/bash
set -e
CUDA=cu117
conda create -y -n gnn python=3.11 && conda activate gnn
pip install torch==2.0.1 --index-url https://download.pytorch.org/whl/${CUDA}
pip install -r requirements.txt
""",
}


@pytest.fixture(scope="module")
def project(workplace, built_image, tmp_path_factory):
    """A person's folder; the program is that of the checkout, run by its path."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "mypkg").mkdir()
    (folder / "mypkg/__init__.py").touch()
    (folder / "mypkg/train.py").write_text(TRAIN)
    (folder / "requirements.txt").write_text("tabulate\n")
    program = tuple(word for word in workplace.program if word not in ("-E", "-s"))
    return Workplace(folder, workplace.cache, {"PYTHONPATH": str(workplace.folder)}, program=program)


@pytest.mark.parametrize("name", FILES)
def test_adopted_file_is_built_and_runs_its_command(project, name):
    (project.folder / name).write_text(FILES[name])
    recipe = f"{name.partition('.')[0].lower()}.toml"
    adopted = project.run("adopt", name, "--output", recipe).ok()
    assert ", 0 left to you\nstack: torch, CUDA 11.7" in adopted.err
    untested = () if name == "Dockerfile" else ("--no-smoke",)  # what is run below imports all of it
    built = project.run("image", f"./{recipe}", *small_stack()[1:], *untested).ok()
    image, _, digest = built.out.strip().partition("@")
    assert digest.startswith("sha256:")
    if name == "install.sh":  # which has no command
        assert project.run("run", image, "python", "mypkg/train.py", "2").ok().out.endswith(" ['2'] 2.0\n")
        return
    if not untested:
        assert "importing tabulate of tabulate" in "".join(
            path.read_text() for path in project.folder.glob(f"dist/{image.replace(':', '/')}/smoke-imports.log")
        )
    said = "trained /opt/gnn ['--epochs', '1'] 2.0\n"
    assert project.run("run", image).ok().out == said
    if name == "gnn.def":
        made = project.run("convert", image, "--to", "sif", "--compression", "zstd", "--json").json
        sif = Path(project.folder, made["path"])
        assert call("apptainer", "--silent", "run", sif, folder=project.folder) == said
        asked = call("apptainer", "--silent", "run", sif, "pwd", folder=project.folder)
        assert asked == f"{project.folder}\n"  # what a user starts begins where the user is
