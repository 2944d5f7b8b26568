"""Files in a folder that many share: `<name>-<tag>.sif`, its checksum, and `<name>.sif` → the newest.

A file appears whole under its name or not at all: it grows under a temporary name, is synced (a server of NFS reports
a full disk there) and renamed. No lock is held, since NFS and Lustre are often mounted without.
"""

import contextlib
import errno
import filecmp
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from graphcrate.host import os_errors, settings
from graphcrate.host.atomic import check_link, claim
from graphcrate.host.cache import require_room
from graphcrate.host.progress import Progress
from graphcrate.model.errors import UsageError

ABANDONED = 86_400.0  #: seconds after which nobody writes to a temporary file any more
_PART = re.compile(r"\..+\.[0-9a-f]{16}\.part", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", re.ASCII)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_CHUNK = 4 << 20


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the folder. Paths as text; `sha256` in hex."""

    path: str
    sha256: str
    latest: str  #: the link that names it; empty where the file system has no links


def publish(
    source: Path, folder: Path, name: str, tag: str, suffix: str, *, progress: Progress, replace: bool = False
) -> Placed:
    """Copy a file into the folder as the newest of `name`, with its checksum beside it.

    `replace`: another file under the same name and tag gives way. Raises UsageError for a name that is taken,
    DiskFullError, HostError; then what was there is there still.
    """
    for word in (name, tag):
        if not _WORD.fullmatch(word):
            raise UsageError(
                f"{word!r} cannot be part of a file's name", next_step="--tag with letters, digits and . _ - alone"
            )
    target, latest = folder / f"{name}-{tag}{suffix}", folder / f"{name}{suffix}"
    checksum, size = target.with_name(f"{target.name}.sha256"), source.stat().st_size
    with os_errors.explaining(folder):
        _prepare(folder, latest)
        if _same(source, target):
            with target.open("rb") as stream:
                sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        elif os.path.lexists(target) and not replace:
            raise _taken(target)
        else:
            require_room(folder, size, target)
            with _part(target) as part, progress.task(f"copying to {folder}", size) as task:
                sha256 = _copy(source, part, 0o777 if suffix == ".sif" else 0o666, task.advance)
                if replace:
                    checksum.unlink(missing_ok=True)  # none rather than a wrong one
                    part.replace(target)
                elif not claim(part, target) and not _same(source, target):  # another publisher was faster
                    raise _taken(target)
        write(checksum, f"{sha256}  {target.name}\n".encode())  # as sha256sum checks it
        if not target.stat().st_mode & stat.S_IRGRP:
            progress.note(f"{target} is for its owner alone (umask): chmod g+r lets your group read it")
        linked = _link(latest, target)
    if not linked:
        progress.note(f"{folder} takes no links: there is no {latest.name}")
    return Placed(path=str(target), sha256=sha256, latest=str(latest) if linked else "")


def write(target: Path, data: bytes) -> None:
    """Write a small file whole or not at all. Raises DiskFullError, HostError."""
    with os_errors.explaining(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _part(target) as part:
            with part.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(target)


def _prepare(folder: Path, latest: Path) -> None:
    """Make the folder; remove what killed publishers left. Raises HostError where the link cannot be made."""
    folder.mkdir(parents=True, exist_ok=True)
    check_link(latest)
    for part in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            if _PART.fullmatch(part.name) and settings.now() - part.stat().st_mtime > ABANDONED:
                part.unlink()


@contextlib.contextmanager
def _part(target: Path) -> Iterator[Path]:
    """A temporary name beside `target`; a file of that name is removed at the end."""
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        yield part
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _copy(source: Path, target: Path, mode: int, advance: Callable[[int], None]) -> str:
    """Copy a file to the disk, its mode less the umask; the sha256 of what was copied."""
    digest = hashlib.sha256()
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with source.open("rb") as reading, os.fdopen(descriptor, "wb") as writing:
        while chunk := reading.read(_CHUNK):
            digest.update(chunk)
            writing.write(chunk)
            advance(len(chunk))
        writing.flush()
        os.fsync(descriptor)
    return digest.hexdigest()


def _same(source: Path, target: Path) -> bool:
    """Whether both files have the same content. A link at `target` is another thing."""
    return target.is_file() and not target.is_symlink() and filecmp.cmp(source, target, shallow=False)


def _link(latest: Path, target: Path) -> bool:
    """Make the name without a tag a relative link to the file; False where the file system has no links."""
    try:
        with _part(latest) as part:
            part.symlink_to(target.name)
            part.replace(latest)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def _taken(target: Path) -> UsageError:
    return UsageError(
        f"{target} is there already, and it is another file",
        cause="Another image was published under this name and tag.",
        next_step="--replace puts the new one in its place; jobs that read the old one may fail on NFS",
    )
