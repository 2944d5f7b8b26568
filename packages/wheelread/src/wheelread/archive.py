"""A wheel's zip archive: `checked_members` looks at everything in it but content, which is checked while it is read.

`zipfile` reads the central directory; each local header is compared with it here, because two readers that trust
different headers see different files. Content is read by offset, so large members pass in pieces.
"""

import binascii
import contextlib
import errno
import hashlib
import io
import os
import re
import stat
import struct
import unicodedata
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import deflate
import msgspec

from layertar.errors import ArchiveError
from layertar.limits import Gauge, Limits
from ocilayout.errors import WritingError
from ocilayout.layer import inflate
from wheelread.errors import WheelError

_MB, _GB = 1 << 20, 1 << 30
#: The index takes no wheel above 10 GB; torch's has 1.9 inflated.
WHEEL = Limits("wheel", members=1_000_000, names=256 * _MB, size=256 * _GB, ratio=200, free=_GB)
DIRECTORY = 32 * _MB  #: bytes of a wheel's list of members, each of which takes ten times that; torch's has 1.5 MB
CHUNK = 1 << 20
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
# Bits of the general purpose flags.
_DEFLATE_OPTIONS, _DESCRIPTOR, _UTF8 = 0x6, 0x8, 0x800
_KNOWN_FLAGS = _DEFLATE_OPTIONS | _DESCRIPTOR | _UTF8
_UNKNOWN_SIZE = 0xFFFFFFFF  #: zip64: the size is in the extra field
#: what leaves the folder that it is unpacked to, on any system, or reads differently than it is: control characters,
#: backslash, drive, an empty part, "." or ".."
_HOSTILE = re.compile(r"[\x00-\x1f\x7f\\]|^[A-Za-z]:|(?:^|/)\.{0,2}/|(?:^|/)\.{1,2}\Z|\A\Z")
#: "sha256 or better" (PEP 427), with bytes of digest.
HASHES = {"sha256": 32, "sha384": 48, "sha512": 64}
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A file in the archive. `offset` is where its `packed` bytes begin; sizes in bytes."""

    name: str
    size: int
    packed: int
    crc32: int
    deflated: bool  #: else stored
    executable: bool
    offset: int


class _Directory(io.BufferedReader):
    """A buffer from which `zipfile` reads the central directory, whole and into objects: so its size is limited."""

    def __init__(self, raw: io.FileIO, most: int) -> None:
        super().__init__(raw)
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self._most:
            raise zipfile.BadZipFile(f"its directory has {size} bytes, and at most {self._most} are read")
        return super().read(size)


class WheelArchive(contextlib.AbstractContextManager["WheelArchive"]):
    """An open zip file. Raises `error`, naming file and member."""

    def __init__(
        self,
        path: Path,
        *,
        error: type[ArchiveError] = WheelError,
        limits: Limits = WHEEL,
        directory: int = DIRECTORY,
    ) -> None:
        self.path, self.error, self._limits, self._most_of_directory = path, error, limits, directory
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def packed_chunks(self, member: Member) -> Iterator[bytes]:
        """Yield the member's bytes as stored in the archive, in pieces."""
        offset, left = member.offset, member.packed
        while left:
            chunk = os.pread(self._descriptor, min(left, CHUNK), offset)
            if not chunk:
                self.fail(member.name, "the file ends in the middle of it")
            yield chunk
            offset += len(chunk)
            left -= len(chunk)

    def chunks(self, member: Member, recorded: str = "") -> Iterator[bytes]:
        """Give the member's content in pieces. By the end, size, CRC-32 and `recorded`, RECORD's hash, are checked."""
        packed = self.packed_chunks(member)
        if member.deflated:
            packed = inflate(f"{self.path.name}: {member.name}", member.size, member.crc32, packed)
        checksum, digest = 0, new_hash(recorded)
        try:
            for chunk in packed:
                if not member.deflated:
                    checksum = deflate.crc32(chunk, checksum)
                digest.update(chunk)
                yield chunk
        except WritingError as error:
            raise self.error(error.what, cause=error.cause, next_step=error.next_step) from error
        if not member.deflated and checksum != member.crc32:
            self.fail(member.name, f"its CRC-32 is {checksum:08x} and its header says {member.crc32:08x}")
        self.check(member, recorded, digest)

    def check(self, member: Member, recorded: str, digest: "hashlib._Hash") -> None:
        """Raise `error` unless a member's content, hashed by `new_hash`, is what RECORD says, if anything."""
        if recorded and digest.digest() != parse_hash(recorded)[1]:
            self.fail(member.name, f"its content is not what RECORD says ({recorded})")

    def read(self, member: Member, recorded: str = "") -> bytes:
        """Read the member's whole content, checked."""
        return b"".join(self.chunks(member, recorded))

    def fail(self, name: str, what: str) -> NoReturn:
        """Raise `error` for one member (or the whole file: empty `name`)."""
        where = f"{self.path.name}: {_printable(name)}: " if name else f"{self.path.name}: "
        raise self.error(where + what, cause="The wheel was damaged, changed or built by a faulty tool.")

    def checked_members(self) -> tuple[Member, ...]:
        """List every file, when nothing in the archive can surprise its reader."""
        infos, directory = self._central_directory()
        gauge = Gauge(self._limits, self.path.name, self.error, os.fstat(self._descriptor).st_size)
        for info in infos:
            gauge.member(info.filename, info.file_size)
        members = tuple(self._member(info) for info in infos)
        self._check_overlap(infos, members, directory)
        files = [member for member, info in zip(members, infos, strict=True) if not info.is_dir()]
        self._check_names(files)
        return tuple(files)

    def unpacked_size(self) -> int:
        """Sum the bytes of its files, as its directory states them. Nothing else is looked at."""
        return sum(info.file_size for info in self._central_directory()[0])

    def _central_directory(self) -> tuple[Sequence[zipfile.ZipInfo], int]:
        try:
            with (
                open(self._descriptor, "rb", buffering=0, closefd=False) as raw,
                zipfile.ZipFile(_Directory(raw, self._most_of_directory)) as archive,
            ):
                return archive.infolist(), archive.start_dir
        except OSError as error:
            if error.errno != errno.EINVAL:  # a position before the file's start
                raise
            self.fail("", f"not a zip file: {error}")
        # zipfile raises any of these on a mangled directory.
        except (zipfile.BadZipFile, RuntimeError, ValueError, ArithmeticError, struct.error, EOFError) as error:
            self.fail("", f"not a whole zip file: {error}")

    def _member(self, info: zipfile.ZipInfo) -> Member:
        name = info.filename
        if name != info.orig_filename:
            self.fail(info.orig_filename, "its name is written in two ways")
        if _HOSTILE.search(name):
            self.fail(name, "its name is not a plain relative path")
        mode = info.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file"
            self.fail(name, f"is {kind}, which a wheel cannot hold")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            self.fail(name, f"compression method {info.compress_type}; a wheel has stored and deflated members only")
        deflated = info.compress_type == zipfile.ZIP_DEFLATED
        if info.is_dir() and (info.file_size or info.compress_size > 2):
            self.fail(name, "is a folder with content")
        if not deflated and info.file_size != info.compress_size:
            self.fail(name, f"is stored, and its sizes differ: {info.file_size} and {info.compress_size}")
        return Member(
            name=name,
            size=info.file_size,
            packed=info.compress_size,
            crc32=info.CRC,
            deflated=deflated,
            executable=stat.S_ISREG(mode) and bool(mode & 0o111),
            offset=self._data_offset(info),
        )

    def _data_offset(self, info: zipfile.ZipInfo) -> int:
        """Return the offset of the member's data; its local header must agree with the central directory."""
        name = info.filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")
        # zipfile moves offsets when bytes precede the archive or its end has a wrong offset.
        is_inside = 0 <= info.header_offset < os.fstat(self._descriptor).st_size
        head = os.pread(self._descriptor, _LOCAL_HEADER.size + len(name), info.header_offset) if is_inside else b""
        if len(head) < _LOCAL_HEADER.size or not head.startswith(b"PK\x03\x04"):
            self.fail(info.filename, "has no local header where the directory says")
        (_, _, flags, method, _, _, crc, packed, size, name_length, extra_length) = _LOCAL_HEADER.unpack_from(head)
        if (flags | info.flag_bits) & ~_KNOWN_FLAGS:
            both = f"{flags:#x}, {info.flag_bits:#x}"
            self.fail(info.filename, f"is encrypted, or has other flags that no wheel has: {both}")
        agreeing = [(head[_LOCAL_HEADER.size :], name), (name_length, len(name)), (method, info.compress_type)]
        if not info.filename.isascii():
            agreeing.append((flags & _UTF8, info.flag_bits & _UTF8))
        # With a data descriptor, the local header may leave these open; a reader has them from the directory.
        if not flags & _DESCRIPTOR:
            agreeing.append((crc, info.CRC))
            agreeing += [(size, info.file_size)] if size != _UNKNOWN_SIZE else []
            agreeing += [(packed, info.compress_size)] if packed != _UNKNOWN_SIZE else []
        for local, central in agreeing:
            if local != central:
                self.fail(info.filename, f"its local header says {local} where the directory says {central}")
        begin: int = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        return begin

    def _check_overlap(self, infos: Sequence[zipfile.ZipInfo], members: Sequence[Member], directory: int) -> None:
        """Refuse members that share bytes: a small file could unpack to terabytes."""
        starts = sorted(zip((info.header_offset for info in infos), members, strict=True), key=lambda pair: pair[0])
        ends = [*(start for start, _ in starts), directory][1:]
        for (_, member), end in zip(starts, ends, strict=True):
            if member.offset + member.packed > end:
                self.fail(member.name, "reaches into the data that follows it")

    def _check_names(self, files: Sequence[Member]) -> None:
        seen: dict[str, str] = {}
        for member in files:
            other = seen.setdefault(unicodedata.normalize("NFC", member.name), member.name)
            if other is not member.name:
                same = "it is there twice" if other == member.name else f"{other!r} is the same name in another form"
                self.fail(member.name, same)
        for name in seen:
            parent = name.rpartition("/")[0]
            if parent in seen:
                self.fail(name, f"is below {parent}, which is a file")


def new_hash(recorded: str) -> "hashlib._Hash":
    """Return an empty hash of the algorithm that RECORD has for a file."""
    return hashlib.new(recorded.partition("=")[0] or "sha256")


def parse_hash(recorded: str) -> tuple[str, bytes]:
    """Return algorithm and digest of RECORD's "sha256=…"; ("", b"") when it is malformed or too weak."""
    algorithm, _, value = recorded.partition("=")
    raw = value.rstrip("=").encode()
    try:
        digest = binascii.a2b_base64(raw.translate(_URL_SAFE) + b"=" * (-len(raw) % 4), strict_mode=True)
    except binascii.Error:
        return "", b""
    return (algorithm, digest) if len(digest) == HASHES.get(algorithm) else ("", b"")


def _printable(name: str) -> str:
    return name if name.isprintable() and name else ascii(name)
