"""Jobs of the site live in files: equal ones are one, and what a server or a child leaves is taken up again."""

import msgspec
import pytest
from test_site import Child

from buildsite.queue import ATTEMPTS, LAYOUT, JobQueue, SiteJob
from buildsite.users import LimitError
from graphcrate.host import settings
from graphcrate.remote.questions import Question


class World:
    """Queues over one folder, whose children a test ends."""

    def __init__(self, folder):
        self.folder, self.children, self.words = folder, {}, []

    def start(self, words, folder, name):
        (folder / name).write_bytes(b"")
        self.words.append(words)
        return self.children.setdefault(folder.name, Child())

    def queue(self, alive=()):
        return JobQueue(self.folder, self.start, lambda folder: self.children[folder.name] if alive else None)

    def end(self, queue, name, code, result=b"{}"):
        (self.folder / name / "result").write_bytes(result)
        self.children.pop(name).code = code
        queue.look()


@pytest.fixture
def world(tmp_path):
    return World(tmp_path / "jobs")


def job(name="p1", kind="plan", **fields):
    values = {"question": Question(), "commands": (("plan",),), "shown": ("plan",), "user": "", "minutes": 5.0}
    values["created"] = settings.now()
    return SiteJob(id=name, kind=kind, **{**values, **fields})


def test_equal_job_is_one_until_it_fails(world):
    queue = world.queue()
    first = queue.ask(job())
    assert queue.ask(job(user="other")).created == first.created
    queue.look()
    world.end(queue, "p1", 4)
    assert queue.get("p1").state == "failed"
    assert queue.ask(job()).state == "waiting"
    queue.look()
    world.end(queue, "p1", 0)
    assert queue.ask(job()).state == "done"
    assert len(world.words) == 2


def test_plan_is_made_again_after_ten_minutes(world):
    queue = world.queue()
    queue.ask(job())
    queue.look()
    world.end(queue, "p1", 0)
    assert queue.ask(job(created=settings.now() + 599)).state == "done"
    assert queue.ask(job(created=settings.now() + 601)).state == "waiting"


def test_one_build_runs_at_once_in_the_order_of_asking(world):
    queue = world.queue()
    for number in range(3):
        queue.ask(job(f"b{number}", "build", commands=((f"build {number}",),)))
    queue.ask(job())
    queue.look()
    assert world.words == [("build 0",), ("plan",)]
    world.end(queue, "b0", 0)
    assert world.words[2:] == [("build 1",)]


@pytest.mark.parametrize(("result", "state"), [(b"{}", "done"), (b'{"half', "waiting"), (b"", "waiting")])
def test_restart_after_the_child_ended_takes_a_whole_result_alone(world, result, state):
    queue = world.queue()
    queue.ask(job())
    queue.look()
    (world.folder / "p1/result").write_bytes(result)
    assert world.queue().get("p1").state == state


def test_restart_while_the_child_runs_waits_for_it(world):
    queue = world.queue()
    queue.ask(job())
    queue.look()
    later = world.queue(alive=True)
    later.look()
    assert (later.get("p1").state, len(world.words)) == ("running", 1)
    world.end(later, "p1", -1)
    assert later.get("p1").state == "done"


def test_killed_child_is_started_again_a_few_times(world):
    queue = world.queue()
    queue.ask(job())
    for _ in range(ATTEMPTS):
        queue.look()
        world.end(queue, "p1", -9, b"")
    assert (queue.get("p1").state, len(world.words)) == ("failed", ATTEMPTS)


def test_cancelled_job_ends_its_child_and_is_not_taken_for_done(world):
    queue = world.queue()
    queue.cancel(queue.ask(job("b1", "build")))
    assert queue.get("b1").state == "cancelled"
    queue.ask(job("b2", "build"))
    queue.look()
    child = world.children["b2"]
    queue.cancel(queue.get("b2"))
    assert child.ended == [False]
    assert queue.ask(job("b2", "build")).state == "cancelled"
    world.end(queue, "b2", 0)
    assert queue.get("b2").state == "cancelled"


def test_build_behind_others_says_how_many(world):
    queue = world.queue()
    for number in range(3):
        queue.ask(job(f"b{number}", "build"))
    queue.ask(job())
    queue.look()
    assert [queue.ahead(queue.get(name)) for name in ("b0", "b1", "b2", "p1")] == [0, 1, 2, 0]


def test_lock_that_a_killed_child_s_processes_hold_is_waited_for(world):
    queue = world.queue()
    busy = [BlockingIOError(), None]
    start, queue._start = queue._start, lambda *words: (busy[0] is None and start(*words)) or throw(busy[0])
    queue.ask(job())
    queue.look()
    assert (queue.get("p1").state, queue.get("p1").attempts) == ("waiting", 0)
    busy.pop(0)
    queue.look()
    assert (queue.get("p1").state, queue.get("p1").attempts) == ("running", 1)


def throw(error):
    raise error


def test_job_past_its_minutes_is_ended(world, monkeypatch):
    queue = world.queue()
    queue.ask(job())
    queue.look()
    late = settings.now() + 301
    monkeypatch.setattr(settings, "now", lambda: late)
    queue.look()
    assert "more than 5 minutes" in queue.get("p1").note
    assert world.children["p1"].ended == [False]


def test_further_command_gets_the_layout_of_the_first(world):
    queue = world.queue()
    queue.ask(job("b1", "build", commands=(("image",), ("convert", LAYOUT))))
    queue.look()
    world.end(queue, "b1", 0, b'{"layout": "/dist/torch/1.0/oci"}')
    assert world.words == [("image",), ("convert", "/dist/torch/1.0/oci")]
    world.children["b1"].code = 0
    queue.look()
    assert queue.get("b1").state == "done"


def test_damaged_folder_is_left_aside_and_old_jobs_go(world, monkeypatch):
    monkeypatch.setattr("buildsite.queue.KEPT", kept := 20)
    (world.folder / "p9").mkdir(parents=True)
    (world.folder / "p9/job.json").write_text('{"id": "p8"')
    queue = world.queue()
    assert (queue.get("p9"), list(world.folder.iterdir())) == (None, [])
    for number in range(kept + 2):
        queue.cancel(queue.ask(job(f"p{number}")))
    assert len(list(world.folder.iterdir())) <= kept + 1
    assert queue.get("p0") is None


def test_job_that_is_to_be_kept_outlives_others(world, monkeypatch):
    monkeypatch.setattr("buildsite.queue.KEPT", 1)
    queue = world.queue()
    queue.keeps = lambda job: job.kind == "build"
    for name in ("b1", "p1", "p2", "p3"):
        queue.cancel(queue.ask(job(name, "build" if name == "b1" else "plan")))
    queue.ask(job("p4"))
    assert [name for name in ("b1", "p1", "p2", "p3") if queue.get(name)] == ["b1", "p3"]


def test_each_job_that_ends_is_told_once(world):
    queue, told = world.queue(), []
    queue.after = lambda job: told.append((job.id, job.state))
    for name, code in (("b1", 0), ("b2", 4), ("b3", -15)):
        queue.ask(job(name, "build"))
        queue.look()
        if code < 0:
            queue.cancel(queue.get(name))
        world.end(queue, name, code)
    assert told == [("b1", "done"), ("b2", "failed"), ("b3", "cancelled")]


def test_folder_of_jobs_is_closed_to_others(world):
    world.queue()
    assert world.folder.stat().st_mode & 0o777 == 0o700


def test_requirements_are_in_the_folder_of_the_job(world):
    queue = world.queue()
    queue.ask(job(question=Question(text="dgl\n", file="r.txt")))
    assert (world.folder / "p1/r.txt").read_text() == "dgl\n"
    assert msgspec.json.decode((world.folder / "p1/job.json").read_bytes())["state"] == "waiting"


def test_job_of_two_users_goes_on_until_both_cancel_it(world):
    queue = world.queue()
    queue.ask(job(user="ada"))
    queue.ask(job(user="eve"))
    queue.look()
    assert [queue.get("p1").is_of(name) for name in ("ada", "eve", "bob", "")] == [True, True, False, False]
    queue.cancel(queue.get("p1"), "ada")
    assert (queue.get("p1").state, queue.get("p1").is_of("ada")) == ("running", False)
    queue.cancel(queue.get("p1"), "eve")
    assert queue.get("p1").state == "cancelled"


def test_user_with_a_full_queue_is_refused_and_others_are_not(world):
    queue = world.queue()
    for number in range(2):
        queue.ask(job(f"p{number}", user="ada"), 2)
    assert queue.ask(job("p1", user="ada"), 2).id == "p1"
    with pytest.raises(LimitError):
        queue.ask(job("p2", user="ada"), 2)
    assert not (world.folder / "p2").exists()
    assert queue.ask(job("p2", user="eve"), 2).user == "eve"
