"""The cache: whole or absent, cleaned after a killed run, clear about full disks and missing permission."""

import errno
import fcntl
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from graphcrate.host.cache import (
    Cache,
    default_root,
    kept,
    kept_bytes,
    living_folder,
    remove_abandoned,
    remove_tree,
)
from graphcrate.model.errors import CacheError, DiskFullError


@pytest.mark.parametrize(
    ("environment", "root"),
    [
        ({"GRAPHCRATE_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/graphcrate"),
        ({"HOME": "/c"}, "/c/.cache/graphcrate"),
    ],
)
def test_the_root_follows_the_environment(environment, root):
    assert default_root(environment) == Path(root)


def test_where_no_home_folder_is_known_a_folder_is_asked_for(monkeypatch):
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    with pytest.raises(CacheError, match="HOME is not set") as caught:
        default_root({})
    assert "GRAPHCRATE_CACHE=/path" in caught.value.next_step


def test_a_file_is_whole_or_absent(cache, monkeypatch):
    target = cache.file("0" * 64, "a.whl")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", Mock(side_effect=OSError(errno.EDQUOT, "Disk quota exceeded")))
        with pytest.raises(DiskFullError):
            cache.write(target, b"half")
    assert not target.exists()
    before = os.umask(0o077)
    try:
        cache.write(target, b"whole")
    finally:
        os.umask(before)
    assert target.read_bytes() == b"whole"
    assert target.stat().st_mode & 0o777 == 0o644


def test_a_record_comes_back_or_is_none(cache):
    target = cache.path("records", "a.json")
    assert kept(target, list[int]) is None
    cache.keep(target, b"[1,2]")
    whole = target.read_bytes()
    assert kept(target, list[int]) == [1, 2]
    for position in range(len(whole)):
        target.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert kept(target, list[int]) is None, position
        target.write_bytes(whole[:position])
        assert kept(target, list[int]) in (None, [1, 2]), position
    target.write_bytes(b"[3]")
    assert kept_bytes(target) == b"[3]", "of a version without checksums"


def test_what_a_killed_run_left_is_removed_and_a_living_one_is_kept(tmp_path):
    root = tmp_path / "cache"
    living = Cache(root)
    dead = root / "tmp" / "run-dead"
    dead.mkdir()
    (dead / "half").write_bytes(b"x")
    Path(f"{dead}.lock").touch()
    with living.folder() as folder:
        (folder / "work").touch()
        Cache(root).close()
        assert (folder / "work").exists()
    assert not dead.exists()
    living.close()
    assert not list((root / "tmp").iterdir())


def test_no_kill_leaves_a_folder_without_its_file_and_no_run_takes_a_living_one(tmp_path, monkeypatch):
    """The file is there and locked before the folder, also where another run removed it as a killed one's."""
    lock, seen = fcntl.flock, []

    def flock(file, how):
        seen.append({path.name for path in tmp_path.iterdir()})
        if len(seen) == 1:
            remove_abandoned(tmp_path, "run-")
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with living_folder(tmp_path, "run-") as folder:
        assert all(name.endswith(".lock") for names in seen for name in names)
        remove_abandoned(tmp_path, "run-")
        assert {path.name for path in tmp_path.iterdir()} == {folder.name, f"{folder.name}.lock"}
    assert not list(tmp_path.iterdir())


def test_a_folder_that_another_run_finished_first_stays(cache):
    target = cache.path("rootfs", "key")
    target.mkdir(parents=True)
    (target / "first").touch()
    with cache.folder() as folder:
        (folder / "second").touch()
        cache.adopt(folder, target)
    assert [path.name for path in target.iterdir()] == ["first"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EROFS, CacheError),
        (errno.EACCES, CacheError),
        (errno.ENOLCK, CacheError),
    ],
)
def test_disk_trouble_is_told_with_a_next_step(cache, code, kind):
    with pytest.raises(kind) as caught, cache.guard():
        raise OSError(code, os.strerror(code))
    assert "GRAPHCRATE_CACHE=" in caught.value.next_step
    (cache.root / "file").touch()
    with pytest.raises(CacheError):
        Cache(cache.root / "file" / "cache")
    with pytest.raises(DiskFullError, match="free under"):
        cache.require(1 << 60, "the layers")
    cache.require(1, "a byte")


def test_folders_without_write_permission_are_removed(tmp_path):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (inside / "c").touch()
    inside.chmod(0o500)
    (tmp_path / "a").chmod(0o500)
    remove_tree(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    remove_tree(tmp_path / "a")
