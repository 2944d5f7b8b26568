"""The cache: whole or absent, cleaned after a killed run, clear about full disks and missing permission."""

import errno
import fcntl
import os
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from graphcrate.host.disk.cache import Cache, default_root
from graphcrate.host.disk.living import living_folder, remove_abandoned
from graphcrate.host.disk.sealed import kept, kept_bytes
from graphcrate.host.disk.space import require_room
from graphcrate.host.disk.trees import remove_tree
from graphcrate.model.errors import CacheError, DiskFullError, IntegrityError
from tests.engines.workplace import Workplace, below, until
from tests.made import refused


def test_cache_root_follows_the_environment():
    environment = {"GRAPHCRATE_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}
    for name, root in (
        ("GRAPHCRATE_CACHE", "/a"),
        ("XDG_CACHE_HOME", "/b/graphcrate"),
        ("HOME", "/c/.cache/graphcrate"),
    ):
        assert default_root(environment) == Path(root)
        del environment[name]


def test_cache_root_may_begin_with_a_variable_of_the_job():
    environment = {"GRAPHCRATE_CACHE": "$SLURM_TMPDIR/cache", "SLURM_TMPDIR": "/local"}
    assert default_root(environment) == Path("/local/cache")
    assert default_root({**environment, "GRAPHCRATE_CACHE": "${SLURM_TMPDIR}"}) == Path("/local")
    with refused(CacheError, "is $JOBDIR/cache, and $JOBDIR is not set here", "GRAPHCRATE_CACHE=/path"):
        default_root({**environment, "GRAPHCRATE_CACHE": "$JOBDIR/cache"})


def test_cache_root_without_home_is_an_error_with_graphcrate_cache(monkeypatch):
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    with pytest.raises(CacheError, match="HOME is not set") as caught:
        default_root({})
    assert "GRAPHCRATE_CACHE=/path" in caught.value.next_step


def test_cache_file_after_a_failed_write_is_absent(cache, monkeypatch):
    target = cache.file("0" * 64, "a.whl")
    with monkeypatch.context() as patch, pytest.raises(DiskFullError):  # noqa: PT012
        patch.setattr(os, "fsync", Mock(side_effect=OSError(errno.EDQUOT, "Disk quota exceeded")))
        cache.write(target, b"half")
    assert not target.exists()
    before = os.umask(0o077)
    cache.write(target, b"whole")
    os.umask(before)
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"whole", 0o644)


def test_cache_record_is_read_back_or_none_if_damaged(cache):
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
    assert kept_bytes(target / "below a file") is None


def test_cache_removes_folders_of_killed_runs_only(tmp_path):
    living, dead = Cache(tmp_path), tmp_path / "tmp" / "run-dead"
    dead.mkdir()
    Path(f"{dead}.lock").touch()
    with living.folder() as folder:
        (folder / "work").touch()
        Cache(tmp_path).close()
        assert ((folder / "work").exists(), dead.exists()) == (True, False)
    assert not folder.exists()
    living.close()
    assert not list((tmp_path / "tmp").iterdir())


def test_cache_run_folder_is_locked_before_it_exists(tmp_path, monkeypatch):
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


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_lock_file_that_cannot_be_locked_is_removed(tmp_path, monkeypatch, number):
    """It would never be taken away: `remove_abandoned` cannot lock it either."""
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(OSError, match=os.strerror(number)), living_folder(tmp_path, "run-"):
        pass
    assert not list(tmp_path.iterdir())


def test_disk_without_locks_has_working_folders_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOSYS, "Function not implemented")))
    with living_folder(tmp_path, "run-") as folder:
        remove_abandoned(tmp_path, "run-")
        assert folder.is_dir()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_cache_on_a_disk_without_locks_lets_one_process_at_a_time_do_a_thing(tmp_path, monkeypatch, number):
    """Also where the same cache was used from a machine that has them, whose locks' files stay there."""
    first = Cache(tmp_path / "cache")
    with first.exclusively("layer-a"), first.alone():
        pass
    first.close()
    assert list((tmp_path / "cache").rglob("layer-a.lock")) != []
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(number, os.strerror(number))))
    waited = []

    def until(acquired, *_):
        waited.append(acquired())
        raise KeyboardInterrupt

    monkeypatch.setattr("graphcrate.host.disk.waiting.until", until)
    cache = Cache(tmp_path / "cache")
    for _ in range(2):
        with cache.exclusively("runs"), cache.exclusively("layer-a"):
            with pytest.raises(KeyboardInterrupt), cache.exclusively("layer-a"):
                pass
    assert waited == [False, False]
    with cache.folder() as folder:
        assert folder.is_dir()
    cache.close()


def test_leftovers_of_other_prefixes_stay_whatever_signs_they_have(tmp_path):
    """A target's name, which its parts begin with, may hold what glob(7) takes for a pattern."""
    for name in (".a.part-1", ".b.part-1", ".[ab].part-1"):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.lock").touch()
    remove_abandoned(tmp_path, ".[ab].part-")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [".a.part-1", ".b.part-1"]


def test_cache_freed_alone_has_no_folders_of_killed_runs(cache):
    dead = cache.root / "tmp" / "run-dead"
    dead.mkdir()
    Path(f"{dead}.lock").touch()
    with cache.alone():
        assert [path.name for path in (cache.root / "tmp").glob("run-*") if path.is_dir()] == [cache.own.name]


def test_leftovers_of_the_tests_are_files_of_ended_commands_not_of_running_ones(tmp_path):
    """Two workers' commands share a cache: what one unpacks was taken for what the other had left."""
    (tmp := tmp_path / "cache" / "tmp").mkdir(parents=True)
    place = Workplace(tmp_path, tmp_path / "cache")
    with living_folder(tmp, "run-") as held:
        (held / "half").touch()
        (killed := tmp / "run-killed").mkdir()
        (killed / "half").touch()
        killed.with_name("run-killed.lock").touch()
        assert place.leftovers() == [killed / "half"]


def test_entries_that_go_while_the_tests_walk_a_folder_end_no_walk(tmp_path):
    """`Path.rglob` raises for a folder that another process removed between its listing and its reading."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    walked = below(tmp_path)
    seen = {next(walked).name}
    for path in tmp_path.iterdir():
        path.rmdir()
    assert seen | {path.name for path in walked} == {"a", "b", "c"}
    once = iter((FileNotFoundError("it went"), 1))
    until(lambda: raised(next(once)))


def raised(result):
    if isinstance(result, Exception):
        raise result
    return result


def test_cache_adopt_keeps_the_folder_of_the_first_run(cache):
    target = cache.path("rootfs", "key")
    target.mkdir(parents=True)
    (target / "first").touch()
    with cache.folder() as folder:
        (folder / "second").touch()
        cache.adopt(folder, target)
    assert [path.name for path in target.iterdir()] == ["first"]


def test_cache_adopt_of_a_folder_fails_as_the_disk_does(cache, monkeypatch):
    with pytest.raises(DiskFullError), cache.folder() as folder:  # noqa: PT012
        monkeypatch.setattr(Path, "rename", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        cache.adopt(folder, cache.path("rootfs", "key"))


@pytest.mark.parametrize("name", ["..", ".", "", "/etc/passwd", "a/b", "../x", "a\0b"])
def test_cache_path_of_a_name_that_leads_elsewhere_is_refused(cache, name):
    """Locks, indexes and images name hashes and files."""
    for path in (
        lambda: cache.file("0" * 64, name),
        lambda: cache.file(name, "a.whl"),
        lambda: cache.blob(f"sha256:{name}"),
        lambda: cache.path("records", name),
    ):
        with refused(IntegrityError, "is not a name that a file of the cache may have"):
            path()


@pytest.mark.parametrize(
    ("kind", "codes"),
    [(DiskFullError, (errno.ENOSPC, errno.EDQUOT)), (CacheError, (errno.EROFS, errno.EACCES, errno.ENOLCK))],
)
def test_cache_guard_maps_os_errors_with_a_next_step(cache, kind, codes):
    for code in codes:
        with refused(kind, "GRAPHCRATE_CACHE="), cache.guard():
            raise OSError(code, os.strerror(code))


def test_cache_on_a_full_disk_or_below_a_file_is_an_error(cache):
    (cache.root / "file").touch()
    with pytest.raises(CacheError):
        Cache(cache.root / "file" / "cache")
    with refused(DiskFullError, "free under"):
        cache.require(1 << 60, "the layers")
    cache.require(1, "a byte")
    require_room(cache.root / "not" / "yet" / "there", 1, "a byte")


def test_remove_tree_removes_read_only_folders(tmp_path):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (inside / "c").touch()
    for folder in (inside, tmp_path / "a"):
        folder.chmod(0o500)
    for _ in range(2):
        remove_tree(tmp_path / "a")
        assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(("kind", "asked"), [("ext4", 2), ("xfs", 0), ("", 0)])
def test_folders_of_a_run_are_placed_apart_on_ext4_alone(monkeypatch, tmp_path, kind, asked):
    """Those of all runs and those of this one; the other flags stay."""
    extents, apart, told = 0x80000, 0x20000, []

    def ioctl(_, number, value):
        told.append(int.from_bytes(value, sys.byteorder))
        return extents.to_bytes(8, sys.byteorder)

    monkeypatch.setattr("graphcrate.host.disk.space.file_system", lambda _: kind)
    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    Cache(tmp_path / "cache").close()
    assert told == [0, extents | apart] * asked


def test_disk_that_refuses_to_place_folders_apart_is_used_as_it_is(monkeypatch, tmp_path):
    monkeypatch.setattr("graphcrate.host.disk.space.file_system", lambda _: "ext4")
    monkeypatch.setattr(fcntl, "ioctl", Mock(side_effect=OSError(errno.ENOTTY, "")))
    Cache(tmp_path / "cache").close()
