"""Trees that others' code left, deep, closed or full of links: walked and removed, or refused by name."""

import gc
import os
import re
from pathlib import Path

import pytest

from debroot import rooted
from graphcrate.artifacts.tree import layers
from graphcrate.artifacts.tree.filesystems import _walk
from graphcrate.artifacts.tree.reader import Selection
from graphcrate.host.disk import cache as caches
from graphcrate.host.disk import cleaning, trees
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.living import living_folder, remove_abandoned
from graphcrate.inputs.bases import normalise
from graphcrate.inputs.wheels import project
from graphcrate.model.errors import BuildError
from hostiletrees import removing
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


def fill(root):
    """Many folders, and one with more entries than a thread takes at once."""
    for number in range(40):
        (root / f"{number % 5}/{number}").mkdir(parents=True)
        for name in range(5):
            (root / f"{number % 5}/{number}/{name}").touch()
    (root / "flat").mkdir()
    for name in range(200):
        (root / "flat" / str(name)).touch()


def test_folder_of_a_generator_that_the_collector_ends_is_removed_without_threads(tmp_path, monkeypatch):
    """It may end it while another thread is started, and both would wait for each other."""

    def generate():
        with trees.folder_in(tmp_path) as folder:
            fill(folder)
            yield

    started = []
    monkeypatch.setattr(removing._Thinning, "run", lambda self: started.append(self))
    abandoned = generate()
    next(abandoned)
    del abandoned
    gc.collect()
    assert started == []
    assert list(tmp_path.iterdir()) == []
    with trees.folder_in(tmp_path) as folder:
        fill(folder)
    assert len(started) == 1


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


def test_entries_and_files_are_those_of_the_standard_library(tmp_path):
    for name in ("a/b/c", "a/d", "e"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    assert set(trees.entries(tmp_path)) == set(tmp_path.rglob("*"))
    assert set(trees.files(tmp_path)) == set(tmp_path.rglob("file"))


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
