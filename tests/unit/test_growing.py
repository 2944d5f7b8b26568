"""A file that takes its place when it is whole."""

import errno
import fcntl
import os

import pytest

from graphcrate.errors import DiskFullError, HostError
from graphcrate.host.replace import create, growing


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_it_appears_whole_with_its_mode(tmp_path):
    target = tmp_path / "deep" / "image.sif"
    with growing(target, 0o755) as part:
        part.write_bytes(b"half")
        assert not target.exists()
    assert target.read_bytes() == b"half"
    assert target.stat().st_mode & 0o777 == 0o755
    assert names(target.parent) == ["image.sif"]


def test_an_older_one_stays_until_then_and_after_an_error(tmp_path):
    target = tmp_path / "image.sif"
    target.write_bytes(b"old")

    def interrupted():
        with growing(target) as part:
            part.write_bytes(b"new")
            assert target.read_bytes() == b"old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["image.sif"]


def test_what_a_killed_run_left_goes_and_what_another_writes_stays(tmp_path):
    target = tmp_path / "image[1].sif"
    for kind in ("killed", "living"):
        (tmp_path / f".image[1].sif.{kind}.part").mkdir()
        (tmp_path / f".image[1].sif.{kind}.part" / target.name).write_bytes(b"half")
    (tmp_path / ".other.sif.killed.part").mkdir()
    living = os.open(tmp_path / ".image[1].sif.living.part", os.O_RDONLY)
    fcntl.flock(living, fcntl.LOCK_EX)
    try:
        with growing(target) as part:
            part.write_bytes(b"whole")
    finally:
        os.close(living)
    assert names(tmp_path) == [".image[1].sif.living.part", ".other.sif.killed.part", "image[1].sif"]


@pytest.mark.parametrize(("number", "kind"), [(28, DiskFullError), (30, HostError)])
def test_what_the_disk_says_is_explained(tmp_path, number, kind):
    with pytest.raises(kind), growing(tmp_path / "image.sif"):
        raise OSError(number, os.strerror(number))
    assert names(tmp_path) == []


# New files that take nobody's place


def without_hard_links(monkeypatch, number):
    def refuse(source, target):
        raise OSError(number, os.strerror(number), str(target))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "none"])
def test_a_new_file_has_its_mode_and_never_takes_anothers_place(tmp_path, monkeypatch, links):
    if not links:
        without_hard_links(monkeypatch, errno.EPERM)
    target = tmp_path / "deep" / "cosign.key"
    assert create(target, b"mine", 0o600)
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"mine", 0o600)
    assert not create(target, b"another's", 0o644)
    assert target.read_bytes() == b"mine"
    dangling = tmp_path / "deep" / "dangling"
    dangling.symlink_to("nowhere")
    assert not create(dangling, b"mine", 0o600)
    assert names(target.parent) == ["cosign.key", "dangling"]


def test_a_full_disk_leaves_no_half_of_it(tmp_path, monkeypatch):
    without_hard_links(monkeypatch, errno.ENOSPC)
    with pytest.raises(DiskFullError):
        create(tmp_path / "cosign.key", b"mine", 0o600)
    assert names(tmp_path) == []
