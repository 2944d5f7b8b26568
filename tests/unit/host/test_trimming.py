"""The cache stays within what it may take: what was not used for the longest time goes first (`host.disk.cleaning`)."""

import os
from unittest.mock import Mock

import pytest

from graphcrate.artifacts import shares
from graphcrate.host.disk import cleaning
from graphcrate.host.disk.cache import Cache, most_bytes
from graphcrate.host.progress import Progress
from graphcrate.model.errors import UsageError

BLOCK = 4096  #: of the file systems that tests run on, at least


class Told(Progress):
    def __init__(self):
        self.lines = []

    def note(self, message):
        self.lines.append(message)


@pytest.fixture
def said():
    return Told()


def fill(cache, name, days, blocks=10):
    """Write an entry of the cache that was used last so many days ago; 0: by this run."""
    path = cache.root.joinpath(*name.split("/"))
    is_file = path.parent.name == "sha256"
    (path.parent if is_file else path).mkdir(parents=True, exist_ok=True)
    (path if is_file else path / "content").write_bytes(os.urandom(blocks * BLOCK))
    when = cache.began - days * 86400 if days else cache.began + 1
    os.utime(path, (when, when))
    return path


def opened(folder, most):
    cache = Cache(folder / "cache", most)
    cache.has_grown = True
    return cache


def test_what_was_not_used_for_the_longest_time_goes_first_and_no_more_than_needed(tmp_path, said):
    cache = opened(tmp_path, 25 * BLOCK)
    old, older, new = (fill(cache, f"files/{name}", days) for name, days in (("b", 2), ("c", 9), ("a", 0)))
    freed = cleaning.keep_within(cache, said)
    assert (old.exists(), older.exists(), new.exists()) == (True, False, True)
    assert freed == 10 * BLOCK
    (line,) = said.lines
    assert "1 of files/" in line
    assert "GRAPHCRATE_CACHE_MAX" in line
    assert list((cache.root / "tmp").glob("run-*/*")) == []


def test_room_for_a_build_is_made_of_what_this_run_has_not_used_and_of_no_more_than_needed(tmp_path, said):
    cache = opened(tmp_path, 35 * BLOCK)
    old, older, new = (fill(cache, f"files/{name}", days) for name, days in (("b", 2), ("c", 9), ("a", 0)))
    assert cleaning.make_room(cache, 5 * BLOCK, said) == 0
    assert cleaning.make_room(cache, 10 * BLOCK, said) == 10 * BLOCK
    assert (old.exists(), older.exists(), new.exists()) == (True, False, True)
    assert cleaning.make_room(cache, 60 * BLOCK, said) == 10 * BLOCK
    assert (old.exists(), new.exists()) == (False, True)
    assert cleaning.make_room(cache, 60 * BLOCK, said) == 0
    assert len(said.lines) == 2


def test_no_room_is_asked_for_and_nothing_goes(tmp_path, said):
    cache = opened(tmp_path, 5 * BLOCK)
    path = fill(cache, "files/a", 9)
    assert (cleaning.make_room(cache, 0, said), path.exists(), said.lines) == (0, True, [])


def test_of_what_this_run_used_goes_first_what_the_next_command_does_not_need(tmp_path, said):
    cache = opened(tmp_path, 22 * BLOCK)
    names = ("rootfs/x", "files/x", "toolkits/x", "blobs/sha256/x", "bytecode/1/x")
    paths = [fill(cache, name, 0) for name in names]
    cleaning.keep_within(cache, said)
    assert [path.exists() for path in paths] == [False, False, False, True, True]


@pytest.mark.parametrize(("most", "grown"), [(31 * BLOCK, True), (BLOCK, False)], ids=["within", "nothing written"])
def test_nothing_goes(tmp_path, said, most, grown):
    cache = opened(tmp_path, most)
    cache.has_grown = grown
    paths = [fill(cache, f"files/{number}", number) for number in range(3)]
    assert cleaning.keep_within(cache, said) == 0
    assert (all(path.exists() for path in paths), said.lines) == (True, [])


def test_while_another_run_works_nothing_goes_and_that_is_noted(tmp_path, said):
    cache, other = opened(tmp_path, BLOCK), Cache(tmp_path / "cache")
    path = fill(cache, "files/a", 9)
    assert cleaning.keep_within(cache, said) == 0
    assert path.exists()
    assert "while another run works" in said.lines[0]
    other.close()
    assert cleaning.keep_within(cache, said) > 0


def test_layer_that_an_image_has_too_stays_as_it_takes_nothing(tmp_path, said):
    cache = opened(tmp_path, 0)
    shared, alone = fill(cache, "blobs/sha256/a", 9), fill(cache, "blobs/sha256/b", 9)
    (tmp_path / "dist").mkdir()
    os.link(shared, tmp_path / "dist" / "a")
    cleaning.keep_within(cache, said)
    assert (shared.exists(), alone.exists()) == (True, False)


def test_use_counts_for_folders_and_for_layers_and_leaves_when_a_layer_was_written(tmp_path, said):
    cache = opened(tmp_path, 12 * BLOCK)
    folder, blob = fill(cache, "files/a", 9), fill(cache, "blobs/sha256/b", 9)
    gone = [fill(cache, "files/c", 1), fill(cache, "blobs/sha256/d", 1)]
    written = blob.stat().st_mtime_ns
    (folder / "content").rename(folder / "w.whl")
    assert cache.has_file("a", "w.whl", 10 * BLOCK)
    cache.use(blob)
    cache.use(cache.root / "files" / "absent")
    cleaning.keep_within(cache, said)
    assert [path.exists() for path in gone] == [False, False]
    assert (blob.exists(), blob.stat().st_mtime_ns) == (True, written)
    assert not folder.exists(), "both were used, and a download is the sooner back"


def test_path_in_the_cache_counts_as_use_of_the_whole_entry(tmp_path):
    cache = opened(tmp_path, 0)
    base = fill(cache, "bases/debian/x", 9)
    cache.path("bases", "debian", "x", "layer.json")
    assert base.stat().st_mtime > cache.began - 60


def test_without_a_limit_a_fifth_of_the_disk_is_left_for_others(tmp_path, monkeypatch):
    cache = opened(tmp_path, None)
    monkeypatch.setattr(cache, "free_bytes", lambda: 60)
    limit = cleaning.limit(cache, 40)
    assert limit.bytes == 80
    assert "GRAPHCRATE_CACHE_MAX" in limit.why


@pytest.mark.parametrize(("text", "number"), [("", None), ("20GB", 20 * 10**9), ("0", 0), ("1.5 T", 1_500_000_000_000)])
def test_limit_is_read_as_bytes(text, number):
    assert most_bytes({"GRAPHCRATE_CACHE_MAX": text}) == number


def test_limit_that_is_no_size_is_refused_with_one_that_is():
    with pytest.raises(UsageError, match="'much', which is not a number of bytes") as caught:
        most_bytes({"GRAPHCRATE_CACHE_MAX": "much"})
    assert caught.value.next_step == "export GRAPHCRATE_CACHE_MAX=20GB"


def test_image_costs_layers_of_its_own_and_shared_ones(tmp_path, monkeypatch):
    images = {"a": [("base", 10), ("torch", 100)], "b": [("base", 10), ("pyg", 5), ("pyg", 5)]}
    reports = [
        Mock(tag=tag, layers=[Mock(digest=digest, size=size) for digest, size in layers])
        for tag, layers in images.items()
    ]
    for report in reports:
        report.configure_mock(name="pyg")
        (tmp_path / "pyg" / report.tag).mkdir(parents=True)
        (tmp_path / "pyg" / report.tag / "report.json").touch()
    monkeypatch.setattr(shares, "whole_images", lambda folder: reports)
    assert [(cost.name, cost.alone, cost.shared) for cost in shares.costs(tmp_path)] == [
        ("pyg:a", 100, 10),
        ("pyg:b", 5, 10),
    ]
    assert shares.costs(tmp_path / "absent") == []


def test_cache_is_not_measured_where_all_that_its_disk_has_is_within_the_limit(tmp_path, said, monkeypatch):
    cache = opened(tmp_path, None)
    measured = []
    monkeypatch.setattr(cleaning, "measure", lambda cache: measured.append(cache) or {"files": 100})
    monkeypatch.setattr(cache, "disk_bytes", lambda: 100)
    for free, needed, times in ((400, 300, 0), (400, 301, 1), (25, 0, 0), (24, 0, 1)):
        monkeypatch.setattr(cache, "free_bytes", lambda free=free: free)
        measured.clear()
        if needed:
            cleaning.make_room(cache, needed, said)
        else:
            cleaning.keep_within(cache, said)
        assert len(measured) == times, (free, needed)
