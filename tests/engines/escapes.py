"""Tries to get out of the sandbox, in every way that it knows, and says what came of each: a guest, run three ways.

By the code of an sdist, by a program in an image, by a maintainer script. Python 3.9 and its standard library alone.
`python escapes.py FACTS.json` writes one JSON object, name → what came of it: the error's name, or `OUT: …` where it
got somewhere. The facts say what there is outside: files, a process, servers, keys of shared memory.
"""

import ctypes
import errno
import glob
import json
import mmap
import os
import platform
import socket
import stat
import struct
import sys
import threading

libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
CALLS = {
    "x86_64": {
        "ptrace": 101,
        "syslog": 103,
        "pivot_root": 155,
        "reboot": 169,
        "iopl": 172,
        "init_module": 175,
        "quotactl": 179,
        "clone": 56,
        "kexec_load": 246,
        "add_key": 248,
        "keyctl": 250,
        "unshare": 272,
        "perf_event_open": 298,
        "fanotify_init": 300,
        "name_to_handle_at": 303,
        "open_by_handle_at": 304,
        "setns": 308,
        "process_vm_writev": 311,
        "finit_module": 313,
        "bpf": 321,
        "userfaultfd": 323,
        "vmsplice": 278,
        "move_pages": 279,
        "acct": 163,
        "swapon": 167,
        "settimeofday": 164,
        "modify_ldt": 154,
    },
    "aarch64": {
        "ptrace": 117,
        "syslog": 116,
        "pivot_root": 41,
        "reboot": 142,
        "init_module": 105,
        "quotactl": 60,
        "clone": 220,
        "kexec_load": 104,
        "add_key": 217,
        "keyctl": 219,
        "unshare": 97,
        "perf_event_open": 241,
        "fanotify_init": 262,
        "name_to_handle_at": 264,
        "open_by_handle_at": 265,
        "setns": 268,
        "process_vm_writev": 271,
        "finit_module": 273,
        "bpf": 280,
        "userfaultfd": 282,
        "vmsplice": 75,
        "move_pages": 239,
        "acct": 89,
        "swapon": 224,
        "settimeofday": 170,
    },
}[platform.machine()]
NEW_CALLS = {"io_uring_setup": 425, "open_tree": 428, "fsopen": 430, "pidfd_open": 434, "clone3": 435}
NEW_CALLS.update({"pidfd_getfd": 438, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447})
NEW_USER, NEW_MOUNT, BIND, REMOUNT = 0x10000000, 0x20000, 4096, 32
#: What may be tried where there are no walls, to see that it would get through; the rest would harm the machine.
HARMLESS = (
    *(
        "processes outside",
        "a file of the user's",
        "the user's home",
        "a link in a folder of the host",
        "a path with '..'",
    ),
    *("shared memory (POSIX)", "shared memory (System V)", "semaphores (System V)", "message queues (POSIX)"),
    *("a socket in no folder", "the host's loopback", "environment secrets"),
)
FACTS = {}
ATTEMPTS = {}  #: name → (what an attacker wants with it, the attempt)


def attempt(name, wish):
    """Register an attempt. It raises OSError where it is refused; what it returns is what it got, None for nothing."""

    def register(function):
        ATTEMPTS[name] = wish, function
        return function

    return register


def call(name, *arguments):
    """A call of the kernel, by number; its result. Raises OSError."""
    number = CALLS.get(name, NEW_CALLS.get(name))
    return checked(
        libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    )


def checked(result):
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def rewrite(path):
    """Open for writing, and write the same again."""
    with open(path, "rb") as stream:
        content = stream.read()
    with open(path, "wb") as stream:
        stream.write(content)
    return f"wrote {path}"


def reached(function, *arguments):
    return f"{getattr(function, '__name__', 'call')} succeeded" if function(*arguments) is None else "succeeded"


# --- what it was given -----------------------------------------------------------------------------------------------
@attempt("inherited descriptors", "a file of the host that was left open")
def inherited():
    found = []
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                found.append(os.readlink(f"/proc/self/fd/{name}"))
            except OSError:
                continue  # the one that lists
    found = [one for one in found if not one.startswith(("/proc", "pipe:", *FACTS["own_files"]))]
    if not found:
        raise OSError(errno.EBADF, "none")
    return f"has {found}"


# --- the kernel's settings -------------------------------------------------------------------------------------------
for name, path, wish in (
    ("core_pattern", "/proc/sys/kernel/core_pattern", "a command as the host's root at the next crash"),
    ("modprobe", "/proc/sys/kernel/modprobe", "a command as the host's root at the next unknown file system"),
    ("hostname in /proc", "/proc/sys/kernel/hostname", "another name for the host"),
    ("panic_on_oops", "/proc/sys/kernel/panic_on_oops", "the host's behaviour"),
    ("uevent_helper", "/sys/kernel/uevent_helper", "a command as the host's root at the next device"),
    ("transparent_hugepage", "/sys/kernel/mm/transparent_hugepage/enabled", "the host's memory"),
    ("a disk's settings", "/sys/block/vda/queue/read_ahead_kb", "the host's disks"),
):
    attempt(name, wish)(lambda path=path: rewrite(path))


def only_open(path, flags=os.O_WRONLY):
    os.close(os.open(path, flags))
    return f"opened {path}"


for name, path, wish in (
    ("drop_caches", "/proc/sys/vm/drop_caches", "the host's page cache"),
    ("sysrq-trigger", "/proc/sysrq-trigger", "a crash of the host"),
    ("binfmt_misc", "/proc/sys/fs/binfmt_misc/register", "a command at the start of others' programs"),
    ("interrupts' CPUs", "/proc/irq/default_smp_affinity", "the host's interrupts"),
    ("mtrr", "/proc/mtrr", "the host's memory types"),
):
    attempt(name, wish)(lambda path=path: only_open(path))


@attempt("any file of /sys", "a setting of the host")
def any_file_of_sys():
    found, last = 0, None
    for folder, _, names in os.walk("/sys"):
        for file in names:
            found += 1
            try:
                return only_open(os.path.join(folder, file))
            except OSError as error:
                last = error if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM) or last is None else last
            if found > 3000:
                raise last
    if last:
        raise last
    return None


@attempt("release_agent", "a command as the host's root when a control group empties")
def release_agent():
    last = FileNotFoundError(errno.ENOENT, "no control groups")
    for path in ("/sys/fs/cgroup", *glob.glob("/sys/fs/cgroup/*/")):
        try:
            os.mkdir(os.path.join(path, "escape"))
            return f"made a group in {path}"
        except OSError as error:
            last = error
    raise last


# --- mounts and roots ------------------------------------------------------------------------------------------------
def mount(source, target, kind, flags):
    checked(libc.mount(source, target, kind, ctypes.c_ulong(flags), None))
    return f"mounted on {target.decode()}"


attempt("mount a file system", "a place of one's own")(lambda: mount(b"none", b"/tmp", b"tmpfs", 0))
attempt("mount a disk", "the host's files")(lambda: mount(b"/dev/vda", b"/tmp", b"ext4", 0))
attempt("mount control groups", "release_agent")(lambda: mount(b"none", b"/tmp", b"cgroup", 0))
attempt("bind the root", "another view of it")(lambda: mount(b"/", b"/tmp", None, BIND))
attempt("remount the root to write", "the image, which others run")(lambda: mount(None, b"/", None, REMOUNT | BIND))
attempt("remount /proc/sys to write", "the host's settings")(lambda: mount(None, b"/proc/sys", None, REMOUNT | BIND))


@attempt("umount", "what is under the mount of /proc/sys")
def umount():
    checked(libc.umount2(b"/proc/sys", 2))
    return "umounted /proc/sys"


attempt("fsopen", "a file system by the new calls")(lambda: f"{call('fsopen', b'tmpfs', 0)} opened")
attempt("open_tree", "a copy of a mount")(lambda: f"{call('open_tree', -100, b'/', 1)} opened")
attempt("mount_setattr", "a root that can be written")(
    lambda: call("mount_setattr", -100, b"/", 0, struct.pack("=4Q", 0, 1, 0, 0), 32) or "changed"
)
attempt("pivot_root", "another root")(lambda: call("pivot_root", b".", b".") or "changed the root")


@attempt("chroot", "out by '..' from a root below")
def chroot():
    os.mkdir("/tmp/below")
    os.chroot("/tmp/below")
    return "changed the root"


@attempt("the root of process 1", "the host's files by /proc/1/root")
def root_of_init():
    return f"listed {len(os.listdir('/proc/1/root/'))} entries"


@attempt("the program of process 1", "to write the host's Python (CVE-2019-5736)")
def program_of_init():
    return only_open("/proc/1/exe", os.O_RDONLY)


attempt("the Python that runs it", "the next program that this Python runs")(lambda: only_open(os.__file__))


@attempt("a path with '..'", "the host's files")
def dots():
    with open("/tmp/../../../../../.." + FACTS["secret"]) as stream:
        return stream.read()


@attempt("a link in a folder of the host", "the host's files")
def link_out():
    folder = FACTS["folder"] or "/tmp"
    os.symlink(FACTS["secret"], os.path.join(folder, "link"))
    with open(os.path.join(folder, "link")) as stream:
        return stream.read()


# --- files of the host -----------------------------------------------------------------------------------------------
for name, key in (("a file of the user's", "secret"), ("the user's home", "home"), ("the cache", "cache")):
    attempt(name, "keys, other images")(lambda key=key: f"found {os.stat(FACTS[key])}")
attempt("the code of graphcrate", "the next build")(lambda: only_open(FACTS["code"], os.O_RDWR))


@attempt("the image's own files", "what others run from it")
def own_image():
    return only_open("/usr/bin/escape", os.O_WRONLY | os.O_CREAT)


@attempt("name_to_handle_at", "a number of a file for open_by_handle_at")
def handle():
    buffer = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0), 256)
    call("name_to_handle_at", -100, b"/", buffer, ctypes.byref(ctypes.c_int()), 0)
    return "got a number"


@attempt("open_by_handle_at", "any file of the disk by its number (shocker)")
def by_handle():
    buffer = ctypes.create_string_buffer(struct.pack("=IiQ", 8, 1, 2), 64)
    place = os.open("/", os.O_RDONLY)
    try:
        return f"opened {call('open_by_handle_at', place, buffer, os.O_RDONLY)}"
    finally:
        os.close(place)


# --- devices ---------------------------------------------------------------------------------------------------------
@attempt("a device node", "the host's disk")
def device_node():
    os.mknod("/tmp/disk", stat.S_IFBLK | 0o666, os.makedev(254, 0))
    if stat.S_ISBLK(os.stat("/tmp/disk").st_mode):
        return "made a block device"
    return None


for name in (
    "/dev/vda",
    "/dev/sda",
    "/dev/mem",
    "/dev/kmsg",
    "/dev/port",
    "/dev/fuse",
    "/dev/kvm",
    "/dev/loop-control",
):
    attempt(name, "the host by a device")(lambda name=name: only_open(name, os.O_RDONLY))
attempt("kernel memory", "its keys, by /proc/kcore")(lambda: "read" if open("/proc/kcore", "rb").read(64) else empty())
attempt("kernel addresses", "by /proc/kallsyms")(lambda: "read" if open("/proc/kallsyms").read(64) else empty())


def empty():
    raise OSError(errno.ENODATA, "empty")


attempt("the kernel's log", "addresses and names")(
    lambda: f"{call('syslog', 3, ctypes.create_string_buffer(64), 64)} bytes"
)


# --- what is mounted below the folder that it is given ----------------------------------------------------------------
def below(path):
    """The host's file systems as they come along with the folder; none where the step has no folder."""
    return os.path.join(FACTS["folder"] or "/nowhere", path)


def listed(path):
    """Return how many entries a folder has; raise OSError for none."""
    if names := os.listdir(path):
        return f"{len(names)} entries"
    raise OSError(errno.ENOENT, "empty")


def setting(path):
    """Read a setting and write it again; a covered one is empty."""
    with open(path) as stream:
        if not stream.read():
            empty()
    return rewrite(path)


for name, wish, function in (
    ("proc/sys", "the host's settings", lambda: rewrite(below("proc/sys/vm/swappiness"))),
    ("proc/PID", "names and arguments of the host's processes", lambda: listed(below("proc/1"))),
    ("proc/sysrq-trigger", "a crash of the host", lambda: only_open(below("proc/sysrq-trigger"))),
    ("proc, deeper", "the same", lambda: rewrite(below("a b/deep/proc/sys/vm/swappiness"))),
    ("sys", "settings of the host", lambda: listed(below("sys"))),
    ("cgroup", "release_agent", lambda: listed(below("cgroup"))),
    ("devtmpfs", "the host's devices", lambda: listed(below("dev"))),
    ("devpts", "others' terminals", lambda: listed(below("pts"))),
    ("mqueue", "others' messages", lambda: listed(below("mqueue"))),
    ("securityfs", "the host's policies", lambda: listed(below("security"))),
    ("tracefs", "what others run", lambda: listed(below("tracing"))),
    ("debugfs", "the kernel's insides", lambda: listed(below("debug"))),
    ("a file of proc", "a setting of the host", lambda: setting(below("swappiness"))),
):
    attempt(f"mounted below: {name}", wish)(function)


# --- processes -------------------------------------------------------------------------------------------------------
@attempt("processes outside", "their names and arguments")
def processes():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with open(path, "rb") as stream:
            if FACTS["marker"].encode() in stream.read() and path != f"/proc/{os.getpid()}/cmdline":
                return f"saw {path}"
    raise OSError(errno.ESRCH, "none seen")


@attempt("kill outside", "others' processes")
def kill_outside():
    os.kill(FACTS["pid"], 0)
    return "reached it"


attempt("ptrace of process 1", "its rights and files")(lambda: call("ptrace", 16, 1, 0, 0) or "attached")


@attempt("memory of process 1", "its rights and files, by /proc/1/mem")
def memory_of_init():
    return only_open("/proc/1/mem", os.O_RDWR)


@attempt("process_vm_writev", "the memory of process 1")
def vm_write():
    buffer = ctypes.create_string_buffer(8)
    vector = struct.pack("PN", ctypes.addressof(buffer), 8)
    return f"{call('process_vm_writev', 1, vector, 1, struct.pack('PN', 4096, 8), 1, 0)} written"


@attempt("pidfd_getfd", "an open file of process 1")
def steal():
    return f"got {call('pidfd_getfd', call('pidfd_open', 1, 0), 0, 0)}"


@attempt("files of process 1", "what it has open")
def files_of_init():
    last = FileNotFoundError(errno.ENOENT, "none")
    for name in os.listdir("/proc/1/fd"):
        try:
            return f"opened {name}: {os.readlink(f'/proc/1/fd/{name}')}"
        except OSError as error:
            last = error
    raise last


@attempt("environment secrets", "passwords")
def secrets():
    for name in ("/proc/self/environ", "/proc/1/environ"):
        try:
            with open(name, "rb") as stream:
                if FACTS["password"].encode() in stream.read():
                    return f"found in {name}"
        except PermissionError:
            continue
    if FACTS["password"] in os.environ.values():
        return "found"
    raise OSError(errno.ENOENT, "none")


# --- rights ----------------------------------------------------------------------------------------------------------
def unshare(flags):
    call("unshare", flags)
    return "entered"


@attempt("a user namespace", "all rights in it, and the kernel's code behind them")
def user_namespace():
    return in_child(lambda: unshare(NEW_USER | NEW_MOUNT))


attempt("a mount namespace", "mounts")(lambda: in_child(lambda: unshare(NEW_MOUNT)))


@attempt("clone with a user namespace", "the same by clone(2)")
def clone():
    pid = call("clone", NEW_USER | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "entered"


@attempt("clone3 with a user namespace", "the same, with its flags where no filter reads them")
def clone3():
    pid = call("clone3", struct.pack("=11Q", NEW_USER, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "entered"


@attempt("setns", "the namespaces of process 1")
def setns():
    place = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    try:
        call("setns", place, NEW_MOUNT)
    finally:
        os.close(place)
    return "entered"


def in_child(function):
    """Run a function in a process of its own."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(write, json.dumps({"got": function()}).encode())
        except OSError as error:
            os.write(write, json.dumps({"errno": error.errno}).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as stream:
        answer = json.loads(stream.read())
    os.waitpid(pid, 0)
    if "errno" in answer:
        raise OSError(answer["errno"], os.strerror(answer["errno"]))
    return answer["got"]


@attempt("a set-user-ID program", "rights for whoever starts it outside")
def set_user_id():
    with open("/tmp/program", "w"):
        pass
    os.chmod("/tmp/program", 0o4755)
    return "made" if os.stat("/tmp/program").st_mode & stat.S_ISUID else None


# Set-group-ID: as that, of any group where root runs it. Folders may have it; files get it by no call.
GROUP_ID = 0o2755


def shared_group(set_mode, name="/tmp/group-program"):
    """A file, what sets its mode, and whether it got the bit."""
    with open(name, "w"):
        pass
    try:
        set_mode(name)
        return "made" if os.stat(name).st_mode & stat.S_ISGID else None
    finally:
        os.unlink(name)


def by_descriptor(set_mode, flags=os.O_RDONLY):
    def use(name):
        place = os.open(name, flags)
        try:
            set_mode(place)
        finally:
            os.close(place)

    return lambda: shared_group(use)


def by_new_file(make):
    """Return a new file's mode, by a call that makes one."""
    name = "/tmp/new-group-program"
    try:
        make(name.encode())
        return "made" if os.stat(name).st_mode & stat.S_ISGID else None
    finally:
        if os.path.lexists(name):
            os.unlink(name)


def by_link(name):
    os.symlink(name, "/tmp/group-link")
    try:
        os.chmod("/tmp/group-link", GROUP_ID)
    finally:
        os.unlink("/tmp/group-link")


def by_working_folder(name):
    """By a name that means another file in another working folder."""
    before = os.getcwd()
    os.chdir(os.path.dirname(name))
    try:
        os.chmod(os.path.basename(name), GROUP_ID)
    finally:
        os.chdir(before)


def by_swap(name):
    """By a path that is a folder's and a file's by turns: who looks at it and then goes by the path sets the file's."""
    folder, link, running = "/tmp/group-folder", "/tmp/group-swap", [True]
    os.mkdir(folder)
    os.symlink(folder, link)

    def swap():
        while running:
            for target in (name, folder):
                os.symlink(target, link + "~")
                os.rename(link + "~", link)

    other = threading.Thread(target=swap)
    other.start()
    try:
        for _ in range(2000):
            try:
                os.chmod(link, GROUP_ID)
            except PermissionError:
                continue
            if os.stat(name).st_mode & stat.S_ISGID:
                return
        raise OSError(errno.EPERM, "never")
    finally:
        running.clear()
        other.join()
        os.unlink(link)
        os.rmdir(folder)


def by_memory(name):
    """By a path that another thread writes over while the call is on its way."""
    folder, running = "/tmp/group-folder", [True]
    paths = [os.path.join(folder, ".").encode(), name.encode()]
    memory = ctypes.create_string_buffer(64)
    os.mkdir(folder)

    def write():
        while running:
            for path in paths:
                memory.value = path

    other = threading.Thread(target=write)
    other.start()
    try:
        for _ in range(2000):
            libc.chmod(memory, GROUP_ID)
            if os.stat(name).st_mode & stat.S_ISGID:
                return
        raise OSError(errno.EPERM, "never")
    finally:
        running.clear()
        other.join()
        os.rmdir(folder)


def at(name):
    place = os.open(os.path.dirname(name), os.O_RDONLY)
    try:
        os.chmod(os.path.basename(name), GROUP_ID, dir_fd=place)
    finally:
        os.close(place)


def fchmodat2(name, flags=0):
    number = ctypes.c_long(452)
    checked(libc.syscall(number, -100, name.encode(), GROUP_ID, flags))


def empty_path(place):
    checked(libc.syscall(ctypes.c_long(452), place, b"", GROUP_ID, 0x1000))


GROUP_WISH = "the rights of a group for whoever starts it outside"
for name, function in (
    ("chmod", lambda: shared_group(lambda path: os.chmod(path, GROUP_ID))),
    ("chmod, mode 6755", lambda: shared_group(lambda path: os.chmod(path, 0o6755))),
    ("chmod, without x", lambda: shared_group(lambda path: os.chmod(path, 0o2644))),
    ("chmod of a link", lambda: shared_group(by_link)),
    ("chmod of a name", lambda: shared_group(by_working_folder)),
    ("chmod of /proc/self/fd", by_descriptor(lambda place: os.chmod(f"/proc/self/fd/{place}", GROUP_ID))),
    ("chmod of /proc/thread-self/fd", by_descriptor(lambda place: os.chmod(f"/proc/thread-self/fd/{place}", GROUP_ID))),
    ("chmod of /dev/fd", by_descriptor(lambda place: os.chmod(f"/dev/fd/{place}", GROUP_ID))),
    ("chmod of a path that is swapped", lambda: shared_group(by_swap)),
    ("chmod of a path in memory that changes", lambda: shared_group(by_memory)),
    ("fchmod", by_descriptor(lambda place: os.fchmod(place, GROUP_ID))),
    ("fchmod of O_PATH", by_descriptor(lambda place: os.fchmod(place, GROUP_ID), os.O_PATH)),
    ("fchmodat", lambda: shared_group(at)),
    ("fchmodat2", lambda: shared_group(fchmodat2)),
    ("fchmodat2, no links", lambda: shared_group(lambda path: fchmodat2(path, 0x100))),
    ("fchmodat2, empty path", by_descriptor(empty_path)),
    ("open", lambda: by_new_file(lambda path: os.close(checked(libc.open(path, os.O_CREAT | os.O_RDWR, GROUP_ID))))),
    ("creat", lambda: by_new_file(lambda path: os.close(checked(libc.creat(path, GROUP_ID))))),
    ("openat", lambda: by_new_file(lambda path: os.close(os.open(path, os.O_CREAT | os.O_RDWR, GROUP_ID)))),
    ("openat2", lambda: by_new_file(openat2)),
    ("mknod", lambda: by_new_file(lambda path: os.mknod(path, stat.S_IFREG | GROUP_ID))),
    ("in a folder of a group", lambda: in_group_folder()),
):
    attempt(f"set-group-ID: {name}", GROUP_WISH)(function)


def openat2(name):
    how = struct.pack("=QQQ", os.O_CREAT | os.O_RDWR, GROUP_ID, 0)
    os.close(checked(libc.syscall(ctypes.c_long(437), -100, name, how, len(how))))


def in_group_folder():
    """By a folder that hands its group on, and with all rights to take one's own file there."""
    os.mkdir("/tmp/of-a-group")
    try:
        try:
            os.chmod("/tmp/of-a-group", 0o2777)
        except OSError:  # a kernel without seccomp_unotify
            pass
        return by_new_file_in("/tmp/of-a-group/program")
    finally:
        if os.path.lexists("/tmp/of-a-group/program"):
            os.unlink("/tmp/of-a-group/program")
        os.rmdir("/tmp/of-a-group")


def by_new_file_in(name):
    with open(name, "w"):
        pass
    os.chmod(name, 0o755)
    if os.stat(name).st_mode & stat.S_ISGID:
        return "made"
    raise OSError(errno.EPERM, "a file without it")


@attempt("new privileges", "those of set-user-ID programs inside")
def privileges():
    with open("/proc/self/status") as stream:
        if "NoNewPrivs:\t1\n" in stream.read():
            raise OSError(errno.EPERM, "no_new_privs")
    return "allowed"


@attempt("capabilities", "all of them")
def capabilities():
    header = struct.pack("=Ii", 0x20080522, 0)
    checked(libc.capset(header, struct.pack("=6I", *[0xFFFFFFFF] * 6)))
    return "got them"


@attempt("a file with capabilities", "rights for whoever starts it outside")
def file_capabilities():
    with open("/tmp/capable", "w"):
        pass
    os.setxattr("/tmp/capable", "security.capability", struct.pack("=5I", 0x02000001, 0x200000, 0, 0, 0))
    return "set"


# --- the kernel's own interfaces -------------------------------------------------------------------------------------
attempt("keyctl", "the host's keys")(lambda: f"key {call('keyctl', 0, -3, 0)}")
attempt("add_key", "the host's keys")(lambda: f"key {call('add_key', b'user', b'escape', b'x', 1, -3)}")
attempt("bpf", "programs in the kernel")(lambda: f"got {call('bpf', 0, struct.pack('=IIIII', 2, 4, 4, 1, 0), 20)}")


@attempt("perf_event_open", "what others compute")
def perf():
    return f"got {call('perf_event_open', struct.pack('=IIQ', 1, 112, 0) + bytes(96), 0, -1, -1, 0)}"


attempt("userfaultfd", "races in the kernel")(lambda: f"got {call('userfaultfd', 0)}")
attempt("io_uring", "calls past the filter")(lambda: f"got {call('io_uring_setup', 1, bytes(120))}")
attempt("kexec", "another kernel")(lambda: call("kexec_load", 0, 0, 0, 0) or "loaded")
attempt("init_module", "code in the kernel")(lambda: call("init_module", b"", 0, b"") or "loaded")
attempt("finit_module", "code in the kernel")(lambda: call("finit_module", 0, b"", 0) or "loaded")
attempt("fanotify", "what others open")(lambda: f"got {call('fanotify_init', 0, 0)}")
attempt("vmsplice", "pages of others (CVE-2022-0847 and before)")(lambda: f"{call('vmsplice', 1, 0, 0, 0)}")
attempt("reboot", "the host's end")(lambda: call("reboot", 0xFEE1DEAD - (1 << 32), 672274793, 0, 0) or "done")
attempt("swapon", "the host's memory")(lambda: call("swapon", b"/tmp/swap", 0) or "done")
attempt("quotactl", "others' quotas")(lambda: call("quotactl", 0x80000100, b"/dev/vda", 0, 0) or "done")
attempt("acct", "what others run")(lambda: call("acct", b"/tmp/acct") or "done")
attempt("settimeofday", "the host's clock")(lambda: call("settimeofday", struct.pack("=qq", 1, 0), 0) or "set")


@attempt("sethostname", "the host's name")
def sethostname():
    checked(libc.sethostname(b"escaped", 7))
    return "set"


if X86:
    attempt("iopl", "the host's ports")(lambda: call("iopl", 3) or "got them")
    attempt("modify_ldt", "an old part of the kernel")(lambda: call("modify_ldt", 0, bytes(16), 16) or "done")

    @attempt("calls of i386", "past the filter by other numbers")
    def i386():
        """Call getpid as a 32-bit program does: mov eax, 20; int 0x80; ret."""
        memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        memory.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        return answered(ctypes.CFUNCTYPE(ctypes.c_int)(address)())

    @attempt("calls of x32", "past the filter by other numbers")
    def x32():
        return answered(checked(libc.syscall(ctypes.c_long(0x40000000 + 39))))

    def answered(result):
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return f"answered {result}"


attempt("personality", "memory without random places")(lambda: f"was {checked(libc.personality(0x0040000))}")


@attempt("type at the terminal", "commands of the person who started it (TIOCSTI)")
def terminal():
    import fcntl

    main, other = os.openpty()
    try:
        fcntl.ioctl(other, 0x5412, b"x")
    finally:
        os.close(main)
        os.close(other)
    return "typed"


# --- memory and messages shared with others --------------------------------------------------------------------------
attempt("shared memory (POSIX)", "others' memory")(lambda: only_open(f"/dev/shm/{FACTS['shm']}", os.O_RDWR))
attempt("shared memory (System V)", "others' memory")(lambda: f"got {checked(libc.shmget(FACTS['key'], 1, 0))}")
attempt("semaphores (System V)", "others' programs")(lambda: f"got {checked(libc.semget(FACTS['key'], 1, 0))}")


@attempt("message queues (POSIX)", "others' messages")
def queue():
    library = ctypes.CDLL("librt.so.1", use_errno=True)
    return f"got {checked(library.mq_open(FACTS['queue'].encode(), os.O_RDONLY))}"


# --- the network -----------------------------------------------------------------------------------------------------
def connect(family, kind, address):
    with socket.socket(family, kind) as channel:
        channel.settimeout(5)
        channel.connect(address)
    return f"reached {address}"


@attempt("the host's loopback", "servers that trust this machine")
def loopback():
    return connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", FACTS["port"]))


@attempt("the host's loopback, IPv6", "servers that trust this machine")
def loopback6():
    return connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", FACTS["port6"]))


@attempt("a socket in no folder", "servers of the desktop and of containers")
def abstract():
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, b"\0" + FACTS["abstract"].encode())


attempt("the cloud's metadata", "the machine's passwords, at 169.254.169.254")(
    lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("169.254.169.254", 80))
)
attempt("the cloud's metadata, IPv6", "the same, at fd00:ec2::254")(
    lambda: connect(socket.AF_INET6, socket.SOCK_DGRAM, ("fd00:ec2::254", 80))
)
for name, wish, family, kind, protocol in (
    ("raw packets", "others' connections", socket.AF_INET, socket.SOCK_RAW, 1),
    ("packets of the wire", "others' connections", socket.AF_PACKET, socket.SOCK_RAW, 3),
    ("the hypervisor (vsock)", "servers outside of the machine", 40, socket.SOCK_STREAM, 0),
    ("the kernel's cryptography (AF_ALG)", "an old part of the kernel", 38, socket.SOCK_SEQPACKET, 0),
    ("the audit's messages", "the host's log", socket.AF_NETLINK, socket.SOCK_RAW, 9),
    ("the firewall (netfilter)", "the kernel's most broken part", socket.AF_NETLINK, socket.SOCK_RAW, 12),
):
    attempt(name, wish)(lambda of=(family, kind, protocol): socket.socket(*of).close() or "opened")


def main():
    """Try each; what came of it."""
    with open(sys.argv[1]) as stream:
        FACTS.update(json.load(stream))
    results = {}
    with open("/proc/self/status") as stream:
        walls = {"NoNewPrivs:\t1\n", "Seccomp:\t2\n"} <= set(stream)
    for name, (_, function) in ATTEMPTS.items():
        if not walls and name not in HARMLESS:
            results[name] = "ERROR: not tried: there are no walls here"
            continue
        try:
            got = function()
            results[name] = "nothing" if got is None else f"OUT: {got}"
        except OSError as error:
            results[name] = errno.errorcode.get(error.errno, str(error))
        except Exception as error:  # a mistake of this program: told as what it is
            results[name] = f"ERROR: {error!r}"
    print(json.dumps(results))


if __name__ == "__main__":
    main()
