"""Slurm: what its commands print, where it is, which partitions it has."""

import json
import os
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.engines import slurm, slurm_node
from graphcrate.engines.slurm import NODE_PROGRAM, JobView, Scheduler, Slurm, submit_environment
from graphcrate.host.context import Context
from graphcrate.model.errors import HostError, UsageError
from graphcrate.model.trial import Order, Resources, Returned
from tests.made import refused


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (
            slurm.read_jobs,
            "12_0|RUNNING|n1|None\n12_1|PENDING||PartitionDown\n",
            {"12_0": JobView("RUNNING", "n1"), "12_1": JobView("PENDING", "", "PartitionDown")},
        ),
        (  # allocations alone
            slurm.read_jobs,
            "20|TIMEOUT|n1|None\n20.batch|CANCELLED|n1|\n21_3|CANCELLED by 1000|None assigned|None\n",
            {"20": JobView("TIMEOUT", "n1"), "21_3": JobView("CANCELLED")},
        ),
        (slurm.offers_pyxis, "      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH\n", True),
        (slurm.offers_pyxis, "      --container=PATH          Path to OCI container bundle\n", False),
        (slurm.offers_pyxis, "nothing of --container-image here\n", False),
        (
            slurm.last_error,
            ["sbatch: error: invalid partition specified: x", "sbatch: error: Batch job submission failed: No", "end"],
            "Batch job submission failed: No",
        ),
        (slurm.last_error, ["", "something else", ""], "something else"),
        (slurm.last_error, [], ""),
    ],
)
def test_what_slurm_prints_is_read(read, text, expected):
    assert read(text) == expected


def test_a_job_that_ended_waits_for_nothing():
    assert not slurm.WAITING & slurm.ENDED
    assert JobView("NODE_FAIL", "n1", "NodeDown").words == "NODE_FAIL on n1 (NodeDown)"


def test_some_reasons_are_hopeless():
    hopeless = ("BadConstraints", "PartitionTimeLimit", "AssocMaxCpuPerJobLimit", "QOSMaxGRESPerJob")
    others = ("Resources", "Priority", "PartitionDown", "QOSMaxJobsPerUserLimit", "ReqNodeNotAvail")
    assert [reason for reason in (*hopeless, *others) if slurm.HOPELESS.search(reason)] == [*hopeless]


@given(st.text(max_size=300))
def test_no_output_breaks_the_parsers(text):
    slurm.read_jobs(text)
    slurm.offers_pyxis(text)
    slurm.last_error(text.splitlines())


def test_the_time_of_a_job_is_what_its_suites_may_take():
    order = Order(artifact=None, suites=("torch",), device="auto", folder="/out", passes="/p")
    options = slurm.parameters(order, Resources(partition="a100", gres="gpu:1", account="gnn"))
    fixed = {"job-name": "graphcrate-test", "nodes": "1", "ntasks": "1"}
    assert options == {**fixed, "partition": "a100", "time": "16", "gres": "gpu:1", "account": "gnn"}
    assert slurm.parameters(order, Resources(partition="a100", time="01:00:00"))["time"] == "01:00:00"


def test_unknown_partitions_are_refused_with_those_that_exist(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "find", lambda environment: SimpleNamespace(partitions=lambda: ["dgx2", "old"]))
    ctx = Context(root=tmp_path, environment={})
    assert slurm.connect(ctx, tmp_path, ["dgx2"]).slurm
    with pytest.raises(UsageError, match=r"no partition 'a100'; there are dgx2, old"):
        slurm.connect(ctx, tmp_path, ["dgx2", "a100"])


def test_no_slurm_here_says_where_else(monkeypatch):
    monkeypatch.setattr(slurm.process, "find", lambda _: None)
    with refused(HostError, "Slurm is not installed here", "--runner apptainer"):
        slurm.find({"PATH": "/nowhere"})


def test_a_job_knows_where_it_is(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    assert slurm.here() == {}
    for name, value in {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n1", "SLURM_JOB_PARTITION": "a100"}.items():
        monkeypatch.setenv(name, value)
    assert slurm.here() == {"job": "12", "node": "n1", "partition": "a100"}


def test_the_log_and_the_result_of_a_job(tmp_path):
    scheduler = Scheduler(Slurm(version="22.05.8", environment={}), tmp_path, {})
    scheduler.log("12").write_text("line\nrest")
    assert scheduler.new_lines("12") == ["line"]
    assert scheduler.new_lines("12") == []
    assert scheduler.result("12") is None
    scheduler.log("12").with_suffix(".json").write_text("{half")
    with pytest.raises(HostError, match="invalid result of job 12"):
        scheduler.result("12")
    scheduler.log("12").with_suffix(".json").write_text("{}")
    assert scheduler.result("12") == Returned()
    assert scheduler.result("12") is None  # it was taken
    assert scheduler.log("12").exists()


def test_a_job_is_never_run_again_by_itself(tmp_path, monkeypatch):
    """Of one whose node died would be said that it waits: the report of the first run is never awaited again."""
    asked = []

    def output(command, *, environment, stdin, timeout):
        asked.append(command)
        return "12;cluster\n"

    monkeypatch.setattr(slurm.process, "output", output)
    scheduler = Scheduler(Slurm(version="22.05.8", environment={}), tmp_path, {"PATH": ""})
    order = Order(artifact=None, suites=("torch",), device="auto", folder="/out", passes="/p")
    assert scheduler.submit(order, Resources(partition="a100")) == "12"
    ((program, *options),) = asked
    assert (program, "--no-requeue" in options, "--requeue" in options) == ("sbatch", True, False)


def test_a_job_inherits_no_job_around_it_and_the_choices_of_the_site():
    site = {"PATH": "/bin", "SLURM_CONF": "/c", "SBATCH_ACCOUNT": "gnn", "SLURM_CLUSTERS": "a"}
    around = {"SLURM_JOB_ID": "1", "SBATCH_TIMELIMIT": "1", "SLURMD_NODENAME": "n1", "RANK": "0", "MASTER_ADDR": "n1"}
    assert submit_environment(site | around) == site


def test_a_node_says_why_it_broke_off(tmp_path):
    """Here by an order that it cannot read."""
    assert slurm_node.__name__ == NODE_PROGRAM
    (tmp_path / "order.json").write_text("{half")
    slurm_node.main(tmp_path / "order.json", tmp_path / "12.json")
    assert "broke off: DecodeError" in json.loads((tmp_path / "12.json").read_text())["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["12.json"]
