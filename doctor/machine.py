"""Kernel, distribution, C library, cores, memory and limits; disks and shared memory; whether there is a network."""

import os
import platform
import re
import resource
from typing import Iterator, List, Optional, Tuple

from doctor.finding import Finding, fail, note, numbers, ok, size, warn
from doctor.host import Host

GIB = 1 << 30
MIB = 1 << 20
SMALL_MEMORY = 4 * GIB  #: importing torch for CUDA and starting a GPU takes 3 to 4
SMALL_SHM = GIB
TINY_SHM = 64 * MIB  #: Docker's own default
SMALL_DISK = 10 * GIB  #: an image of 5 GB, and it unpacked
FEW_FILES = 4096
#: processors that images are made for, as uname(1) names them → what makes an image for one, which the usual needs not
MADE_FOR = {"x86_64": "", "aarch64": "make image ARCH=arm64"}
#: kernel → what it lacks before. Source: docs/runtimes.md, Apptainer's user guide
ZSTD_KERNEL = "4.14"


def judge_machine(host: Host) -> Iterator[Finding]:
    """Kernel, distribution, C library, processor, memory, limits."""
    for part in (_system, _cores, _memory, _limits):
        yield from part(host)


def kernel_of(host: Host) -> str:
    """`3.10.0-1160.el7.x86_64`."""
    return (host.read("/proc/sys/kernel/osrelease") or "").strip()


def distribution_of(host: Host) -> str:
    """`Debian GNU/Linux 12 (bookworm)`."""
    text = host.read("/etc/os-release") or host.read("/usr/lib/os-release") or ""
    found = re.search(r'^PRETTY_NAME="?([^"\n]+)', text, re.MULTILINE)
    return found.group(1) if found else "an unknown distribution"


def _system(host: Host) -> Iterator[Finding]:
    kernel = kernel_of(host)
    library, version = platform.libc_ver()
    c_library = f"{library} {version}" if version else "an unknown C library"
    yield ok(
        "system",
        f"{distribution_of(host)}, kernel {kernel}, {c_library}, Python {platform.python_version()}",
    )
    if kernel and numbers(kernel) < numbers(ZSTD_KERNEL):
        why = "it mounts squashfs with gzip alone; zstd came with " + ZSTD_KERNEL
        yield note(
            "kernel",
            f"kernel {kernel} is old",
            why,
            "./build.py convert REF --to sif    (gzip, the default); never --compression zstd",
        )
    machine = os.uname().machine
    if machine not in MADE_FOR:
        why = "the images are for {}: `exec format error`".format(" or ".join(MADE_FOR))
        yield fail("machine", f"the processor is {machine}", why, "a node with an Intel or AMD processor")
    elif MADE_FOR[machine]:
        why = "images for other processors end here: `exec format error`"
        yield note("machine", f"the processor is {machine}", why, f"{MADE_FOR[machine]}    makes an image for it")
    flags = re.search(r"^flags\s*:(.*)$", host.read("/proc/cpuinfo") or "", re.MULTILINE)
    if flags and "avx2" not in flags.group(1).split():
        why = "PyG's and others' wheels may use AVX2: `Illegal instruction`"
        yield warn("avx2", "the processor has no AVX2", why, "make image EXTENSIONS=source    compiles them without")


def _cores(host: Host) -> Iterator[Finding]:
    count = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0))
    quota = _quota(host)
    told = f"{allowed} of {count} cores" if allowed < count else f"{count} cores"
    if quota and quota + 0.5 < allowed:
        why = "torch starts a thread for each core that it sees; they then wait for one another"
        fix = f"export OMP_NUM_THREADS={max(1, quota):.0f}"
        yield warn("cores", f"{told}, of which the cgroup gives {quota:.1f}", why, fix)
    elif allowed < count:
        yield note("cores", told, "a job's share: num_workers and OMP_NUM_THREADS should fit it")
    else:
        yield ok("cores", told)


def _cgroup_values(host: Host, name: str) -> List[str]:
    """The values of a file of cgroup v2 in this process's cgroup and in all above it."""
    found = re.search(r"^0::/(.*)$", host.read("/proc/self/cgroup") or "", re.MULTILINE)
    parts = found.group(1).split("/") if found else []
    folders = ["/".join(["/sys/fs/cgroup", *parts[:depth]]) for depth in range(len(parts) + 1)]
    texts = [host.read(f"{folder}/{name}") for folder in folders]
    return [text.strip() for text in texts if text]


def _quota(host: Host) -> Optional[float]:
    """Cores' worth of time that the cgroup gives; None for no limit."""
    rows = [value.split() for value in _cgroup_values(host, "cpu.max")]
    return min((int(row[0]) / int(row[1]) for row in rows if len(row) == 2 and row[0].isdigit()), default=None)


def memory_limit(host: Host) -> Optional[int]:
    """Bytes that the cgroup gives; None for no limit."""
    return min((int(value) for value in _cgroup_values(host, "memory.max") if value.isdigit()), default=None)


def _memory(host: Host) -> Iterator[Finding]:
    told = dict(re.findall(r"^(\w+):\s+(\d+) kB", host.read("/proc/meminfo") or "", re.MULTILINE))
    total = int(told.get("MemTotal", 0)) * 1024
    free = int(told.get("MemAvailable") or told.get("MemFree") or 0) * 1024
    limit = memory_limit(host)
    if limit and (not total or limit < total):
        seen, least = f"{size(limit)} by the cgroup's limit, of {size(total)}", limit
    else:
        seen, least = f"{size(total)}, {size(free)} free", free
    if not total:
        return
    if least < SMALL_MEMORY:
        why = "importing torch for CUDA and starting a GPU takes 3 to 4 GiB: `Killed`, exit code 137"
        yield warn("memory", seen, why, "in Slurm: --mem=16G; docker run --memory 16g")
    else:
        yield ok("memory", seen)


def _limits(host: Host) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < FEW_FILES:
        fix = f"ulimit -n {hard if hard >= 0 else 65536}"
        yield note(
            "open-files",
            f"{soft} open files",
            "many workers of DataLoaders want more: `Too many open files`",
            fix,
        )
    data = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= data < 64 * GIB:
        why = "CUDA reserves tens of gigabytes of addresses: cuInit answers out of memory"
        yield warn("addresses", f"ulimit -v is {size(data)}", why, "ulimit -v unlimited")


# Disks


def judge_storage(host: Host, container: str) -> Iterator[Finding]:
    """/dev/shm, /tmp, $TMPDIR, $HOME and what runtimes unpack into."""
    yield from _shared_memory(host, container)
    mounts = mounts_of(host)
    temporary = host.environment.get("TMPDIR", "")
    if temporary and not host.exists(temporary):
        why = "programs then fail or write elsewhere: a job's TMPDIR of the host is often not bound into the container"
        yield warn("tmpdir", f"TMPDIR={temporary} is not there", why, "export TMPDIR=/tmp")
        temporary = ""
    folders = {"tmp": "/tmp", "tmpdir": temporary, "home": host.home()}
    seen = set()
    for name, folder in folders.items():
        room = host.room(folder) if folder else None
        if room is None or (name == "tmpdir" and folder in seen):
            continue
        seen.add(folder)
        kind = kind_of(mounts, folder)
        told = "{}: {} free of {}{}".format(folder, size(room.free), size(room.total), ", " + kind if kind else "")
        if not host.may_write(folder):
            fix = "export HOME=/tmp" if name == "home" else "export TMPDIR=a folder of yours"
            yield warn(name, told + ", closed to you", "caches of PyG, ogb and torch are written there", fix)
        elif room.free < GIB // 4:
            fix = f"df -h {folder}; du -sh {folder}/*"
            if container == "apptainer" and kind == "tmpfs":
                fix = "singularity exec --workdir /scratch/$USER …    (--contain gives 64 MB of memory)"
            yield warn(name, told, "`No space left on device` as soon as something is written", fix)
        elif room.free < SMALL_DISK and not container:
            why = "an image is unpacked or converted there: `No space left on device`"
            fix = "export APPTAINER_TMPDIR=/scratch/$USER ENROOT_TEMP_PATH=/scratch/$USER TMPDIR=/scratch/$USER"
            yield note(name, told, why, fix)
        else:
            yield ok(name, told)


def _shared_memory(host: Host, container: str) -> Iterator[Finding]:
    fix = {
        "docker": "docker run --shm-size=8g …    (or --ipc=host)",
        "podman": "podman run --shm-size=8g …",
        "kubernetes": "an emptyDir with `medium: Memory` at /dev/shm; in PAI: shared memory in the job's settings",
    }.get(container, "as root: mount -o remount,size=50% /dev/shm; Docker: --shm-size=8g")
    room = host.room("/dev/shm") if host.exists("/dev/shm") else None
    if room is None:
        yield fail("shm", "there is no /dev/shm", "workers of DataLoaders and GLT cannot start", fix)
        return
    seen = f"/dev/shm: {size(room.free)} free of {size(room.total)}"
    why = "workers of DataLoaders, NCCL and GLT hand data over there; who runs out of it dies of `Bus error`"
    if not host.may_write("/dev/shm"):
        yield fail("shm", seen + ", closed to you", why, "as root: chmod 1777 /dev/shm")
    elif room.free < TINY_SHM or room.total <= TINY_SHM:
        yield fail("shm", seen, why, fix)
    elif room.free < SMALL_SHM:
        yield warn("shm", seen, why, fix)
    else:
        yield ok("shm", seen)


def mounts_of(host: Host) -> List[Tuple[str, str]]:
    """(mount point, kind of file system), as the kernel lists them."""
    rows = [line.split() for line in (host.read("/proc/self/mounts") or "").splitlines()]
    return [(row[1].replace("\\040", " "), row[2]) for row in rows if len(row) > 2]


def kind_of(mounts: List[Tuple[str, str]], path: str) -> str:
    """The file system that a path is on: of equally long mount points the last."""
    best, kind = "", ""
    for point, name in mounts:
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, name
    return kind


# Network


def judge_network(host: Host) -> Iterator[Finding]:
    """Yield whether there is a network at all."""
    if host.names("/sys/class/net") == ["lo"]:
        why = "started with --container-unshare=net, --net or --network none: processes of other nodes are out of reach"
        yield note("network", "there is no network but 127.0.0.1", why, "leave that option out")
