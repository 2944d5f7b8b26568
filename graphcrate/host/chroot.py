"""The last resort of `host.sandbox`: a throw-away folder to chroot into, where nothing can be mounted.

That is root in a container without CAP_SYS_ADMIN (Docker's default, many CI systems and notebook services). The folder
is a copy by hard links, so it costs no room; the command runs in it as nobody, who cannot write to the linked files.
Binds are copies; those that are not read-only are copied back at the end.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from graphcrate.host.cache import remove_tree
from graphcrate.host.namespaces import NOBODY

PREFIX = ".chroot-"
DEVICES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}  #: minor numbers of major 1
#: what PyTorch and its libraries ask /proc and /sys for
SNAPSHOTS = (
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/vm/overcommit_memory",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/cpu/possible",
    "/sys/devices/system/cpu/present",
)


@contextlib.contextmanager
def prepared(rootfs: Path, binds: Sequence[tuple[str, str, bool]], files: Mapping[str, str]) -> Iterator[Path]:
    """A folder like `rootfs` with these (source, target, read-only) binds and texts; removed at the end."""
    _remove_abandoned(rootfs.parent)
    with contextlib.ExitStack() as stack:
        outer = Path(tempfile.mkdtemp(prefix=PREFIX, dir=rootfs.parent))
        stack.callback(remove_tree, outer)
        lock = os.open(outer, os.O_RDONLY)
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = outer / "root"
        shutil.copytree(rootfs, folder, symlinks=True, copy_function=_link, ignore=_ignore_devices)
        folder.chmod(0o755)  # nobody has to get in
        _make_kernel_folders(folder)
        for path, text in files.items():
            _replace(folder, path).write_text(text)
        for source, target, read_only in binds:
            _copy_in(Path(source), _replace(folder, target), writable=not read_only)
        yield folder
        for source, target, read_only in binds:
            if not read_only:
                _copy_back(_inside(folder, target), Path(source))


def _remove_abandoned(parent: Path) -> None:
    """Remove what runs that were killed left behind; the lock tells those that still run."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(folder)
            finally:
                os.close(lock)


def _link(source: str, target: str) -> None:
    os.link(source, target, follow_symlinks=False)


def _ignore_devices(folder: str, names: list[str]) -> list[str]:
    kinds = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return [name for name in names if not any(kind(os.lstat(Path(folder, name)).st_mode) for kind in kinds)]


def _make_kernel_folders(folder: Path) -> None:
    for name in ("tmp", "run", "dev", "dev/shm", "proc", "sys", "var/tmp"):
        (folder / name).mkdir(exist_ok=True, parents=True)
    for name in ("tmp", "dev/shm", "var/tmp"):
        (folder / name).chmod(0o1777)
    for name, minor in DEVICES.items():
        node = folder / "dev" / name
        node.unlink(missing_ok=True)
        try:
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        except PermissionError:
            node.touch()  # better than none: what is written to it stays in the throw-away folder
        node.chmod(0o666)
    for snapshot in map(Path, SNAPSHOTS):
        with contextlib.suppress(OSError):
            text = snapshot.read_bytes()
            target = folder / snapshot.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)


def _inside(folder: Path, target: str) -> Path:
    """Where the image's path `target` lies on the host; symbolic links stay inside."""
    place = folder
    for part in Path(target).parts[1:]:
        place = place / part
        for _ in range(40):
            if not place.is_symlink():
                break
            link = place.readlink()
            inside = Path("/", place.parent.relative_to(folder), link)
            place = folder / os.path.normpath(inside).lstrip("/")
    return place


def _replace(folder: Path, target: str) -> Path:
    """The same path with nothing there, so that no linked file is written to; its parents exist."""
    place = _inside(folder, target)
    if place.is_dir():
        remove_tree(place)
    else:
        place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _copy_in(source: Path, target: Path, writable: bool) -> None:
    mode = source.stat().st_mode
    if stat.S_ISCHR(mode):
        os.mknod(target, mode, source.stat().st_rdev)
        return
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, copy_function=shutil.copy2 if writable else _link_readable)
    else:
        _link_readable(str(source), str(target)) if not writable else shutil.copy2(source, target)
    for path in [target, *target.rglob("*")]:
        if path.is_symlink():
            continue
        if writable:
            os.chown(path, NOBODY, NOBODY)
        elif path.is_dir():
            path.chmod(path.stat().st_mode | 0o555)


def _link_readable(source: str, target: str) -> None:
    """Link a file that everybody may read, where links reach; copy others."""
    if Path(source).lstat().st_mode & 0o444 == 0o444:
        with contextlib.suppress(OSError):
            return _link(source, target)
    shutil.copyfile(source, target, follow_symlinks=False)
    shutil.copymode(source, target, follow_symlinks=False)
    if not Path(target).is_symlink():
        Path(target).chmod(0o755)
    return None


def _copy_back(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    elif source.exists():
        shutil.copy2(source, target)
