"""What the doctor says of kernel, memory, disks, network and of what leaks into a container."""

import pytest

from doctor import machine
from doctor.container import Interpreter, container_of, judge_container
from doctor.host import Room
from doctor.machine import judge_machine, judge_network, judge_storage, kind_of
from tests.unit.made_up_host import GIB, MadeUp, by_id

MEMINFO = {"/proc/meminfo": "MemTotal:       131072000 kB\nMemFree:  1000 kB\nMemAvailable:   120000000 kB\n"}
AVX2 = {"/proc/cpuinfo": "processor : 0\nflags\t\t: fpu sse avx avx2\n"}


def machine_of(tmp_path, files=None, **more):
    return by_id(judge_machine(MadeUp(tmp_path, {**MEMINFO, **AVX2, **(files or {})}, **more)))


def test_a_healthy_machine(tmp_path):
    release = {"/etc/os-release": 'NAME="x"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'}
    found = machine_of(tmp_path, release)
    assert {each.status for each in found.values()} <= {"ok", "note"}
    assert found["system"].seen.startswith("Debian GNU/Linux 12 (bookworm), kernel 5.15.0-100-generic")
    assert found["memory"].seen == "125 GiB, 114 GiB free"


def test_an_old_kernel_and_processor(tmp_path):
    files = {"/proc/sys/kernel/osrelease": "3.10.0-1160.el7.x86_64\n", "/proc/cpuinfo": "flags : fpu sse avx\n"}
    found = machine_of(tmp_path, files)
    assert "gzip alone" in found["kernel"].why
    assert "Illegal instruction" in found["avx2"].why


@pytest.mark.parametrize(
    "files",
    [
        {
            "/proc/self/cgroup": "0::/a/b\n",
            "/sys/fs/cgroup/a/b/memory.max": "max\n",
            "/sys/fs/cgroup/a/memory.max": "2147483648\n",
        },
        {"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "2147483648\n"},
    ],
)
def test_the_cgroups_memory_counts(tmp_path, files):
    found = machine_of(tmp_path, files)["memory"]
    assert found.status == "warn"
    assert found.seen == "2 GiB by the cgroup's limit, of 125 GiB"
    assert "--mem" in found.fix


def test_the_cgroups_cores_count(tmp_path, monkeypatch):
    files = {"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "200000 100000\n"}
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 16)
    found = machine_of(tmp_path, files)["cores"]
    assert (found.status, found.fix) == ("warn", "export OMP_NUM_THREADS=2")
    files["/sys/fs/cgroup/cpu.max"] = "max 100000\n"
    assert machine_of(tmp_path / "free", files)["cores"].status == "ok"
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 96)
    assert machine_of(tmp_path / "share")["cores"].seen == "16 of 96 cores"


def test_limits(tmp_path, monkeypatch):
    limits = {
        machine.resource.RLIMIT_NOFILE: (1024, 4096),
        machine.resource.RLIMIT_MEMLOCK: (65536, 65536),
        machine.resource.RLIMIT_AS: (8 * GIB, -1),
    }
    monkeypatch.setattr(machine.resource, "getrlimit", limits.get)
    found = machine_of(tmp_path, {"/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n"})
    assert found["open-files"].fix == "ulimit -n 4096"
    assert found["locked-memory"].status == "warn"
    assert found["addresses"].status == "warn"


# Disks


def storage(tmp_path, container="", files=None, **more):
    return by_id(judge_storage(MadeUp(tmp_path, files, **more), container))


@pytest.mark.parametrize(
    ("room", "status"),
    [
        (Room(64 << 20, 64 << 20), "fail"),
        (Room(GIB, 10 << 20), "fail"),
        (Room(GIB, 500 << 20), "warn"),
        (Room(8 * GIB, 8 * GIB), "ok"),
    ],
)
def test_shared_memory(tmp_path, room, status):
    found = storage(tmp_path, "docker", rooms={"/dev/shm": room})["shm"]
    assert found.status == status
    assert status == "ok" or "--shm-size" in found.fix


def test_disks(tmp_path):
    host = MadeUp(tmp_path / "shm")
    host.closed.add("/dev/shm")
    assert by_id(judge_storage(host, ""))["shm"].fix == "as root: chmod 1777 /dev/shm"
    host.path("/dev/shm").rmdir()
    assert by_id(judge_storage(host, ""))["shm"].status == "fail"
    found = storage(
        tmp_path, rooms={"/tmp": Room(GIB, 5 << 20), "/home": Room(GIB * 20, GIB)}, environment={"TMPDIR": "/gone"}
    )
    assert found["tmp"].status == "warn"
    assert "APPTAINER_TMPDIR" in found["home"].fix
    assert found["tmpdir"].seen == "TMPDIR=/gone is not there"
    mounts = {"/proc/self/mounts": "tmpfs /tmp tmpfs rw 0 0\n"}
    small = {"/tmp": Room(64 << 20, 64 << 20)}
    assert "--workdir" in storage(tmp_path / "contain", "apptainer", mounts, rooms=small)["tmp"].fix
    assert "du -sh" in storage(tmp_path / "other", "docker", mounts, rooms=small)["tmp"].fix
    host = MadeUp(tmp_path / "closed")
    host.closed.add("/home/alice")
    assert by_id(judge_storage(host, ""))["home"].status == "warn"


def test_the_kind_of_a_file_system():
    mounts = [("/", "ext4"), ("/run", "tmpfs"), ("/home", "nfs4"), ("/home/alice", "lustre"), ("/home", "beegfs")]
    kinds = {"/x": "ext4", "/run/user/1": "tmpfs", "/home/bob": "beegfs", "/home/alice/x": "lustre", "/homes": "ext4"}
    assert {path: kind_of(mounts, path) for path in kinds} == kinds


# Network


def network(tmp_path, files=None, **variables):
    return by_id(judge_network(MadeUp(tmp_path, files, environment=variables)))


def test_a_network_and_infiniband(tmp_path):
    assert "--container-unshare=net" in network(tmp_path / "none", {"/sys/class/net/lo/": ""})["network"].why
    assert "network" not in network(tmp_path / "some", {"/sys/class/net/lo/": "", "/sys/class/net/eth0/": ""})
    state = {
        "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
        "/sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
    }
    found = network(tmp_path / "hidden", state)["infiniband"]
    assert (found.status, found.seen) == ("warn", "InfiniBand: 1 of 2 ports active")
    assert "MELLANOX_VISIBLE_DEVICES" in found.fix
    there = {**state, "/dev/infiniband/uverbs0": ""}
    assert network(tmp_path / "there", there)["infiniband"].status == "ok"
    assert network(tmp_path / "off", there, NCCL_IB_DISABLE="1")["infiniband"].status == "warn"


# Containers


@pytest.mark.parametrize(
    ("files", "variables", "kind"),
    [
        ({}, {}, ""),
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({"/.singularity.d/env/": ""}, {}, "apptainer"),
        ({}, {"APPTAINER_CONTAINER": "/x.sif"}, "apptainer"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"/etc/rc": "", "/etc/environment": "", "/proc/self/mounts": "x / overlay rw 0 0\n"}, {}, "enroot"),
        ({"/opt/graphcrate/examples/": ""}, {}, "image"),
    ],
)
def test_the_kind_of_a_container(tmp_path, files, variables, kind):
    assert container_of(MadeUp(tmp_path, files, environment=variables)) == kind


SITE = "/opt/venv/lib/python3.11/site-packages"
USER = "/home/alice/.local/lib/python3.11/site-packages"
OPEN = Interpreter("3.11", "/opt/venv", "/opt/venv/bin/python", ("/usr/lib/python3.11", USER, SITE), USER, True)
SHUT = OPEN._replace(path=("/usr/lib/python3.11", SITE), user_on=False)


IMAGE = dict.fromkeys((f"{SITE}/torch-2.3.1.dist-info/", f"{SITE}/torch/", f"{SITE}/numpy-1.26.4.dist-info/"), "")
LEAK = (f"{USER}/torch/", f"{USER}/torch-1.13.1.dist-info/", f"{USER}/black/")
CUDA = tuple(f"/sw/cuda/lib64/{name}" for name in ("libcublas.so.12", "libnvJitLink.so.12", "libfoo.so"))
LIBS = "/.singularity.d/libs"


@pytest.mark.parametrize(
    ("files", "variables", "python", "container", "name", "status", "seen"),
    [
        (LEAK, {}, OPEN, "apptainer", "user-site", "fail", f"{USER} shadows torch 1.13.1"),
        (LEAK, {}, SHUT, "apptainer", "user-site", "ok", "which Python leaves alone"),
        ((f"{USER}/black/",), {}, OPEN, "apptainer", "user-site", "warn", "black"),
        ((), {}, OPEN, "apptainer", "user-site", None, ""),
        (("/sw/numpy/",), {"PYTHONPATH": "/no:/sw"}, SHUT, "apptainer", "python-path", "fail", "/no:/sw shadows numpy"),
        (("/sw/mine.py",), {"PYTHONPATH": "/sw"}, SHUT, "apptainer", "python-path", "warn", "/sw"),
        ((), {"PYTHONPATH": "/sw"}, SHUT, "", "python-path", "note", "/sw"),
        ((), {"PYTHONHOME": "/sw"}, SHUT, "apptainer", "python-home", "fail", "/sw"),
        (CUDA, {"LD_LIBRARY_PATH": f"/sw/cuda/lib64:{LIBS}"}, SHUT, "apptainer", "library-path", "warn",
         "LD_LIBRARY_PATH has /sw/cuda/lib64 with libcublas, libnvJitLink"),
        ((f"{LIBS}/libcuda.so.1",), {"LD_LIBRARY_PATH": LIBS}, SHUT, "apptainer", "library-path", "note", LIBS),
        ((), {"LD_LIBRARY_PATH": "/sw/cuda/lib64/stubs"}, SHUT, "apptainer", "library-path", "fail", "stubs"),
        ((), {"LD_PRELOAD": "/gone/libx.so libc.so.6"}, SHUT, "apptainer", "preload", "warn", "has /gone/libx.so"),
        ((), {"CONDA_PREFIX": "/conda"}, SHUT, "apptainer", "conda", "warn", "CONDA_PREFIX=/conda"),
        ((), {"CONDA_PREFIX": "/conda"}, SHUT, "", "conda", None, ""),
        (("/home/alice/torch.py", "/home/alice/random.py", "/home/alice/train.py"), {}, SHUT, "apptainer",
         "working-folder", "warn", "/home/alice has random, torch"),
        (("/home/alice/train.py",), {}, SHUT, "apptainer", "working-folder", None, ""),
    ],
)  # fmt: skip
def test_what_leaks_into_a_container(tmp_path, files, variables, python, container, name, status, seen):
    host = MadeUp(tmp_path, {**IMAGE, **dict.fromkeys(files, "")}, environment=variables)
    found = by_id(judge_container(host, container, python)).get(name)
    assert (found.status if found else None) == status, found
    assert found is None or seen in found.seen


def test_a_path_that_a_login_shell_set_anew(tmp_path):
    files = {**IMAGE, "/opt/venv/bin/python": ""}
    host = MadeUp(tmp_path, files, programs={"python": ""})
    found = by_id(judge_container(host, "enroot", SHUT))["python"]
    assert (found.status, found.seen) == ("fail", "`python` is /usr/bin/python")
    assert "login shell" in found.why
    host.find = lambda program: "/opt/venv/bin/" + program
    assert by_id(judge_container(host, "enroot", SHUT))["python"].status == "ok"
