"""A shelf on disks of its own: full ones, and one that a publisher was killed on. sha256sum has the last word."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphcrate.destinations import shelf
from graphcrate.errors import DiskFullError
from graphcrate.host.progress import Silent
from tests.engines.workplace import PROJECT, call

pytestmark = pytest.mark.engine("root", "sha256sum", "mount")
MIB = 1 << 20
SLOW = """\
import sys, time
from pathlib import Path
from graphcrate.destinations import shelf, whole
from graphcrate.host.progress import Silent
whole._CHUNK = 4096
copy = whole.copy
def slow(source, target, mode, advance):
    return copy(source, target, mode, lambda count: time.sleep(0.05))
whole.copy = slow
shelf.publish(Path(sys.argv[1]), Path(sys.argv[2]), "pyg", "1", progress=Silent())
"""


@pytest.fixture
def disk(scratch):
    """A file system of 8 MiB."""
    folder = scratch / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], check=True)
    return folder


def made(scratch, name, size):
    path = scratch / f"{name}.sif"
    path.write_bytes(os.urandom(size))
    return path


def publish(source, folder, tag, **more):
    return shelf.publish(source, folder, "pyg", tag, progress=Silent(), **more)


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file() or path.is_symlink())


def test_sha256sum_agrees(scratch):
    publish(made(scratch, "a", MIB), scratch / "shelf", "1")
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "pyg-1.sif.sha256"],
        cwd=scratch / "shelf",
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (checked.returncode, checked.stdout) == (0, "pyg-1.sif: OK\n")


@pytest.mark.parametrize("looked", [True, False])
def test_a_disk_that_fills_up_keeps_what_it_had(scratch, disk, monkeypatch, looked):
    """Also where the free room that was told was not to be had, as with a quota."""
    publish(made(scratch, "a", 3 * MIB), disk, "1")
    before = files(disk)
    if not looked:
        monkeypatch.setattr(shelf._Shelf, "require", lambda *arguments: None)
    with pytest.raises(DiskFullError):
        publish(made(scratch, "b", 6 * MIB), disk, "2")
    assert files(disk) == before
    assert (disk / "pyg.sif").resolve() == (disk / "pyg-1.sif").resolve()
    publish(made(scratch, "c", 3 * MIB), disk, "3", keep=1)
    assert "pyg-1.sif" not in files(disk)


def test_a_publisher_that_is_killed_leaves_no_name_and_the_next_one_cleans_up(scratch, monkeypatch):
    source, folder = made(scratch, "a", MIB), scratch / "shelf"
    process = subprocess.Popen([sys.executable, "-c", SLOW, source, folder], cwd=PROJECT)
    try:
        while not (parts := list(folder.glob(".*.part"))) or not parts[0].stat().st_size:
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert files(folder) == [parts[0].name]
    publish(source, folder, "1")
    assert (folder / "pyg-1.sif").read_bytes() == source.read_bytes()
    assert parts[0].exists(), "it may be another publisher's"
    os.utime(parts[0], (1, 1))
    publish(source, folder, "1")
    assert not parts[0].exists()


def test_a_read_only_folder_is_said(scratch, disk):
    call("mount", "-o", "remount,ro", disk)
    with pytest.raises(Exception, match="cannot be written") as caught:
        publish(made(scratch, "a", MIB), Path(disk), "1")
    assert type(caught.value).__name__ == "HostError"
