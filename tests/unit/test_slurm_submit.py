"""What jobs of Slurm leave and inherit; that they are submitted and run is in test_slurm.py."""

import json

import pytest

from graphcrate.engines.slurm import node
from graphcrate.engines.slurm.submit import NODE_PROGRAM, Scheduler, Slurm, submit_environment
from graphcrate.model.errors import HostError


def test_the_log_and_the_result_of_a_job(tmp_path):
    scheduler = Scheduler(Slurm(version="22.05.8", environment={}), tmp_path, tmp_path, {})
    scheduler.log("12_0").write_text("line\nrest")
    assert scheduler.new_lines("12_0") == ["line"]
    assert scheduler.new_lines("12_0") == []
    assert scheduler.result("12_0") is None
    scheduler.log("12_0").with_suffix(".json").write_text("{half")
    with pytest.raises(HostError, match="invalid result of job 12_0"):
        scheduler.result("12_0")
    scheduler.remove_result("12_0")
    assert scheduler.result("12_0") is None
    assert scheduler.log("12_0").exists()


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
