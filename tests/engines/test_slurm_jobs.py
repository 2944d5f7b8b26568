"""Submitting to Slurm, with a stand-in for sbatch that runs each task of the batch script at once."""

import json
import os
import sys

import pytest

from graphcrate.engines.slurm import node
from graphcrate.engines.slurm.submit import Jobs, submit_environment
from graphcrate.model.errors import HostError

SBATCH = """#!{python} -sP
import os, re, subprocess, sys
from pathlib import Path
options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
if options.get("partition") == "none":
    sys.exit("sbatch: error: invalid partition specified: none\\nsbatch: error: Batch job submission failed: No")
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
Path(sys.argv[2]).write_text(json.dumps({"order": json.loads(Path(sys.argv[1]).read_text()),
    "PYTHONPATH": os.environ["PYTHONPATH"], "here": os.environ.get("RANK"), "own": os.environ["OWN"]}))
"""


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text(SBATCH.format(python=sys.executable))
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    root = tmp_path / "the root"
    root.mkdir()
    (root / "work.py").write_text(WORK)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    environment = {"PATH": os.environ["PATH"], "OWN": "1", "RANK": "3", "PYTHONPATH": "/module"}
    return Jobs(tmp_path / "100 % jobs", root, environment)


@pytest.mark.parametrize(("count", "ids"), [(1, ["12"]), (3, ["12_0", "12_1", "12_2"])])
def test_each_order_is_a_job_with_a_result_and_a_log_of_its_own(jobs, tmp_path, count, ids):
    orders = [json.dumps(number).encode() for number in range(count)]
    assert jobs.submit("work", orders, {"partition": "a100", "no-requeue": True}) == ids
    for number, job in enumerate(ids):
        told = json.loads(jobs.result(job))
        assert told == {"order": number, "PYTHONPATH": str(tmp_path / "the root"), "here": None, "own": "1"}
        assert jobs.new_lines(job) == ["line"]
        assert jobs.new_lines(job) == []
        assert jobs.log(job).read_text() == "line\nrest"
        jobs.remove_result(job)
        assert jobs.result(job) is None
        assert jobs.log(job).exists()


def test_what_sbatch_refuses_leaves_nothing(jobs, tmp_path):
    with pytest.raises(HostError, match="Slurm refuses the job: Batch job submission failed: No"):
        jobs.submit("work", [b"1", b"2"], {"partition": "none"})
    assert list((tmp_path / "100 % jobs").iterdir()) == []


def test_a_job_inherits_no_job_around_it_and_the_choices_of_the_site():
    site = {"PATH": "/bin", "SLURM_CONF": "/c", "SBATCH_ACCOUNT": "gnn", "SLURM_CLUSTERS": "a"}
    around = {"SLURM_JOB_ID": "1", "SBATCH_TIMELIMIT": "1", "SLURMD_NODENAME": "n1", "RANK": "0", "MASTER_ADDR": "n1"}
    assert submit_environment(site | around) == site


def test_a_node_says_why_it_broke_off(tmp_path):
    """Whatever is wrong with it: here an order that it cannot read."""
    (tmp_path / "order.json").write_text("{half")
    node.main(tmp_path / "order.json", tmp_path / "12.json")
    assert "broke off: DecodeError" in json.loads((tmp_path / "12.json").read_text())["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["12.json"]
