"""A file that takes its place when it is whole."""

import errno
import fcntl
import functools
import itertools
import os
import signal
import tempfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from graphcrate.host.disk import atomic
from graphcrate.host.disk.atomic import create, make_folder, replacing, synced, temporary_folder, write_file, writing
from graphcrate.model.errors import DiskFullError, HostError
from tests.made import refused


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_whole_with_its_mode_and_an_older_one_stays_until_then_and_after_an_error(tmp_path):
    target = tmp_path / "deep" / "image.sif"
    with writing(target, 0o755) as part:
        part.write_bytes(b"half")
        assert not target.exists()
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"half", 0o755)
    with pytest.raises(KeyboardInterrupt), writing(target) as part:  # noqa: PT012
        part.write_bytes(b"new")
        assert target.read_bytes() == b"half"
        raise KeyboardInterrupt
    assert (target.read_bytes(), names(target.parent)) == (b"half", ["image.sif"])


def test_synced_file_has_all_its_bytes_when_it_goes_to_the_disk(tmp_path, monkeypatch):
    sizes = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    with synced(tmp_path / "part") as stream:
        stream.write(b"12345")
    assert sizes == [5]


@pytest.mark.parametrize("umask", [0o077, 0o002])
def test_write_file_obeys_umask(tmp_path, umask):
    before = os.umask(umask)
    write_file(tmp_path / "report.json", b"{}")
    os.umask(before)
    assert (tmp_path / "report.json").stat().st_mode & 0o777 == 0o666 & ~umask


def test_write_file_error_is_mapped_and_explained(tmp_path):
    write_file(tmp_path / "image.sif", b"old")
    for number, kind, message in (
        (errno.ENOSPC, DiskFullError, "image.sif is full"),
        (errno.EDQUOT, DiskFullError, "quota on it"),
        (errno.EFBIG, DiskFullError, "FAT32"),
        (errno.EROFS, HostError, "Read-only"),
        (errno.ENOLCK, HostError, "gives out no locks"),
    ):
        with refused(kind, message), writing(tmp_path / "image.sif") as part:
            part.write_bytes(b"n")
            raise OSError(number, os.strerror(number))
        assert ((tmp_path / "image.sif").read_bytes(), names(tmp_path)) == (b"old", ["image.sif"])


# New files that take nobody's place


@pytest.mark.parametrize("no_links", [False, True])
def test_create_sets_the_mode_and_never_replaces(tmp_path, monkeypatch, no_links):
    if no_links:
        monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EPERM, "Operation not permitted")))
    target, dangling = (tmp_path / "deep" / name for name in ("cosign.key", "dangling"))
    assert create(target, b"mine", 0o600)
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"mine", 0o600)
    dangling.symlink_to("nowhere")
    assert not create(target, b"another's", 0o644)
    assert not create(dangling, b"another's", 0o600)
    assert (target.read_bytes(), names(target.parent)) == (b"mine", ["cosign.key", "dangling"])


def test_create_on_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(DiskFullError):
        create(tmp_path / "cosign.key", b"mine", 0o600)
    assert names(tmp_path) == []


# Files written in one go, and places that cannot be


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "a disk without"])
def test_partial_files_of_killed_runs_only_are_removed(tmp_path, monkeypatch, locks):
    if not locks:
        monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOSYS, "Function not implemented")))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = ["smoke-killed", "other-killed", ".image[1].sif.part-killed", ".image[1].sif.part-living"]
    for name in left:
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_bytes(b"half")
        (tmp_path / f"{name}.lock").touch()
    living = (tmp_path / ".image[1].sif.part-living.lock").open("wb")
    with living, temporary_folder("smoke-") as first, temporary_folder("smoke-") as second:
        if locks:
            fcntl.flock(living, fcntl.LOCK_EX)
        with writing(tmp_path / "image[1].sif") as part:
            part.write_bytes(b"whole")
        assert (first.is_dir(), second.is_dir()) == (True, True)
    kept = left[1::2] if locks else left
    assert names(tmp_path) == sorted(["image[1].sif", *kept, *(f"{name}.lock" for name in kept)])


def test_two_writers_of_a_file_use_separate_partial_files(tmp_path, monkeypatch):
    target, real = tmp_path / "report.json", Path.write_bytes

    def slow(path, content):
        real(path, content)
        if content == b"first":
            write_file(target, b"second")

    monkeypatch.setattr(Path, "write_bytes", slow)
    write_file(target, b"first")
    assert (target.read_bytes(), names(tmp_path)) == (b"first", ["report.json"])


@pytest.mark.parametrize("how", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()], ids=["disk", "Ctrl-C"])
@pytest.mark.parametrize("was_there", [True, False])
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EINVAL, errno.EPERM], ids=["ENOSYS", "EINVAL", "EPERM"])
def test_failed_folder_replacement_keeps_the_old_folder(tmp_path, monkeypatch, how, was_there, number):
    """By two renames: where the kernel, the file system or a filter has no exchange."""
    target, rename = tmp_path / "oci", Path.rename
    monkeypatch.setattr(atomic, "_renameat2", lambda *_: number)
    if was_there:
        target.mkdir()
        (target / "index.json").write_text("old")

    def failing(path, other):
        if path.name.endswith(".partial"):
            assert not was_there or "old" in [file.read_text() for file in tmp_path.rglob("index.json")]
            raise how
        return rename(path, other)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises((HostError, KeyboardInterrupt)), replacing(target) as partial:  # noqa: PT012
        (partial / "index.json").write_text("new")
        assert target.exists() is was_there
    assert set(names(tmp_path)) - {".oci.lock"} == {*(["oci"] if was_there else [])}
    assert not was_there or (target / "index.json").read_text() == "old"
    monkeypatch.undo()
    with replacing(target) as partial:
        (partial / "index.json").write_text("new")
    assert (target / "index.json").read_text() == "new"
    assert set(names(tmp_path)) - {".oci.lock"} == {"oci"}


def test_folder_exists_after_each_rename_of_a_replacement(tmp_path, monkeypatch):
    """After each rename the folder is there, as kill -9 may come then."""
    target, rename, seen = tmp_path / "oci", Path.rename, []

    def watched(path, other):
        done = rename(path, other)
        seen.append(target.is_dir())
        return done

    monkeypatch.setattr(Path, "rename", watched)
    for text in ("first", "second", "third"):
        with replacing(target) as partial:
            (partial / "index.json").write_text(text)
        assert (target / "index.json").read_text() == text
        assert set(names(tmp_path)) - {".oci.lock"} == {"oci"}
    assert all(seen)


def test_failed_renameat2_exchange_keeps_the_folder(tmp_path, monkeypatch):
    target = tmp_path / "oci"
    target.mkdir()
    monkeypatch.setattr(atomic, "_renameat2", lambda *_: errno.EIO)
    with refused(HostError, "Input/output error"), replacing(target) as partial:
        (partial / "index.json").write_text("new")
    assert (names(target), set(names(tmp_path)) - {".oci.lock"}) == ([], {"oci"})


@pytest.mark.parametrize(
    "number", [errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EOPNOTSUPP, errno.EPERM, errno.ENOENT]
)
def test_folder_is_replaced_where_names_cannot_be_exchanged(tmp_path, monkeypatch, number):
    monkeypatch.setattr(atomic, "_renameat2", lambda *_: number)
    for text in ("old", "new"):
        with replacing(tmp_path / "oci") as partial:
            (partial / "index.json").write_text(text)
        assert (names(tmp_path), (tmp_path / "oci/index.json").read_text()) == (["oci"], text)


def test_lock_of_a_folder_that_its_owner_removed_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    """A waiter holds a file without a name: another run would take the next, and both write the same folder."""
    lock, flocked, held = tmp_path / ".oci.lock", atomic._flocked, []

    def late(descriptor):
        if not held:
            lock.unlink()  # by the one that had it
        held.append(os.fstat(descriptor).st_ino)
        return flocked(descriptor)

    monkeypatch.setattr(atomic, "_flocked", late)
    with replacing(tmp_path / "oci"):
        assert (len(held), lock.stat().st_ino) == (2, held[-1])
    assert names(tmp_path) == ["oci"]


def test_folder_left_after_an_exchange_is_removed(tmp_path):
    (tmp_path / ".oci.partial").mkdir()
    (tmp_path / ".oci.partial" / "old").touch()
    with replacing(tmp_path / "oci"):
        pass
    assert set(names(tmp_path)) - {".oci.lock"} == {"oci"}


#: below a file, below a link to nothing, too long a name, and where the system has none
PLACES = ("file/pyg/tag", "nowhere/tag", f"{'x' * 300}/tag", "/proc/nothing/pyg/tag")
WRITERS = (functools.partial(write_file, content=b"x"), make_folder, lambda target: replacing(target).__enter__())


@pytest.mark.parametrize(("place", "write"), [*itertools.product(PLACES, WRITERS), ("folder", WRITERS[0])])
def test_impossible_target_path_is_a_host_error(tmp_path, place, write):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    (tmp_path / "nowhere").symlink_to("not-there")
    with pytest.raises(HostError) as caught:
        write(tmp_path / place)
    assert not list(tmp_path.rglob(".*.part-*"))
    assert caught.value.what.startswith(("/proc/nothing", str(tmp_path)))
    assert caught.value.next_step


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_while_temporary_files_are_looked_for_leaves_no_file(tmp_path, monkeypatch, number):
    """tempfile tries a folder with a file, which stays where an interrupt comes as it is made."""

    def interrupted(*_):
        raise KeyboardInterrupt

    def opened(*arguments, real=os.open):
        made = real(*arguments)
        if str(arguments[0]).startswith(str(tmp_path)):
            signal.raise_signal(number)
        return made

    before = signal.signal(number, interrupted)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(os, "open", opened)
    try:
        with pytest.raises(KeyboardInterrupt), temporary_folder("x-"):
            pytest.fail("it went on")
    finally:
        signal.signal(number, before)
    assert names(tmp_path) == []
