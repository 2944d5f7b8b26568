"""Parts of a box that need no process; the rest is in graphcrate, tests/engines/test_sandbox_run.py."""

import errno
import json
import os
import pickle
import sys
import tempfile
from pathlib import Path

import pytest

from nsbox import __main__, box, namespaces, walls
from nsbox.box import Bind, Box
from nsbox.errors import BoxError, Failure, NoEmulatorError, NoRootError, NotIsolatedError, WorkingFolderError
from nsbox.needs import CAPABILITIES, Needs

REFUSED = "Operation not permitted"
USERS, APPARMOR = "user.max_user_namespaces", "kernel.apparmor_restrict_unprivileged_userns"
NOTHING = Needs("a test")


@pytest.fixture
def rootfs(tmp_path):
    (tmp_path / "proc").mkdir()
    return tmp_path


def failing(*reports):
    """A runner whose programs report a failure, one after the other; none after these."""
    left = list(reports)

    def start(argv, descriptor):
        if left:
            os.lseek(descriptor, 0, os.SEEK_END)
            os.write(descriptor, json.dumps(left.pop(0)._asdict()).encode())
        return "done"

    return start


@pytest.mark.parametrize(
    ("uid", "found", "number", "what", "cause", "step"),
    [
        (1000, {"kernel.unprivileged_userns_clone": "0"}, 1, REFUSED, "is 0", "kernel.unprivileged_userns_clone=1"),
        (1000, {USERS: "0"}, 1, REFUSED, "is 0, which forbids", f"sysctl -w {USERS}=15000"),
        (1000, {USERS: "9", APPARMOR: "1"}, 1, REFUSED, "is 1", f"sysctl -w {APPARMOR}=0"),
        (1000, {USERS: "100"}, errno.ENOSPC, "No space left", "are in use (", f"sysctl -w {USERS}=15000"),
        (0, {USERS: "0"}, 1, REFUSED, "namespaces, and it has no CAP_SYS_ADMIN", "--cap-add SYS_ADMIN"),
        (1000, {USERS: "9"}, 1, REFUSED, "a security policy forbids user namespaces (", "seccomp=unconfined"),
        (1000, {USERS: "9"}, 1, "Not permitted: '/cache/root/proc'", "nobody mount one", "systempaths="),
        (1000, {}, 2, "No such file: the user namespace's maps", "/proc is not there", "mount -t proc proc /proc"),
    ],
)
def test_failed_isolation_is_explained_with_a_next_step(uid, found, number, what, cause, step):
    error = NotIsolatedError.of([Failure("unshare", number, what)], uid, found)
    assert cause in error.cause
    assert what in error.cause
    assert step in error.next_step
    assert ("administrator" in error.next_step) is ("sysctl" in error.next_step)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_root_tries_a_mount_namespace_where_users_are_forbidden(rootfs, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    forbidden = Failure("unshare", errno.EPERM, REFUSED)
    boxed = Box(rootfs=rootfs, argv=["true"], needs=NOTHING)
    assert box.run(boxed, failing(forbidden)) == "done"
    with pytest.raises(NotIsolatedError):
        box.run(boxed, failing(forbidden, forbidden))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NotIsolatedError):
        box.run(boxed, failing(forbidden))


def test_missing_working_folder_is_named_without_blaming_namespaces(rootfs):
    gone = Failure("chdir", errno.ENOENT, "No such file or directory: '/nowhere'")
    with pytest.raises(WorkingFolderError, match="/nowhere") as caught:
        box.run(Box(rootfs=rootfs, argv=["true"], needs=NOTHING), failing(gone, gone))
    assert "namespaces" not in str(caught.value)


@pytest.mark.parametrize("folder", ["etc", "/"])
def test_folder_that_cannot_be_a_root_is_refused(tmp_path, folder):
    (tmp_path / "etc").mkdir()
    with pytest.raises(NoRootError, match="root file system"):
        box.run(Box(rootfs=tmp_path / folder, argv=["true"], needs=NOTHING), failing())


def test_kernel_that_registers_no_emulator_is_told_of(rootfs):
    emulator = box.Emulator(Path("/q"), "qemu-aarch64", 183)
    boxed = Box(rootfs=rootfs, argv=["true"], needs=NOTHING, emulator=emulator)
    assert box.orders_of(boxed)["emulator"]["program"] == "/q"
    with pytest.raises(NoEmulatorError, match="not permitted"):
        box.run(boxed, failing(Failure(namespaces.EMULATOR, 1, "Operation not permitted")))


def test_orders_have_the_numbers_of_capabilities_and_real_paths(rootfs):
    (rootfs / "link").symlink_to("proc")
    needs = Needs("a test", capabilities=tuple(CAPABILITIES))
    told = box.orders_of(Box(rootfs=rootfs, argv=["true"], needs=needs, binds=[Bind(rootfs / "link", "/data")]))
    assert told["capabilities"] == [0, 1, 3, 4, 5, 6, 7]
    assert told["binds"] == [(str(rootfs / "proc"), "/data", True)]
    assert told["environment"] == {"HOME": "/tmp/home"}, "a folder of that name is made"
    assert (told["host_name"], told["files"], told["emulator"]) == ("nsbox", {}, {})


def test_writable_paths_are_writable_binds_and_memory(tmp_path):
    binds = [Bind(tmp_path, "/work", read_only=False), Bind(tmp_path, "/data")]
    assert set(box.writable_places(NOTHING, binds)) == {"/tmp", "/run", "/dev", "/proc", "/work"}
    assert box.writable_places(Needs("an install", changes_root=True), binds) == ["/"]


@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "before Linux 3.17"])
def test_orders_are_read_back_with_the_failure_and_leave_no_file(tmp_path, monkeypatch, in_memory):
    def start(argv, descriptor):
        assert json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0)) == {"kind": "user"}
        os.lseek(descriptor, 0, os.SEEK_END)
        os.write(descriptor, b'{"stage": "mount", "errno": 1, "what": "no"}')
        assert argv[-1] == str(descriptor)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if in_memory:
        monkeypatch.setattr(tempfile, "gettempdir", lambda: pytest.fail("a folder was tried, with a file"))
    else:
        monkeypatch.delattr(os, "memfd_create")
    failure = box.start_one({"kind": "user"}, start)[1]
    assert failure == Failure("mount", 1, "no")
    assert list(tmp_path.iterdir()) == []


def test_command_line_runs_what_it_is_told(rootfs, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(walls, "missing", list)
    monkeypatch.setattr(box, "run", lambda boxed, start: (seen.append(boxed), -9)[1])
    words = ["--bind", f"{rootfs}:/data:rw", "--env", "A=b=c", "--network", str(rootfs), "sh", "-c", "true"]
    assert __main__.main(words) == 137
    told = seen[0]
    assert told.argv == ["sh", "-c", "true"]
    assert told.binds == [Bind(rootfs, "/data", read_only=False)]
    assert told.environment["A"] == "b=c"
    assert told.network is told.needs.internet is True
    assert not told.needs.changes_root
    assert not told.needs.set_user_id
    __main__.main(["--write", "--set-user-id", str(rootfs), "dpkg"])
    assert seen[1].needs.changes_root is seen[1].needs.ignored_owners is seen[1].needs.set_user_id is True
    for wrong in ([str(rootfs)], ["--bind", "/none-such:/x", str(rootfs), "sh"]):
        with pytest.raises(SystemExit):
            __main__.main(wrong)

    def refuse(boxed, start):
        raise BoxError("no", next_step="ask")

    monkeypatch.setattr(box, "run", refuse)
    assert __main__.main([str(rootfs), "sh"]) == 125
    assert "next:  ask" in capsys.readouterr().err


def test_symlinks_resolve_inside_the_new_root_only(tmp_path: Path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    (root / "real").mkdir(parents=True)
    (root / "absolute").symlink_to("/real")
    (root / "up").symlink_to("../../../outside")
    (root / "loop").symlink_to("loop")
    made = namespaces.Root(str(root))
    assert made.make_room("/absolute/deep/file", folder=False) == f"{root}/real/deep/file"
    assert (root / "real/deep/file").is_file()
    assert made.make_room("/up/x", folder=True) == f"{root}/outside/x"
    assert not (outside / "x").exists()
    with pytest.raises(OSError, match="loop"):
        made.make_room("/loop/x", folder=True)


def test_missing_kernel_features_are_named_with_their_linux_version():
    stands = {"Landlock": False, "cgroup namespaces": False}
    known = [wall._replace(stands=lambda name=wall.name: stands.get(name, True)) for wall in walls.WALLS]
    said = walls.sentence(walls.missing(known), "3.10.0-1160.el7")
    assert "3.10.0-1160.el7" in said
    assert "Landlock (Linux 5.19)" in said
    assert "cgroup namespaces (Linux 4.6)" in said
    assert "seccomp" not in said
    assert walls.sentence([], "6.1") == ""


def test_landlock_bits_are_those_of_the_kernel_header():
    """Those of include/uapi/linux/landlock.h: no one may make devices, and reading and executing are not asked for."""
    names = (
        "execute write_file read_file read_dir remove_dir remove_file make_char make_dir make_reg make_sock make_fifo"
    )
    bits = {name: 1 << at for at, name in enumerate(f"{names} make_block make_sym refer truncate ioctl_dev".split())}
    asked = namespaces.WRITING | namespaces.TRUNCATING | namespaces.DEVICE_MAKING
    assert {name for name, bit in bits.items() if not asked & bit} == {"execute", "read_file", "read_dir", "ioctl_dev"}
    assert bits["make_char"] | bits["make_block"] == namespaces.DEVICE_MAKING
    assert namespaces.WRITING & namespaces.DEVICE_MAKING == 0


MOUNTINFO = """\
20 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
21 20 0:5 / /new/work/proc rw - proc proc rw
22 20 0:6 / /new/work/a\\040b/sys rw shared:2 master:3 - sysfs sysfs rw
23 20 0:7 / /new/work/auto rw - autofs systemd-1 rw
24 23 0:8 / /new/work/auto rw - nfs4 server:/x rw
25 20 0:9 / /new/work/dev rw - tmpfs tmpfs rw
26 25 0:9 / /new/work/dev/shm rw - tmpfs tmpfs rw
27 20 0:9 / /new/work/scratch rw - lustre server:/y rw
28 20 0:9 / /new/opt rw - proc proc rw
29 20 0:9 / /elsewhere/proc rw - proc proc rw
"""


def test_kernel_interfaces_below_a_bound_folder_are_covered_and_others_get_its_flags():
    points = namespaces.kinds(MOUNTINFO)
    assert (points["/new/work/a b/sys"], points["/new/work/auto"]) == ("sysfs", "nfs4"), "what is on top"
    covers, flags = namespaces.came_along(points, {"/new/work": 6, "/new/opt": 7}, {"/new/work": "/"})
    assert covers == ["/new/work/a b/sys", "/new/work/dev", "/new/work/proc"]
    assert flags == {"/new/work/auto": 6, "/new/work/scratch": 6}
    covers, flags = namespaces.came_along(points, {"/new/work": 6}, {"/new/work": "/home/me"})
    assert "/new/work/dev" in flags, "a folder of that name elsewhere is somebody's"
    assert "/new/work/proc" in covers


def test_mount_path_with_octal_escapes_is_unescaped():
    assert namespaces.unescaped(r"/mnt/a\040b\134c\011") == "/mnt/a b\\c\t"


@pytest.mark.parametrize("through_a_loader", [False, True])
def test_starter_restarts_itself_through_a_loader_script_too(tmp_path, monkeypatch, through_a_loader):
    """Some Pythons are started by a script that calls the loader (ld.so), which then is the process's program."""
    wrapper = tmp_path / "python3"
    wrapper.touch()
    own = os.path.realpath("/proc/self/exe")
    monkeypatch.setattr(sys, "executable", str(wrapper) if through_a_loader else own)
    done = []
    for name in ("mount", "remount"):
        monkeypatch.setattr(namespaces, name, lambda *told: done.append(told[0]))
    monkeypatch.setattr(os, "set_inheritable", lambda *_: None)
    monkeypatch.setattr(os, "execv", lambda program, argv: done.append((program, argv[0])))
    namespaces.start_again(7, 100)
    assert done[:2] == [own, own], "what runs is read-only"
    assert done[2] == ((str(wrapper),) * 2 if through_a_loader else (own, own))
