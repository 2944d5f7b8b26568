"""One layer, unpacked into a folder of its own, and what it says about the layers below.

No name in a layer lies below a link (see `oci.names`), and the folder is new and ours: nothing is ever followed.
"""

# System calls on strings: with tens of thousands of files, Path objects cost more than the calls.
# ruff: noqa: PTH101, PTH102, PTH211

import contextlib
import errno
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from graphcrate.artifacts.formats.merged import XATTR, content_of
from graphcrate.model.errors import LayoutError
from graphcrate.oci.blob import TarStream, members, open_blob
from graphcrate.oci.names import Names, entry_path, is_whiteout, whiteout
from graphcrate.oci.spec import LayerBlob

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: A root without the capability, or in a user namespace that lacks the id, does without.
_NOT_PERMITTED = (errno.EPERM, errno.EINVAL, errno.ENOTSUP)


class Attributes(msgspec.Struct, frozen=True):
    """Of a file or folder. `mtime` in nanoseconds of Unix time; `xattrs` only those that the kernel has."""

    mode: int
    uid: int
    gid: int
    mtime: int
    xattrs: tuple[tuple[str, bytes], ...] = ()


class Stage(msgspec.Struct, frozen=True):
    """A layer on the disk below `root`. Paths are relative to it."""

    root: str
    folders: dict[str, Attributes]  #: that have an entry; still to be applied, since writing inside changes times
    implied: tuple[str, ...]  #: folders above an entry that have none themselves
    removed: tuple[str, ...]  #: whiteouts: gone from the layers below
    emptied: tuple[str, ...]  #: opaque folders: their contents gone from the layers below
    links: tuple[tuple[str, str], ...]  #: hard links to files of the layers below, still to be made


def stage_layer(blob: LayerBlob, root: Path, advance: Callable[[int], None], privileged: bool) -> Stage:
    """Unpack one layer below the new folder `root`. Owners, devices and attributes only where `privileged`.

    Raises LayoutError for names that leave the root, come twice or lie below a file, and for broken data.
    """
    names = Names()
    writer = _Writer(str(root), privileged)
    try:
        root.mkdir()
        root.chmod(0o755)
        with open_blob(blob, advance=advance) as stream:
            for member, _ in members(stream):
                path = names.add(member)
                if not writer.whiteout(path):
                    writer.entry(path, member, stream, names)
    except LayoutError as error:
        raise LayoutError(f"layer {blob.path.name}: {error.what}", cause=error.cause) from error
    return Stage(
        root=str(root),
        folders=writer.folders,
        implied=tuple(sorted(writer.made - writer.folders.keys())),
        removed=tuple(writer.removed),
        emptied=tuple(writer.emptied),
        links=tuple(names.links_below.items()),
    )


class _Writer:
    def __init__(self, root: str, privileged: bool) -> None:
        self._root, self._privileged = root, privileged
        self.made: set[str] = {""}
        self._skipped: set[str] = set()  # devices, where they cannot be made
        self.folders: dict[str, Attributes] = {}
        self.removed: list[str] = []
        self.emptied: list[str] = []

    def whiteout(self, path: str) -> bool:
        """Note it if it is a whiteout."""
        if not is_whiteout(path):
            return False
        gone = whiteout(path)
        if gone is not None:
            (self.emptied if gone.emptied else self.removed).append(gone.path)
        return True

    def entry(self, path: str, member: tarfile.TarInfo, stream: TarStream, names: Names) -> None:
        if member.isdir():
            self._folder(path)
            self.folders[path] = self._attributes(member)
            return
        self._folder(path.rpartition("/")[0])
        place = f"{self._root}/{path}"
        if member.islnk():
            if path not in names.links_below:
                target = entry_path(member.linkname.lstrip("/"))
                if target in self._skipped:
                    self._skipped.add(path)
                else:
                    os.link(f"{self._root}/{target}", place, follow_symlinks=False)
        elif member.issym():
            self._symlink(place, member)
        elif member.isfile():
            self._file(place, member, stream)
        elif member.isfifo():
            os.mkfifo(place, 0o600)
            apply(place, self._attributes(member), self._privileged)
        elif member.isdev():
            if not self._device(place, member):
                self._skipped.add(path)
        else:
            raise LayoutError(f"{path} is of an unknown type {member.type!r}")

    def _folder(self, path: str) -> None:
        """Make a folder and those above it."""
        if path in self.made:
            return
        self._folder(path.rpartition("/")[0])
        place = f"{self._root}/{path}"
        os.mkdir(place)
        os.chmod(place, 0o755)  # whatever the umask
        self.made.add(path)

    def _file(self, place: str, member: tarfile.TarInfo, stream: TarStream) -> None:
        attributes = self._attributes(member)
        descriptor = os.open(place, _NEW_FILE, 0o600)
        try:
            for chunk in content_of(member, stream):
                _write(descriptor, chunk)
            apply(descriptor, attributes, self._privileged)
        finally:
            os.close(descriptor)

    def _symlink(self, place: str, member: tarfile.TarInfo) -> None:
        os.symlink(member.linkname, place)
        if self._privileged and (member.uid or member.gid):
            with _permitted():
                os.chown(place, member.uid, member.gid, follow_symlinks=False)
        _set_time(place, self._attributes(member).mtime)

    def _device(self, place: str, member: tarfile.TarInfo) -> bool:
        """Whether it could be made."""
        if not self._privileged:
            return False
        kind = stat.S_IFCHR if member.ischr() else stat.S_IFBLK
        try:
            os.mknod(place, kind | 0o600, os.makedev(member.devmajor, member.devminor))
        except OSError as error:
            if error.errno not in _NOT_PERMITTED:
                raise
            return False
        apply(place, self._attributes(member), self._privileged)
        return True

    def _attributes(self, member: tarfile.TarInfo) -> Attributes:
        xattrs = tuple(
            (name.removeprefix(XATTR), value.encode("utf-8", "surrogateescape"))
            for name, value in member.pax_headers.items()
            if name.startswith(XATTR)
        )
        try:
            mtime = int(member.mtime * 1_000_000_000)
        except (ValueError, OverflowError) as error:
            raise LayoutError(f"{member.name} has no valid time") from error
        return Attributes(member.mode & 0o7777, member.uid, member.gid, mtime, xattrs)


def apply(place: str | int, attributes: Attributes, privileged: bool) -> None:
    """Set owner, mode, extended attributes and time of an open file, or of a path that is no link."""
    if privileged:
        if attributes.uid or attributes.gid:
            with _permitted():
                os.chown(place, attributes.uid, attributes.gid)
        for name, value in attributes.xattrs:
            with _permitted():
                os.setxattr(place, name, value)
    os.chmod(place, attributes.mode)  # after chown, which clears the set-user-id bit
    _set_time(place, attributes.mtime)


def _set_time(place: str | int, mtime: int) -> None:
    try:
        if isinstance(place, int):
            os.utime(place, ns=(mtime, mtime))
        else:
            os.utime(place, ns=(mtime, mtime), follow_symlinks=False)
    except OverflowError as error:
        raise LayoutError(f"a time of {mtime} ns is out of range") from error


def _write(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


@contextlib.contextmanager
def _permitted() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_PERMITTED:
            raise
