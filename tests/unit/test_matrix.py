"""The matrix as a machine of states, and its driver against a scheduler that is a list in memory."""

import contextlib
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.engines.slurm.parse import SILENT, JobView
from graphcrate.engines.slurm.submit import parameters
from graphcrate.engines.trials import matrix, poll, progress, testing
from graphcrate.engines.trials.artifact import Subject
from graphcrate.host.progress import Silent
from graphcrate.model.errors import HostError, SmokeError, UsageError
from graphcrate.model.report import Artifact, SmokeReport
from graphcrate.model.trial import Cell, Matrix, Order, Resources, Returned, State

PATIENCE = 600.0
PASSED = Returned(suites=(SmokeReport(suite="torch", status="passed", device="cpu", seconds=2.0, node="n1"),))
FAILED = Returned(suites=(SmokeReport(suite="torch", status="failed", device="cpu", seconds=1.0, reason="no CUDA"),))


def cell(digest="1", partition="a100", out="/out", proof="", **changes):
    artifact = Artifact(engine="apptainer", kind="sif", reference=f"/{digest}.sif", digest=f"sha256:{digest}", bytes=1)
    order = Order(
        artifact=artifact, suites=("torch",), device="auto", folder=f"{out}/{digest}", passes="/p", proof=proof
    )
    return msgspec.structs.replace(matrix.new_cell(f"torch:{digest}", order, Resources(partition=partition)), **changes)


class FakeScheduler:
    """Jobs go through the given looks, one at each pause; then they have what they give back, if anything."""

    def __init__(self, script, refuse=(), interrupt=False):
        self.script, self.refuse, self.interrupt = script, refuse, interrupt
        self.time, self.arrays, self.cancelled, self.removed = 0.0, [], [], []
        self.jobs = {}
        self.broken = None

    def submit(self, orders, resources):
        if resources.partition in self.refuse:
            raise HostError("Slurm refuses the job: no such account")
        self.arrays.append((resources.partition, len(orders)))
        ids = [f"{len(self.arrays)}_{number}" for number in range(len(orders))]
        self.jobs |= {job: (order, self.time) for job, order in zip(ids, orders, strict=True)}
        return ids

    @contextlib.contextmanager
    def uninterrupted(self):
        yield
        if self.interrupt:
            raise KeyboardInterrupt

    def _looks(self, job):
        order, _ = self.jobs[job]
        return self.script[order.artifact.digest.removeprefix("sha256:")]

    def _turn(self, job):
        return int(self.time - self.jobs[job][1])

    def look(self, jobs):
        if self.broken is not None and self.time >= self.broken:
            raise KeyboardInterrupt
        found = {}
        for job in (job for job in jobs if job in self.jobs):
            looks, _ = self._looks(job)
            view = looks[min(self._turn(job), len(looks) - 1)]
            if view is not None:
                found[job] = view
        return found

    def result(self, job):
        looks, value = self._looks(job)
        return value if self._turn(job) >= len(looks) - 1 else None

    def new_lines(self, job):
        return [f"turn {self._turn(job)}"]

    def log(self, job):
        return f"/logs/{job}"

    def cancel(self, jobs):
        self.cancelled += jobs

    def remove_result(self, job):
        self.removed.append(job)

    def now(self):
        return self.time

    def pause(self):
        self.time += 1


QUEUED, RUNNING, DONE = JobView("PENDING", "", "Resources"), JobView("RUNNING", "n1"), JobView("COMPLETED", "n1")
NORMAL = ([QUEUED, RUNNING, DONE], PASSED)


def followed(cells, scheduler, patience=PATIENCE, seen=None, lines=None):
    """Follow cells; `seen` gets the first one's state after each change, `lines` what jobs print."""
    seen, lines = [] if seen is None else seen, [] if lines is None else lines
    return poll.follow(cells, scheduler, patience=patience, changed=lambda now: seen.append(now[0]), say=lines.append)


def test_cells_of_one_request_are_one_array():
    scheduler = FakeScheduler({"1": NORMAL, "2": NORMAL})
    cells = [cell(digest, partition) for digest in "12" for partition in ("a100", "dgx2")]
    found = followed(cells, scheduler)
    assert scheduler.arrays == [("a100", 2), ("dgx2", 2)]
    assert [one.state for one in found] == [State.PASSED] * 4
    assert sorted(scheduler.removed) == ["1_0", "1_1", "2_0", "2_1"]
    assert found[0].node == "n1"


def test_a_watcher_sees_every_state_and_every_line():
    seen, lines = [], []
    followed([cell()], FakeScheduler({"1": NORMAL}), seen=seen, lines=lines)
    assert list(dict.fromkeys(one.state for one in seen)) == [State.NEW, State.QUEUED, State.RUNNING, State.PASSED]
    assert lines == ["turn 0", "turn 1", "turn 2"]


REMEMBERED = msgspec.structs.replace(PASSED.suites[0], remembered="2026-11-22T05:00:00Z")
NO_RUNTIME = Returned(error="neither apptainer nor singularity is installed")
#: what Slurm says at each look, and the result at the last; the cell's end
ENDS = {
    "failed suite": ([RUNNING, DONE], FAILED, State.FAILED, "torch: no CUDA"),
    "late report": ([RUNNING, *[DONE] * 10], PASSED, State.PASSED, ""),
    "controller away": ([QUEUED, *[SILENT] * 60, RUNNING, DONE], PASSED, State.PASSED, ""),
    "passed before": ([DONE], Returned(suites=(REMEMBERED,)), State.PASSED, "torch: passed on 2026-11-22"),
    "error on the node": ([DONE], NO_RUNTIME, State.LOST, "job 1_0 could not run the suites: neither apptainer"),
    "dead node": ([JobView("NODE_FAIL", "n1", "NodeDown")], None, State.LOST, "ended as NODE_FAIL on n1 (NodeDown)"),
    "cancelled": ([JobView("CANCELLED", "n1")], None, State.LOST, "ended as CANCELLED on n1 and left no report"),
    "time limit": ([JobView("TIMEOUT", "n1")], None, State.LOST, "ended as TIMEOUT"),
    "forgotten": ([RUNNING, None], None, State.LOST, "no longer knows job 1_0"),
    "never started": (
        [JobView("PENDING", "", "PartitionDown")], None, State.LOST,
        "job 1_0 did not start within 0.5 min: PartitionDown",
    ),
    "hopeless": (
        [JobView("PENDING", "", "PartitionTimeLimit")], None, State.LOST, "can never start: PartitionTimeLimit",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_how_a_cell_ends(case):
    looks, returned, state, why = ENDS[case]
    scheduler = FakeScheduler({"1": (looks, returned)})
    (ended,) = followed([cell()], scheduler, patience=30.0)
    assert ended.state is state
    assert why in ended.why
    assert scheduler.cancelled == (["1_0"] if case in ("never started", "hopeless") else [])
    if case in ("dead node", "cancelled", "time limit", "forgotten"):
        assert scheduler.time >= matrix.GRACE  # for a slow network file system
    if case == "hopeless":
        assert scheduler.time == 0


def test_a_controller_that_is_away_is_shown():
    seen = []
    followed([cell()], FakeScheduler({"1": ([QUEUED, SILENT, DONE], PASSED)}), seen=seen)
    assert "Slurm does not answer" in {one.why for one in seen}


@pytest.mark.parametrize(
    ("looks", "submitted", "state"),
    [
        ([QUEUED] * 20 + [RUNNING, DONE], -86400.0, State.PASSED),  # since yesterday, and this call has just begun
        ([QUEUED], -5000.0, State.LOST),
    ],
)
def test_a_later_call_has_a_patience_of_its_own(looks, submitted, state):
    scheduler = FakeScheduler({"1": (looks, PASSED if state is State.PASSED else None)})
    (job,) = scheduler.submit([cell().order], cell().resources)
    (ended,) = followed([matrix.submitted(cell(), job, submitted)], scheduler, patience=30.0)
    assert ended.state is state
    assert scheduler.time == pytest.approx(21 if state is State.PASSED else 31, abs=1)


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


def test_an_interrupt_while_jobs_are_submitted_loses_none(tmp_path):
    scheduler = FakeScheduler({"1": NORMAL, "2": NORMAL}, interrupt=True)
    with pytest.raises(KeyboardInterrupt):
        testing.run_matrix([cell(digest, out=tmp_path) for digest in "12"], scheduler, tmp_path, PATIENCE)
    assert [one.job for one in saved(tmp_path)] == ["1_0", "1_1"]


def test_an_interrupt_while_the_one_job_is_submitted_cancels_it(tmp_path):
    scheduler = FakeScheduler({"1": NORMAL}, interrupt=True)
    paths = {"folder": tmp_path, "passes": tmp_path}
    artifact = cell().order.artifact
    subject = Subject(reference="torch:1", runner="slurm", artifact=artifact, suites=("torch",), packages=(), **paths)
    ctx = SimpleNamespace(progress=Silent())
    with pytest.raises(KeyboardInterrupt):
        testing.run_in_job(subject, Resources(partition="a100"), "cpu", scheduler, ctx, PATIENCE)
    assert scheduler.cancelled == ["1_0"]


def test_what_a_tag_passed_says_nothing_of_the_image_that_it_names_now(tmp_path):
    def on_registry(name):
        one = cell(out=tmp_path)
        artifact = Artifact(engine="pyxis", kind="registry", reference=name, digest=name, bytes=0)
        order = msgspec.structs.replace(one.order, artifact=artifact)
        return matrix.new_cell(name, order, one.resources)

    tag = on_registry("registry.example.com/team/pyg:latest")
    pinned = on_registry(f"registry.example.com/team/pyg@sha256:{'0' * 64}")
    running = msgspec.structs.replace(tag, state=State.RUNNING, job="7")
    for before, after in (
        (msgspec.structs.replace(tag, state=State.PASSED), State.NEW),
        (msgspec.structs.replace(pinned, state=State.PASSED), State.PASSED),
        (running, State.RUNNING),
    ):
        wanted = pinned if before.reference == pinned.reference else tag
        (found,) = matrix.resume(Matrix(cells=(before,)), [wanted])
        assert found.state is after


def test_passed_cells_are_not_run_again_and_the_others_are(tmp_path):
    cells = [cell(digest, out=tmp_path) for digest in "123"]
    lost = ([RUNNING, JobView("NODE_FAIL", "n1")], None)
    first = FakeScheduler({"1": NORMAL, "2": lost, "3": ([RUNNING, DONE], FAILED)})
    states = [one.state for one in testing.run_matrix(cells, first, tmp_path, PATIENCE)]
    assert states == [State.PASSED, State.LOST, State.FAILED]
    normal = {"1": NORMAL, "2": NORMAL, "3": NORMAL}
    second = FakeScheduler(normal)
    states = [one.state for one in testing.run_matrix(cells, second, tmp_path, PATIENCE)]
    assert states == [State.PASSED] * 3
    assert second.arrays == [("a100", 2)]
    testing.run_matrix(cells, third := FakeScheduler(normal), tmp_path, PATIENCE, rerun=True)
    assert third.arrays == [("a100", 3)]
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
    assert cell("1").key == cell("1").key
    assert len({cell("1").key, cell("2").key, cell("1", "dgx2").key, cell("1", proof="other suites").key}) == 4


def test_the_end_says_what_is_missing(tmp_path):
    with pytest.raises(SmokeError, match="torch:1 failed on a100"):
        testing.raise_if_unfinished([cell(state=State.FAILED, why="no CUDA")], tmp_path)
    with pytest.raises(HostError, match="1 of 2 cells have no report"):
        testing.raise_if_unfinished([cell(state=State.PASSED), cell("2", state=State.LOST, why="x")], tmp_path)
    testing.raise_if_unfinished([cell(state=State.PASSED)], tmp_path)


def test_the_table_has_a_row_for_each_cell():
    text = progress.text(
        [cell(state=State.PASSED, suites=PASSED.suites), cell("2", state=State.LOST, why="[NodeDown]")]
    )
    assert all(words in text for words in ("1 passed, 1 lost", "torch:1", "[NodeDown]"))
    assert progress.suites_lines([REMEMBERED])[0].endswith(", on 2026-11-22; not run again, --rerun runs it")


def test_the_time_of_a_job_is_what_its_suites_may_take():
    order = cell().order
    asked = parameters([order], Resources(partition="a100", gres="gpu:1", account="gnn"))
    assert asked == {
        "job-name": "graphcrate-test",
        "partition": "a100",
        "time": "16",
        "nodes": "1",
        "ntasks": "1",
        "gres": "gpu:1",
        "account": "gnn",
    }
    assert parameters([order], Resources(partition="a100", time="01:00:00"))["time"] == "01:00:00"


views = st.one_of(
    st.none(),
    st.just(SILENT),
    st.builds(JobView, st.sampled_from(["PENDING", "RUNNING", "COMPLETING", "COMPLETED", "NODE_FAIL", "SUSPENDED"]),
              st.sampled_from(["", "n1"]), st.sampled_from(["", "Resources", "BadConstraints"])),
)  # fmt: skip


@given(st.lists(st.tuples(views, st.sampled_from([None, None, None, PASSED, FAILED]), st.floats(0, 400)), max_size=20))
def test_whatever_slurm_says_a_cell_ends_once(steps):
    now, one = 0.0, matrix.submitted(cell(), "7", 0.0)
    for view, returned, seconds in steps:
        now += seconds
        after = matrix.step(one, view, returned, now, PATIENCE)
        assert isinstance(after, Cell)
        if not one.state.is_open:
            assert after == one
        if after.state.is_finished:
            assert after.suites
        if after.state is State.LOST:
            assert after.why
        one = after
    end = matrix.step(matrix.step(one, None, None, now + 1, PATIENCE), None, None, now + 100, PATIENCE)
    assert not end.state.is_open
