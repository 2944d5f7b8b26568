"""Files for Singularity and enroot in a folder that many share: `<name>-<tag>.sif`, and `<name>.sif` → the newest.

A file appears whole under its name or not at all, with a checksum beside it. No lock is held: NFS and Lustre are often
mounted without. Two publishers at once are safe by what rename(2) and link(2) promise. `.graphcrate/` in the folder has
a record of each file that was published, and only such files are ever removed.
"""

import contextlib
import os
import re
import shutil
import stat
from pathlib import Path

import msgspec

from graphcrate.destinations import whole
from graphcrate.errors import DiskFullError, HostError, UsageError
from graphcrate.host import filesystems, settings
from graphcrate.host.progress import Progress
from graphcrate.host.replace import claim
from graphcrate.model.unreadable import UNREADABLE

SUFFIXES = (".sif", ".sqsh")
RECORDS = ".graphcrate"
ABANDONED = 86_400.0  #: seconds after which nobody writes to a temporary file any more
#: Lustre: on so many targets files of this size and more are worth to be spread, since all nodes read them at once.
#: NERSC's recommendation for files of 1 to 10 GB.
STRIPES, STRIPED_FROM = 8, 1_000_000_000
_PART = re.compile(r"\..+\.[0-9a-f]{16}\.part", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", re.ASCII)


class Shelved(msgspec.Struct, frozen=True, kw_only=True):
    """A file on a shelf. Paths as text; `size` in bytes, `sha256` in hex."""

    path: str
    sha256: str
    size: int
    latest: str  #: the link that names it; empty where the file system has no links
    removed: tuple[str, ...] = ()  #: paths of older files that went
    unchanged: bool = False  #: it was there already


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What was published. Size and time of change tell whether the file is still that one."""

    name: str
    tag: str
    sha256: str
    size: int
    changed: int  #: the file's mtime in nanoseconds
    published: float  #: Unix seconds
    cpu_only: bool = False  #: no suite of it had passed on a GPU, which it is for
    format: int = 1


def publish(
    source: Path,
    folder: Path,
    name: str,
    tag: str,
    *,
    progress: Progress,
    keep: int | None = None,
    replace: bool = False,
    cpu_only: bool = False,
) -> Shelved:
    """Put a .sif or .sqsh on the shelf as the newest of `name`.

    `keep`: so many of this name stay; others that were published here go, save what a link names. None: all stay.
    `replace`: another file under the same name and tag gives way. `cpu_only`: see `Record`. Raises UsageError for a
    name that is taken, DiskFullError, HostError; then what was there is there still.
    """
    if keep is not None and keep < 1:
        raise UsageError(f"{keep} files of {name} cannot be kept: at least the new one stays", next_step="--keep 3")
    shelf = _Shelf(folder, name, source.suffix, progress, cpu_only=cpu_only)
    target = shelf.place(tag)
    with whole.explained(folder):
        size = source.stat().st_size
        shelf.prepare()
        inode = _inode(target)
        sha256 = _same(source, target)
        if unchanged := bool(sha256):
            shelf.confirm(target, tag, sha256, inode)
        elif os.path.lexists(target) and not replace:
            raise _taken(target)
        else:
            shelf.require(size, target)
            sha256 = shelf.put(source, target, tag, replace=replace)
        latest = shelf.link(target)
        removed = shelf.clean(keep, target) if keep is not None else ()
    return Shelved(path=str(target), sha256=sha256, size=size, latest=latest, removed=removed, unchanged=unchanged)


class _Shelf:
    """The files of one name and kind in a folder."""

    def __init__(self, folder: Path, name: str, suffix: str, progress: Progress, *, cpu_only: bool) -> None:
        self.folder, self.name, self.suffix, self.progress = folder, name, suffix, progress
        self.cpu_only = cpu_only
        self.latest, self.records = folder / f"{name}{suffix}", folder / RECORDS
        if suffix not in SUFFIXES:
            raise UsageError(
                f"a shared folder takes {' and '.join(SUFFIXES)} files, and not *{suffix}",
                next_step="./build.py convert NAME:TAG --to sif",
            )

    def place(self, tag: str) -> Path:
        """Where the file of this tag lies. Raises UsageError for words that make no file's name."""
        for word in (self.name, tag):
            if not _WORD.fullmatch(word):
                raise UsageError(f"{word!r} cannot be part of a file's name")
        return self.folder / f"{self.name}-{tag}{self.suffix}"

    def prepare(self) -> None:
        """Make the folder; remove what killed publishers left. Raises HostError where the link cannot be made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.latest.exists() and not self.latest.is_symlink():
            raise HostError(
                f"{self.latest} is in the way: it is to be a link to the newest {self.suffix} of {self.name}",
                next_step=f"mv {self.latest} {self.latest}.old",
            )
        if not self.records.is_dir():
            self.records.mkdir(exist_ok=True)
            theirs = self.folder.stat()
            with contextlib.suppress(OSError):  # whoever may publish here may write records
                os.chown(self.records, -1, theirs.st_gid)
                self.records.chmod(stat.S_IMODE(theirs.st_mode))
        for part in (*self.folder.glob(".*.part"), *self.records.glob(".*.part")):
            with contextlib.suppress(OSError):
                if _PART.fullmatch(part.name) and settings.now() - part.stat().st_mtime > ABANDONED:
                    part.unlink()

    def require(self, size: int, target: Path) -> None:
        """Say what is worth to know before writing. Raises DiskFullError where the room is too little."""
        free = shutil.disk_usage(self.folder).free
        if free < size:
            raise DiskFullError(
                f"{target} needs {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free there",
                next_step="free some room (--keep 3 removes older files of the same name), or name another folder",
            )
        if hint := stripe_hint(self.folder, filesystems.kind(self.folder), size):
            self.progress.note(hint)

    def put(self, source: Path, target: Path, tag: str, *, replace: bool) -> str:
        """Copy the file to its place, with its checksum; its sha256."""
        with whole.parts() as part, self.progress.task(f"copying to {self.folder}", source.stat().st_size) as task:
            copy, mode = part(target), 0o777 if self.suffix == ".sif" else 0o666
            sha256 = whole.copy(source, copy, mode, task.advance)
            inode = copy.stat().st_ino
            checksum, record = part(_checksum(target)), part(self._record_of(target))
            whole.write(checksum, _line(sha256, target))
            whole.write(record, self._record(tag, sha256, copy))
            if replace:
                _checksum(target).unlink(missing_ok=True)  # none rather than a wrong one
                copy.replace(target)
            elif not claim(copy, target):
                inode = _inode(target)
                if _same(source, target) != sha256:
                    raise _taken(target)
                self.confirm(target, tag, sha256, inode)  # another publisher was faster
                return sha256
            try:
                checksum.replace(_checksum(target))
                record.replace(self._record_of(target))
            except OSError:
                if not replace:
                    target.unlink()
                raise
        _settle(target, inode)
        whole.sync(self.folder)
        if not target.stat().st_mode & stat.S_IRGRP:
            self.progress.note(f"{target} is for its owner alone (umask): chmod g+r lets your group read it")
        return sha256

    def confirm(self, target: Path, tag: str, sha256: str, inode: int) -> None:
        """See to it that a file that is there has its checksum; one that was published is the newest from now on."""
        with whole.parts() as part:
            if _read(_checksum(target)) != _line(sha256, target):
                checksum = part(_checksum(target))
                whole.write(checksum, _line(sha256, target))
                checksum.replace(_checksum(target))
            if self._is_ours(target):
                record = part(self._record_of(target))
                whole.write(record, self._record(tag, sha256, target))
                record.replace(self._record_of(target))
        _settle(target, inode)

    def link(self, target: Path) -> str:
        """Make the name without a tag a link to the file, relative; empty where the file system has none."""
        try:
            with whole.parts() as part:
                link = part(self.latest)
                link.symlink_to(target.name)
                link.replace(self.latest)
        except OSError as error:
            if error.errno not in whole.UNABLE:
                raise
            self.progress.note(f"{self.folder} takes no links: there is no {self.latest.name}")
            return ""
        return str(self.latest)

    def clean(self, keep: int, newest: Path) -> tuple[str, ...]:
        """Remove all but the `keep` newest files of this name; those that went."""
        named = {path.readlink().name for path in self.folder.iterdir() if path.is_symlink()}
        found: list[tuple[float, Path]] = []
        for path in self.records.glob(f"{self.name}-*{self.suffix}.json"):
            record, target = _decoded(path), self.folder / path.stem
            if record is not None and record.name == self.name and self._is_ours(target):
                found.append((record.published, target))
        old = [target for _, target in sorted(found, reverse=True)[keep:]]
        gone = [target for target in old if target != newest and target.name not in named]
        removed = []
        for target in gone:
            try:
                target.unlink(missing_ok=True)
            except PermissionError:
                self.progress.note(f"{target} is another user's and stays")
                continue
            _checksum(target).unlink(missing_ok=True)
            self._record_of(target).unlink(missing_ok=True)
            removed.append(str(target))
        return tuple(removed)

    def _record_of(self, target: Path) -> Path:
        return self.records / f"{target.name}.json"

    def _record(self, tag: str, sha256: str, file: Path) -> bytes:
        status = file.stat()
        record = Record(
            name=self.name,
            tag=tag,
            sha256=sha256,
            size=status.st_size,
            changed=status.st_mtime_ns,
            published=settings.now(),
            cpu_only=self.cpu_only,
        )
        return msgspec.json.encode(record) + b"\n"

    def _is_ours(self, target: Path) -> bool:
        """Whether this very file was published here."""
        record = _decoded(self._record_of(target))
        try:
            status = target.lstat()
        except FileNotFoundError:
            return False
        return record is not None and (record.size, record.changed) == (status.st_size, status.st_mtime_ns)


def stripe_hint(folder: Path, kind: int, size: int) -> str:
    """What to do before a large file is written to Lustre; empty elsewhere. `kind`: its file system's magic number."""
    if kind != filesystems.LUSTRE or size < STRIPED_FROM:
        return ""
    return (
        f"{folder} is on Lustre, and every node will read this file: lfs setstripe -c {STRIPES} -S 4M {folder}    "
        "(once, before publishing; lfs getstripe -d shows what it has) spreads new files"
    )


def _taken(target: Path) -> UsageError:
    return UsageError(
        f"{target} is there already, and it is another file",
        cause="Another image was published under this name and tag, or nothing tells that it was the same one.",
        next_step="--replace puts the new one in its place; jobs that read the old one may fail on NFS",
    )


def _settle(target: Path, inode: int) -> None:
    """Two publishers that replace the same file may end with the checksum of the other one: the last look mends it."""
    while (found := target.stat().st_ino) != inode:
        inode = found
        with whole.parts() as part:
            checksum = part(_checksum(target))
            whole.write(checksum, _line(whole.sha256(target), target))
            checksum.replace(_checksum(target))


def _checksum(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _line(sha256: str, target: Path) -> bytes:
    """As sha256sum writes and checks it."""
    return f"{sha256}  {target.name}\n".encode()


def _inode(target: Path) -> int:
    try:
        return target.lstat().st_ino
    except FileNotFoundError:
        return 0


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _decoded(path: Path) -> Record | None:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, *UNREADABLE):
        return None
    return record if record.format == 1 else None


def _same(source: Path, target: Path) -> str:
    """The sha256 of both files where they have the same content, else nothing. A link at `target` is another thing."""
    try:
        status = target.lstat()
    except FileNotFoundError:
        return ""
    if not stat.S_ISREG(status.st_mode) or status.st_size != source.stat().st_size:
        return ""
    sha256 = whole.sha256(target)
    return sha256 if sha256 == whole.sha256(source) else ""
