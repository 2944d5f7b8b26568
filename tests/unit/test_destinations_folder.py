"""A shared folder of images: whole files, checksums, the newest by name, and nothing half-written."""

import concurrent.futures
import errno
import hashlib
import os
import random

import pytest

from graphcrate.host.progress import Silent
from graphcrate.model.errors import DiskFullError, HostError, UsageError
from graphcrate.publish.destinations import folder as destination


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

    def make(seed, size=100_000):
        path = tmp_path / "made" / f"any{seed}"
        path.write_bytes(random.Random(seed).randbytes(size))
        return path

    return make


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "shared" / "images"


def put(source, folder, tag, name="pyg", suffix=".sif", **more):
    return destination.publish(source, folder, name, tag, suffix, progress=more.pop("progress", Silent()), **more)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def checksum(path):
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"


def test_a_file_lies_there_with_checksum_and_link(source, folder):
    made = source(1)
    done = put(made, folder, "2.3-cu118")
    file = folder / "pyg-2.3-cu118.sif"
    assert names(folder) == [file.name, f"{file.name}.sha256", "pyg.sif"]
    assert file.read_bytes() == made.read_bytes()
    assert (folder / f"{file.name}.sha256").read_text() == checksum(file)
    assert str((folder / "pyg.sif").readlink()) == file.name
    assert (done.path, f"{done.sha256}  {file.name}\n", done.size) == (str(file), checksum(file), 100_000)
    assert (done.latest, done.unchanged) == (str(folder / "pyg.sif"), False)


@pytest.mark.parametrize(
    ("umask", "sif", "sqsh", "notes"), [(0o022, 0o755, 0o644, 0), (0o027, 0o750, 0o640, 0), (0o077, 0o700, 0o600, 2)]
)
def test_the_umask_is_obeyed_and_said_where_it_is_private(source, folder, umask, sif, sqsh, notes):
    heard, before = Heard(), os.umask(umask)
    try:
        put(source(1), folder, "1", progress=heard)
        put(source(2), folder, "1", suffix=".sqsh", progress=heard)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir() if not path.is_symlink()}
    assert modes == {"pyg-1.sif": sif, "pyg-1.sqsh": sqsh, "pyg-1.sif.sha256": sqsh, "pyg-1.sqsh.sha256": sqsh}
    assert [("chmod g+r" in note) for note in heard.notes] == [True] * notes


def test_the_same_again_changes_nothing_but_a_wrong_checksum(source, folder):
    put(source(1), folder, "1")
    before = (folder / "pyg-1.sif").stat()
    (folder / "pyg-1.sif.sha256").write_text("wrong")
    again = put(source(1), folder, "1")
    after = (folder / "pyg-1.sif").stat()
    assert again.unchanged
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert (folder / "pyg-1.sif.sha256").read_text() == checksum(folder / "pyg-1.sif")


@pytest.mark.parametrize("size", [100_000, 100_001])
def test_another_file_under_the_name_is_not_replaced_unasked(source, folder, size):
    put(source(1), folder, "1")
    with pytest.raises(UsageError, match="another file") as caught:
        put(source(2, size), folder, "1")
    assert "--replace" in caught.value.next_step
    assert (folder / "pyg-1.sif").read_bytes() == source(1).read_bytes()
    put(source(2, size), folder, "1", replace=True)
    assert (folder / "pyg-1.sif").read_bytes() == source(2, size).read_bytes()
    assert (folder / "pyg-1.sif.sha256").read_text() == checksum(folder / "pyg-1.sif")
    assert names(folder) == ["pyg-1.sif", "pyg-1.sif.sha256", "pyg.sif"]


def test_the_newest_is_what_was_published_last(source, folder):
    for tag in ("1", "2", "1"):
        put(source(tag), folder, tag)
        assert str((folder / "pyg.sif").readlink()) == f"pyg-{tag}.sif"


@pytest.mark.parametrize(("name", "tag"), [("../pyg", "1"), ("pyg", "a/b"), ("pyg", ".."), ("", "1"), ("pyg", "")])
def test_words_that_leave_the_folder_are_refused(source, folder, name, tag):
    with pytest.raises(UsageError, match="file's name"):
        put(source(1), folder, tag, name=name)


def test_a_file_in_the_links_place_is_refused_before_anything_is_copied(source, folder):
    folder.mkdir(parents=True)
    (folder / "pyg.sif").write_bytes(b"mine")
    with pytest.raises(HostError, match="exists and is not a link"):
        put(source(1), folder, "1")
    assert names(folder) == ["pyg.sif"]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EIO, HostError),
        (errno.EFBIG, HostError),
        (errno.ETIMEDOUT, HostError),
    ],
)
@pytest.mark.parametrize("replace", [False, True])
def test_what_the_server_says_only_at_the_end_leaves_nothing(source, folder, monkeypatch, number, kind, replace):
    put(source(1), folder, "1")

    def fail(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(kind):
        put(source(2), folder, "1" if replace else "2", replace=replace)
    monkeypatch.undo()
    assert names(folder) == ["pyg-1.sif", "pyg-1.sif.sha256", "pyg.sif"]
    assert (folder / "pyg-1.sif").read_bytes() == source(1).read_bytes()
    assert str((folder / "pyg.sif").readlink()) == "pyg-1.sif"


def test_too_little_room_is_said_before_writing(source, folder, monkeypatch):
    made = source(1)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000})())
    with pytest.raises(DiskFullError, match=r"0\.0 GB are free"):
        put(made, folder, "1")
    assert names(folder) == []


def test_a_file_system_without_hard_links_or_links_takes_it_all_the_same(source, folder, monkeypatch):
    def refuse(*arguments, **more):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "symlink", refuse)
    heard = Heard()
    assert put(source(1), folder, "1", progress=heard).latest == ""
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


def test_publishers_at_once_leave_the_first_ones_whole_file_with_its_checksum(source, folder):
    sources = [source(seed, 300_000) for seed in range(4)]

    def publish(path):
        try:
            return put(path, folder, "1").sha256
        except UsageError:
            return ""

    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            done = set(pool.map(publish, sources * 2))
        assert names(folder) == ["pyg-1.sif", "pyg-1.sif.sha256", "pyg.sif"]
        assert done == {"", hashlib.sha256((folder / "pyg-1.sif").read_bytes()).hexdigest()}
        assert (folder / "pyg-1.sif.sha256").read_text() == checksum(folder / "pyg-1.sif")
