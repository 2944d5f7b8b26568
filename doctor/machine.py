"""Kernel, distribution, C library, cores, memory and limits; disks and shared memory; the network."""

import os
import platform
import re
import resource
from typing import Dict, Iterator, List, Optional, Tuple

from doctor.finding import Finding, fail, listed, note, numbers, ok, size, warn
from doctor.place import Place

GIB = 1 << 30
MIB = 1 << 20
SMALL_MEMORY = 4 * GIB  #: importing torch for CUDA and starting a GPU takes 3 to 4
SMALL_SHM = GIB
TINY_SHM = 64 * MIB  #: Docker's own default
SMALL_DISK = 10 * GIB  #: an image of 5 GB, and it unpacked
FEW_FILES = 4096
#: kernel → what it lacks before. Source: docs/runtimes.md, Apptainer's user guide
ZSTD_KERNEL = "4.14"
NO_LIMIT = 1 << 60  #: cgroup v1 says so where there is none


def judge_machine(place: Place) -> Iterator[Finding]:
    """Kernel, distribution, C library, processor, memory, limits."""
    for part in (_system, _cores, _memory, _limits):
        yield from part(place)


def kernel_of(place: Place) -> str:
    """`3.10.0-1160.el7.x86_64`."""
    return (place.read("/proc/sys/kernel/osrelease") or "").strip()


def distribution_of(place: Place) -> str:
    """`Debian GNU/Linux 12 (bookworm)`."""
    text = place.read("/etc/os-release") or place.read("/usr/lib/os-release") or ""
    found = re.search(r'^PRETTY_NAME="?([^"\n]+)', text, re.MULTILINE)
    return found.group(1) if found else "an unknown distribution"


def _system(place: Place) -> Iterator[Finding]:
    kernel = kernel_of(place)
    library, version = platform.libc_ver()
    c_library = f"{library} {version}" if version else "an unknown C library"
    yield ok(
        "system",
        f"{distribution_of(place)}, kernel {kernel}, {c_library}, Python {platform.python_version()}",
    )
    if kernel and numbers(kernel) < numbers(ZSTD_KERNEL):
        why = "it mounts squashfs with gzip alone; zstd came with " + ZSTD_KERNEL
        yield note(
            "kernel",
            f"kernel {kernel} is old",
            why,
            "make sif CUDA=11.8    (gzip, the default); never KERNEL=5.14",
        )
    machine = os.uname().machine
    if machine != "x86_64":
        why = "the images are for x86_64: `exec format error`"
        yield fail("machine", f"this is a {machine}", why, "a node with an Intel or AMD processor")
    flags = re.search(r"^flags\s*:(.*)$", place.read("/proc/cpuinfo") or "", re.MULTILINE)
    if flags and "avx2" not in flags.group(1).split():
        why = "PyG's and others' wheels may use AVX2: `Illegal instruction`"
        yield warn("avx2", "the processor has no AVX2", why, "EXTENSIONS=source make image …    compiles them without")


def _cores(place: Place) -> Iterator[Finding]:
    count = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0))
    quota = _quota(place)
    told = f"{allowed} of {count} cores" if allowed < count else f"{count} cores"
    if quota and quota + 0.5 < allowed:
        why = "torch starts a thread for each core that it sees; they then wait for one another"
        fix = f"export OMP_NUM_THREADS={max(1, quota):.0f}"
        yield warn("cores", f"{told}, of which the cgroup gives {quota:.1f}", why, fix)
    elif allowed < count:
        yield note("cores", told, "a job's share: num_workers and OMP_NUM_THREADS should fit it")
    else:
        yield ok("cores", told)


def _cgroups(place: Place) -> List[Tuple[str, str]]:
    """(controllers, folder) of each cgroup of this process, from the innermost folder that can be there."""
    found = []
    for line in (place.read("/proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            found.append((parts[1], parts[2]))
    return found


def cgroup_folders(place: Place, controller: str) -> List[Tuple[str, int]]:
    """(folder, version of cgroups) of this process's cgroup, and of all above it, for the files of a controller."""
    found = []
    for controllers, folder in _cgroups(place):
        if controllers == "":
            tops, version = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"), 2
        elif controller in controllers.split(","):
            tops, version = ("/sys/fs/cgroup/" + controllers, "/sys/fs/cgroup/" + controller), 1
        else:
            continue
        parts = [part for part in folder.split("/") if part]
        for top in tops:
            for depth in range(len(parts), -1, -1):
                found.append(("/".join([top, *parts[:depth]]), version))
    return found


def _cgroup_values(place: Place, controller: str, name: str, name_v2: str) -> List[str]:
    """The values of a file in this process's cgroup and in all above it."""
    values = []
    for folder, version in cgroup_folders(place, controller):
        text = place.read(folder + "/" + (name if version == 1 else name_v2))
        if text:
            values.append(text.strip())
    return values


def _quota(place: Place) -> Optional[float]:
    """Cores' worth of time that the cgroup gives; None for no limit."""
    found = []
    for value in _cgroup_values(place, "cpu", "cpu.cfs_quota_us", "cpu.max"):
        parts = value.split()
        if parts and parts[0].isdigit():
            found.append(int(parts[0]) / int(parts[1] if len(parts) > 1 else 100000))
    return min(found) if found else None


def memory_limit(place: Place) -> Optional[int]:
    """Bytes that the cgroup gives; None for no limit."""
    values = _cgroup_values(place, "memory", "memory.limit_in_bytes", "memory.max")
    limits = [int(value) for value in values if value.isdigit() and int(value) < NO_LIMIT]
    return min(limits) if limits else None


def _memory(place: Place) -> Iterator[Finding]:
    told = dict(re.findall(r"^(\w+):\s+(\d+) kB", place.read("/proc/meminfo") or "", re.MULTILINE))
    total = int(told.get("MemTotal", 0)) * 1024
    free = int(told.get("MemAvailable") or told.get("MemFree") or 0) * 1024
    limit = memory_limit(place)
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


def _limits(place: Place) -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < FEW_FILES:
        fix = f"ulimit -n {hard if hard >= 0 else 65536}"
        yield note(
            "open-files",
            f"{soft} open files",
            "many workers of DataLoaders want more: `Too many open files`",
            fix,
        )
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    adapters = place.names("/sys/class/infiniband")
    if adapters and 0 <= locked < GIB:
        why = "InfiniBand pins memory: NCCL says `ibv_reg_mr failed` or `Cannot allocate memory`"
        fix = "ulimit -l unlimited; docker run --ulimit memlock=-1; Slurm: PropagateResourceLimitsExcept=MEMLOCK"
        yield warn("locked-memory", f"{size(locked)} may be locked", why, fix)
    data = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= data < 64 * GIB:
        why = "CUDA reserves tens of gigabytes of addresses: cuInit answers out of memory"
        yield warn("addresses", f"ulimit -v is {size(data)}", why, "ulimit -v unlimited")


# Disks


def judge_storage(place: Place, container: str) -> Iterator[Finding]:
    """/dev/shm, /tmp, $TMPDIR, $HOME and what runtimes unpack into."""
    yield from _shared_memory(place, container)
    mounts = mounts_of(place)
    temporary = place.environment.get("TMPDIR", "")
    if temporary and not place.exists(temporary):
        why = "programs then fail or write elsewhere: a job's TMPDIR of the host is often not bound into the container"
        yield warn("tmpdir", f"TMPDIR={temporary} is not there", why, "export TMPDIR=/tmp")
        temporary = ""
    folders = {"tmp": "/tmp", "tmpdir": temporary, "home": place.home()}
    seen = set()
    for name, folder in folders.items():
        room = place.room(folder) if folder else None
        if room is None or (name == "tmpdir" and folder in seen):
            continue
        seen.add(folder)
        kind = kind_of(mounts, folder)
        told = "{}: {} free of {}{}".format(folder, size(room.free), size(room.total), ", " + kind if kind else "")
        if not place.may_write(folder):
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


def _shared_memory(place: Place, container: str) -> Iterator[Finding]:
    fix = {
        "docker": "docker run --shm-size=8g …    (or --ipc=host)",
        "podman": "podman run --shm-size=8g …",
        "kubernetes": "an emptyDir with `medium: Memory` at /dev/shm; in PAI: shared memory in the job's settings",
    }.get(container, "as root: mount -o remount,size=50% /dev/shm; Docker: --shm-size=8g")
    room = place.room("/dev/shm") if place.exists("/dev/shm") else None
    if room is None:
        yield fail("shm", "there is no /dev/shm", "workers of DataLoaders and GLT cannot start", fix)
        return
    seen = f"/dev/shm: {size(room.free)} free of {size(room.total)}"
    why = "workers of DataLoaders, NCCL and GLT hand data over there; who runs out of it dies of `Bus error`"
    if not place.may_write("/dev/shm"):
        yield fail("shm", seen + ", closed to you", why, "as root: chmod 1777 /dev/shm")
    elif room.free < TINY_SHM or room.total <= TINY_SHM:
        yield fail("shm", seen, why, fix)
    elif room.free < SMALL_SHM:
        yield warn("shm", seen, why, fix)
    else:
        yield ok("shm", seen)


def mounts_of(place: Place) -> List[Tuple[str, str]]:
    """(mount point, kind of file system), as the kernel lists them."""
    rows = [line.split() for line in (place.read("/proc/self/mounts") or "").splitlines()]
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


def judge_network(place: Place) -> Iterator[Finding]:
    """What processes of one job need to find each other."""
    broken = place.loopback()
    if broken:
        why = "processes of one machine meet there: torchrun, gloo and GLT hang or fail"
        yield fail("loopback", "127.0.0.1 does not work: " + broken, why, "as root: ip link set lo up")
    host = place.host_name()
    address = place.resolves(host)
    if address:
        yield ok("host-name", f"{host} is {address}")
    else:
        seen = "{} {}".format(host, "has no address" if address == "" else "is not answered in time")
        why = "torch.distributed and gloo look their own machine up by name: they hang, or `Name or service not known`"
        fix = "export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0    (a name of `ip link`); or a line in /etc/hosts"
        yield warn("host-name", seen, why, fix)
    for finding in _interfaces(place):
        yield finding
    master = place.environment.get("MASTER_ADDR", "")
    if master and not place.resolves(master):
        why = "every rank but the first waits for it until its time-out"
        yield fail(
            "master",
            f"MASTER_ADDR={master} has no address here",
            why,
            "export MASTER_ADDR=$(hostname -i)    on the first node",
        )
    for finding in _infiniband(place):
        yield finding
    told = {name: value for name, value in place.environment.items() if re.match(r"(NCCL|GLOO|UCX|FI)_", name)}
    if told:
        yield note("variables", listed((f"{name}={told[name]}" for name in sorted(told)), 8))


def _interfaces(place: Place) -> Iterator[Finding]:
    present = place.names("/sys/class/net")
    if present == ["lo"]:
        why = "started with --container-unshare=net, --net or --network none: processes of other nodes are out of reach"
        yield note("network", "there is no network but 127.0.0.1", why, "leave that option out")
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        value = place.environment.get(name, "")
        if not value or value.startswith("^") or not present:
            continue
        exact = value.startswith("=")
        wanted = [part for part in value.lstrip("=").split(",") if part]
        prefix = name.startswith("NCCL") and not exact
        if not any(each == part or (prefix and each.startswith(part)) for each in present for part in wanted):
            why = "NCCL says `no socket interface found`, gloo `Unable to find interface`"
            yield fail(
                "interface",
                f"{name}={value}, and there is none of that name",
                why,
                f"export {name}={_outward(present)}",
            )


def _outward(present: List[str]) -> str:
    others = [name for name in present if not re.match(r"lo$|docker|veth|br-|virbr|cni|flannel|tun|sit|ip6tnl", name)]
    return others[0] if others else "lo"


def _infiniband(place: Place) -> Iterator[Finding]:
    states: Dict[str, str] = {}
    for adapter in place.names("/sys/class/infiniband"):
        for port in place.names(f"/sys/class/infiniband/{adapter}/ports"):
            text = place.read(f"/sys/class/infiniband/{adapter}/ports/{port}/state") or ""
            states[f"{adapter}:{port}"] = text.split(":")[-1].strip()
    if not states:
        return
    active = [port for port, state in states.items() if state == "ACTIVE"]
    seen = f"InfiniBand: {len(active)} of {len(states)} ports active"
    if active and not any(name.startswith("uverbs") for name in place.names("/dev/infiniband")):
        why = "there is no /dev/infiniband/uverbs0 here: NCCL goes over TCP, ten times as slow"
        yield warn("infiniband", seen, why, "enroot: MELLANOX_VISIBLE_DEVICES=all; docker run --device /dev/infiniband")
    elif active and place.environment.get("NCCL_IB_DISABLE") == "1":
        yield warn("infiniband", seen, "NCCL_IB_DISABLE=1: NCCL goes over TCP", "unset NCCL_IB_DISABLE")
    else:
        yield ok("infiniband", seen)
