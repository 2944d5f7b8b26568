"""Submitting to Slurm, with a stand-in for sbatch that runs each task of the batch script at once."""

import json
import os
import sys

import pytest

from graphcrate.engines.slurm import node
from graphcrate.engines.slurm.cluster import Slurm
from graphcrate.engines.slurm.scheduler import SlurmScheduler, submit_environment
from graphcrate.model.errors import HostError
from graphcrate.model.report import Artifact
from graphcrate.model.trial import Order, Resources, Returned

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
#: the node's program, which says what it was given
NODE = """
import json, os, sys
from pathlib import Path
print("line")
print("rest", end="")
told = [json.loads(Path(sys.argv[1]).read_text())["folder"], os.environ["PYTHONPATH"], os.environ.get("RANK"),
    os.environ["OWN"]]
Path(sys.argv[2]).write_text(json.dumps({"error": repr(told)}))
"""


def order(number):
    artifact = Artifact(engine="apptainer", kind="sif", reference="/a.sif", digest="sha256:1", bytes=1)
    return Order(artifact=artifact, suites=("torch",), device="cpu", folder=f"/{number}", passes="/passes")


@pytest.fixture
def scheduler(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text(SBATCH.format(python=sys.executable))
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    program = tmp_path / "the root" / f"{node.__name__.replace('.', '/')}.py"
    program.parent.mkdir(parents=True)
    program.write_text(NODE)
    for folder in list(program.parents)[:3]:
        (folder / "__init__.py").touch()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    environment = {"PATH": os.environ["PATH"], "OWN": "1", "RANK": "3", "PYTHONPATH": "/module"}
    slurm = Slurm(version="22.05.8", environment=environment)
    return SlurmScheduler(slurm, tmp_path / "100 % jobs", tmp_path / "the root", environment)


@pytest.mark.parametrize(("count", "ids"), [(1, ["12"]), (3, ["12_0", "12_1", "12_2"])])
def test_each_order_is_a_job_with_a_result_and_a_log_of_its_own(scheduler, tmp_path, count, ids):
    assert scheduler.submit([order(number) for number in range(count)], Resources(partition="a100")) == ids
    for number, job in enumerate(ids):
        assert scheduler.returned(job) == Returned(error=repr([f"/{number}", str(tmp_path / "the root"), None, "1"]))
        assert scheduler.heard(job) == ["line"]
        assert scheduler.heard(job) == []
        assert scheduler.log(job).read_text() == "line\nrest"
        scheduler.forget(job)
        assert scheduler.returned(job) is None
        assert scheduler.log(job).exists()


def test_what_sbatch_refuses_leaves_nothing(scheduler, tmp_path):
    with pytest.raises(HostError, match="Slurm refuses the job: Batch job submission failed: No"):
        scheduler.submit([order(1), order(2)], Resources(partition="none"))
    assert list((tmp_path / "100 % jobs").iterdir()) == []


def test_a_result_of_another_version_is_an_error_with_its_log(scheduler, tmp_path):
    (tmp_path / "100 % jobs").mkdir()
    (tmp_path / "100 % jobs" / "12.json").write_text('{"suites": 1}')
    with pytest.raises(HostError, match="the result of job 12 cannot be read") as error:
        scheduler.returned("12")
    assert str(scheduler.log("12")) in error.value.next_step


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
