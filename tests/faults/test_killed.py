"""kill -9 at any moment: the same command ends well afterwards, with the same bytes, and nothing else is left."""

import contextlib
import hashlib
import os
import random
import signal
import time

from graphcrate.host.disk.trees import discard
from tests.engines.workplace import finish, kill, until
from tests.faults import project
from tests.faults.rows import ALL, Ended, Watch, row

KILLS = (
    dict.fromkeys(("build", "convert", "publish", "test"), 125)
    if ALL
    else {"build": 6, "convert": 3, "publish": 5, "test": 4}
)


def struck(place, command, seconds, random_, alone):
    """Start a command and kill it at some moment of its usual time. `alone`: without what it started."""
    process = place.start(*command)
    time.sleep(random_.uniform(0, seconds))
    if not alone:
        kill(process)
        return
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: not project.processes(str(place.cache.parent)), 120)  # what it started ends by itself
    process.communicate()


def many(place, name, command, check, prepare=lambda: None):
    """Kill a command as often as this row has it, each time followed by the whole command; how that went."""
    random_, watch = random.Random(name), Watch()
    prepare()
    assert place.run(*command).code == 0
    usual = watch.seconds
    slowest = 0.0
    for number in range(KILLS[name]):
        prepare()
        struck(place, command, usual, random_, alone=number % 2 == 1)
        watch = Watch()
        done = place.run(*command).ok()
        slowest = max(slowest, watch.seconds)
        check(done)
        assert project.left_behind(place) == []
    how = (
        f"{KILLS[name]} of {KILLS[name]}: the same command ended well, the same digest, no mount, process or file left"
    )
    return Ended(how, slowest)


@row("Host", "kill -9 at random moments of a build", "`image`, from an empty cache; every second time its parent alone")
def test_build(origin, cold):
    def check(done):
        assert done.json["digest"] == origin.digest

    def prepare():
        for folder in (cold.cache, cold.folder / "dist"):
            discard(folder, print)

    return many(cold, "build", (*project.IMAGE, "--json"), check, prepare)


@row("Host", "kill -9 at random moments of a conversion", "`convert --to sif` and `--to sqsh`, in turn")
def test_convert(origin, warm):
    layout = warm.layout(origin.report)
    whole = {}

    def prepare():
        for path in warm.folder.glob("made.*"):
            path.unlink()

    ends = []
    for form in ("sif", "sqsh"):
        command = ("convert", layout, "--to", form, "--output", f"made.{form}", "--compression", "zstd", "--json")
        prepare()
        whole[form] = warm.run(*command).json["sha256"]

        def check(done, form=form):
            made = warm.folder / f"made.{form}"
            assert done.json["sha256"] == whole[form]
            assert hashlib.sha256(made.read_bytes()).hexdigest() == whole[form]

        ends.append(many(warm, "convert", (*command, "--force"), check, prepare))
    return max(ends, key=lambda ended: ended.seconds)._replace(how=ends[0].how.replace("of", "and", 1))


@row("Host", "kill -9 at random moments of a push", "`publish` to an empty registry")
def test_publish(origin, warm):
    command = ("publish", f"torch:{origin.tag}", "--to", f"{origin.door.address}/killed", "--allow-cpu-only")

    def prepare():
        for name in [name for name in origin.registry.documents if name.startswith("killed/")]:
            del origin.registry.documents[name]
        origin.registry.homes.pop("killed/torch", None)

    return many(warm, "publish", command, lambda _: project.whole(origin.registry, "killed/torch", origin.tag), prepare)


@row("Host", "kill -9 at random moments of a smoke test", "`test --rerun`")
def test_test(origin, warm):
    command = ("test", f"torch:{origin.tag}", "--rerun", "--json")
    return many(warm, "test", command, lambda done: done.json)


@row("Host", "Ctrl-C in the middle of a build", "`image`, SIGINT to the whole group")
def test_interrupted(origin, cold):
    for number in range(5):  # on a busy machine the build may be over before we look
        discard(cold.cache, print)
        process = cold.start(*project.IMAGE, "--output", f"dist/{number}")
        with contextlib.suppress(AssertionError, ProcessLookupError):
            until(lambda: any((cold.cache / "tmp").glob("run-*/*/*")), 300, process)
            os.killpg(process.pid, signal.SIGINT)
        if (ended := finish(process)).code:
            break
    assert ended.code == 130, ended.err
    assert "Traceback" not in ended.err
    assert project.left_behind(cold) == []
    return Ended("exit code 130; the same command went on", project.goes_on(cold, origin.digest))
