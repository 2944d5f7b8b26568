"""Submitting to Slurm, with a stand-in for sbatch that runs each task of the batch script at once."""

import json
import os
import sys

import pytest

from graphcrate.engines.slurm import node
from graphcrate.engines.slurm.submit import NODE_PROGRAM, Scheduler, Slurm, submit_environment
from graphcrate.model.errors import HostError
from graphcrate.model.report import Artifact
from graphcrate.model.trial import Order, Resources

SBATCH = """#!{python} -sP
import os, re, subprocess, sys
from pathlib import Path
options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
script, tasks = sys.stdin.read(), range(int(options["array"].partition("-")[2]) + 1) if "array" in options else [None]
assert script.startswith("#!/bin/sh")
for task in tasks:
    array = {{"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": str(task)}} if task is not None else {{}}
    log = options["output"].replace("%A", "12").replace("%a", str(task)).replace("%j", "12").replace("%%", "%")
    with open(log, "w") as stream:
        subprocess.run(["sh", "-c", script], env={{**os.environ, **array, "SLURM_JOB_ID": "12"}}, stdout=stream,
                       stderr=stream)
print("12;cluster")
"""
WORK = """
import json, os, sys
from pathlib import Path
print("line")
print("rest", end="")
order = json.loads(Path(sys.argv[1]).read_text())
environment = [os.environ.get(name) for name in ("PYTHONPATH", "RANK", "OWN")]
Path(sys.argv[2]).write_text(json.dumps({"error": json.dumps([order["folder"], *environment])}))
"""


@pytest.fixture
def scheduler(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text(SBATCH.format(python=sys.executable))
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    root = tmp_path / "the root"
    root.mkdir()
    (root / "work.py").write_text(WORK)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    environment = {"PATH": os.environ["PATH"], "OWN": "1", "RANK": "3", "PYTHONPATH": "/module"}
    slurm = Slurm(version="22.05.8", environment=environment)
    return Scheduler(slurm, tmp_path / "100 % jobs", root, environment, "work")


@pytest.mark.parametrize("ids", [["12"], ["12_0", "12_1", "12_2"]])
def test_each_order_is_a_job_with_a_result_and_a_log_of_its_own(scheduler, tmp_path, ids):
    artifact = Artifact(engine="apptainer", kind="sif", reference="/a.sif", digest="sha256:1", bytes=1)
    one = {"artifact": artifact, "suites": ("torch",), "device": "cpu", "passes": "/p"}
    orders = [Order(**one, folder=f"/{number}") for number in range(len(ids))]
    assert scheduler.submit(orders, Resources(partition="a100")) == ids
    for number, job in enumerate(ids):
        assert json.loads(scheduler.result(job).error) == [f"/{number}", str(tmp_path / "the root"), None, "1"]
        assert scheduler.new_lines(job) == ["line"]
        assert scheduler.new_lines(job) == []
        assert scheduler.log(job).read_text() == "line\nrest"
        scheduler.log(job).with_suffix(".json").write_text("{half")
        with pytest.raises(HostError, match=f"invalid result of job {job}"):
            scheduler.result(job)
        scheduler.remove_result(job)
        assert scheduler.result(job) is None
        assert scheduler.log(job).exists()


def test_a_job_inherits_no_job_around_it_and_the_choices_of_the_site():
    site = {"PATH": "/bin", "SLURM_CONF": "/c", "SBATCH_ACCOUNT": "gnn", "SLURM_CLUSTERS": "a"}
    around = {"SLURM_JOB_ID": "1", "SBATCH_TIMELIMIT": "1", "SLURMD_NODENAME": "n1", "RANK": "0", "MASTER_ADDR": "n1"}
    assert submit_environment(site | around) == site


def test_a_node_says_why_it_broke_off(tmp_path):
    """Here by an order that it cannot read."""
    assert node.__name__ == NODE_PROGRAM
    (tmp_path / "order.json").write_text("{half")
    node.main(tmp_path / "order.json", tmp_path / "12.json")
    assert "broke off: DecodeError" in json.loads((tmp_path / "12.json").read_text())["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["12.json"]
