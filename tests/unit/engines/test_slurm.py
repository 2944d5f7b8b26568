"""Slurm: what its commands print, where it is, which partitions it has."""

import json
import math
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.compat.facts import slurm_ends
from graphcrate.engines import on_node, slurm, slurm_jobs, slurm_node, slurm_step
from graphcrate.engines.slurm import JobView, Slurm
from graphcrate.engines.slurm_jobs import NODE_PROGRAM, Scheduler, submit_environment
from graphcrate.engines.trials import matrix
from graphcrate.host.context import Context
from graphcrate.model.errors import HostError, UsageError
from graphcrate.model.report import Artifact
from graphcrate.model.trial import CommandOrder, JobCell, Resources, Returned, State, Stopped, TrialOrder
from graphcrate.render import slurm_batch
from tests.made import refused

SIF = Artifact(engine="apptainer", kind="sif", reference="/a.sif", digest="x", bytes=0)


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
            slurm_jobs.last_error,
            ["sbatch: error: invalid partition specified: x", "sbatch: error: Batch job submission failed: No", "end"],
            "Batch job submission failed: No",
        ),
        (slurm_jobs.last_error, ["", "something else", ""], "something else"),
        (slurm_jobs.last_error, [], ""),
    ],
)
def test_slurm_output_is_parsed(read, text, expected):
    assert read(text) == expected


def test_ended_job_states_are_not_waiting_states():
    assert not slurm.WAITING & slurm.ENDED
    assert JobView("NODE_FAIL", "n1", "NodeDown").words == "NODE_FAIL on n1 (NodeDown)"


def test_pending_reasons_that_cannot_change_are_hopeless():
    hopeless = ("BadConstraints", "PartitionTimeLimit", "AssocMaxCpuPerJobLimit", "QOSMaxGRESPerJob")
    others = ("Resources", "Priority", "PartitionDown", "QOSMaxJobsPerUserLimit", "ReqNodeNotAvail")
    assert [reason for reason in (*hopeless, *others) if slurm.HOPELESS.search(reason)] == [*hopeless]


@given(st.text(max_size=300))
def test_slurm_parsers_take_any_text(text):
    slurm.read_jobs(text)
    slurm.offers_pyxis(text)
    slurm_jobs.last_error(text.splitlines())


def test_job_time_limit_is_that_of_its_suites_unless_given():
    order = TrialOrder(artifact=None, suites=("torch",), device="auto", folder="/out", passes="/p")
    options = slurm_jobs.parameters(order, Resources(partition="a100", gres="gpu:1", account="gnn"))
    fixed = {"job-name": "graphcrate-test", "nodes": "1", "ntasks": "1"}
    told = {"signal": "B:USR1@60"}  # before its time is up
    assert options == {**fixed, **told, "partition": "a100", "time": "17", "gres": "gpu:1", "account": "gnn"}
    hour = slurm_jobs.parameters(order, Resources(partition="a100", time="01:00:00"))
    assert (hour["time"], hour["signal"]) == ("01:00:00", "B:USR1@60")
    assert "signal" not in slurm_jobs.parameters(order, Resources(partition="a100", time="1"))


def test_job_on_several_nodes_has_a_task_on_each():
    order = TrialOrder(artifact=None, suites=("nccl",), device="auto", folder="/out", passes="/p", nodes=3)
    options = slurm_jobs.parameters(order, Resources(partition="a100"))
    assert [options[name] for name in ("nodes", "ntasks", "ntasks-per-node")] == ["3", "3", "1"]
    assert slurm_step.step_words(3)[3:] == ["--ntasks=3", "--nodes=3", "--ntasks-per-node=1"]
    assert slurm_step.step_words(1)[3:] == ["--ntasks=1", "--nodes=1"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("1", 60), ("1:30", 90), ("1:0:5", 3605), ("1-2", 93600), ("1-2:3", 93780), ("1-2:3:4", 93784)),
        *(("0", math.inf), ("UNLIMITED", math.inf), ("", math.inf)),
    ],
)
def test_time_limits_are_read_as_sbatch_reads_them(text, seconds):
    assert slurm_batch.seconds(text) == seconds


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("soon", "08:00:00"), ("8h", "08:00:00"), ("12 hours", "12:00:00"), ("2d", "2-0"), ("2 days", "2-0")),
        *(("90min", "90"), ("08.00.00", "08:00:00"), ("0h", "08:00:00"), ("1:2:3:4", "08:00:00"), ("-5", "08:00:00")),
        ("\N{FULLWIDTH DIGIT EIGHT}h", "08:00:00"),
    ],
)
def test_time_limit_that_sbatch_does_not_take_is_refused_with_the_one_that_was_meant(typed, meant):
    with refused(UsageError, f"{typed!r} is not a time limit of Slurm's", f"TIME={meant}"):
        slurm_batch.check_time(typed)
    slurm_batch.check_time(meant)
    assert slurm_batch.seconds(meant) < math.inf


@pytest.mark.parametrize("limit", ["", "30", "1:30", "01:00:00", "1-2", "1-2:3", "1-02:03:04", "UNLIMITED", "infinite"])
def test_time_limits_of_sbatch_are_taken(limit):
    slurm_batch.check_time(limit)


def test_unknown_partition_is_refused_with_the_existing_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_jobs, "find", lambda *_: SimpleNamespace(partitions=lambda: ["dgx2", "old"]))
    ctx = Context(root=tmp_path, environment={})
    assert slurm_jobs.connect(ctx, tmp_path, ["dgx2"]).slurm
    step = "make … PARTITION=dgx2"
    with refused(UsageError, "no partition 'a100'; there are dgx2, old", step):
        slurm_jobs.connect(ctx, tmp_path, ["dgx2", "a100"])


def test_missing_slurm_is_a_host_error_with_another_runner(monkeypatch):
    monkeypatch.setattr(slurm.process, "find", lambda _: None)
    with refused(HostError, "Slurm is not installed here", "--runner apptainer"):
        slurm.find({"PATH": "/nowhere"})


def test_slurm_here_reads_job_node_and_partition_from_the_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        monkeypatch.delenv(name)
    assert slurm_step.here() == {}
    for name, value in {"SLURM_JOB_ID": "12", "SLURMD_NODENAME": "n1", "SLURM_JOB_PARTITION": "a100"}.items():
        monkeypatch.setenv(name, value)
    assert slurm_step.here() == {"job": "12", "node": "n1", "partition": "a100"}


def test_job_log_gives_whole_lines_and_an_invalid_result_is_an_error(tmp_path):
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


def test_sbatch_submits_with_no_requeue(tmp_path, monkeypatch):
    """Of one whose node died would be said that it waits: the report of the first run is never awaited again."""
    asked = []

    def output(command, *, environment, stdin, timeout):
        asked.append(command)
        return "12;cluster\n"

    monkeypatch.setattr(slurm.process, "output", output)
    scheduler = Scheduler(Slurm(version="22.05.8", environment={}), tmp_path, {"PATH": ""})
    order = TrialOrder(artifact=SIF, suites=("torch",), device="auto", folder="/out", passes="/p")
    assert scheduler.submit(order, Resources(partition="a100")) == "12"
    ((program, *options),) = asked
    assert (program, "--no-requeue" in options, "--requeue" in options) == ("sbatch", True, False)


def test_submit_environment_drops_the_outer_job_and_keeps_site_variables():
    site = {"PATH": "/bin", "SLURM_CONF": "/c", "SBATCH_ACCOUNT": "gnn", "SLURM_CLUSTERS": "a"}
    around = {"SLURM_JOB_ID": "1", "SBATCH_TIMELIMIT": "1", "SLURMD_NODENAME": "n1", "RANK": "0", "MASTER_ADDR": "n1"}
    assert submit_environment(site | around) == site


def test_node_program_writes_its_exception_as_the_result(tmp_path):
    """Here by an order that it cannot read."""
    assert slurm_node.__name__ == NODE_PROGRAM
    (tmp_path / "order.json").write_text("{half")
    slurm_node.main(tmp_path / "order.json", tmp_path / "12.json")
    assert "broke off: DecodeError" in json.loads((tmp_path / "12.json").read_text())["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["12.json"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signalled_node_program_writes_a_line_and_finishes_its_cleanup(tmp_path, monkeypatch, capsys, number):
    """Slurm sends its signals more than once: what is removed meanwhile goes on being removed."""
    removed = []

    def run_suites(*_, **__):
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(number)
            removed.append("container")

    monkeypatch.setattr(slurm_node.run_suites, "run_suites", run_suites)
    order = TrialOrder(artifact=SIF, suites=("torch",), device="auto", folder=str(tmp_path), passes="/p")
    (tmp_path / "order.json").write_bytes(msgspec.json.encode(order))
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        code = slurm_node.main(tmp_path / "order.json", tmp_path / "12.json")
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    told = capsys.readouterr()
    assert (removed, told.err, told.out.count("\n")) == (["container"], "", 1)
    assert not (tmp_path / "order.json").exists()
    if number == signal.SIGUSR1:
        assert (code, "time limit" in json.loads((tmp_path / "12.json").read_text())["error"]) == (0, True)
    else:  # Slurm knows what became of it
        assert (code, (tmp_path / "12.json").exists()) == (130, False)


def test_batch_script_traps_signals_and_removes_its_container():
    given = {"root": Path("/a b"), "python": "/p y/python", "module": "m"}
    text = slurm_batch.script(Path("/o ut/order.json"), **given, has_container=True)
    assert "'/p y/python' -sP -m m '/o ut/order.json' '/o ut'/\"$SLURM_JOB_ID\".json &\n" in text
    assert "exec " not in text
    assert (
        text.index("trap 'kill -TERM") < text.index("wait") < text.index("enroot remove --force") < text.index("exit")
    )
    assert "enroot" not in slurm_batch.script(Path("/order.json"), **given, has_container=False)


STEP = "slurmstepd: error: *** STEP 16.0 ON n1 CANCELLED AT 2026-11-24T20:01:02"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["Epoch 1", "srun: error: Slurm job 16 has expired."], "Slurm job 16 has expired."),
        (
            ["srun: error: Node failure on n1", "srun: Job step aborted: Waiting up to 32 seconds …"],
            "Node failure on n1",
        ),
        (
            [f"{STEP} DUE TO TIME LIMIT ***"],
            "*** STEP 16.0 ON n1 CANCELLED AT 2026-11-24T20:01:02 DUE TO TIME LIMIT ***",
        ),
        (["slurmstepd: error: *** JOB 16 STEPD TERMINATED ON n1 AT 2026 DUE TO JOB NOT ENDING …"], "*** JOB 16 STEPD"),
        (["srun: Force Terminated StepId=16.0"], "Force Terminated StepId=16.0"),
        (["slurmstepd-n1: error: *** JOB 16 ON n1 CANCELLED AT 2026 DUE TO PREEMPTION ***"], "*** JOB 16 ON n1"),
        (
            ["srun: error: Task launch for StepId=16.0 failed on node n1: Communication connection failure"],
            "Task launch",
        ),
        (
            ["srun: error: Unable to create step for job 16: Job/step already completing or completed"],
            "Unable to create",
        ),
        # memory that ran out is the program's, though the step is cancelled for it
        ([f"{STEP} ***", "slurmstepd: error: Detected 1 oom_kill event in StepId=16.0. Some of the step"], ""),
        (["slurmstepd: error: Exceeded job memory limit", "srun: Job step aborted: Waiting up to 2 seconds for"], ""),
        # what the program itself prints, or does
        (["Slurm job 16 has expired", "srun: error: n1: task 0: Segmentation fault"], ""),
        (["srun: error: n1: task 0: Exited with exit code 1"], ""),
        ([], ""),
    ],
)
def test_log_lines_of_slurm_tell_why_a_step_was_cancelled(lines, why):
    said = slurm_ends.taken_away(lines)
    assert said.startswith(why)
    assert bool(said) == bool(why)


COMMAND = CommandOrder(words=("image", "torch"), folder="/work", printed="/work/dist/slurm/1.printed")


def test_job_of_a_command_has_the_sites_time_limit_unless_given():
    options = slurm_jobs.parameters(COMMAND, Resources(cpus=8))
    known = {"job-name": "graphcrate-build", "signal": "B:USR1@60", "nodes": "1", "ntasks": "1", "cpus-per-task": "8"}
    assert options == known
    assert slurm_jobs.parameters(COMMAND, Resources(time="20"))["time"] == "20"


@pytest.mark.parametrize(
    ("partition", "text", "cores"),
    [("cpu", "cpu 64\ncpu 32+\n", 32), ("", "cpu* 64\ngpu 8\n", 64), ("cpu", "", 0), ("", "cpu\n", 0)],
)
def test_cores_are_those_of_the_smallest_node(monkeypatch, partition, text, cores):
    monkeypatch.setattr(Slurm, "_try", lambda *_: text)
    assert Slurm(version="22.05.8", environment={}).cores(partition) == cores


def test_order_of_a_cancelled_job_is_removed_and_only_its_owner_reads_it(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm.process, "output", lambda *_, **__: "12\n")
    scheduler = Scheduler(Slurm(version="22.05.8", environment={}), tmp_path, {"PATH": ""})
    scheduler.submit(COMMAND, Resources())
    (order,) = tmp_path.iterdir()
    assert order.stat().st_mode & 0o777 == 0o600
    scheduler.cancel(["12"])
    assert not order.exists()


@pytest.mark.parametrize(
    ("typed", "options"), [("", ["-sP"]), ("make image GPU=v100", ["-sP", "-X", "typed=make image GPU=v100"])]
)
def test_node_program_runs_a_command_with_its_stdout_in_a_file(tmp_path, monkeypatch, typed, options):
    asked, order = [], msgspec.structs.replace(COMMAND, typed=typed)

    def run(command, *, environment, cwd, on_line):
        asked.append((command[3:5], [*command[6:-4], *command[-3:]], cwd))
        on_line("a line")
        return SimpleNamespace(returncode=9)

    monkeypatch.setattr(slurm_node.process, "run", run)
    monkeypatch.setattr(slurm_node.process, "interrupt_once", list)
    (tmp_path / "order.json").write_bytes(msgspec.json.encode(order))
    slurm_node.main(tmp_path / "order.json", tmp_path / "12.json")
    assert asked == [(["sh", COMMAND.printed], [*options, "graphcrate", "image", "torch"], Path("/work"))]
    assert json.loads((tmp_path / "12.json").read_text())["exit_code"] == 9


def of_command(**changes):
    return JobCell(order=COMMAND, resources=Resources(cpus=8), state=State.QUEUED, job="12", **changes)


@pytest.mark.parametrize(
    ("view", "returned", "state", "step"),
    [
        (JobView("COMPLETED", "n1"), Returned(), State.PASSED, ""),
        (JobView("COMPLETED", "n1"), Returned(exit_code=9), State.FAILED, ""),
        (
            JobView("TIMEOUT", "n1"),
            Returned(error=slurm_node.TIME_IS_UP, stopped=Stopped.TIME),
            State.LOST,
            "TIME=08:00:00",
        ),
        (JobView("TIMEOUT", "n1"), None, State.LOST, "TIME=08:00:00"),
        (JobView("OUT_OF_MEMORY", "n1"), None, State.FAILED, "CPUS=16"),
        (JobView("NODE_FAIL", "n1", "NodeDown"), None, State.LOST, "less /l/12.out"),
        (JobView("PENDING", "", "PartitionConfig"), None, State.LOST, "scontrol show partition"),
        (JobView("PENDING", "", "Resources"), None, State.LOST, "squeue --me"),
    ],
)
def test_lost_command_says_why_and_what_to_do(view, returned, state, step):
    ended = matrix.step(of_command(gone=1.0), view, returned, 1e4, 60.0)
    assert (ended.state, ended.exit_code) == (state, returned.exit_code if returned else 0)
    if step:
        assert step in on_node.lost(ended, Path("/l/12.out")).next_step


def test_changes_of_a_job_are_noted_once():
    said = []
    show = on_node.changes(said.append)
    waiting = of_command(why="Resources")
    running = msgspec.structs.replace(waiting, state=State.RUNNING, why="", node="n7")
    for cell in (waiting, waiting, running, running, msgspec.structs.replace(running, state=State.PASSED)):
        show([cell])
    assert said == ["job 12: queued: Resources", "job 12: running on n7"]
