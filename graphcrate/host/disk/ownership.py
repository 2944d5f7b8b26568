"""Owners of a cache: all who may write to it decide what is in the images that are built with it.

Checked where the cache is opened and where a part of it is used, by what `stat` says; nothing is read before.
"""

import contextlib
import grp
import os
import pwd
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from graphcrate.host.disk import trees
from graphcrate.model.command import AGAIN, for_shell
from graphcrate.model.errors import CacheError, UsageError

SHARED = "GRAPHCRATE_CACHE_SHARED"  #: the group that a cache is shared with, by name or number
#: others may write there
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
#: folders that every cache has: one that has them is not a folder of another kind
SIGNS = ("tmp", "locks", "files", "blobs")
#: what any version keeps there; other folders beside them are the user's own
PARTS = frozenset(
    (
        *("tmp", "locks", "files", "blobs", "layers", "installations", "bytecode", "bases", "rootfs", "toolkits"),
        *("compiled", "unfinished", "built", "trees", "squashed", "uv", "metadata", "linked", "resolutions"),
        *("advisories", "partial", "foundations", "apptainer", "updates", "said"),
    )
)
#: Trees of images and bases: their files have the owners and modes of those.
_TREES = frozenset(("root", "rootfs", "grown", "cuda", "tmp", "image"))
_DEEP = 5
_ELSEWHERE = f"choose a folder of your own: GRAPHCRATE_CACHE=/path {AGAIN}"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Ownership:
    """Whose files are taken: those of `owner`, as files made here have, and of root; of `group` where it is shared."""

    owner: int
    group: int | None = None
    closed: bool = False  #: no other user reaches the folder, so the modes of what is in it say nothing

    def takes(self, status: os.stat_result) -> bool:
        """Return whether a file or folder is one of these."""
        if self.group is not None:
            return not status.st_mode & stat.S_IWOTH
        return status.st_uid in (0, self.owner)

    def require(self, path: Path, status: os.stat_result) -> None:
        """Raises CacheError for a part of the cache that another user put there. Closes one that others could write."""
        if not self.takes(status):
            raise _foreign(path, status)
        if (
            self.group is None
            and not self.closed
            and status.st_mode & OTHERS_WRITE
            and not stat.S_ISLNK(status.st_mode)
        ):
            if stat.S_ISDIR(status.st_mode):
                refuse_foreign(path, self)
            path.chmod(stat.S_IMODE(status.st_mode) & ~OTHERS_WRITE)


def group_of(environment: Mapping[str, str]) -> int | None:
    """The group that `GRAPHCRATE_CACHE_SHARED` names; None without it. Raises UsageError for none of this user's."""
    if not (given := environment.get(SHARED, "")):
        return None
    try:
        number = int(given) if given.isascii() and given.isdecimal() else grp.getgrnam(given).gr_gid
    except KeyError as error:
        raise UsageError(
            f"{SHARED} is {given!r}, which is not a group here", next_step=f"export {SHARED}=GROUP"
        ) from error
    if os.geteuid() != 0 and number not in (os.getegid(), *os.getgroups()):
        raise UsageError(f"{SHARED} is {given!r}, and you are not in that group", next_step=f"unset {SHARED}")
    return number


def make_root(root: Path, group: int | None) -> None:
    """Make the cache's folder where there is none, for this user alone, or for this user's group. Raises OSError."""
    root.parent.mkdir(parents=True, exist_ok=True)
    try:
        root.mkdir(0o700)
    except FileExistsError:
        return
    if group is not None:
        os.chown(root, -1, group)
        root.chmod(0o2770)


def checked(root: Path, group: int | None, say: Say) -> Ownership:
    """Return whose files of a cache are taken. Raises CacheError for one that others may write to, OSError.

    One of this user's whose group could write to it, as by a umask of 002, is closed, and that is said.
    """
    status = root.stat()
    if group is not None:
        return _shared(root, status, group, say)
    ownership = Ownership(os.geteuid())
    if status.st_uid != ownership.owner and _is_writable(root):
        ownership = Ownership(_own_number(root))
    if status.st_uid != ownership.owner:
        raise CacheError(
            f"the cache folder {root} belongs to {_user(status.st_uid)}",
            cause="Whoever owns it decides what is in your images.",
            next_step=f"{_ELSEWHERE}; or {SHARED}=GROUP, where you trust all who are in that group",
        )
    if status.st_mode & OTHERS_WRITE:
        _close(root, status, ownership, say)
        status = root.stat()
    ownership = replace(ownership, closed=not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    for path in root.iterdir():
        if path.name in PARTS:
            with contextlib.suppress(FileNotFoundError):  # another run frees the cache
                ownership.require(path, path.lstat())
    return ownership


def _shared(root: Path, status: os.stat_result, group: int, say: Say) -> Ownership:
    name = _group(group)
    if status.st_gid != group or status.st_mode & stat.S_IWOTH:
        raise CacheError(
            f"the cache folder {root} is not of the group {name} alone",
            cause=f"{SHARED} says that it is shared with that group.",
            next_step=f"chgrp -R {name} {root} && chmod -R o-w {root} && chmod g+rwxs {root}",
        )
    say(f"the cache {root} is shared: whoever is in the group {name} decides what is in the images that you build")
    return Ownership(status.st_uid, group)


def _close(root: Path, status: os.stat_result, ownership: Ownership, say: Say) -> None:
    """Keep others from a cache of this user's. Raises CacheError for what they wrote, and for what is no cache."""
    if not _is_ours(root) or status.st_mode & stat.S_ISVTX:
        raise CacheError(
            f"others may write to the cache folder {root}",
            cause="Whoever writes to it decides what is in your images.",
            next_step=f"choose a folder in it: GRAPHCRATE_CACHE={root}/graphcrate {AGAIN}",
        )
    refuse_foreign(root, ownership)
    root.chmod(0o700)
    say(
        f"the cache {root} could be written to by {'everybody' if status.st_mode & stat.S_IWOTH else 'its group'}, and "
        "is yours alone now. If somebody else is in that group whom you do not trust: rm -rf it, and all is made again"
    )


def refuse_foreign(folder: Path, ownership: Ownership) -> None:
    """Raises CacheError for what others put into a folder of the cache, but for the insides of images."""
    start = len(folder.parts)
    for at, folders, names in trees.walk(folder, None):
        for name in (*folders, *names):
            path = Path(at, name)
            try:
                status = path.lstat()
            except FileNotFoundError:  # another run has finished with it
                continue
            if not ownership.takes(status):
                raise _foreign(path, status)
        deep = len(Path(at).parts) - start >= _DEEP
        folders[:] = [name for name in folders if not deep and name not in _TREES]


def _foreign(path: Path, status: os.stat_result) -> CacheError:
    return CacheError(
        f"{path} in the cache is {_user(status.st_uid)}'s",
        cause="Whoever wrote it decides what is in your images.",
        next_step=f"rm -rf {for_shell(path)}    (made or fetched again), "
        f"or {SHARED}=GROUP, where you trust all who are in it",
    )


def _is_ours(root: Path) -> bool:
    return all((root / name).is_dir() for name in SIGNS)


def _is_writable(root: Path) -> bool:
    return os.access(root, os.W_OK | os.X_OK)


def _own_number(root: Path) -> int:
    """The owner that files of this process get there: a file server makes root another (root_squash)."""
    probe = root / f".owner-{os.getpid()}"
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        return probe.lstat().st_uid
    except OSError:
        return os.geteuid()
    finally:
        probe.unlink(missing_ok=True)


def _user(number: int) -> str:
    try:
        return f"{pwd.getpwuid(number).pw_name} ({number})"
    except KeyError:
        return f"user {number}"


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
