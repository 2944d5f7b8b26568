"""The matrix as a machine of states, and its driver against a scheduler that is a list in memory."""

import contextlib
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.engines.slurm.parse import SILENT, JobView
from graphcrate.engines.trials import matrix, progress, testing
from graphcrate.engines.trials.artifact import Subject
from graphcrate.host.progress import Silent
from graphcrate.model.errors import HostError, SmokeError, UsageError
from graphcrate.model.report import Artifact, SmokeReport
from graphcrate.model.trial import Matrix, Order, Resources, Returned, State

PATIENCE = 600.0
PASSED = Returned(suites=(SmokeReport(suite="torch", status="passed", device="cpu", seconds=2.0, node="n1"),))
FAILED = Returned(suites=(SmokeReport(suite="torch", status="failed", device="cpu", seconds=1.0, reason="no CUDA"),))


def cell(digest="1", partition="a100", out="/out", proof="", **changes):
    artifact = Artifact(engine="apptainer", kind="sif", reference=f"/{digest}.sif", digest=f"sha256:{digest}", bytes=1)
    order = Order(
        artifact=artifact, suites=("torch",), device="auto", folder=f"{out}/{digest}", passes="/p", proof=proof
    )
    return msgspec.structs.replace(matrix.new_cell(f"torch:{digest}", order, Resources(partition=partition)), **changes)


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
        self.arrays, self.cancelled, self.removed, self.jobs, self.broken = [], [], [], {}, None

    def submit(self, orders, resources):
        if resources.partition in self.refuse:
            raise HostError("Slurm refuses the job: no such account")
        self.arrays.append((resources.partition, len(orders)))
        ids = [f"{len(self.arrays)}_{number}" for number in range(len(orders))]
        self.jobs |= {job: (order, matrix.settings.time) for job, order in zip(ids, orders, strict=True)}
        return ids

    def _turn(self, job):
        """The job's looks, its result, and at which look it is."""
        order, submitted = self.jobs[job]
        looks, result = self.script[order.artifact.digest.removeprefix("sha256:")]
        return looks, result, min(int(matrix.settings.time - submitted), len(looks) - 1)

    def look(self, jobs):
        if self.broken is not None and matrix.settings.time >= self.broken:
            raise KeyboardInterrupt
        turns = {job: self._turn(job) for job in jobs}
        return {job: looks[turn] for job, (looks, _, turn) in turns.items() if looks[turn] is not None}

    def result(self, job):
        looks, result, turn = self._turn(job)
        return result if turn == len(looks) - 1 else None

    def new_lines(self, job):
        return [f"turn {self._turn(job)[2]}"]

    def cancel(self, jobs):
        self.cancelled += jobs

    def remove_result(self, job):
        self.removed.append(job)


def pending(reason):
    return JobView("PENDING", "", reason)


QUEUED, RUNNING, DONE = pending("Resources"), JobView("RUNNING", "n1"), JobView("COMPLETED", "n1")
NORMAL = ([QUEUED, RUNNING, DONE], PASSED)


def followed(cells, scheduler, patience=PATIENCE, seen=None, lines=None):
    """Follow cells; `seen` gets the first one's state after each change, `lines` what jobs print."""
    seen, lines = [] if seen is None else seen, [] if lines is None else lines
    return matrix.follow(cells, scheduler, patience=patience, changed=lambda now: seen.append(now[0]), say=lines.append)


def test_cells_of_one_request_are_one_array():
    scheduler, seen, lines = FakeScheduler({"1": NORMAL, "2": NORMAL}), [], []
    cells = [cell(digest, partition) for digest in "12" for partition in ("a100", "dgx2")]
    ended = followed(cells, scheduler, seen=seen, lines=lines)
    assert scheduler.arrays == [("a100", 2), ("dgx2", 2)]
    assert [(one.state, one.node) for one in ended] == [(State.PASSED, "n1")] * 4
    assert sorted(scheduler.removed) == ["1_0", "1_1", "2_0", "2_1"]
    assert list(dict.fromkeys(one.state for one in seen)) == [State.NEW, State.QUEUED, State.RUNNING, State.PASSED]
    assert lines == ["turn 0"] * 4 + ["turn 1"] * 4 + ["turn 2"] * 4


REMEMBERED = msgspec.structs.replace(PASSED.suites[0], remembered="2026-11-22T05:00:00Z")
NO_RUNTIME = Returned(error="neither apptainer nor singularity is installed")
#: what Slurm says at each look, and the result at the last; the cell's end
ENDS = {
    "failed suite": ([RUNNING, DONE], FAILED, State.FAILED, "torch: no CUDA"),
    "late report": ([RUNNING, *[DONE] * 10], PASSED, State.PASSED, ""),
    "controller away": ([QUEUED, *[SILENT] * 60, RUNNING, DONE], PASSED, State.PASSED, ""),
    "passed before": ([DONE], Returned(suites=(REMEMBERED,)), State.PASSED, "torch: passed on 2026-11-22"),
    "error on the node": ([DONE], NO_RUNTIME, State.LOST, "job 1_0 could not run the suites: neither apptainer"),
    "dead node": ([JobView("NODE_FAIL", "n1", "NodeDown")], None, State.LOST, "as NODE_FAIL on n1 (NodeDown) and left"),
    "forgotten": ([RUNNING, None], None, State.LOST, "no longer knows job 1_0"),
    "never started": ([pending("PartitionDown")], None, State.LOST, "start within 0.5 min: PartitionDown"),
    "hopeless": ([pending("PartitionTimeLimit")], None, State.LOST, "can never start: PartitionTimeLimit"),
}


@pytest.mark.parametrize("case", ENDS)
def test_how_a_cell_ends(case, clock):
    looks, returned, state, why = ENDS[case]
    scheduler, seen = FakeScheduler({"1": (looks, returned)}), []
    (ended,) = followed([cell()], scheduler, patience=30.0, seen=seen)
    assert ended.state is state
    assert why in ended.why
    assert ("Slurm does not answer" in {one.why for one in seen}) == (case == "controller away")
    assert scheduler.cancelled == (["1_0"] if case in ("never started", "hopeless") else [])
    if case in ("dead node", "forgotten"):
        assert clock.time >= matrix.GRACE  # for a slow network file system
    if case == "hopeless":
        assert clock.time == 0


def test_a_later_call_has_a_patience_of_its_own(clock):
    """A job that was submitted yesterday, and this call has just begun."""
    clock.time = 100.0
    scheduler = FakeScheduler({"1": ([QUEUED] * 20 + [RUNNING, DONE], PASSED), "2": ([QUEUED], None)})
    cells = [cell(digest) for digest in "12"]
    jobs = scheduler.submit([one.order for one in cells], cells[0].resources)
    known = [
        msgspec.structs.replace(one, job=job, state=State.QUEUED, submitted=-86400.0)
        for one, job in zip(cells, jobs, strict=True)
    ]
    assert [one.state for one in followed(known, scheduler, patience=30.0)] == [State.PASSED, State.LOST]
    assert clock.time == pytest.approx(131, abs=1)


def test_what_is_refused_does_not_stop_the_others():
    scheduler = FakeScheduler({"1": NORMAL}, refuse=("dgx2",))
    refused, passed = followed([cell(partition="dgx2"), cell()], scheduler)
    assert (refused.state, refused.why) == (State.LOST, "Slurm refuses the job: no such account")
    assert passed.state is State.PASSED


def saved(folder):
    return msgspec.json.decode((folder / "matrix.json").read_bytes(), type=Matrix).cells


def test_an_interrupted_matrix_is_resumed(tmp_path):
    scheduler = FakeScheduler({"1": NORMAL, "2": ([QUEUED] * 3 + [RUNNING] * 3 + [DONE], PASSED)})
    cells = [cell(digest, out=tmp_path) for digest in "12"]
    scheduler.broken = 4
    with pytest.raises(KeyboardInterrupt):
        testing.run_matrix(cells, scheduler, tmp_path, PATIENCE)
    assert not scheduler.cancelled  # jobs go on without us
    assert [one.state for one in saved(tmp_path)] == [State.PASSED, State.RUNNING]
    scheduler.broken = None
    ended = testing.run_matrix(cells, scheduler, tmp_path, PATIENCE)
    assert scheduler.arrays == [("a100", 2)]  # nothing was submitted again
    assert [one.state for one in ended] == [State.PASSED, State.PASSED]


def test_an_interrupt_while_jobs_are_submitted_loses_none_and_cancels_the_one(tmp_path, monkeypatch):
    @contextlib.contextmanager
    def uninterrupted():
        yield
        raise KeyboardInterrupt

    monkeypatch.setattr(matrix.process, "uninterrupted", uninterrupted)
    with pytest.raises(KeyboardInterrupt):
        testing.run_matrix([cell(digest, out=tmp_path) for digest in "12"], FakeScheduler({}), tmp_path, PATIENCE)
    assert [one.job for one in saved(tmp_path)] == ["1_0", "1_1"]
    scheduler, artifact = FakeScheduler({}), cell().order.artifact
    paths = {"folder": tmp_path, "passes": tmp_path}
    subject = Subject(reference="torch:1", runner="slurm", artifact=artifact, suites=("torch",), packages=(), **paths)
    with pytest.raises(KeyboardInterrupt):
        testing.run_in_job(subject, cell(), scheduler, SimpleNamespace(progress=Silent()), PATIENCE)
    assert scheduler.cancelled == ["1_0"]


def test_what_a_tag_passed_says_nothing_of_the_image_that_it_names_now():
    def resumed(end, state):
        artifact = msgspec.structs.replace(cell().order.artifact, digest=f"registry.example.com/team/pyg{end}")
        one = matrix.new_cell("pyg", msgspec.structs.replace(cell().order, artifact=artifact), cell().resources)
        return matrix.resume(Matrix(cells=(msgspec.structs.replace(one, state=state),)), [one])[0].state

    assert [resumed(":latest", state) for state in (State.PASSED, State.RUNNING)] == [State.NEW, State.RUNNING]
    assert resumed(f"@sha256:{'0' * 64}", State.PASSED) is State.PASSED


def test_passed_cells_are_not_run_again_and_the_others_are(tmp_path):
    def states(cells, scheduler):
        return [one.state for one in testing.run_matrix(cells, scheduler, tmp_path, PATIENCE)]

    cells = [cell(digest, out=tmp_path) for digest in "123"]
    lost = ([RUNNING, JobView("NODE_FAIL", "n1")], None)
    first = FakeScheduler({"1": NORMAL, "2": lost, "3": ([RUNNING, DONE], FAILED)})
    assert states(cells, first) == [State.PASSED, State.LOST, State.FAILED]
    second, third = (FakeScheduler(dict.fromkeys("123", NORMAL)) for _ in range(2))
    assert states(cells, second) == [State.PASSED] * 3
    assert second.arrays == [("a100", 2)]
    states([msgspec.structs.replace(one, order=msgspec.structs.replace(one.order, rerun=True)) for one in cells], third)
    assert third.arrays == [("a100", 3)]
    states(cells[:1], third)
    assert len(saved(tmp_path)) == 3
    assert (tmp_path / "1" / "trial.json").is_file()


def test_a_state_file_in_use_or_unreadable_is_refused_and_kept(tmp_path):
    def run():
        testing.run_matrix([cell()], FakeScheduler({"1": NORMAL}), tmp_path, PATIENCE)

    with testing._open_state(tmp_path / "matrix.json"), pytest.raises(UsageError, match="another process"):
        run()
    (tmp_path / "matrix.json").write_text("{half")
    with pytest.raises(UsageError, match=r"matrix\.json"):
        run()
    assert (tmp_path / "matrix.json").read_text() == "{half"


def test_keys_name_what_is_tried():
    assert len({cell(*other).key for other in (("1",), ("2",), ("1", "dgx2"), ("1", "a100", "/out", "other"))}) == 4


def test_the_end_says_what_is_missing(tmp_path):
    with pytest.raises(SmokeError, match="torch:1 failed on a100"):
        testing.raise_if_unfinished([cell(state=State.FAILED, why="no CUDA")], tmp_path)
    with pytest.raises(HostError, match="1 of 2 cells have no report"):
        testing.raise_if_unfinished([cell(state=State.PASSED), cell("2", state=State.LOST, why="x")], tmp_path)
    testing.raise_if_unfinished([cell(state=State.PASSED)], tmp_path)


def test_the_table_has_a_row_for_each_cell():
    cells = [cell(state=State.PASSED, suites=PASSED.suites), cell("2", state=State.LOST, why="[NodeDown]")]
    assert all(words in progress.text(cells) for words in ("1 passed, 1 lost", "torch:1", "[NodeDown]"))
    assert progress.suites_lines([REMEMBERED])[0].endswith(", on 2026-11-22; not run again, --rerun runs it")


views = st.one_of(
    st.none(),
    st.just(SILENT),
    st.builds(JobView, st.sampled_from(["PENDING", "RUNNING", "COMPLETING", "COMPLETED", "NODE_FAIL", "SUSPENDED"]),
              st.sampled_from(["", "n1"]), st.sampled_from(["", "Resources", "BadConstraints"])),
)  # fmt: skip


@given(st.lists(st.tuples(views, st.sampled_from([None, None, None, PASSED, FAILED]), st.floats(0, 400)), max_size=20))
def test_whatever_slurm_says_a_cell_ends_once(steps):
    now, one = 0.0, cell(state=State.QUEUED, job="7")
    for view, returned, seconds in (*steps, (None, None, 1), (None, None, 100)):
        if not one.state.is_open:
            break
        now += seconds
        one = matrix.step(one, view, returned, now, PATIENCE)
        assert not one.state.is_finished or one.suites
        assert one.state is not State.LOST or one.why
    assert not one.state.is_open
