"""Watched files: every way in which an editor writes one is a change, and what programs write themselves is none."""

import pytest

from graphcrate.host import settings
from graphcrate.host.disk import watching
from graphcrate.host.disk.watching import Watch
from graphcrate.model.errors import UsageError
from tests.made import refused


def renamed(path):
    (path.parent / ".new").write_text("1")
    (path.parent / ".new").replace(path)


CHANGES = [lambda path: path.write_text("22"), renamed, lambda path: (path.parent / "b.py").write_text("")]


@pytest.mark.parametrize("change", CHANGES)
def test_change_is_seen_and_known_afterwards(tmp_path, monkeypatch, change):
    monkeypatch.setattr(settings, "wait", lambda seconds: None)
    path = tmp_path / "a.py"
    path.write_text("1")
    watch = Watch([tmp_path])
    assert not watch.changed()
    change(path)
    assert watch.changed()
    assert watch.wait().endswith(".py")
    assert not watch.changed()


def test_file_that_is_away_while_an_editor_writes_it_is_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "a.py"
    path.write_text("1")
    watch = Watch([path])
    path.unlink()
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) <= 3:
            path.write_text("1" * len(waits))

    monkeypatch.setattr(settings, "wait", wait)
    assert watch.wait() == str(path)
    assert len(waits) == 4, "it is written to its end"


@pytest.mark.parametrize("name", ["__pycache__/a.pyc", ".git/index", ".a.py.swp"])
def test_what_programs_and_editors_write_beside_the_code_is_no_change(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    watch = Watch([tmp_path])
    (tmp_path / name).write_text("x")
    assert not watch.changed()


def test_what_is_not_there_or_too_much_is_refused(tmp_path, monkeypatch):
    with refused(UsageError, "to watch"):
        Watch([tmp_path / "none"])
    monkeypatch.setattr(watching, "_MOST_FILES", 2)
    for name in "abc":
        (tmp_path / name).touch()
    with refused(UsageError, "more than 2 files"):
        Watch([tmp_path])
