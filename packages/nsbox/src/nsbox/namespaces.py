"""The program that `box.run` starts: enters namespaces, makes a root of a folder, runs a command in it.

Runs as a script of its own (`python -I -S namespaces.py N`, standard library alone): entering a user namespace needs a
process with one thread.
Reads its orders as JSON from descriptor N, a file, and writes behind them why nothing came about. Does with the
kernel's calls what unshare(1), mount(8) and pivot_root(8) do, because those on old login nodes lack options.

Everything is mounted in a private mount namespace, which goes with its last process: nothing is left behind, even
after kill -9. The command is the child of an init in its own PID namespace; when that ends, the kernel ends the rest.
"""

import _thread
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import stat
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWCGROUP = 0x00020000, 0x04000000, 0x08000000, 0x02000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_NOATIME, MS_NODIRATIME, MS_BIND, MS_MOVE, MS_REC = 1024, 2048, 4096, 8192, 16384
MS_PRIVATE, MS_RELATIME = 1 << 18, 1 << 21
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
SECCOMP_MODE_FILTER, SECCOMP_SET_MODE_FILTER = 2, 1
SECCOMP_FILTER_FLAG_SPEC_ALLOW, SECCOMP_FILTER_FLAG_NEW_LISTENER = 4, 8
#: seccomp_unotify(2), of include/uapi/linux/seccomp.h: id, process, flags, call, architecture, its place, 6 arguments;
#: id, result, error, flags
NOTIFICATION, ANSWER = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND, SECCOMP_IOCTL_NOTIF_ID_VALID = 0xC0502100, 0xC0182101, 0x40082102
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, PATH_MAX, PAGE = -100, 0x100, 0x1000, 4096, 4096
LINUX_CAPABILITY_VERSION_3 = 0x20080522
SYS_PIVOT_ROOT, SYS_SECCOMP = {"x86_64": 155, "aarch64": 41}, {"x86_64": 317, "aarch64": 277}
#: the same on every machine
SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_VERSION, LANDLOCK_PATH_BENEATH = 1, 1
#: include/uapi/linux/landlock.h: write_file, remove_dir, remove_file, make_dir, make_reg, make_sock, make_fifo,
#: make_sym, refer; make_char and make_block, which are never given; truncate, known from version 3 on
WRITING, DEVICE_MAKING, TRUNCATING = 1 << 1 | 0b11 << 4 | 0b1111 << 7 | 0b11 << 12, 1 << 6 | 1 << 11, 1 << 14
TO_FILES = 1 << 1 | TRUNCATING  #: what of it there is for a single file
#: The first whose rules let a file move from one folder to another (Linux 5.19); those that know TCP, and signals and
#: abstract sockets
LANDLOCK_MOVES, LANDLOCK_TCP, LANDLOCK_SCOPES = 2, 4, 6
#: statvfs flag → mount flag; a remount in a user namespace must repeat those that the mount came with
LOCKED_FLAGS = {2: MS_NOSUID, 4: MS_NODEV, 8: MS_NOEXEC, 1024: MS_NOATIME, 2048: MS_NODIRATIME, 4096: MS_RELATIME}
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
OWN_FOLDERS = ("proc", "sys", "dev", "tmp", "run")  #: made here, never the root file system's own
#: What runc hides and makes read-only for Docker and containerd (their default `maskedPaths` and `readonlyPaths`, in
#: oci/defaults.go of moby/moby and oci/spec.go of containerd/containerd), and more that has the host's secrets.
HIDDEN = (
    *(
        "proc/acpi",
        "proc/asound",
        "proc/interrupts",
        "proc/kcore",
        "proc/keys",
        "proc/latency_stats",
        "proc/sched_debug",
    ),
    *("proc/scsi", "proc/timer_list", "proc/timer_stats", "sys/firmware", "sys/devices/virtual/powercap"),
    *("proc/kmsg", "proc/kallsyms", "proc/kpagecgroup", "proc/kpagecount", "proc/kpageflags", "proc/vmallocinfo"),
    *("proc/slabinfo", "sys/kernel/debug", "sys/kernel/tracing", "sys/kernel/security"),
    *("sys/fs/bpf", "sys/fs/pstore"),
)
READ_ONLY = ("proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger")
#: File systems that are the kernel's interfaces, not files of users. What of them is mounted below a bound folder stays
#: outside, as does all that is mounted in the host's /dev. By the names that Linux registers (register_filesystem).
INTERFACES = frozenset(
    (
        *("proc", "sysfs", "cgroup", "cgroup2", "cpuset", "devtmpfs", "devpts", "tracefs", "debugfs", "securityfs"),
        *("bpf", "mqueue", "configfs", "efivarfs", "pstore", "hugetlbfs", "binfmt_misc", "autofs", "fusectl", "nsfs"),
        *("rpc_pipefs", "nfsd", "selinuxfs", "smackfs", "apparmorfs", "xenfs", "resctrl", "functionfs", "binder"),
        *("usbfs", "ibmasmfs", "spufs", "openpromfs", "dax", "secretmem", "guest-memfd", "pidfs", "drm", "sockfs"),
    )
)
OF_PROCESSES = ("self", "thread-self", "net", "mounts")  #: links in /proc, beside the processes' own folders
SETUP_FAILED = 125
EMULATOR = "emulator"  #: a stage
NO_SECCOMP = "this kernel has no seccomp filters"

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Run the command in the kind of isolation that is asked for; its exit code.

    Runs twice: once to enter the namespaces, then inside them, where its own program is read-only: else what runs
    in the sandbox as the host's root could write that, by the link /proc/self/exe (CVE-2019-5736).
    """
    post, inside = int(sys.argv[1]), len(sys.argv) > 2
    orders: dict[str, Any] = json.loads(os.pread(post, orders_size(post, inside), 0))
    die_with(orders["parent"])
    os.umask(0o022)
    if not inside:
        with stage("unshare", post):
            isolate(orders["kind"], "" if orders["network"] else orders["host_name"])
            die_with(orders["parent"])  # again: the change of rights makes the kernel forget it
        with stage("mount", post):
            mount(None, "/", None, MS_REC | MS_PRIVATE)
            start_again(post, os.fstat(post).st_size)
    os.set_inheritable(post, False)  # the command does not get it
    with stage("unshare", post):
        init = os.fork()
    if init == 0:
        start(post, orders)
    return wait(init)


def orders_size(post: int, inside: bool) -> int:
    """Bytes of the orders: all of the file, until a failure is written behind them."""
    return int(sys.argv[2]) if inside else os.fstat(post).st_size


def start_again(post: int, size: int) -> NoReturn:
    """Become this program once more, by a read-only mount of it."""
    program = os.path.realpath("/proc/self/exe")
    mount(program, program, None, MS_BIND)
    remount(program, MS_RDONLY)
    os.set_inheritable(post, True)
    # Where a loader or a wrapper starts Python, the program is that one, and is found again by Python's own name.
    start = program if os.path.samefile(program, sys.executable) else sys.executable
    os.execv(start, [sys.executable, "-I", "-S", os.path.abspath(__file__), str(post), str(size)])


@contextlib.contextmanager
def stage(name: str, post: int) -> Iterator[None]:
    """Write a failure behind the orders and end the process."""
    try:
        yield
    except BaseException as error:
        number = error.errno or 0 if isinstance(error, OSError) else 0
        os.lseek(post, 0, os.SEEK_END)
        os.write(post, json.dumps({"stage": name, "errno": number, "what": str(error)}).encode())
        os._exit(SETUP_FAILED)


def start(post: int, orders: dict[str, Any]) -> NoReturn:
    """As the first process of the PID namespace: make the root, start the command, reap what is left over."""
    with stage("mount", post):
        die_with(0)  # its parent is outside the namespace, where process numbers are others'
        enter_root(orders, post)
        if not orders["network"]:
            raise_loopback()
    with stage("chdir", post):
        with contextlib.suppress(OSError):
            os.makedirs(orders["environment"]["HOME"], exist_ok=True)
        os.chdir(orders["working_folder"])
    with stage("mount", post):
        drop_privileges(frozenset(orders["capabilities"]))
        ours, its = socket.socketpair()
        command = os.fork()
    os.close(post)
    if command == 0:
        ours.close()
        execute(orders, its)
    its.close()
    _thread.start_new_thread(set_modes, (ours, {int(call): where for call, where in orders["asked"].items()}))
    os._exit(wait(command))


def execute(orders: dict[str, Any], init: socket.socket) -> NoReturn:
    """Become the command. Exit codes 126 and 127 as in a shell. `init` gets what the filter of calls asks it by."""
    die_with(0)
    try:
        fence_in(orders["writable"], orders["internet"], orders["network"])
    except OSError as error:
        sys.stderr.write(f"Landlock fails on this kernel: {error}\n")
        os._exit(126)
    try:
        if not (orders["asking"] and filter_calls_and_ask(bytes.fromhex(orders["asking"]), init)):
            filter_calls(bytes.fromhex(orders["filter"]))
    except OSError as error:
        if orders["filter_required"]:
            sys.stderr.write(f"{NO_SECCOMP}: {error.strerror}\n")
            os._exit(126)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):  # ignored here; the command would inherit that
        signal.signal(number, signal.SIG_DFL)
    program = orders["argv"][0]
    try:
        os.execvpe(program, orders["argv"], orders["environment"])
    except OSError as error:
        sys.stderr.write(f"{program}: cannot be run in the image: {error.strerror}\n")
        os._exit(127 if error.errno == errno.ENOENT else 126)


def isolate(kind: str, host_name: str) -> None:
    """Enter new namespaces; `user` first gets all rights in a user namespace with this user as root.

    `host_name`: of the new network; empty: the host's network.
    """
    if kind == "user":
        enter_user_namespace()
    check(_libc.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS), "mount, PID, IPC and UTS namespaces")
    with contextlib.suppress(OSError):  # Linux 4.6 and later
        check(_libc.unshare(CLONE_NEWCGROUP), "cgroup namespace")
    if host_name:
        with contextlib.suppress(OSError):  # `walls` says where there is none
            check(_libc.unshare(CLONE_NEWNET), "network namespace")
        name = host_name.encode()
        check(_libc.sethostname(name, len(name)), "sethostname")


def enter_user_namespace() -> None:
    """A plain user becomes root in it; root keeps every number that it has, so that files keep their owners.

    The maps are written by a process that stayed outside: the kernel requires that for more than one number.
    """
    outer, entered = os.getpid(), os.pipe()
    writer = os.fork()
    if writer == 0:
        os.close(entered[1])  # else this would wait for ever where the other does not get in
        try:
            if os.read(entered[0], 1) and os.geteuid() != 0:
                write_text(f"/proc/{outer}/setgroups", "deny")
            for name, own in (("uid_map", os.geteuid()), ("gid_map", os.getegid())):
                write_text(f"/proc/{outer}/{name}", f"0 {own} 1" if own else all_numbers(name))
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or errno.EPERM)
    check(_libc.unshare(CLONE_NEWUSER), "user namespace")
    os.write(entered[1], b".")
    if failed := wait(writer):
        raise OSError(failed, os.strerror(failed), "the user namespace's maps")


def all_numbers(name: str) -> str:
    """The map that leaves every number of this namespace as it is."""
    with open(f"/proc/self/{name}") as stream:
        ranges = [line.split() for line in stream]
    return "\n".join(f"{inside} {inside} {count}" for inside, _, count in ranges)


def enter_root(orders: dict[str, Any], post: int) -> None:
    """Make the root file system the root. New mounts cover a folder that the command does not get to see anyway."""
    changed = orders["changes_root"]
    path = orders["rootfs"] if changed else os.path.join(orders["rootfs"], orders["staging"])
    root = Root(path)
    if changed:
        mount(path, path, None, MS_BIND | MS_REC)
        remount(path, MS_NOSUID | MS_NODEV)
    else:
        root.spread(orders["rootfs"], path, leave_out=frozenset(OWN_FOLDERS))
    for name in OWN_FOLDERS:
        os.makedirs(os.path.join(path, name), 0o755, exist_ok=True)
    mount_kernel_folder(path, "proc", "proc")
    mount_kernel_folder(path, "sys", "sysfs")
    if orders["emulator"]:
        with stage(EMULATOR, post):
            register(path, orders["emulator"], orders["kind"])
    guard_kernel_folders(root)
    make_devices(os.path.join(path, "dev"))
    for name, mode in (("tmp", "1777"), ("dev/shm", "1777"), *(() if changed else (("run", "755"),))):
        # size: of the memory, used only as it fills; Docker's 64 MB are too few for PyTorch's data loaders
        mount("tmpfs", os.path.join(path, name), "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode},size=50%")
    staged = os.path.join(path, "run", ".nsbox")
    for target, text in orders["files"].items():
        make_empty(staged, folder=False)
        write_text(staged, text)
        root.bind(staged, target, read_only=True)
        os.unlink(staged)
    for source, target, read_only in sorted(orders["binds"], key=lambda bind: bind[1].count("/")):
        root.bind(source, target, read_only)
    for covered in root.covered:  # by descriptor: by now another mount may have its path
        remount(f"/proc/self/fd/{covered}", MS_RDONLY)
        os.close(covered)
    remount(os.path.join(path, "dev"), MS_RDONLY)
    root.finish_below()
    switch_root(path)


class Root:
    """The new root at `path`: the root file system's folders, bound, and all that is to be added."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.covered: list[int] = []  #: folders in memory, to be made read-only when all is bound
        self.flags: dict[str, int] = {}  #: of what was bound, for what is mounted below it
        self.sources: dict[str, str] = {}  #: of what was bound: where on the host it is

    def spread(self, source: str, target: str, leave_out: frozenset[str] = frozenset()) -> None:
        """Cover `target` with an empty folder in memory and bind each entry of `source` into it.

        Looks like `source`, but mount points can be made in it. Works on kernels whose overlayfs is not for plain
        users (before 5.11), and on file systems that overlayfs refuses.
        """
        folder = os.open(source, os.O_PATH | os.O_DIRECTORY)
        mode = stat.S_IMODE(os.fstat(folder).st_mode) | 0o700
        names = [name for name in os.listdir(source) if name not in leave_out]
        mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode:o}")
        self.covered.append(os.open(target, os.O_PATH | os.O_DIRECTORY))
        for name in names:
            inside, outside = os.path.join(target, name), f"/proc/self/fd/{folder}/{name}"
            if os.path.islink(outside):
                os.symlink(os.readlink(outside), inside)
                continue
            make_empty(inside, os.path.isdir(outside))
            mount(outside, inside, None, MS_BIND | MS_REC)
            self.remount(inside, MS_RDONLY | MS_NOSUID | MS_NODEV)
        os.close(folder)

    def bind(self, source: str, target: str, read_only: bool) -> None:
        """Bind a host's file or folder to a path of the new root, which is made where it is missing."""
        mounted = self.make_room(target, os.path.isdir(source))
        mount(source, mounted, None, MS_BIND | MS_REC)
        devices = 0 if source.startswith("/dev/") else MS_NODEV
        self.remount(mounted, MS_NOSUID | devices | (MS_RDONLY if read_only else 0))
        if devices:
            self.sources[mounted] = source

    def remount(self, path: str, flags: int) -> None:
        """Add flags to those of a mount, and when all is bound to those of what came along below it."""
        remount(path, flags)
        self.flags[path] = flags

    def finish_below(self) -> None:
        """Cover what came along of the kernel's interfaces; give each other mount the flags of the one above it.

        Covered, not unmounted: a user namespace may not take from a tree that came from outside.
        """
        covers, flags = came_along(mount_points(), self.flags, self.sources)
        for point in covers:
            if os.path.isdir(point):
                mount("tmpfs", point, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=555")
            elif os.path.lexists(point):
                mount("/dev/null", point, None, MS_BIND)
        for point, more in flags.items():
            try:
                remount(point, more)
            except OSError as error:  # another mount covers it: what has its path now is no mount
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL):
                    raise

    def make_room(self, target: str, folder: bool, followed: int = 0) -> str:
        """Path on the host for `target`; symbolic links are followed inside the new root, never out of it."""
        parts = [part for part in os.path.normpath("/" + target).split("/") if part]
        path = self.path
        for index, part in enumerate(parts):
            parent, path = path, os.path.join(path, part)
            rest = parts[index + 1 :]
            if os.path.islink(path):
                if followed > 40:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), target)
                link = os.path.join(parent.removeprefix(self.path) or "/", os.readlink(path))
                return self.make_room("/".join([link, *rest]), folder, followed + 1)
            if not os.path.lexists(path):
                if os.statvfs(parent).f_flag & MS_RDONLY:
                    self.spread(parent, parent)
                make_empty(path, folder or bool(rest))
        return path


def mount_points() -> dict[str, str]:
    """Path of each mount point that this process sees → the kind of file system that is on top there."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        return kinds(stream.read())


def kinds(mountinfo: str) -> dict[str, str]:
    """The mount points of a /proc/PID/mountinfo, in its order, and their file systems (proc_pid_mountinfo(5))."""
    points = {}
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        points[unescaped(fields[4])] = fields[fields.index("-", 6) + 1]
    return points


def is_interface(path: str, kind: str) -> bool:
    """Return whether a mount of this kind at this path is one of the kernel's interfaces, or of its /dev."""
    return kind in INTERFACES or path == "/dev" or path.startswith("/dev/")


def came_along(
    points: Mapping[str, str], made: Mapping[str, int], sources: Mapping[str, str]
) -> tuple[list[str], dict[str, int]]:
    """The mount points to be covered, and the flags for the others that came along with what was mounted here.

    `points`: kind by path. `made`: the flags of what was mounted here, by path. `sources`: the host's paths of those
    that were bound.
    """
    covers: list[str] = []
    flags: dict[str, int] = {}
    for point in sorted(points):
        if point in made or any(is_below(point, covered) for covered in covers):
            continue
        above = point
        while above not in made and above != "/":
            above = os.path.dirname(above)
        if above not in made:
            continue
        path = sources.get(above, "").rstrip("/") + point[len(above) :]
        if above in sources and is_interface(path, points[point]):
            covers.append(point)
        else:
            flags[point] = made[above]
    return covers, flags


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is that of the folder or of something in it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def mount_kernel_folder(root: str, name: str, kind: str) -> None:
    """Mount a new /proc or /sys, or the host's where a container around us hides parts of it (the kernel refuses)."""
    target = os.path.join(root, name)
    try:
        mount(kind, target, kind, MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except OSError:
        mount(f"/{name}", target, None, MS_BIND | MS_REC)


def register(root: str, emulator: dict[str, str], kind: str) -> None:
    """Have the kernel start programs of another processor by an emulator, in this user namespace alone (Linux 6.7).

    The kernel opens it now. It gets a descriptor's path: it takes few letters, and a colon in the line for an end.
    What is registered goes with the last mount of this folder.
    """
    if kind != "user":
        raise OSError(errno.EPERM, "in the host's user namespace it would be for everybody")
    folder = os.path.join(root, "proc", "sys", "fs", "binfmt_misc")
    mount("binfmt_misc", folder, "binfmt_misc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    program = os.open(emulator["program"], os.O_RDONLY)
    path = f"/proc/self/fd/{program}"
    write_text(os.path.join(folder, "register"), f"{emulator['before']}{path}{emulator['behind']}")
    os.close(program)


def guard_kernel_folders(root: Root) -> None:
    """Hide and make read-only what of /proc and /sys is the machine's: that asks for root's number, not for rights."""
    for name in HIDDEN:
        path = os.path.join(root.path, name)
        if os.path.isdir(path):
            mount("tmpfs", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755")
        elif os.path.exists(path):
            mount("/dev/null", path, None, MS_BIND)
            remount(path, MS_RDONLY)
    proc = os.path.join(root.path, "proc")
    for name in os.listdir(proc):
        path = os.path.join(proc, name)
        if name.isdigit() or name in OF_PROCESSES or f"proc/{name}" in HIDDEN:
            continue
        if f"proc/{name}" in READ_ONLY or os.path.isdir(path) or os.stat(path).st_mode & 0o222:
            mount(path, path, None, MS_BIND | MS_REC)
            root.remount(path, MS_RDONLY)
    root.remount(os.path.join(root.path, "sys"), MS_RDONLY)


def make_devices(dev: str) -> None:
    """A private /dev: the host's harmless devices bound one by one, terminals of its own."""
    mount("tmpfs", dev, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755")
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):
            make_empty(f"{dev}/{name}", folder=False)
            mount(f"/dev/{name}", f"{dev}/{name}", None, MS_BIND)
    for name in ("pts", "shm"):
        os.mkdir(f"{dev}/{name}", 0o755)
    with contextlib.suppress(OSError):
        mount("devpts", f"{dev}/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
    for name, link in links.items():
        os.symlink(link, f"{dev}/{name}")


def switch_root(root: str) -> None:
    """Make `root` the root folder and let go of the old one."""
    os.chdir(root)
    number = SYS_PIVOT_ROOT.get(os.uname().machine)
    if number is not None and _libc.syscall(ctypes.c_long(number), b".", b".") == 0:
        check(_libc.umount2(b".", MNT_DETACH), "umount of the old root")
    else:  # refused where the old root is an initramfs
        mount(root, "/", None, MS_MOVE)
        os.chroot(".")
    os.chdir("/")


def raise_loopback() -> None:
    """Switch the interface `lo` on: torch.distributed talks to itself through it."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        request = struct.pack("16sh14x", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(channel, 0x8914, request)  # SIOCSIFFLAGS


def drop_privileges(kept: frozenset[int]) -> None:
    """Keep these capabilities alone, here and in all that comes of this process; gain none by set-uid programs."""
    for capability in set(range(64)) - kept:
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)  # none before Linux 4.3
    bits = sum(1 << capability for capability in kept)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    header, sets = struct.pack("=Ii", LINUX_CAPABILITY_VERSION_3, 0), struct.pack("=6I", low, low, 0, high, high, 0)
    check(_libc.capset(header, sets), "capset")
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # no process inside may trace this one
    die_with(0)


def fence_in(writable: list[str], internet: bool, network: bool) -> None:
    """A second wall, by Landlock, where the kernel has it: files change below these paths alone.

    It also keeps from processes outside, without the host's network from abstract sockets (by which NCCL talks to other
    tasks on a node), and without `internet` from TCP, as far as it knows them.
    """
    version = _libc.syscall(
        ctypes.c_long(SYS_LANDLOCK_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint(LANDLOCK_VERSION)
    )
    if version < LANDLOCK_MOVES:
        return
    rights = WRITING | (TRUNCATING if version > LANDLOCK_MOVES else 0)
    words = [rights | DEVICE_MAKING]
    if version >= LANDLOCK_TCP:
        words.append(0 if internet else 0b11)  # bind, connect
    if version >= LANDLOCK_SCOPES:
        words.append(0b10 | (not network))  # signals; abstract sockets
    attributes = struct.pack(f"={len(words)}Q", *words)
    size = ctypes.c_size_t(len(attributes))
    rules = _libc.syscall(ctypes.c_long(SYS_LANDLOCK_CREATE), attributes, size, ctypes.c_uint(0))
    if rules < 0:
        return
    for path in writable:
        with contextlib.suppress(FileNotFoundError):
            allow_beneath(rules, path, rights)
    for descriptor in range(3):
        with contextlib.suppress(OSError):  # closed, or a pipe, which asks for none
            allow_beneath(rules, f"/proc/self/fd/{descriptor}", rights)  # a shell opens /dev/stderr once more
    number = ctypes.c_long(SYS_LANDLOCK_RESTRICT)
    check(_libc.syscall(number, ctypes.c_int(rules), ctypes.c_uint(0)), "Landlock")
    os.close(rules)


def allow_beneath(rules: int, path: str, rights: int) -> None:
    """Add a folder, with all below it, or a file to Landlock's rules."""
    descriptor = os.open(path, os.O_PATH)
    try:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        rule = struct.pack("=Qi", rights if is_folder else rights & TO_FILES, descriptor)
        number, kind = ctypes.c_long(SYS_LANDLOCK_ADD), ctypes.c_int(LANDLOCK_PATH_BENEATH)
        check(_libc.syscall(number, ctypes.c_int(rules), kind, rule, ctypes.c_uint(0)), path)
    finally:
        os.close(descriptor)


def filter_calls(code: bytes) -> None:
    """Let the kernel apply a filter of `seccomp` to this process and its children. Needs no_new_privs."""
    if not code:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), os.uname().machine)
    # Before 5.16 a filter without this flag slows the processor down (speculative store bypass), training too.
    for flags in (SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0):
        if set_filter(code, flags) == 0:
            return
    buffer, program = filter_program(code)
    check(_libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0), "seccomp filter")  # before 3.17
    del buffer


def filter_calls_and_ask(code: bytes, init: socket.socket) -> bool:
    """Apply a filter that leaves calls to `init`, and send it what it hears them by (seccomp_unotify(2)).

    False where that cannot be: a container around this one may have such a filter, and there is one for a process.
    """
    listener = set_filter(code, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_SPEC_ALLOW)
    if listener < 0:
        return False
    socket.send_fds(init, [b"."], [listener])
    os.close(listener)
    return True


def set_filter(code: bytes, flags: int) -> int:
    """seccomp(2) with these flags; its result."""
    buffer, program = filter_program(code)
    number, mode = ctypes.c_long(SYS_SECCOMP[os.uname().machine]), ctypes.c_uint(SECCOMP_SET_MODE_FILTER)
    result = int(_libc.syscall(number, mode, ctypes.c_uint(flags), program))
    del buffer
    return result


def filter_program(code: bytes) -> tuple[ctypes.Array[ctypes.c_char], bytes]:
    """Memory with the filter's rules, to be kept as long as the second is used: the kernel's struct sock_fprog."""
    buffer = ctypes.create_string_buffer(code, len(code))
    return buffer, struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))


class Question(NamedTuple):
    """A call that waits for its answer.

    Of `arguments`, `where` has the numbers of those of `seccomp.SET_MODE`.
    """

    listener: int
    ident: int
    process: int
    arguments: tuple[int, ...]
    where: tuple[int, ...]

    def value(self, at: int) -> int | None:
        """One of descriptor, path, mode, flags; None where the call has none."""
        return self.arguments[self.where[at]] if self.where[at] >= 0 else None


def set_modes(command: socket.socket, calls: Mapping[int, tuple[int, ...]]) -> None:
    """Answer calls that would set the set-group-ID bit: done for folders, which hand their group on; EPERM for files.

    A filter does not see what a path leads to, and folders on a group's disk have that bit: `chmod 755` and `cp -a`
    set it again. `calls`: number of a call → `Question.where`. Runs in the init, which none inside can end or trace.
    """
    listeners: list[int] = []
    with contextlib.suppress(OSError):
        _, listeners, _, _ = socket.recv_fds(command, 1, 1)
    poll = select.poll()
    for listener in listeners:
        poll.register(listener, select.POLLIN)
        while poll.poll()[0][1] & select.POLLIN:
            with contextlib.suppress(OSError):  # the process that asked is gone
                asked = fcntl.ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, bytes(NOTIFICATION.size))
                ident, process, _, call, _, _, *arguments = NOTIFICATION.unpack(asked)
                number = answer(Question(listener, ident, process, tuple(arguments), calls.get(call, ())))
                fcntl.ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, ANSWER.pack(ident, 0, -number, 0))


def answer(question: Question) -> int:
    """Set the mode of a folder as the process would that asks; the number of the error, 0 for none."""
    try:
        if rights(question.process) != rights(os.getpid()):  # what that may, it does not do by this one's rights
            return errno.EPERM
        target = opened(question)
        try:
            fcntl.ioctl(question.listener, SECCOMP_IOCTL_NOTIF_ID_VALID, struct.pack("=Q", question.ident))
            if not stat.S_ISDIR(os.fstat(target).st_mode):
                return errno.EPERM
            os.chmod(f"/proc/self/fd/{target}", (question.value(2) or 0) & 0o7777)
        finally:
            os.close(target)
    except OSError as error:
        return error.errno or errno.EPERM
    except Exception:  # in any case the process waits for an answer
        return errno.EPERM
    return 0


def rights(process: int) -> list[str]:
    """Return a process's rights to files: its numbers, groups and capabilities."""
    with open(f"/proc/{process}/status") as stream:
        return [line for line in stream if line.startswith(("Uid:", "Gid:", "Groups:", "CapEff:"))]


def opened(question: Question) -> int:
    """A descriptor of what a call of another process means by its arguments."""
    its, descriptor = f"/proc/{question.process}", ctypes.c_int(question.value(0) or 0).value
    given = descriptor if question.where[0] >= 0 and descriptor != AT_FDCWD else None
    folder = f"{its}/cwd" if given is None else f"{its}/fd/{given}"
    address, flags = question.value(1), question.value(3) or 0
    path = "" if address is None else text_at(question.process, address)
    if path.startswith("/dev/fd/"):
        path = f"/proc/self{path.removeprefix('/dev')}"
    for its_own in ("/proc/self/", "/proc/thread-self/"):  # glibc's fchmodat(AT_SYMLINK_NOFOLLOW) goes by them
        if path.startswith(its_own):
            path = f"{its}/{path.removeprefix(its_own)}"
    if not path and (address is None or flags & AT_EMPTY_PATH):
        return os.open(folder, os.O_PATH)
    base = os.open(folder, os.O_PATH)
    try:
        return os.open(path, os.O_PATH | (os.O_NOFOLLOW if flags & AT_SYMLINK_NOFOLLOW else 0), dir_fd=base)
    finally:
        os.close(base)


def text_at(process: int, address: int) -> str:
    """A path in the memory of another process, which ends with a NUL. Raises OSError for one that is too long."""
    text, memory = b"", os.open(f"/proc/{process}/mem", os.O_RDONLY)
    try:
        while b"\0" not in text:  # page by page: the one behind may be none
            piece = os.pread(memory, PAGE - address % PAGE, address)
            if not piece or len(text) > PATH_MAX:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
            text, address = text + piece, address + len(piece)
    finally:
        os.close(memory)
    return os.fsdecode(text[: text.index(b"\0")])


def die_with(parent: int) -> None:
    """Get SIGKILL when the parent ends, also if it has ended by now (`parent` 0: do not look)."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if parent and os.getppid() != parent:
        os._exit(SETUP_FAILED)


def remount(path: str, flags: int) -> None:
    """Add flags (MS_RDONLY, MS_NOSUID, MS_NODEV) to those of one bind mount."""
    present = os.statvfs(path).f_flag
    kept = sum(flag for locked, flag in LOCKED_FLAGS.items() if present & locked and not flag & flags)
    kept |= MS_RDONLY if present & os.ST_RDONLY else 0
    mount(None, path, None, MS_REMOUNT | MS_BIND | flags | kept)


def unescaped(path: str) -> str:
    """A path of /proc/self/mountinfo, where spaces and the like are octal numbers."""
    first, *rest = path.split("\\")
    return first + "".join(chr(int(part[:3], 8)) + part[3:] for part in rest)


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """mount(2). Raises OSError with the target as its file name."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    check(_libc.mount(*encoded, ctypes.c_ulong(flags), data.encode() or None), target)


def check(result: int, subject: str) -> None:
    """Raise OSError for a C call that failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), subject)


def make_empty(path: str, folder: bool) -> None:
    """An empty folder or file, to mount on."""
    if folder:
        os.mkdir(path, 0o755)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o644))


def write_text(path: str, text: str) -> None:
    """Write a file that exists, in one call, as the kernel requires for those in /proc."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(descriptor)


def wait(pid: int) -> int:
    """Exit code of a child; 128 + N after signal N, as in a shell."""
    while (ended := os.wait())[0] != pid:
        pass  # an orphan that came to the init
    code = os.waitstatus_to_exitcode(ended[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
