"""Rows of a matrix that several machines take from one queue, and the array of jobs that does it on Slurm."""

from types import SimpleNamespace

import pytest

from graphcrate.assembly import matrix, queued
from graphcrate.assembly.matrix import MatrixRequest
from graphcrate.assembly.queued import Queue
from graphcrate.engines import on_node
from graphcrate.engines.slurm import JobView
from graphcrate.engines.trials import matrix as jobs
from graphcrate.inputs.shared import leases
from graphcrate.model.errors import BuildError, UsageError
from graphcrate.model.trial import Resources, Returned
from tests.unit.assembly import test_proofs
from tests.unit.assembly.test_proofs import build

project = test_proofs.project
ROWS = ["torch 11.7 pypi", "glt 12.1 pypi", "torch 12.1 pypi"]
REQUEST = MatrixRequest(is_shared=True)


@pytest.fixture
def queue(project):
    return Queue(project.root / "queue")


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that goes on while a worker waits."""
    made = SimpleNamespace(time=0.0, waits=[])

    def wait(seconds):
        made.time += seconds
        for waiting in made.waits:
            waiting()

    monkeypatch.setattr(queued.settings, "wait", wait)
    monkeypatch.setattr(queued.settings, "now", lambda: made.time)
    return made


def titles(results, *states):
    return [one.title for one in results if one.state in states]


def test_worker_proves_all_rows_and_the_next_one_finds_them_done(project, queue):
    assert titles(queued.work(queue, REQUEST, project, build(asked := [])), "proved") == ROWS
    assert len(asked) == 3
    assert titles(queued.work(queue, REQUEST, project, build(again := [])), "proved") == ROWS
    assert again == []


def test_workers_share_the_rows_and_each_has_all_outcomes(project, queue):
    """The second one works while the first one builds its first row."""
    asked, others = [], []

    def of_first(request, ctx):
        if not others:
            others.append("begun")
            second = queued._taken(matrix.rows(project, REQUEST), queue.leases("second"), ctx)
            (row,) = second
            assert row.title == "torch 11.7 pypi"
            queue.put(row, matrix.prove(row, [row], REQUEST, ctx, build(others)))
        return build(asked)(request, ctx)

    assert titles(queued.work(queue, REQUEST, project, of_first), "proved") == ROWS
    assert [(one.name, one.cuda) for one in asked] == [("glt", "12.1"), ("torch", "12.1")]


def test_row_of_a_killed_machine_is_taken_when_its_lease_expires(project, queue, clock):
    (row,) = queued._taken(matrix.rows(project, REQUEST), queue.leases("killed"), project)
    results = queued.work(queue, REQUEST, project, build(asked := []))
    assert titles(results, "proved") == ROWS
    assert (asked[-1].name, asked[-1].cuda) == (row.recipe.name, row.variant.cuda)
    assert leases.EXPIRY <= clock.time < leases.EXPIRY + 3 * queued.PAUSE


def test_rows_that_compile_go_first_and_wait_for_who_compiles_the_same(project, queue, monkeypatch):
    compiled = {"glt 12.1 pypi": ["k1"], "torch 12.1 pypi": ["k0", "k1"]}
    monkeypatch.setattr(queued, "keys", lambda row, ctx: compiled.get(row.title, []))
    rows = matrix.rows(project, REQUEST)
    first, second, third = (queue.leases(name) for name in "abc")
    assert [row.title for row in queued._taken(rows, first, project)] == ["glt 12.1 pypi"]
    assert [row.title for row in queued._taken(rows, second, project)] == ["torch 11.7 pypi"]
    assert list(queued._taken(rows, third, project)) == []
    first.leave("done")
    assert [row.title for row in queued._taken(rows, third, project)] == ["torch 12.1 pypi"]
    names = {path.name for path in (queue.folder / "leases").iterdir()}
    assert names >= {"key-k0.1.json", "key-k1.1.json"}
    assert "key-k1.2.json" not in names, "it is compiled once"


def test_failed_row_is_tried_again_by_the_same_command_alone(project, queue):
    broken = build(asked := [], broken=[("torch", "11.7")])
    assert titles(queued.work(queue, REQUEST, project, broken), "failed") == ["torch 11.7 pypi"]
    assert titles(queued.work(queue, REQUEST, project, broken), "failed") == ["torch 11.7 pypi"]
    assert len(asked) == 3
    queue.begin(matrix.rows(project, REQUEST))
    assert titles(queued.work(queue, REQUEST, project, build(asked)), "proved") == ["torch 11.7 pypi"]
    assert len(asked) == 4


def test_interrupted_worker_gives_its_row_back(project, queue, clock):
    def interrupted(request, ctx):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        queued.work(queue, REQUEST, project, interrupted)
    assert titles(queued.work(queue, REQUEST, project, build([])), "proved") == ROWS
    assert clock.time == 0


def test_unreadable_outcome_is_none(project, queue):
    (row, *_) = matrix.rows(project, REQUEST)
    queue._file(row).parent.mkdir(parents=True)
    queue._file(row).write_text('{"recipe": "torch"')
    assert queue.end(row) is None


class FakeScheduler:
    """Two jobs of an array: each proves what `does` says, then Slurm sees it as in `views`."""

    def __init__(self, folder, views, does):
        self.folder, self.views, self.does, self.slurm = folder, views, does, self
        self.asked, self.cancelled, self.forgotten = [], [], []

    def submit_array(self, order, resources, tasks):
        self.asked.append((order.words, resources, tasks))
        self.typed = order.typed
        return [f"7_{number}" for number in range(tasks)]

    def look(self, open_jobs):
        for job in open_jobs:
            self.does.pop(job, lambda: None)()
        return {job: self.views[job] for job in open_jobs}

    def result(self, job):
        return Returned() if self.views[job].state == "COMPLETED" else None

    def new_lines(self, job):
        return [f"matrix: a line of {job}", "another"]

    def left_behind(self, job):
        return ""

    def cancel(self, given):
        self.cancelled += given

    def forget(self, given):
        self.forgotten += given


def on_slurm(project, monkeypatch, views, does, tasks=2):
    scheduler = FakeScheduler(project.root / "dist" / "slurm", views, does)
    monkeypatch.setattr(on_node, "connected", lambda resources, ctx, output: (scheduler, resources))
    results = queued.on_slurm(MatrixRequest(), ("matrix",), Resources(partition="a"), tasks, project, "make images")
    return results, scheduler


DONE, FAILED = JobView("COMPLETED", "n1"), JobView("NODE_FAIL", "n2", "NodeDown")


def test_array_proves_the_rows_though_a_node_is_lost(project, monkeypatch):
    queue = Queue(project.root / "dist" / "slurm" / "matrix")

    def lost():
        list(queued._taken(matrix.rows(project, REQUEST), queue.leases("7_1"), project))

    views = {"7_0": JobView("RUNNING", "n1"), "7_1": FAILED}
    does = {"7_1": lost}
    waited = []

    def wait(seconds):
        waited.append(seconds)
        freed = [path for path in (queue.folder / "leases").iterdir() if b"free" in path.read_bytes()]
        if freed and views["7_0"].state == "RUNNING":  # the other job sees that
            views["7_0"] = DONE
            queued.work(queue, REQUEST, project, build([]))

    monkeypatch.setattr(jobs.settings, "wait", wait)
    monkeypatch.setattr(jobs, "GRACE", 0)
    results, scheduler = on_slurm(project, monkeypatch, views, does)
    assert titles(results, "proved") == ROWS
    ((words, _, tasks),) = scheduler.asked
    assert (words[:2], words[2], tasks) == (("matrix", "--queue"), str(queue.folder), 2)
    assert scheduler.forgotten == ["7_0", "7_1"]
    assert scheduler.typed == "make images", "of which a job makes its next steps"
    said = project.progress.lines
    assert "matrix: a line of 7_0" in said
    assert "another" not in said
    assert any("NODE_FAIL on n2" in line and "others go on" in line for line in said)
    again, scheduler = on_slurm(project, monkeypatch, views, {})
    assert (titles(again, "proved before"), scheduler.asked) == (ROWS, [])


def test_rows_that_no_job_ended_are_lost_with_the_reason(project, monkeypatch):
    monkeypatch.setattr(jobs, "GRACE", 0)
    results, _ = on_slurm(project, monkeypatch, {"7_0": FAILED}, {}, tasks=1)
    assert titles(results, "lost") == ROWS
    with pytest.raises(BuildError, match="3 of 3 images were not proved") as caught:
        matrix.raise_if_failed(results)
    assert "NODE_FAIL on n2" in caught.value.what
    assert "the same command" in caught.value.next_step


def test_jobs_without_on_are_a_usage_error(typed):
    code, _, said = typed("matrix", "--jobs", "2")
    assert (code, "--jobs is for jobs" in said) == (UsageError.exit_code, True)
