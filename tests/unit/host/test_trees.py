"""Trees that others' code left, deep, closed or full of links: walked and removed, or refused by name."""

import contextlib
import gc
import os
import re
import resource
import sys
import threading
from pathlib import Path

import pytest

from debroot import rooted
from graphcrate.artifacts.tree import layers
from graphcrate.artifacts.tree.filesystems import _walk
from graphcrate.artifacts.tree.reader import Selection
from graphcrate.host.disk import cache as caches
from graphcrate.host.disk import cleaning, trees
from graphcrate.host.disk.cache import Cache, living_folder, remove_abandoned
from graphcrate.inputs.bases import normalise
from graphcrate.inputs.wheels import project
from graphcrate.model.errors import BuildError
from tests.made import refused

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
    real = trees.remove_tree
    yield
    for path in tmp_path.iterdir():
        if path.is_dir() and not path.is_symlink():
            real(path)


def open_files():
    return list(Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("name", ["d", "d" * 200])
def test_tree_deeper_than_the_recursion_limit_is_removed(tmp_path, name):
    assert sys.getrecursionlimit() < DEEP
    (tmp_path / "deep").mkdir()
    nest(tmp_path / "deep", DEEP, name)
    nest(tmp_path / "deep", DEEP - 1, f"{name}2")
    trees.remove_tree(tmp_path / "deep")
    assert list(tmp_path.iterdir()) == []


def test_deep_tree_is_removed_with_few_open_files(tmp_path):
    (tmp_path / "deep").mkdir()
    nest(tmp_path / "deep", 500)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    there = len(open_files())
    resource.setrlimit(resource.RLIMIT_NOFILE, (there + trees._OPEN + 10, before[1]))
    try:
        trees.remove_tree(tmp_path / "deep")
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
    trees.remove_tree(root)
    assert not root.exists()
    assert (outside / "kept/file").exists()
    assert outside.stat().st_mode & 0o777 == 0o500
    (tmp_path / "link").symlink_to(outside)
    with pytest.raises(OSError, match="link"):
        trees.remove_tree(tmp_path / "link")
    assert (outside / "kept/file").exists()
    trees.remove_tree(tmp_path / "absent")


@pytest.mark.parametrize("by", ["threads", "the loop"])
def test_folder_swapped_for_a_link_meanwhile_is_not_followed(by, tmp_path, monkeypatch):
    if by == "the loop":
        monkeypatch.setattr(trees._Thinning, "run", lambda self: None)
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "folder").mkdir(parents=True)
    outside.mkdir()
    (outside / "kept").touch()
    real = trees._unlinked

    def swapping(folder, name):
        result = real(folder, name)
        if name == "folder" and not result and not (root / "folder").is_symlink():
            (root / "folder").rmdir()
            (root / "folder").symlink_to(outside)
        return result

    monkeypatch.setattr(trees, "_unlinked", swapping)
    with contextlib.nullcontext() if by == "threads" else pytest.raises(OSError, match="folder"):
        trees.remove_tree(root)
    assert (outside / "kept").exists()
    trees.remove_tree(root)
    assert (outside / "kept").exists()


def fill(root):
    """Many folders, and one with more entries than a thread takes at once."""
    for number in range(40):
        (root / f"{number % 5}/{number}").mkdir(parents=True)
        for name in range(5):
            (root / f"{number % 5}/{number}/{name}").touch()
    (root / "flat").mkdir()
    for name in range(3 * trees._AT_ONCE):
        (root / "flat" / str(name)).touch()


def test_wide_tree_is_removed_by_several_threads_and_no_folder_stays_open(tmp_path, monkeypatch):
    fill(tmp_path / "wide")
    real, seen, several = trees._unlinked, set(), threading.Event()

    def noting(folder, name):
        seen.add(threading.current_thread().name)
        if len(seen) > 1:
            several.set()
        if is_gone := real(folder, name):
            several.wait(10)  # the first file's thread waits for another to come
        return is_gone

    monkeypatch.setattr(trees, "_unlinked", noting)
    before = len(open_files())
    trees.remove_tree(tmp_path / "wide")
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

    real = trees._Thinning.__init__
    fill(tmp_path / "wide")
    before = len(open_files())
    with monkeypatch.context() as patched:
        patched.setattr(trees._Thinning, "__init__", begin)
        with pytest.raises(KeyboardInterrupt):
            trees.remove_tree(tmp_path / "wide")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("remove")]
    assert len(open_files()) == before
    trees.remove_tree(tmp_path / "wide")
    assert not (tmp_path / "wide").exists()


def test_folder_of_a_generator_that_the_collector_ends_is_removed_without_threads(tmp_path, monkeypatch):
    """It may end it while another thread is started, and both would wait for each other."""

    def generate():
        with trees.folder_in(tmp_path) as folder:
            fill(folder)
            yield

    started = []
    monkeypatch.setattr(trees._Thinning, "run", lambda self: started.append(self))
    abandoned = generate()
    next(abandoned)
    del abandoned
    gc.collect()
    assert started == []
    assert list(tmp_path.iterdir()) == []
    with trees.folder_in(tmp_path) as folder:
        fill(folder)
    assert len(started) == 1


def test_tree_is_removed_where_no_thread_can_be_started(tmp_path, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    fill(tmp_path / "wide")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    trees.remove_tree(tmp_path / "wide")
    assert not (tmp_path / "wide").exists()


def test_leftover_that_cannot_be_removed_is_said_and_no_command_ends_by_it(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(trees, "remove_tree", refuse)
    said: list[str] = []
    (tmp_path / "run-a b").mkdir()
    (tmp_path / "run-a b.lock").touch()
    remove_abandoned(tmp_path, "run-", said.append)
    assert (tmp_path / "run-a b").exists()
    with living_folder(tmp_path, "run-", said.append) as folder:
        pass
    assert f"rm -rf '{tmp_path}/run-a b'" in said[0]
    assert str(folder) in said[1]
    cache = Cache(tmp_path / "cache", say=said.append)
    with cache.folder():
        pass
    cache.close()
    assert len(said) == 4


@pytest.mark.parametrize("name", ["d", "d" * 200])
def test_cache_opens_and_counts_and_frees_beside_a_killed_runs_deep_tree(tmp_path, name):
    Cache(tmp_path).close()
    (killed := tmp_path / "tmp" / "run-killed").mkdir()
    killed.with_name("run-killed.lock").touch()
    nest(killed, DEEP, name)
    cache = Cache(tmp_path)
    assert not killed.exists()
    (tmp_path / "built" / "key").mkdir(parents=True)
    nest(tmp_path / "built" / "key", DEEP, name)
    assert cleaning.measure(cache)
    cleaning.release(cache, ["built"])
    cache.close()
    assert not (tmp_path / "built").exists()


WALKS = {
    "base": lambda root: list(normalise.entries(root, {}, "bookworm")),
    "keys": lambda root: normalise.private_keys(root.parent),
    "project": lambda root: list(project._files(root)),
    "image": lambda root: dict(_walk(str(root))),
    "layer": lambda root: layers.read_unpacked(root, Selection(keep=lambda *_: False)),
}


@pytest.mark.parametrize("walk", WALKS)
def test_deep_tree_is_refused_by_name_in_whatever_walks_one(walk, tmp_path):
    (root := tmp_path / "opt").mkdir()
    nest(root, DEEP)
    with refused(BuildError, "folders deep, and 256 is the limit"):
        WALKS[walk](root)


def test_long_path_is_refused_as_a_deep_one_is_and_not_left_out(tmp_path):
    (root := tmp_path / "opt").mkdir()
    nest(root, 40, "d" * 200)
    with refused(BuildError, "folders deep"):
        list(trees.walk(root))
    assert len(list(trees.walk(root, None))) < 40


def test_folder_of_a_guest_with_a_deep_tree_is_removed_at_its_end(tmp_path):
    with trees.folder_in(tmp_path, ".smoke-") as folder:
        nest(folder, DEEP)
    assert list(tmp_path.iterdir()) == []


def test_walk_is_that_of_the_standard_library(tmp_path):
    for name in ("a/b/c", "a/d", "e"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    (tmp_path / "link").symlink_to("a")
    assert list(trees.walk(tmp_path)) == list(os.walk(tmp_path))
    walked = []
    for at, folders, _ in trees.walk(tmp_path):
        folders[:] = [name for name in folders if name != "a"]
        walked.append(at)
    assert walked == [str(tmp_path), str(tmp_path / "e")]
    assert set(trees.entries(tmp_path)) == set(tmp_path.rglob("*"))


def test_folders_are_made_below_each_other_however_many(tmp_path):
    path = tmp_path.joinpath(*["d"] * 900, *["e"] * 120)
    rooted.make_folders(path)
    assert path.is_dir()


def test_no_module_walks_trees_by_what_calls_itself():
    """But the project's own folders, which no one else writes, and guests, who walk their own."""
    ours = {"compat/plan/programs.py", "update/staged.py", "artifacts/formats/runtime_files.py", "engines/context.py"}
    guests = {"inputs/extensions/launcher.py", "inputs/extensions/import_check.py"}
    folder = Path(caches.__file__).parents[1]
    calls = re.compile(r"\bos\.walk\(|\.rglob\(|\brmtree\(|\bTemporaryDirectory\(")
    texts = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}
    writes_nothing = {"smoke/suites.py"}  # a folder with one empty file, which no guest sees
    found = {name for name, text in texts.items() if calls.search(text)}
    assert found - ours - guests - writes_nothing == set()
