"""A shared folder on disks of its own: full ones, and one whose publisher was killed. sha256sum has the last word."""

import hashlib
import os
import subprocess
import sys

import pytest

from graphcrate.host.progress import Progress
from graphcrate.model.errors import DiskFullError
from graphcrate.publish.destinations import folder as destination
from tests.conftest import ROOT
from tests.engines.workplace import call, until

pytestmark = pytest.mark.engine("root", "sha256sum", "mount")
MIB = 1 << 20
SLOW = """\
import sys, time
from pathlib import Path
from graphcrate.publish.destinations import folder
from graphcrate.host.progress import Progress
folder._CHUNK = 4096
copy = folder._copy
folder._copy = lambda source, target, mode, advance: copy(source, target, mode, lambda count: time.sleep(0.05))
source, target, latest = map(Path, sys.argv[1:])
folder.publish(source, "", target, latest, progress=Progress())
"""


@pytest.fixture
def disk(scratch):
    """A file system of 8 MiB."""
    folder = scratch / "disk"
    folder.mkdir()
    call("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder)
    return folder


def made(scratch, name, size):
    path = scratch / f"{name}.sif"
    path.write_bytes(os.urandom(size))
    return path


def publish(source, folder, tag):
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    return destination.publish(source, sha256, folder / f"pyg-{tag}.sif", folder / "pyg.sif", progress=Progress())


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file() or path.is_symlink())


@pytest.mark.parametrize("looked", [True, False])
def test_a_disk_that_fills_up_keeps_what_it_had(scratch, disk, monkeypatch, looked):
    """Also where the disk has less room than it says, as with a quota."""
    publish(made(scratch, "a", 3 * MIB), disk, "1")
    before = files(disk)
    if not looked:
        monkeypatch.setattr(destination, "require_room", lambda *arguments: None)
    with pytest.raises(DiskFullError):
        publish(made(scratch, "b", 6 * MIB), disk, "2")
    assert files(disk) == before
    assert (disk / "pyg.sif").resolve() == (disk / "pyg-1.sif").resolve()


def test_a_publisher_that_is_killed_leaves_no_name_and_the_next_one_cleans_up(scratch):
    source, folder = made(scratch, "a", MIB), scratch / "shared"
    process = subprocess.Popen([sys.executable, "-c", SLOW, source, folder / "pyg-1.sif", folder / "pyg.sif"], cwd=ROOT)
    try:
        until(lambda: list(folder.glob(".*.part")), process=process)
    finally:
        process.kill()
        process.wait()
    (part,) = folder.rglob("*")
    publish(source, folder, "1")
    assert (folder / "pyg-1.sif").read_bytes() == source.read_bytes()
    assert part.exists(), "it may be another publisher's"
    os.utime(part, (1, 1))
    publish(source, folder, "1")
    assert not part.exists()
    assert call("sha256sum", "--check", "--strict", "pyg-1.sif.sha256", folder=folder) == "pyg-1.sif: OK\n"
