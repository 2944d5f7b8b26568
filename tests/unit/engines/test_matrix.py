"""Cells as machines of states, and their driver against a scheduler that is a list in memory."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.engines import run_suites
from graphcrate.engines.slurm import SILENT, JobView
from graphcrate.engines.trials import matrix, progress
from graphcrate.host.progress import Progress
from graphcrate.model.errors import HostError, SmokeError
from graphcrate.model.lock import encode
from graphcrate.model.report import Artifact, SmokeReport
from graphcrate.model.trial import Resources, Returned, State, TrialOrder
from tests.made import refused

PATIENCE = 600.0
PASSED = Returned(suites=(SmokeReport(suite="torch", status="passed", device="cpu", seconds=2.0, node="n1"),))
FAILED = Returned(suites=(SmokeReport(suite="torch", status="failed", device="cpu", seconds=1.0, reason="no CUDA"),))


def cell(digest="sha256:1", partition="a100", out="/out", rerun=False, **changes):
    name = digest.rpartition(":")[2]
    artifact = Artifact(engine="apptainer", kind="sif", reference=f"/{name}.sif", digest=digest, bytes=1)
    paths = {"folder": f"{out}/{name}", "passes": "/p"}
    order = TrialOrder(reference=name, artifact=artifact, suites=("torch",), device="auto", rerun=rerun, **paths)
    return msgspec.structs.replace(matrix.new_cell(order, Resources(partition=partition)), **changes)


class Clock:
    """`settings`, with a clock that goes on by one at each pause."""

    time = 0.0

    def now(self):
        return self.time

    def wait(self, seconds):
        self.time += 1


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(matrix, "settings", clock := Clock())
    return clock


class FakeScheduler:
    """Jobs go through the given looks, one at each pause; then they have what they give back, if anything."""

    def __init__(self, script, refuse=()):
        self.script, self.refuse, self.slurm = script, refuse, self
        self.submitted, self.cancelled, self.jobs, self.broken, self.left = [], [], {}, None, ""

    def submit(self, order, resources):
        if resources.partition in self.refuse:
            raise HostError("Slurm refuses the job: no such account")
        self.submitted.append((order.reference, resources.partition))
        self.jobs[job := str(len(self.jobs))] = order, matrix.settings.time
        return job

    def _turn(self, job):
        """The job's looks, its result, and at which look it is."""
        order, submitted = self.jobs[job]
        looks, result = self.script[order.reference]
        return looks, result, min(int(matrix.settings.time - submitted), len(looks) - 1)

    def look(self, jobs):
        if self.broken is not None and matrix.settings.time >= self.broken:
            raise KeyboardInterrupt
        turns = {job: self._turn(job) for job in jobs}
        return {job: looks[turn] for job, (looks, _, turn) in turns.items() if looks[turn] is not None}

    def result(self, job):
        """The result at the last look, when the node has written the report too."""
        looks, result, turn = self._turn(job)
        if turn < len(looks) - 1:
            return None
        folder = Path(self.jobs[job][0].folder)
        if result and folder.parent.is_dir():
            folder.mkdir(exist_ok=True)
            report = run_suites.report_of(self.jobs[job][0], result.suites)
            (folder / run_suites.REPORT).write_bytes(encode(report))
        return result

    def left_behind(self, job):
        return self.left

    def log(self, job):
        return f"/{job}.out"

    def new_lines(self, job):
        return [f"turn {self._turn(job)[2]}"]

    def cancel(self, jobs):
        self.cancelled += jobs


def pending(reason):
    return JobView("PENDING", "", reason)


QUEUED, RUNNING, DONE = pending("Resources"), JobView("RUNNING", "n1"), JobView("COMPLETED", "n1")
NORMAL = ([QUEUED, RUNNING, DONE], PASSED)


CONTEXT = SimpleNamespace(progress=Progress())


def followed(cells, scheduler, patience=PATIENCE, seen=None, lines=None):
    """Follow cells; `seen` gets the first one after each look, `lines` what jobs print."""
    seen, lines = [] if seen is None else seen, [] if lines is None else lines
    return matrix.follow(cells, scheduler, patience=patience, show=lambda now: seen.append(now[0]), say=lines.append)


def test_matrix_cells_each_submit_a_job():
    scheduler, seen, lines = FakeScheduler({"1": NORMAL, "2": NORMAL}), [], []
    cells = [cell(f"sha256:{name}", partition) for name in "12" for partition in ("a100", "dgx2")]
    ended = followed(cells, scheduler, seen=seen, lines=lines)
    assert scheduler.submitted == [("1", "a100"), ("1", "dgx2"), ("2", "a100"), ("2", "dgx2")]
    assert [(one.state, one.node) for one in ended] == [(State.PASSED, "n1")] * 4
    assert list(dict.fromkeys(one.state for one in seen)) == [State.NEW, State.QUEUED, State.RUNNING, State.PASSED]
    assert lines == ["turn 0"] * 4 + ["turn 1"] * 4 + ["turn 2"] * 4


REMEMBERED = msgspec.structs.replace(PASSED.suites[0], remembered="2026-11-22T05:00:00Z")
JUDGED = Returned(suites=(msgspec.structs.replace(FAILED.suites[0], metrics={"test_accuracy": 0.1}),))
NO_RUNTIME = Returned(error="neither apptainer nor singularity is installed")
#: what Slurm says at each look, and the result at the last; the cell's end
ENDS = {
    "failed suite": ([RUNNING, DONE], FAILED, State.FAILED, "torch: no CUDA"),
    "late report": ([RUNNING, *[DONE] * 10], PASSED, State.PASSED, ""),
    "controller away": ([QUEUED, *[SILENT] * 60, RUNNING, DONE], PASSED, State.PASSED, ""),
    "passed before": ([DONE], Returned(suites=(REMEMBERED,)), State.PASSED, "torch: passed on 2026-11-22"),
    "error on the node": ([DONE], NO_RUNTIME, State.LOST, "job 0 could not run the suites: neither apptainer"),
    "dead node": ([JobView("NODE_FAIL", "n1", "NodeDown")], None, State.LOST, "as NODE_FAIL on n1 (NodeDown) and left"),
    "forgotten": ([RUNNING, None], None, State.LOST, "no longer knows job 0"),
    "gone while a suite ran": (
        [RUNNING, JobView("NODE_FAIL", "n1")],
        FAILED,
        State.LOST,
        "NODE_FAIL on n1 while torch ran",
    ),
    "cancelled": ([RUNNING, JobView("CANCELLED", "n1")], FAILED, State.LOST, "ended as CANCELLED on n1 while torch"),
    "preempted": ([JobView("PREEMPTED", "n1")], None, State.LOST, "ended as PREEMPTED on n1 and left no report"),
    "no memory": ([RUNNING, JobView("OUT_OF_MEMORY", "n1")], None, State.FAILED, "OUT_OF_MEMORY on n1: it needs more"),
    "judged, then cancelled": ([RUNNING, JobView("CANCELLED", "n1")], JUDGED, State.FAILED, "torch: no CUDA"),
    "never started": ([pending("PartitionDown")], None, State.LOST, "start within 0.5 min: PartitionDown"),
    "hopeless": ([pending("PartitionTimeLimit")], None, State.LOST, "can never start: PartitionTimeLimit"),
}


@pytest.mark.parametrize("case", ENDS)
def test_slurm_states_and_report_give_the_final_state_of_a_cell(case, clock):
    looks, returned, state, why = ENDS[case]
    scheduler, seen = FakeScheduler({"1": (looks, returned)}), []
    (ended,) = followed([cell()], scheduler, patience=30.0, seen=seen)
    assert ended.state is state
    assert why in ended.why
    assert ("Slurm does not answer" in {one.why for one in seen}) == (case == "controller away")
    assert scheduler.cancelled == (["0"] if case in ("never started", "hopeless") else [])
    if case in ("dead node", "forgotten"):
        assert clock.time >= matrix.GRACE  # for a slow network file system
    if case == "hopeless":
        assert clock.time == 0


@pytest.mark.parametrize("returned", [None, Returned(error="its time is up")])
def test_lost_cell_names_the_command_that_removes_its_container(returned, clock):
    scheduler = FakeScheduler({"1": ([RUNNING, JobView("TIMEOUT", "n1")], returned)})
    scheduler.left = "n1"
    (ended,) = followed([cell()], scheduler)
    assert ended.state is State.LOST
    command = "srun --partition=a100 --nodelist=n1 enroot remove --force pyxis_graphcrate-0"
    assert ended.why.endswith(f"its container may be left on n1: {command}")
    scheduler = FakeScheduler({"1": ([RUNNING, DONE], PASSED)})
    scheduler.left = "n1"  # not yet gone
    assert followed([cell()], scheduler)[0].why == ""


def test_out_of_memory_job_is_a_smoke_error():
    scheduler = FakeScheduler({"1": ([RUNNING, JobView("OUT_OF_MEMORY", "n1")], None)})
    with refused(SmokeError, "job 0 ended as OUT_OF_MEMORY"):
        matrix.run_job(cell(), scheduler, CONTEXT, PATIENCE)


def test_refused_job_makes_its_cell_lost_and_others_go_on():
    scheduler = FakeScheduler({"1": NORMAL}, refuse=("dgx2",))
    refused, passed = followed([cell(partition="dgx2"), cell()], scheduler)
    assert (refused.state, refused.why) == (State.LOST, "Slurm refuses the job: no such account")
    assert passed.state is State.PASSED


def test_interrupted_matrix_cancels_open_jobs_and_resumes_them(tmp_path):
    scheduler = FakeScheduler({"1": NORMAL, "2": ([QUEUED] * 3 + [RUNNING] * 3 + [DONE], PASSED)})
    cells = [cell(f"sha256:{name}", out=tmp_path / name) for name in "12"]
    for one in cells:
        Path(one.order.folder).parent.mkdir(parents=True)
    scheduler.broken = 4
    with pytest.raises(KeyboardInterrupt):
        matrix.run_matrix(cells, scheduler, CONTEXT, PATIENCE)
    assert scheduler.cancelled == ["1"]
    scheduler.broken = None
    ended = matrix.run_matrix([*cells, *cells], scheduler, CONTEXT, PATIENCE)
    assert [name for name, _ in scheduler.submitted] == ["1", "2", "2"]
    assert [(one.state, one.node) for one in ended] == [(State.PASSED, "n1")] * 2


@pytest.mark.parametrize("run", [lambda *given: matrix.run_matrix([given[0]], *given[1:]), matrix.run_job])
def test_interrupt_during_sbatch_cancels_the_job(monkeypatch, run):
    @contextlib.contextmanager
    def uninterrupted():
        yield
        raise KeyboardInterrupt

    monkeypatch.setattr(matrix.process, "uninterrupted", uninterrupted)
    scheduler = FakeScheduler({})
    with pytest.raises(KeyboardInterrupt):
        run(cell(), scheduler, CONTEXT, PATIENCE)
    assert scheduler.cancelled == ["0"]


def test_passed_cells_are_not_submitted_again(tmp_path, monkeypatch):
    lost = ([RUNNING, JobView("NODE_FAIL", "n1")], None)
    tag = "registry.example.com/team/pyg:latest"  # may name another image by now
    names = ("sha256:1", "sha256:2", "sha256:3", tag, f"registry.example.com/team/pyg@sha256:{'0' * 64}")

    def submitted(scheduler, **options):
        cells = [cell(name, out=tmp_path / str(number), **options) for number, name in enumerate(names)]
        for one in cells:
            Path(one.order.folder).parent.mkdir(parents=True, exist_ok=True)
        states = [one.state for one in matrix.run_matrix(cells, scheduler, CONTEXT, PATIENCE)]
        return [name for name, _ in scheduler.submitted], states

    others = {"latest": NORMAL, "0" * 64: NORMAL}
    ends = {"1": NORMAL, "2": lost, "3": ([RUNNING, DONE], FAILED), **others}
    states = [State.PASSED, State.LOST, State.FAILED, State.PASSED, State.PASSED]
    assert submitted(FakeScheduler(ends)) == (list(ends), states)
    good = dict.fromkeys(ends, NORMAL)
    assert submitted(FakeScheduler(good)) == (["2", "3", "latest"], [State.PASSED] * 5)
    assert submitted(FakeScheduler(good))[0] == ["latest"]
    assert submitted(FakeScheduler(good), rerun=True)[0] == list(ends)
    monkeypatch.setattr(run_suites, "proof_of", lambda order: "other versions of the suites")
    assert submitted(FakeScheduler(good))[0] == list(ends)


def test_cell_with_a_suite_that_measures_is_submitted_each_time(tmp_path):
    one = cell(out=tmp_path)
    order = msgspec.structs.replace(one.order, suites=("nccl",))
    one = msgspec.structs.replace(one, order=order)
    Path(order.folder).mkdir(parents=True)
    passed = run_suites.report_of(order, [msgspec.structs.replace(*PASSED.suites, suite="nccl")])
    (Path(order.folder) / run_suites.REPORT).write_bytes(encode(passed))
    assert matrix.recall(one) is one


@pytest.mark.parametrize("failed", range(2))
def test_cell_with_a_failed_suite_is_submitted_again(tmp_path, failed):
    suites = [*PASSED.suites, msgspec.structs.replace(*PASSED.suites, suite="dna")]
    suites[failed] = msgspec.structs.replace(suites[failed], status="failed", reason="no CUDA")
    one = cell(out=tmp_path)
    order = msgspec.structs.replace(one.order, suites=("torch", "dna"))
    one = msgspec.structs.replace(one, order=order)
    Path(order.folder).mkdir(parents=True)
    written = Path(order.folder) / run_suites.REPORT
    written.write_bytes(encode(run_suites.report_of(order, suites)))
    assert matrix.recall(one) is one
    for part in ([], suites[:1], suites[1:]):  # a report that lacks what it was asked for
        there = [msgspec.structs.replace(suite, status="passed") for suite in part]
        written.write_bytes(encode(run_suites.report_of(order, there)))
        assert matrix.recall(one) is one
    passed = [msgspec.structs.replace(suite, status="passed") for suite in suites]
    written.write_bytes(encode(run_suites.report_of(order, passed)))
    assert matrix.recall(one).state is State.PASSED


def test_failed_or_lost_cells_are_an_error_with_their_reasons():
    failed, lost = cell(state=State.FAILED, why="no CUDA"), cell(state=State.LOST, why="x", job="7", node="n1")
    with refused(SmokeError, "1 failed on a100: no CUDA", "ls /out/1/a100"):
        matrix.raise_if_failed([cell(state=State.PASSED), lost, failed], FakeScheduler({}))
    with refused(HostError, "1 was not tested on a100: x (1 of 2 have no report)", "less /7.out"):
        matrix.raise_if_failed([cell(state=State.PASSED), lost], FakeScheduler({}))
    matrix.raise_if_failed([cell(state=State.PASSED)], FakeScheduler({}))
    with refused(HostError, "1 was not tested on a100: Slurm refuses the job: no such account", "sinfo"):
        matrix.run_job(cell(), FakeScheduler({}, refuse=("a100",)), CONTEXT, PATIENCE)


def test_cell_changes_are_noted_once():
    lines = []
    show = progress.changes(lines.append)
    for state in (State.NEW, State.QUEUED, State.QUEUED, State.RUNNING):
        show([cell(state=state, job="7", node="n1")])
    assert lines == ["1 on a100: queued as job 7", "1 on a100: running as job 7 on n1"]


def test_matrix_table_has_a_row_per_cell():
    cells = [cell(state=State.PASSED, suites=PASSED.suites), cell("sha256:2", state=State.LOST, why="[NodeDown]")]
    assert all(words in progress.text(cells) for words in ("1 passed, 1 lost", "1  ", "[NodeDown]"))
    assert progress.suites_lines([REMEMBERED])[0].endswith(", on 2026-11-22; not run again, --rerun runs it")


views = st.one_of(
    st.none(),
    st.just(SILENT),
    st.builds(JobView, st.sampled_from(["PENDING", "RUNNING", "COMPLETING", "COMPLETED", "NODE_FAIL", "SUSPENDED"]),
              st.sampled_from(["", "n1"]), st.sampled_from(["", "Resources", "BadConstraints"])),
)  # fmt: skip


@given(st.lists(st.tuples(views, st.sampled_from([None, None, None, PASSED, FAILED]), st.floats(0, 400)), max_size=20))
def test_cell_ends_once_for_any_slurm_states(steps):
    now, one = 0.0, cell(state=State.QUEUED, job="7")
    for view, returned, seconds in (*steps, (None, None, 1), (None, None, 100)):
        if not one.state.is_open:
            break
        now += seconds
        one = matrix.step(one, view, returned, now, PATIENCE)
        assert one.state not in (State.PASSED, State.FAILED) or one.suites
        assert one.state is not State.LOST or one.why
    assert not one.state.is_open
