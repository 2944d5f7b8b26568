"""One Debian package, read (deb(5)): an ar archive whose `data.tar` has the files. Nothing leaves the tree it goes to.

A package may be anybody's: its hash says whose bytes they are, not what they do. Every name is normalised once, here,
and links of the tree are resolved as a process inside would, never by the host's kernel.
"""

import errno
import io
import os
import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from debroot import rooted
from debroot.errors import NotAPackageError
from debroot.reading import PACKINGS, Inflate, inflated, tar_members
from debroot.words import printable

#: gives the entries of the tar that begins at a byte of a file, each with its content
Members = Callable[[Path, int], Iterable[tuple[tarfile.TarInfo, Iterable[bytes]]]]

_MAGIC = b"!<arch>\n"
_HEADER = struct.Struct("16s32s10s2s")  #: of a member: name, times and owners, size, end
_END = b"`\n"
_FILE_MODE = 0o777  #: dpkg, inside, gives set-user-id bits: a tree in a cache that others can read has none before
#: what names that no file system takes do
_UNWRITABLE = {errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EMLINK}


class FileOwner(NamedTuple):
    """Numbers of a file's user and group."""

    uid: int
    gid: int


def inflate_member(deb: Path, target: Path, inflate: Inflate = inflated) -> int:
    """Write a package with its files inflated; return where they begin. Its hash was checked.

    They are read twice, here and by dpkg, which inflates them one after the other. Raises NotAPackageError, and what
    `inflate` raises.
    """
    content = deb.read_bytes()
    if not content.startswith(_MAGIC):
        fail(deb, "is not an ar archive")
    data = next((member for member in _members(deb, content) if member[0].startswith("data.tar")), None)
    if data is None:
        fail(deb, "has no data.tar: there are no files in it")
    name, head, begin, size = data
    packing = name.removeprefix("data.tar")
    if packing not in PACKINGS:
        fail(deb, f"has its files packed as {printable(packing)}, which is not known")
    label, about, _, end = _HEADER.unpack(content[head:begin])
    label = label.replace(packing.encode(), b" " * len(packing)) if packing else label
    packed = io.BytesIO(content[begin : begin + size])
    with target.open("wb") as file:
        file.write(content[:begin])
        written = sum(file.write(piece) for piece in inflate(deb.name, packing, packed, size))
        file.seek(head)
        file.write(_HEADER.pack(label, about, b"%-10d" % written, end))
    return begin


def _members(deb: Path, content: bytes) -> Iterator[tuple[str, int, int, int]]:
    """Of each member its name, where its header and its bytes begin, and how many they are."""
    head = len(_MAGIC)
    while head < len(content):
        begin = head + _HEADER.size
        if len(content) < begin:
            fail(deb, f"ends in the middle of a header, at byte {head}")
        name, _, digits, end = _HEADER.unpack_from(content, head)
        digits = digits.rstrip(b" ")
        if end != _END or not digits.isdigit() or begin + int(digits) > len(content):
            fail(deb, f"has a broken header at byte {head}")
        yield name.rstrip(b" /").decode("latin-1"), head, begin, int(digits)
        head = begin + int(digits) + int(digits) % 2


def extract(deb: Path, begin: int, root: Path, only: str = "", members: Members = tar_members) -> dict[str, FileOwner]:
    """Write the files of a package as far as they stay in the tree: dpkg, whose root that is, writes all of them.

    `only`: the path of a single file to write; empty: all. Return the owners of paths that do not belong to root.
    Devices, and what something of another kind stands in the place of, are left to dpkg, too. Raises NotAPackageError,
    and what `members` raises.
    """
    owners: dict[str, FileOwner] = {}
    try:
        for member, content in members(deb, begin):
            if (path := entry_path(member.name)) is None or (only and path != only):
                continue
            if member.uid or member.gid:
                owners[path] = FileOwner(member.uid, member.gid)
            if (target := rooted.host_path(root, path)) is not None:
                _write(content, member, target, root)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        fail(deb, f"has files that cannot be written: {error}")
    return owners


def entry_path(name: str) -> str | None:
    """A member's path from the root, as dpkg has it; None for one that leads out, which dpkg is left to judge."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if ".." in parts or "\0" in name else "/".join(parts)


def _write(content: Iterable[bytes], member: tarfile.TarInfo, target: Path, root: Path) -> None:
    """Make one file, folder or link at `target`, all of whose parents are folders of the tree or not there yet."""
    is_folder = target.is_dir() and not target.is_symlink()
    if member.isdir():
        if not os.path.lexists(target):
            rooted.make_folders(target)
        if target.is_dir() and not target.is_symlink():  # what a link leads to keeps its mode
            target.chmod(member.mode & 0o7777)
        return
    if is_folder or not (member.isreg() or member.issym() or member.islnk()):
        return
    source = None
    if member.islnk():
        path = entry_path(member.linkname)
        source = rooted.host_path(root, path) if path else None
        if source is None or source == target or source.is_symlink() or not source.is_file():
            return
    rooted.make_folders(target.parent)
    target.unlink(missing_ok=True)
    if source is not None:
        target.hardlink_to(source)
    elif member.issym():
        target.symlink_to(member.linkname)
    else:
        with target.open("xb") as file:
            file.writelines(content)
        target.chmod(member.mode & _FILE_MODE)


def fail(deb: Path, what: str) -> NoReturn:
    """Raise NotAPackageError about a package's file."""
    raise NotAPackageError(
        f"{deb.name} {what}",
        cause="The package was damaged before its hash was locked, or it was made to do harm.",
        next_step="lock again, from another mirror",
    )
