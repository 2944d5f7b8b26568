"""A shared folder of images: whole files, checksums, the newest by name, and nothing removed that is not ours."""

import concurrent.futures
import errno
import hashlib
import json
import os
import random
from pathlib import Path

import pytest

from graphcrate.destinations import shelf
from graphcrate.errors import DiskFullError, HostError, UsageError
from graphcrate.host import filesystems
from graphcrate.host.progress import Silent


class Heard(Silent):
    """Keeps the notes."""

    def __init__(self):
        self.notes = []

    def note(self, message):
        self.notes.append(message)


@pytest.fixture
def source(tmp_path):
    """A function that gives a file with so many bytes of this seed."""
    (tmp_path / "made").mkdir()

    def make(seed, size=100_000, suffix=".sif"):
        path = tmp_path / "made" / f"any{seed}{suffix}"
        path.write_bytes(random.Random(seed).randbytes(size))
        return path

    return make


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "shared" / "images"


def put(source, folder, tag, name="pyg", **more):
    return shelf.publish(source, folder, name, tag, progress=more.pop("progress", Silent()), **more)


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != shelf.RECORDS)


def leftovers(folder):
    return [path.name for path in folder.rglob(".*.part")]


def test_a_file_lies_there_with_checksum_and_link(source, folder):
    made = source(1)
    done = put(made, folder, "2.3-cu118")
    assert names(folder) == ["pyg-2.3-cu118.sif", "pyg-2.3-cu118.sif.sha256", "pyg.sif"]
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    assert (folder / "pyg-2.3-cu118.sif").read_bytes() == made.read_bytes()
    assert (folder / "pyg-2.3-cu118.sif.sha256").read_text() == f"{digest}  pyg-2.3-cu118.sif\n"
    assert str((folder / "pyg.sif").readlink()) == "pyg-2.3-cu118.sif"
    assert (done.path, done.sha256, done.size) == (str(folder / "pyg-2.3-cu118.sif"), digest, 100_000)
    assert (done.latest, done.removed, done.unchanged) == (str(folder / "pyg.sif"), (), False)
    assert leftovers(folder) == []


def test_the_record_says_what_went_out_without_a_gpu(source, folder):
    def told():
        return json.loads((folder / ".graphcrate/pyg-1.0.sif.json").read_text())["cpu_only"]

    put(source(1), folder, "1.0", cpu_only=True)
    assert told() is True
    put(source(1), folder, "1.0")  # the same file, which has passed on one by now
    assert told() is False


def test_both_kinds_lie_side_by_side(source, folder):
    put(source(1), folder, "1")
    put(source(2, suffix=".sqsh"), folder, "1")
    assert str((folder / "pyg.sif").readlink()) == "pyg-1.sif"
    assert str((folder / "pyg.sqsh").readlink()) == "pyg-1.sqsh"


@pytest.mark.parametrize(("umask", "sif", "sqsh", "said"), [(0o022, 0o755, 0o644, 0), (0o027, 0o750, 0o640, 0)])
def test_the_group_may_read_where_the_umask_lets_it(source, folder, umask, sif, sqsh, said):
    heard, before = Heard(), os.umask(umask)
    try:
        put(source(1), folder, "1", progress=heard)
        put(source(2, suffix=".sqsh"), folder, "1", progress=heard)
    finally:
        os.umask(before)
    assert (folder / "pyg-1.sif").stat().st_mode & 0o777 == sif
    assert (folder / "pyg-1.sqsh").stat().st_mode & 0o777 == sqsh
    assert (folder / "pyg-1.sif.sha256").stat().st_mode & 0o777 == sqsh
    assert len(heard.notes) == said


def test_a_private_umask_is_obeyed_and_said(source, folder):
    heard, before = Heard(), os.umask(0o077)
    try:
        put(source(1), folder, "1", progress=heard)
    finally:
        os.umask(before)
    assert (folder / "pyg-1.sif").stat().st_mode & 0o777 == 0o700
    assert "chmod g+r" in heard.notes[0]


def test_the_same_again_changes_nothing(source, folder):
    put(source(1), folder, "1")
    before = (folder / "pyg-1.sif").stat()
    again = put(source(1), folder, "1")
    after = (folder / "pyg-1.sif").stat()
    assert again.unchanged
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert again.sha256 == hashlib.sha256(source(1).read_bytes()).hexdigest()


def test_a_lost_or_wrong_checksum_comes_back(source, folder):
    done = put(source(1), folder, "1")
    (folder / "pyg-1.sif.sha256").write_text("wrong")
    put(source(1), folder, "1")
    assert (folder / "pyg-1.sif.sha256").read_text() == f"{done.sha256}  pyg-1.sif\n"


@pytest.mark.parametrize("size", [100_000, 100_001])
def test_another_file_under_the_name_is_not_replaced_unasked(source, folder, size):
    put(source(1), folder, "1")
    with pytest.raises(UsageError, match="another file") as caught:
        put(source(2, size), folder, "1")
    assert "--replace" in caught.value.next_step
    assert (folder / "pyg-1.sif").read_bytes() == source(1).read_bytes()
    done = put(source(2, size), folder, "1", replace=True)
    assert (folder / "pyg-1.sif").read_bytes() == source(2, size).read_bytes()
    assert (folder / "pyg-1.sif.sha256").read_text() == f"{done.sha256}  pyg-1.sif\n"
    assert leftovers(folder) == []


def test_the_newest_is_what_was_published_last(source, folder):
    put(source(1), folder, "1")
    put(source(2), folder, "2")
    assert str((folder / "pyg.sif").readlink()) == "pyg-2.sif"
    put(source(1), folder, "1")
    assert str((folder / "pyg.sif").readlink()) == "pyg-1.sif"


def test_so_many_stay(source, folder):
    for tag in range(1, 6):
        done = put(source(tag), folder, str(tag), keep=3)
    assert [name for name in names(folder) if name.endswith(".sif")] == [
        "pyg-3.sif",
        "pyg-4.sif",
        "pyg-5.sif",
        "pyg.sif",
    ]
    assert done.removed == (str(folder / "pyg-2.sif"),)
    assert sorted(path.name for path in (folder / shelf.RECORDS).iterdir()) == [f"pyg-{n}.sif.json" for n in (3, 4, 5)]


def test_what_others_put_there_or_changed_or_link_to_stays(source, folder):
    put(source(1), folder, "1")
    put(source(2), folder, "2")
    put(source(3), folder, "3")
    put(source(4), folder, "1", name="pyg-compat")
    (folder / "pyg-0.sif").write_bytes(b"by hand")
    (folder / "pyg-2.sif").write_bytes(b"changed")
    (folder / "stable.sif").symlink_to("pyg-3.sif")
    done = put(source(5), folder, "5", keep=1)
    assert done.removed == (str(folder / "pyg-1.sif"),)
    assert {"pyg-0.sif", "pyg-2.sif", "pyg-3.sif", "pyg-5.sif", "pyg-compat-1.sif"} <= set(names(folder))
    assert "pyg-1.sif.sha256" not in names(folder)


def test_a_file_that_was_there_by_hand_is_never_ours(source, folder):
    folder.mkdir(parents=True)
    (folder / "pyg-1.sif").write_bytes(source(1).read_bytes())
    assert put(source(1), folder, "1").unchanged
    put(source(2), folder, "2", keep=1)
    assert (folder / "pyg-1.sif").exists()


def test_none_at_all_cannot_be_asked_for(source, folder):
    with pytest.raises(UsageError, match="at least the new one"):
        put(source(1), folder, "1", keep=0)


@pytest.mark.parametrize(("name", "tag"), [("../pyg", "1"), ("pyg", "a/b"), ("pyg", ".."), ("", "1"), ("pyg", "")])
def test_words_that_leave_the_folder_are_refused(source, folder, name, tag):
    with pytest.raises(UsageError, match="file's name"):
        put(source(1), folder, tag, name=name)


def test_other_kinds_of_files_are_refused(source, folder):
    with pytest.raises(UsageError, match=r"takes \.sif and \.sqsh"):
        put(source(1, suffix=".tar"), folder, "1")


def test_a_file_in_the_links_place_is_refused_before_anything_is_copied(source, folder):
    folder.mkdir(parents=True)
    (folder / "pyg.sif").write_bytes(b"mine")
    with pytest.raises(HostError, match="in the way"):
        put(source(1), folder, "1")
    assert names(folder) == ["pyg.sif"]


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, DiskFullError), (errno.EDQUOT, DiskFullError), (errno.EIO, HostError)]
)
def test_what_the_server_says_only_at_the_end_leaves_nothing(source, folder, monkeypatch, number, kind):
    put(source(1), folder, "1")

    def fail(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(kind):
        put(source(2), folder, "2")
    monkeypatch.undo()
    assert names(folder) == ["pyg-1.sif", "pyg-1.sif.sha256", "pyg.sif"]
    assert leftovers(folder) == []
    assert str((folder / "pyg.sif").readlink()) == "pyg-1.sif"


def test_too_little_room_is_said_before_writing(source, folder, monkeypatch):
    made = source(1)
    monkeypatch.setattr(shelf.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(DiskFullError, match=r"0\.0 GB are free"):
        put(made, folder, "1")
    assert names(folder) == []


def test_a_file_system_without_hard_links_or_links_takes_it_all_the_same(source, folder, monkeypatch):
    def refuse(*arguments, **more):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "symlink", refuse)
    heard = Heard()
    done = put(source(1), folder, "1", progress=heard)
    assert done.latest == ""
    assert "takes no links" in heard.notes[0]
    assert names(folder) == ["pyg-1.sif", "pyg-1.sif.sha256"]
    with pytest.raises(UsageError, match="another file"):
        put(source(2), folder, "1")


def test_what_killed_publishers_left_goes_and_the_living_ones_stays(source, folder):
    folder.mkdir(parents=True)
    old, young, foreign = ".pyg-1.sif.0123456789abcdef.part", ".pyg-1.sif.aaaaaaaaaaaaaaaa.part", ".notes.part"
    for name in (old, young, foreign):
        (folder / name).write_bytes(b"half")
    os.utime(folder / old, (1, 1))
    os.utime(folder / foreign, (1, 1))
    put(source(1), folder, "1")
    assert {young, foreign} <= set(names(folder))
    assert old not in names(folder)


@pytest.mark.parametrize("replace", [False, True])
def test_publishers_at_once_leave_one_whole_file_with_its_own_checksum(source, folder, replace):
    sources = [source(seed, 300_000) for seed in range(4)]

    def publish(path):
        try:
            return put(path, folder, "1", replace=replace, keep=2)
        except UsageError as error:
            return error

    for _ in range(5):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            done = list(pool.map(publish, sources * 2))
        digest = hashlib.sha256((folder / "pyg-1.sif").read_bytes()).hexdigest()
        assert digest in {hashlib.sha256(path.read_bytes()).hexdigest() for path in sources}
        assert (folder / "pyg-1.sif.sha256").read_text() == f"{digest}  pyg-1.sif\n"
        assert str((folder / "pyg.sif").readlink()) == "pyg-1.sif"
        assert leftovers(folder) == []
        winners = [one for one in done if not isinstance(one, UsageError)]
        assert len(winners) == 8 if replace else {one.sha256 for one in winners} == {digest}


def test_the_checksum_is_that_of_whoever_came_last(source, folder, monkeypatch):
    """Another publisher comes between a file's name and its checksum."""
    first, second = source(1), source(2)
    put(source(3), folder, "1")
    real, come = Path.replace, []

    def replace(path, target):
        real(path, target)
        if target.name == "pyg-1.sif" and not come:
            come.append(True)
            put(second, folder, "1", replace=True)

    monkeypatch.setattr(Path, "replace", replace)
    put(first, folder, "1", replace=True)
    assert (folder / "pyg-1.sif").read_bytes() == second.read_bytes()
    digest = hashlib.sha256(second.read_bytes()).hexdigest()
    assert (folder / "pyg-1.sif.sha256").read_text() == f"{digest}  pyg-1.sif\n"


def test_lustre_gets_a_hint_and_others_none(folder):
    assert "lfs setstripe -c 8" in shelf.stripe_hint(folder, filesystems.LUSTRE, 3_000_000_000)
    assert shelf.stripe_hint(folder, filesystems.LUSTRE, 1000) == ""
    assert shelf.stripe_hint(folder, 0x6969, 3_000_000_000) == ""


def test_the_hint_comes_before_the_file(source, folder, monkeypatch):
    monkeypatch.setattr(filesystems, "kind", lambda path: filesystems.LUSTRE)
    monkeypatch.setattr(shelf, "STRIPED_FROM", 1000)
    heard = Heard()
    put(source(1), folder, "1", progress=heard)
    assert "lfs setstripe" in heard.notes[0]


def test_the_kernel_tells_what_a_folder_lies_on(tmp_path):
    assert filesystems.kind(Path("/proc")) == 0x9FA0
    assert filesystems.kind(tmp_path) not in (0, filesystems.LUSTRE)
    assert filesystems.kind(tmp_path / "none") == 0
