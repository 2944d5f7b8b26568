"""A run that waits for another says what for, within seconds."""

import os
import threading

import pytest

from graphcrate.host.disk import atomic, waiting
from graphcrate.host.disk.cache import Cache


@pytest.fixture
def clock(monkeypatch):
    """A time that goes on by a second with each sleep."""
    now = [100.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(waiting.time, "sleep", lambda _: now.__setitem__(0, now[0] + 1))
    return now


def answers(*values):
    left = list(values)
    return lambda: left.pop(0)


@pytest.mark.parametrize(("seconds", "lines"), [(0, 0), (2, 0), (3, 1), (40, 1), (70, 2)])
def test_short_wait_prints_nothing_and_a_long_wait_repeats_its_line(clock, capsys, tmp_path, seconds, lines):
    waiting.until(answers(*[False] * seconds, True), tmp_path / "layer-1.lock", "writes the same layer")
    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    assert all(line.startswith("waiting for another run of graphcrate, which writes the same layer") for line in said)
    assert [" s so far" in line for line in said] == [False, True][:lines]


def test_lock_owner_is_named_by_its_process_id(tmp_path, monkeypatch):
    lock = tmp_path / "a.lock"
    lock.touch()
    found = lock.stat()
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    locks = tmp_path / "locks"
    monkeypatch.setattr(waiting, "_LOCKS", locks)
    for number, name in (("4711", " (process 4711)"), ("0", "")):
        locks.write_text(
            f"1: FLOCK  ADVISORY  WRITE 12 {place}:{found.st_ino + 1} 0 EOF\n"
            f"2: FLOCK  ADVISORY  WRITE {number} {place}:{found.st_ino} 0 EOF\n"
        )
        assert waiting._who(lock) == f"another run of graphcrate{name}"
    assert waiting._who(tmp_path / "gone") == "another run of graphcrate"


def held(monkeypatch, lock, work):
    """The messages of `work` beside a holder of the lock for a moment."""
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    there, done = threading.Event(), threading.Event()

    def hold():
        with lock():
            there.set()
            done.wait(10)

    other = threading.Thread(target=hold)
    other.start()
    there.wait(10)
    threading.Timer(0.2, done.set).start()
    with work():
        pass
    other.join()


def test_waiting_for_a_cache_lock_names_the_work_under_it(tmp_path, monkeypatch, capsys):
    one, two = Cache(tmp_path / "cache"), Cache(tmp_path / "cache")
    for name, work in (("layer-1", "writes the same layer"), ("wheelhouse", "compiles"), ("x", "does the same")):
        held(monkeypatch, lambda name=name: one.exclusively(name), lambda name=name: two.exclusively(name))
        assert f", which {work} (" in capsys.readouterr().err
    one.close()
    two.close()


def test_waiting_for_a_layout_of_another_run_is_printed(tmp_path, monkeypatch, capsys):
    target = tmp_path / "oci"
    held(monkeypatch, lambda: atomic.replacing(target), lambda: atomic.replacing(target))
    assert "which writes the same image" in capsys.readouterr().err
