"""A file that takes its place when it is whole."""

import contextlib
import errno
import fcntl
import itertools
import os
import tempfile
from pathlib import Path

import pytest

from graphcrate.host.atomic import create, make_folder, replacing, temporary_folder, write_file, writing
from graphcrate.model.errors import DiskFullError, HostError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_it_appears_whole_with_its_mode_and_an_older_one_stays_until_then_and_after_an_error(tmp_path):
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


@pytest.mark.parametrize("umask", [0o077, 0o027, 0o002])
def test_a_small_file_is_for_whom_the_umask_has_it(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_file(tmp_path / "report.json", b"{}")
    finally:
        os.umask(before)
    assert (tmp_path / "report.json").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [
        (errno.ENOSPC, DiskFullError, r"image\.sif is full"),
        (errno.EDQUOT, DiskFullError, "quota on it"),
        (errno.EROFS, HostError, "Read-only"),
        (errno.ENOLCK, HostError, "gives out no locks"),
    ],
)
def test_what_the_disk_says_is_explained(tmp_path, number, kind, message):
    write_file(tmp_path / "image.sif", b"old")
    with pytest.raises(kind, match=message), writing(tmp_path / "image.sif") as part:  # noqa: PT012
        part.write_bytes(b"n")
        raise OSError(number, os.strerror(number))
    assert ((tmp_path / "image.sif").read_bytes(), names(tmp_path)) == (b"old", ["image.sif"])


# New files that take nobody's place


@pytest.mark.parametrize("refused", [None, errno.EPERM, errno.ENOSPC])
def test_a_new_file_has_its_mode_and_never_takes_anothers_place(tmp_path, monkeypatch, refused):
    def refuse(source, target):
        raise OSError(refused, os.strerror(refused), str(target))

    if refused:  # no hard links here, or no room
        monkeypatch.setattr(os, "link", refuse)
    if refused == errno.ENOSPC:
        with pytest.raises(DiskFullError):
            create(tmp_path / "cosign.key", b"mine", 0o600)
        assert names(tmp_path) == []
        return
    target = tmp_path / "deep" / "cosign.key"
    assert create(target, b"mine", 0o600)
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"mine", 0o600)
    assert not create(target, b"another's", 0o644)
    assert target.read_bytes() == b"mine"
    dangling = tmp_path / "deep" / "dangling"
    dangling.symlink_to("nowhere")
    assert not create(dangling, b"mine", 0o600)
    assert names(target.parent) == ["cosign.key", "dangling"]


# Files written in one go, and places that cannot be


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "a disk without"])
def test_what_a_killed_run_left_goes_and_what_another_writes_stays(tmp_path, monkeypatch, locks):
    def leave(name):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_bytes(b"half")
        (tmp_path / f"{name}.lock").touch()

    def refuse(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    if not locks:
        monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("smoke-killed", "other-killed", ".image[1].sif.part-killed", ".image[1].sif.part-living"):
        leave(name)
    living = (tmp_path / ".image[1].sif.part-living.lock").open("wb")
    with contextlib.closing(living), temporary_folder("smoke-") as first, temporary_folder("smoke-") as second:
        if locks:
            fcntl.flock(living, fcntl.LOCK_EX)
        with writing(tmp_path / "image[1].sif") as part:
            part.write_bytes(b"whole")
        assert first.is_dir()
        assert second.is_dir()
    left = {"other-killed", ".image[1].sif.part-living"}
    left |= set() if locks else {"smoke-killed", ".image[1].sif.part-killed"}
    assert set(names(tmp_path)) == {"image[1].sif", *left, *(f"{name}.lock" for name in left)}


def test_two_writers_of_one_file_do_not_meet(tmp_path, monkeypatch):
    target, real = tmp_path / "report.json", Path.write_bytes

    def slow(path, content):
        real(path, content)
        if content == b"first":
            write_file(target, b"second")

    monkeypatch.setattr(Path, "write_bytes", slow)
    write_file(target, b"first")
    assert (target.read_bytes(), names(tmp_path)) == (b"first", ["report.json"])


def place_of(kind, folder):
    (folder / "file").write_bytes(b"")
    (folder / "folder" / "inside").mkdir(parents=True)
    (folder / "nowhere").symlink_to("not-there")
    return {
        "below a file": folder / "file" / "pyg" / "tag",
        "a link to nothing": folder / "nowhere" / "tag",
        "too long a name": folder / ("x" * 300) / "tag",
        "no such place": Path("/proc/nothing/pyg/tag"),
        "a folder": folder / "folder",
    }[kind]


def replace(target):
    with replacing(target):
        pass


KINDS = ["below a file", "a link to nothing", "too long a name", "no such place"]


@pytest.mark.parametrize(
    ("kind", "write"),
    [
        *itertools.product(KINDS, [lambda target: write_file(target, b"x"), make_folder, replace]),
        ("a folder", lambda target: write_file(target, b"x")),
    ],
)
def test_a_place_that_cannot_be_is_named(tmp_path, kind, write):
    target = place_of(kind, tmp_path)
    with pytest.raises(HostError) as caught:
        write(target)
    assert not list(tmp_path.rglob(".*.part-*"))
    assert caught.value.what.startswith(("/proc/nothing", str(tmp_path)))
    assert caught.value.cause
    assert caught.value.next_step
