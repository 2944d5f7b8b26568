"""The folder that a program of an image gets as /work."""

from pathlib import Path

import pytest

from graphcrate.host.sandbox import given
from graphcrate.model.errors import HostError
from nsbox import namespaces
from tests.made import refused

POINTS = {"/": "ext4", "/proc": "proc", "/sys": "sysfs", "/sys/fs/cgroup": "cgroup2", "/dev": "tmpfs"}
POINTS |= {"/dev/shm": "tmpfs", "/home": "autofs", "/home/me": "nfs4", "/mnt/root/proc": "proc"}


@pytest.mark.parametrize("path", ["/proc", "/proc/sys", "/sys/kernel", "/sys/fs/cgroup/a", "/mnt/root/proc/1", "/home"])
def test_folder_in_a_kernel_interface_is_one(path):
    assert given.interface_at(path, POINTS) in namespaces.INTERFACES


@pytest.mark.parametrize(
    ("path", "is_one"), [("/dev", True), ("/dev/pts", True), ("/dev/shm", True), ("/dev/shm/job", False)]
)
def test_folder_of_devices_is_an_interface_and_one_in_shared_memory_is_not(path, is_one):
    assert bool(given.interface_at(path, POINTS)) == is_one


@pytest.mark.parametrize("path", ["/", "/home/me/work", "/process", "/devel", "/mnt/root", "/srv"])
def test_folder_of_files_is_no_interface(path):
    assert given.interface_at(path, POINTS) == ""
    assert given.interface_at(path, {}) == ""


def test_kernel_interface_as_working_folder_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(namespaces, "mount_points", lambda: {"/": "ext4", str(tmp_path): "debugfs"})
    with refused(HostError, "debugfs"):
        given.refuse_interfaces(tmp_path)
    given.refuse_interfaces(tmp_path.parent)


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("/", "every file of this machine"),
        ("/root", "home folder /root"),
        ("/home/me", "home folder /home/me"),
        ("/home", "where home folders lie"),
        ("/data/users", "where home folders lie"),
        ("/data", "where home folders lie"),
        ("/home/me/project", ""),
        ("/homework", ""),
        ("/tmp", ""),
    ],
)
def test_folder_that_holds_more_than_work_is_said_with_a_narrower_one(folder, said):
    line = given.exposure(Path(folder), Path("/home/me"), {Path("/home/me"), Path("/data/users/you")})
    assert said in line
    assert bool(line) == bool(said)
    assert not said or "cd FOLDER" in line


def test_home_folders_are_those_of_people(tmp_path, monkeypatch):
    passwd = tmp_path / "passwd"
    passwd.write_text(
        "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/usr/sbin:/bin/false\nme:x:1000:1000::/home/me:/bin/sh\n"
        "nobody:x:65534:65534::/nonexistent:/bin/false\nhalf:x\nroamer:x:1001:1001::/:/bin/sh\n"
    )
    monkeypatch.setattr(given, "_PASSWD", passwd)
    assert given.home_folders() == {Path("/home/me")}
    passwd.unlink()
    assert given.home_folders() == frozenset()
