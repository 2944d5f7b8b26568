"""Whose cache it is: nothing is taken from one that others may write to, and honest users' caches go on."""

import grp
import os
import stat
from pathlib import Path

import pytest

from graphcrate.host.disk import ownership
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.ownership import SHARED, group_of
from graphcrate.model.errors import CacheError, UsageError
from tests.made import refused

OTHER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


def opened(root, group=None):
    """Open a cache; what it said."""
    said = []
    cache = Cache(root, say=said.append, group=group)
    cache.close()
    return said


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_new_cache_is_its_users_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        assert opened(tmp_path / "cache") == []
    finally:
        os.umask(before)
    assert mode(tmp_path / "cache") == 0o700
    assert opened(tmp_path / "cache") == []


def test_cache_of_umask_022_stays_as_it_is(tmp_path):
    opened(root := tmp_path / "cache")
    root.chmod(0o755)
    assert opened(root) == []
    assert mode(root) == 0o755


@pytest.mark.parametrize("was", [0o775, 0o2775, 0o777, 0o770])
def test_own_cache_that_others_could_write_to_is_closed_once_and_said(tmp_path, was):
    opened(root := tmp_path / "cache")
    for path in (root, *root.iterdir()):
        path.chmod(was)
    (line,) = opened(root)
    assert f"the cache {root} could be written to by" in line
    assert "is yours alone now" in line
    assert mode(root) == 0o700
    assert opened(root) == []


def test_own_folder_in_an_open_cache_is_closed(tmp_path):
    opened(root := tmp_path / "cache")
    root.chmod(0o755)
    (root / "files").chmod(0o777)
    opened(root)
    assert mode(root / "files") == 0o755


@pytest.mark.parametrize("was", [0o777, 0o1777, 0o775])
def test_folder_that_is_no_cache_is_refused_and_left_as_it_is(tmp_path, was):
    (tmp_path / "project").mkdir()
    (tmp_path / "project").chmod(was)
    with refused(CacheError, "others may write to", "GRAPHCRATE_CACHE="):
        opened(tmp_path / "project")
    assert mode(tmp_path / "project") == was
    assert list((tmp_path / "project").iterdir()) == []


def test_sticky_cache_for_everybody_is_refused(tmp_path):
    opened(root := tmp_path / "cache")
    root.chmod(0o1777)
    with refused(CacheError, "others may write to"):
        opened(root)
    assert mode(root) == 0o1777


@as_root
@pytest.mark.parametrize("was", [0o700, 0o755, 0o775, 0o2770])
def test_cache_of_another_user_is_refused_to_root_too(tmp_path, was):
    opened(root := tmp_path / "cache")
    root.chmod(was)
    os.chown(root, OTHER, OTHER)
    before = sorted(root.rglob("*"))
    with refused(CacheError, f"belongs to user {OTHER}", "GRAPHCRATE_CACHE=", SHARED):
        opened(root)
    assert sorted(root.rglob("*")) == before, "nothing was left in it, and nothing removed"


@as_root
@pytest.mark.parametrize(
    "part", ["layers", "layers/key.json", "blobs/sha256/digest", "built/key/a.whl", "bytecode/1/o/0"]
)
def test_what_another_user_put_into_an_open_cache_is_refused(tmp_path, part):
    opened(root := tmp_path / "cache")
    (root / part).parent.mkdir(parents=True, exist_ok=True)
    (root / part).write_text("evil")
    os.chown(root / part, OTHER, OTHER)
    root.chmod(0o775)
    with refused(CacheError, str(root / part), "rm -rf"):
        opened(root)
    assert mode(root) == 0o775, "closed only where nothing of others is in it"


@as_root
def test_insides_of_images_have_the_owners_of_the_images(tmp_path):
    opened(root := tmp_path / "cache")
    for name in ("rootfs/digest/root", "bases/debian/key/rootfs"):
        (root / name).mkdir(parents=True)
        (root / name / "file").touch()
        os.chown(root / name / "file", 33, 33)
    root.chmod(0o775)
    assert len(opened(root)) == 1


@as_root
def test_part_that_another_user_owns_is_refused_when_it_is_used(cache):
    path = cache.path("built", "key")
    path.mkdir()
    os.chown(path, OTHER, OTHER)
    with refused(CacheError, "in the cache is"):
        cache.use(path)
    blob = cache.blob("sha256:" + "0" * 64)
    blob.write_text("evil")
    os.chown(blob, OTHER, OTHER)
    with refused(CacheError, "in the cache is"):
        cache.use(blob)


@as_root
def test_file_server_that_makes_root_another_is_root(tmp_path, monkeypatch):
    """With root_squash root's files belong to another user: the cache too."""
    opened(root := tmp_path / "cache")
    for path in (root, *root.rglob("*")):
        os.chown(path, 65534, 65534)
    monkeypatch.setattr(ownership, "_own_number", lambda _: 65534)
    assert opened(root) == []


@as_root
def test_own_number_is_that_of_a_new_file_and_leaves_none(tmp_path):
    assert ownership._own_number(tmp_path) == os.geteuid()
    assert list(tmp_path.iterdir()) == []


@as_root
def test_shared_cache_says_what_that_means_and_takes_what_others_made(tmp_path):
    before = os.umask(0o022)
    try:
        (line,) = opened(root := tmp_path / "cache", group=OTHER)
        assert "decides what is in the images that you build" in line
        assert (mode(root), root.stat().st_gid) == (0o2770, OTHER)
        assert mode(root / "blobs") & 0o2070 == 0o2070
        assert mode(root / "locks/runs.lock") == 0o660
        os.chown(root / "files", OTHER, OTHER)
        assert len(opened(root, group=OTHER)) == 1
        root.chmod(0o2777)
        with refused(CacheError, "is not of the group", "chmod -R o-w"):
            opened(root, group=OTHER)
        root.chmod(0o2770)
        with refused(CacheError, "is not of the group"):
            opened(root, group=OTHER + 1)
    finally:
        os.umask(before)


def test_shared_group_is_one_of_the_users(monkeypatch):
    assert group_of({}) is None
    name = grp.getgrgid(os.getegid()).gr_name
    assert group_of({SHARED: name}) == group_of({SHARED: str(os.getegid())}) == os.getegid()
    with refused(UsageError, "not a group here"):
        group_of({SHARED: "no-such-group"})
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with refused(UsageError, "you are not in that group"):
        group_of({SHARED: str(OTHER)})


def test_link_to_a_folder_of_ones_own_is_a_cache(tmp_path):
    (tmp_path / "disk").mkdir(0o700)
    (tmp_path / "link").symlink_to("disk")
    assert opened(Path(tmp_path / "link")) == []


def test_part_that_another_run_removes_meanwhile_is_no_error(tmp_path, monkeypatch):
    root = tmp_path / "cache"
    root.mkdir(mode=0o700)
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([folder / "blobs"]))
    assert ownership.checked(root, None, print).owner == root.stat().st_uid
