"""Values of images: what a file system has, and where the bytes of its files are."""

from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

import msgspec

Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
Kind = Literal["file", "folder", "symlink", "device", "fifo", "socket"]
XATTR = "SCHILY.xattr."  #: before the name of an extended attribute, as in pax headers
LATEST = 0xFFFFFFFF  #: time that a squashfs can hold, in Unix seconds
_FOLDER, _FILE = b"5", b"0"  #: `tarfile.DIRTYPE` and `REGTYPE`, which importing takes a while


class Compression(StrEnum):
    """Of a squashfs that is written: gzip, which every kernel mounts, or zstd, which they do from 4.14 on."""

    GZIP = "gzip"
    ZSTD = "zstd"


class Entry(NamedTuple):
    """A path of a squashfs that is read. A hard link is an entry like its target."""

    kind: Kind
    mode: int  #: permission bits, 0 to 0o7777; of a symbolic link 0o777
    uid: int = 0
    gid: int = 0
    size: int = 0  #: bytes of a file
    link: str = ""  #: target of a symbolic link; of a device "c 1:3" or "b 8:0"
    mtime: int = 0  #: Unix seconds


class Content(msgspec.Struct, frozen=True):
    """The place of a file's bytes in a squashfs that is read."""

    start: int  #: of the first block
    sizes: tuple[int, ...]  #: of the blocks as stored; 0 is a hole
    size: int
    fragment: int  #: number of the fragment block with the last bytes, or `NO_FRAGMENT`
    offset: int  #: in it


class Stored(msgspec.Struct, kw_only=True):
    """Compressed blocks: in the file of a packed layer, one after another. Complete when all are written."""

    layer: Size = 0  #: lowest 0
    start: Size = 0  #: of the first block, in bytes
    sizes: list[Size] = []  #: of the blocks as a squashfs has them: 0: a hole, `squashfs.STORED_DATA`: not compressed
    crc: Size = 0  #: CRC-32 of the blocks as they are stored
    fragment: Size | None = None  #: number of the fragment block that has the whole content of a small file
    offset: Size = 0  #: in it


class Inode(msgspec.Struct, frozen=True, kw_only=True):
    """A file, folder, link, device or pipe. Paths that share one are hard links of each other."""

    kind: bytes  #: type flag of the tar format
    mode: Size  #: permission bits, 0 to 0o7777
    uid: Size = 0
    gid: Size = 0
    mtime: Size = 0  #: Unix seconds, as far as a squashfs can hold them
    size: Size = 0
    link: str = ""  #: target of a symbolic link
    device: tuple[int, int] = (0, 0)
    xattrs: tuple[tuple[str, str], ...] = ()  #: bytes that are no UTF-8 as surrogates
    content: bytes = b""  #: of a file that is in no layer
    stored: Stored | None = None

    @property
    def is_folder(self) -> bool:
        return self.kind == _FOLDER

    @property
    def is_file(self) -> bool:
        return self.kind == _FILE
