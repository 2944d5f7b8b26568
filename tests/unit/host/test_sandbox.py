"""The parts of the sandbox that need no process; the rest is in tests/engines/test_sandbox_run.py."""

import errno
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from graphcrate.host import process
from graphcrate.host.sandbox import gpu, namespaces, sandbox, walls
from graphcrate.host.sandbox.steps import Step
from graphcrate.model.errors import HostError

REFUSED = "Operation not permitted"
USERS, APPARMOR = "user.max_user_namespaces", "kernel.apparmor_restrict_unprivileged_userns"


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
def test_sandbox_start_failure_is_explained_with_a_next_step(uid, found, number, what, cause, step):
    error = sandbox.explain([sandbox.Failure("unshare", number, what)], uid, found)
    assert cause in error.cause
    assert what in error.cause
    assert step in error.next_step
    assert "ENGINE=docker" in error.next_step
    assert ("administrator" in error.next_step) is ("sysctl" in error.next_step)


def test_missing_path_is_named_without_blaming_namespaces(tmp_path):
    failure = sandbox.Failure("chdir", errno.ENOENT, "No such file or directory: '/nowhere'")
    error = sandbox.explain([failure], 1000, {USERS: "0"})
    assert "/nowhere" in error.what
    assert "namespaces" not in str(error)
    with pytest.raises(HostError, match="is not a root file system"):
        sandbox.check(tmp_path, [])
    (tmp_path / "proc").mkdir()
    with pytest.raises(HostError, match="does not exist"):
        sandbox.check(tmp_path, [sandbox.Bind(tmp_path / "absent", "/data")])


def test_sandbox_without_network_has_localhost_in_hosts_only():
    assert sandbox.network_files(network=False) == {
        "/etc/hosts": "127.0.0.1\tlocalhost graphcrate\n::1\tlocalhost ip6-localhost ip6-loopback\n"
    }


def test_gpu_binds_are_devices_libraries_and_programs():
    host = gpu.HostGpu(("/dev/nvidia0",), {"libcuda.so.1": "/l/libcuda.so.535"}, {"nvidia-smi": "/b/nvidia-smi"})
    assert sandbox.gpu_binds(host) == [
        sandbox.Bind(Path("/dev/nvidia0"), "/dev/nvidia0", read_only=False),
        sandbox.Bind(Path("/l/libcuda.so.535"), "/.graphcrate/nvidia/lib/libcuda.so.1"),
        sandbox.Bind(Path("/b/nvidia-smi"), "/usr/bin/nvidia-smi"),
    ]


@pytest.fixture
def ordered(tmp_path, monkeypatch):
    """The orders of a command's process, by options of `Exec`."""
    (tmp_path / "proc").mkdir()

    def orders(**options):
        told = []
        monkeypatch.setattr(
            sandbox, "_start", lambda orders, run: (told.append(orders), (process.Completed(0, ()), None))[1]
        )
        sandbox.run_in(tmp_path, sandbox.Exec(["true"], **options))
        return told[0]

    return orders


def test_sandbox_command_gets_gpus_only_on_request(ordered, tmp_path, monkeypatch):
    places = [tmp_path / name for name in ("nvidia0", "libcuda.so.535", "nvidia-smi")]
    for path in places:
        path.touch()
    device, library, program = map(str, places)
    host = gpu.HostGpu((device,), {"libcuda.so.1": library}, {"nvidia-smi": program})
    monkeypatch.setattr(gpu, "detect", lambda: host)
    told = ordered(gpu=True)
    assert {(source, read_only) for source, _, read_only in told["binds"]} == {
        (device, False),
        (library, True),
        (program, True),
    }
    assert gpu.LIBRARIES + "/lib" in f"{told['environment']['LD_LIBRARY_PATH']}/lib"
    without = ordered()
    assert (without["binds"], "LD_LIBRARY_PATH" in without["environment"]) == ([], False)


def test_sandbox_with_network_gets_hosts_and_resolv_conf(ordered):
    shared = [Path(name) for name in ("/etc/hosts", "/etc/resolv.conf")]
    files = ordered(network=True)["files"]
    for path in shared:
        if path.is_file():
            assert files[str(path)] == path.read_text(errors="replace")
    assert "localhost" in ordered()["files"]["/etc/hosts"]
    assert "/etc/resolv.conf" not in ordered()["files"]
    assert ordered(step=Step.INSTALL, network=True)["files"] == {}, "a tree in the making keeps its own"


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


def test_writable_paths_of_a_step_are_its_binds_and_memory(tmp_path):
    binds = [sandbox.Bind(tmp_path, "/work", read_only=False), sandbox.Bind(tmp_path, "/data")]
    assert set(sandbox.writable_places(Step.RUN, binds)) == {"/tmp", "/run", "/dev", "/proc", "/work"}
    assert sandbox.writable_places(Step.INSTALL, binds) == ["/"]
    assert [step for step in Step if step.value.changes_root or step.value.ignored_owners] == [Step.INSTALL]
    assert [step for step in Step if step.value.capabilities] == [Step.RUN]


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


@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "before Linux 3.17"])
def test_orders_of_a_sandbox_are_read_back_with_its_failure_and_leave_no_file(tmp_path, monkeypatch, in_memory):
    def run(argv, descriptors):
        (descriptor,) = descriptors
        assert json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0)) == {"kind": "user"}
        os.lseek(descriptor, 0, os.SEEK_END)
        os.write(descriptor, b'{"stage": "mount", "errno": 1, "what": "no"}')
        assert argv[-1] == str(descriptor)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if in_memory:
        monkeypatch.setattr(tempfile, "gettempdir", lambda: pytest.fail("a folder was tried, with a file"))
    else:
        monkeypatch.delattr(os, "memfd_create")
    failure = sandbox._start({"kind": "user"}, run)[1]
    assert (failure.stage, failure.errno, failure.what) == ("mount", 1, "no")
    assert list(tmp_path.iterdir()) == []
