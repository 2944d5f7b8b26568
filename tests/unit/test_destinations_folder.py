"""A shared folder of images: whole files, checksums, the newest by name, and nothing half-written."""

import concurrent.futures
import contextlib
import errno
import os
from types import SimpleNamespace
from unittest import mock

import pytest

from graphcrate.model.errors import DiskFullError, HostError, UsageError
from graphcrate.publish.destinations import folder as destination
from tests.made import refused
from tests.unit import tars


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "shared" / "images"


@pytest.fixture
def put(tmp_path, folder, progress):
    """A function that publishes these bytes as pyg:TAG."""

    def run(data, tag="1", name="pyg", suffix=".sif", **more):
        source = tmp_path / f"any{hash(data)}"
        source.write_bytes(data)
        return destination.publish(source, folder, name, tag, suffix, progress=progress, **more)

    return run


ONE, TWO = b"1" * 100_000, b"2" * 100_000


def holds(folder, tags, newest):
    """Whether files of these tags and bytes are there, with their checksums and the link, and nothing else."""
    wanted = {"pyg.sif": tags[newest]} | {f"pyg-{tag}.sif": data for tag, data in tags.items()}
    for tag, data in tags.items():
        wanted[f"pyg-{tag}.sif.sha256"] = f"{tars.sha256(data)[7:]}  pyg-{tag}.sif\n".encode()
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    return found == wanted and str((folder / "pyg.sif").readlink()) == f"pyg-{newest}.sif"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_lies_there_with_checksum_and_link_and_once(put, folder):
    done = put(ONE, "2.3-cu118")
    assert holds(folder, {"2.3-cu118": ONE}, "2.3-cu118")
    file = folder / "pyg-2.3-cu118.sif"
    assert (done.path, f"sha256:{done.sha256}") == (str(file), tars.sha256(ONE))
    assert done.latest == str(folder / "pyg.sif")
    before = file.stat()
    file.with_name(f"{file.name}.sha256").write_text("wrong")
    put(TWO, "new")
    assert put(ONE, "2.3-cu118") == done  # the newest is what was published last
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert holds(folder, {"2.3-cu118": ONE, "new": TWO}, "2.3-cu118")


@pytest.mark.parametrize(
    ("umask", "sif", "sqsh", "notes"), [(0o022, 0o755, 0o644, 0), (0o027, 0o750, 0o640, 0), (0o077, 0o700, 0o600, 2)]
)
def test_the_umask_is_obeyed_and_said_where_it_is_private(put, folder, progress, umask, sif, sqsh, notes):
    before = os.umask(umask)
    try:
        put(ONE)
        put(TWO, suffix=".sqsh")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir() if not path.is_symlink()}
    assert modes == {"pyg-1.sif": sif, "pyg-1.sqsh": sqsh, "pyg-1.sif.sha256": sqsh, "pyg-1.sqsh.sha256": sqsh}
    assert [("chmod g+r" in note) for note in progress.lines] == [True] * notes


@pytest.mark.parametrize("other", [TWO, TWO + b"2"])
def test_another_file_under_the_name_is_not_replaced_unasked(put, folder, other):
    put(ONE)
    with refused(UsageError, "another file", "--replace"):
        put(other)
    assert holds(folder, {"1": ONE}, "1")
    put(other, replace=True)
    assert holds(folder, {"1": other}, "1")


@pytest.mark.parametrize(("name", "tag"), [("../pyg", "1"), ("pyg", "a/b"), ("pyg", ".."), ("", "1"), ("pyg", "")])
def test_words_that_leave_the_folder_are_refused(put, name, tag):
    with pytest.raises(UsageError, match="file's name"):
        put(ONE, tag, name=name)


def test_what_keeps_it_from_the_start_is_said_before_anything_is_copied(put, folder, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(DiskFullError, match=r"0\.0 GB are free"):
        put(ONE)
    assert names(folder) == []
    (folder / "pyg.sif").write_bytes(b"mine")
    with pytest.raises(HostError, match="exists and is not a link"):
        put(ONE)
    assert names(folder) == ["pyg.sif"]


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFullError), (errno.EIO, HostError)])
@pytest.mark.parametrize("replace", [False, True])
def test_what_the_server_says_only_at_the_end_leaves_nothing(put, folder, monkeypatch, number, kind, replace):
    put(ONE)

    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(kind):
        put(TWO, "1" if replace else "2", replace=replace)
    assert holds(folder, {"1": ONE}, "1")


def test_a_file_system_without_hard_links_or_links_takes_it_all_the_same(put, folder, progress, monkeypatch):
    for name in ("link", "symlink"):
        monkeypatch.setattr(os, name, mock.Mock(side_effect=OSError(errno.EPERM, "Operation not permitted")))
    assert put(ONE).latest == ""
    assert "takes no links" in progress.lines[0]
    assert names(folder) == ["pyg-1.sif", "pyg-1.sif.sha256"]
    with pytest.raises(UsageError, match="another file"):
        put(TWO)


def test_what_killed_publishers_left_goes_and_the_living_ones_stays(put, folder):
    folder.mkdir(parents=True)
    old, young, foreign = ".pyg-1.sif.0123456789abcdef.part", ".pyg-1.sif.aaaaaaaaaaaaaaaa.part", ".notes.part"
    for name in (old, young, foreign):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, None if name == young else (1, 1))
    put(ONE)
    assert set(names(folder)) == {young, foreign, "pyg-1.sif", "pyg-1.sif.sha256", "pyg.sif"}


def test_publishers_at_once_leave_the_first_ones_whole_file_with_its_checksum(put, folder):
    def publish(data):
        with contextlib.suppress(UsageError):
            return put(data).sha256

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        done = set(pool.map(publish, [letter * 300_000 for letter in (b"a", b"b", b"c", b"d")]))
    data = (folder / "pyg-1.sif").read_bytes()
    assert done == {None, tars.sha256(data)[7:]}
    assert holds(folder, {"1": data}, "1")
