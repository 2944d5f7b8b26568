"""CUDA fat binaries: for which GPUs a library has code. Headers alone are read, whatever the size of the code.

NVIDIA documents no format. What stands here was read off libraries and nvcc's own output and compared with cuobjdump
(docs/decisions/binary-checks.md). All numbers are little-endian. A section holds fat binaries one after another, with
zeros between them:

    header:  u32 magic · u16 version (1) · u16 size of this header · u64 size of the entries that follow
    entry:   u16 kind · u16 version · u32 size of this header · u64 size of the code · u32 its compressed size · …
             at 28: u32 architecture, 70 for 7.0 · at 40: u64 flags
"""

import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NoReturn

import msgspec

from graphcrate.artifacts.formats.elf import Extent
from graphcrate.compat.facts import ordered
from graphcrate.model.audit import GpuCode
from graphcrate.model.errors import IntegrityError

_MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ12xI8xQ")
_PTX, _SASS = 1, 2  #: kinds of entries; others hold what no driver loads, such as link-time code
_ARCHITECTURE_SPECIFIC, _FAMILY_SPECIFIC = 0x100000, 0x200000  #: sm_90a, sm_100f
_CHUNK = 1 << 16


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """Compute capabilities ("7.0", "9.0a") with machine code and with PTX, which the driver compiles for newer GPUs."""

    sass: frozenset[str] = frozenset()
    ptx: frozenset[str] = frozenset()


def read(stream: BinaryIO, extent: Extent, name: str) -> tuple[Code, ...]:
    """What each fat binary in these bytes of a file has. Raises IntegrityError, calling the file `name`."""
    return tuple(_Reader(stream, extent, name).binaries())


def union(codes: Iterable[Code]) -> Code:
    """What any of them has."""
    codes = tuple(codes)
    sass = frozenset[str]().union(*(code.sass for code in codes))
    return Code(sass=sass, ptx=frozenset[str]().union(*(code.ptx for code in codes)))


def usual(codes: Sequence[Code]) -> GpuCode:
    """What most of these parts have, and what fewer have; parts without code do not count.

    Kernels for one generation of GPUs alone (attention, FP8) are in few parts, and nvcc's linker adds parts of its own.
    """
    real = [code for code in codes if code != Code()]
    sass = Counter(name for code in real for name in code.sass)
    ptx = Counter(name for code in real for name in code.ptx)
    most = [name for name, count in sass.items() if 2 * count >= len(real)]
    return GpuCode(
        sass=ordered(most),
        some=ordered(name for name in sass if name not in most),
        ptx=ordered(name for name, count in ptx.items() if 2 * count >= len(real)),
    )


class _Reader:
    def __init__(self, stream: BinaryIO, extent: Extent, name: str) -> None:
        self._stream, self._name = stream, name
        self._begin, self._end = extent.offset, extent.offset + extent.size
        if not 0 <= self._begin <= self._end <= stream.seek(0, os.SEEK_END):
            self._fail(0, "the file ends before its GPU code does")

    def _fail(self, at: int, what: str) -> NoReturn:
        raise IntegrityError(
            f"{self._name}: GPU code, byte {max(at - self._begin, 0)}: {what}",
            cause="The file was damaged, or a CUDA newer than graphcrate knows wrote it in another format.",
        )

    def binaries(self) -> Iterator[Code]:
        at = self._skip_zeros(self._begin)
        while at < self._end:
            magic, version, header, size = _HEADER.unpack(self._read(at, _HEADER.size, self._end))
            if magic != _MAGIC:
                self._fail(at, f"no fat binary begins here ({magic:#010x})")
            if version != 1 or header < _HEADER.size:
                self._fail(at, f"a fat binary of version {version} with a header of {header} bytes; 1 and 16 are known")
            first, end = at + header, at + header + size
            if end > self._end:
                self._fail(at, "a fat binary reaches out of its section")
            yield self._entries(first, end)
            at = self._skip_zeros(end)

    def _entries(self, at: int, end: int) -> Code:
        found: dict[int, set[str]] = {_PTX: set(), _SASS: set()}
        while at < end:
            kind, _, header, size, architecture, flags = _ENTRY.unpack(self._read(at, _ENTRY.size, end))
            if header < _ENTRY.size or at + header + size > end:
                self._fail(at, "an entry reaches out of its fat binary")
            if kind in found:
                found[kind].add(_capability(architecture, flags))
            at += header + size
        return Code(sass=frozenset(found[_SASS]), ptx=frozenset(found[_PTX]))

    def _read(self, at: int, count: int, end: int) -> bytes:
        if at + count > end:
            self._fail(at, "ends in the middle of a header")
        self._stream.seek(at)
        data = self._stream.read(count)
        if len(data) != count:
            self._fail(at, "the file ends in the middle of a header")
        return data

    def _skip_zeros(self, at: int) -> int:
        while at < self._end:
            self._stream.seek(at)
            chunk = self._stream.read(min(_CHUNK, self._end - at))
            if not chunk:
                self._fail(at, "the file ends in the middle of its GPU code")
            if rest := chunk.lstrip(b"\0"):
                return at + len(chunk) - len(rest)
            at += len(chunk)
        return self._end


def _capability(architecture: int, flags: int) -> str:
    suffix = "a" if flags & _ARCHITECTURE_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
    return f"{architecture // 10}.{architecture % 10}{suffix}"
