"""Trees that others' code left, deep, closed or full of links: walked and removed, or refused by name."""

import contextlib
import os
import resource
import sys
import threading
from pathlib import Path

import pytest

from hostiletrees import removing
from hostiletrees.errors import TooDeepError
from hostiletrees.removing import remove_tree
from hostiletrees.walking import DEEPEST, walk

DEEP = 1500  #: half as deep again as Python calls itself


def nest(folder, depth, name="d"):
    """Folders in folders, made as a hostile program does: each path of them is longer than the kernel takes."""
    opened = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=opened)
        inner = os.open(name, os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=opened))
    os.close(opened)
    return folder


@pytest.fixture(autouse=True)
def _removed(tmp_path):
    """Pytest's own removal calls itself, and ends the whole run by a deep tree."""
    yield
    for path in tmp_path.iterdir():
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)


def open_files():
    return list(Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("name", ["d", "d" * 200])
def test_tree_deeper_than_the_recursion_limit_is_removed(tmp_path, name):
    assert sys.getrecursionlimit() < DEEP
    (tmp_path / "deep").mkdir()
    nest(tmp_path / "deep", DEEP, name)
    nest(tmp_path / "deep", DEEP - 1, f"{name}2")
    remove_tree(tmp_path / "deep")
    assert list(tmp_path.iterdir()) == []


def test_deep_tree_is_removed_with_few_open_files(tmp_path):
    (tmp_path / "deep").mkdir()
    nest(tmp_path / "deep", 500)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    there = len(open_files())
    resource.setrlimit(resource.RLIMIT_NOFILE, (there + removing._OPEN + 10, before[1]))
    try:
        remove_tree(tmp_path / "deep")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len(open_files()) == there
    assert not (tmp_path / "deep").exists()


def test_closed_folders_are_removed_and_what_links_lead_to_stays(tmp_path):
    outside, root = tmp_path / "outside", tmp_path / "root"
    (outside / "kept").mkdir(parents=True)
    (outside / "kept/file").touch()
    for name in ("a/b/c", "x/y", "z"):
        (root / name).mkdir(parents=True)
        (root / name / "file").touch()
        (root / name / "link").symlink_to(outside / "kept")
        (root / name / "loop").symlink_to("loop")
    os.mkfifo(root / "fifo")
    for name in ("a/b/c", "a/b", "x/y", "z", "a", ""):
        (root / name).chmod(0)
    outside.chmod(0o500)
    remove_tree(root)
    assert not root.exists()
    assert (outside / "kept/file").exists()
    assert outside.stat().st_mode & 0o777 == 0o500
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(OSError, match="link"):
        remove_tree(tmp_path / "link")
    assert (outside / "kept/file").exists()
    remove_tree(tmp_path / "absent")


@pytest.mark.parametrize("by", ["threads", "the loop"])
def test_folder_swapped_for_a_link_meanwhile_is_not_followed(by, tmp_path, monkeypatch):
    if by == "the loop":
        monkeypatch.setattr(removing._Thinning, "run", lambda self: None)
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "folder").mkdir(parents=True)
    outside.mkdir()
    (outside / "kept").touch()
    real = removing._unlinked

    def swapping(folder, name):
        result = real(folder, name)
        if name == "folder" and not result and not (root / "folder").is_symlink():
            (root / "folder").rmdir()
            (root / "folder").symlink_to(outside)
        return result

    monkeypatch.setattr(removing, "_unlinked", swapping)
    with contextlib.nullcontext() if by == "threads" else pytest.raises(OSError, match="folder"):
        remove_tree(root)
    assert (outside / "kept").exists()
    remove_tree(root)
    assert (outside / "kept").exists()


def fill(root):
    """Many folders, and one with more entries than a thread takes at once."""
    for number in range(40):
        (root / f"{number % 5}/{number}").mkdir(parents=True)
        for name in range(5):
            (root / f"{number % 5}/{number}/{name}").touch()
    (root / "flat").mkdir()
    for name in range(3 * removing._AT_ONCE):
        (root / "flat" / str(name)).touch()


def test_wide_tree_is_removed_by_several_threads_and_no_folder_stays_open(tmp_path, monkeypatch):
    fill(tmp_path / "wide")
    real, seen, several = removing._unlinked, set(), threading.Event()

    def noting(folder, name):
        seen.add(threading.current_thread().name)
        if len(seen) > 1:
            several.set()
        if is_gone := real(folder, name):
            several.wait(10)  # the first file's thread waits for another to come
        return is_gone

    monkeypatch.setattr(removing, "_unlinked", noting)
    before = len(open_files())
    remove_tree(tmp_path / "wide")
    assert not (tmp_path / "wide").exists()
    assert len(seen) > 1
    assert len(open_files()) == before


def test_interrupted_removal_leaves_no_thread_and_no_open_folder(tmp_path, monkeypatch):
    class Interrupted(threading.Event):
        def wait(self, timeout=None):
            raise KeyboardInterrupt

    def begin(self, top):
        real(self, top)
        self._done = Interrupted()

    real = removing._Thinning.__init__
    fill(tmp_path / "wide")
    before = len(open_files())
    with monkeypatch.context() as patched:
        patched.setattr(removing._Thinning, "__init__", begin)
        with pytest.raises(KeyboardInterrupt):
            remove_tree(tmp_path / "wide")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("remove")]
    assert len(open_files()) == before
    remove_tree(tmp_path / "wide")
    assert not (tmp_path / "wide").exists()


def test_tree_is_removed_where_no_thread_can_be_started(tmp_path, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    fill(tmp_path / "wide")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    remove_tree(tmp_path / "wide")
    assert not (tmp_path / "wide").exists()


@pytest.mark.parametrize("name", ["d", "d" * 200])
def test_tree_that_is_too_deep_or_has_paths_too_long_is_refused(tmp_path, name):
    nest(tmp_path, DEEP, name)
    with pytest.raises(TooDeepError, match="folders deep") as caught:
        list(walk(tmp_path))
    assert caught.value.path.startswith(name)
    assert caught.value.depth <= DEEPEST + 1
    with pytest.raises(LookupError):
        list(walk(tmp_path, refused=lambda root, path: LookupError(path)))
    assert list(walk(tmp_path, None))


def test_walk_is_that_of_the_standard_library(tmp_path):
    for name in ("a/b/c", "a/d", "e"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    (tmp_path / "link").symlink_to("a")
    assert list(walk(tmp_path)) == list(os.walk(tmp_path))
    walked = []
    for at, folders, _ in walk(tmp_path):
        folders[:] = [name for name in folders if name != "a"]
        walked.append(at)
    assert walked == [str(tmp_path), str(tmp_path / "e")]
