"""CUDA fat binaries: for which GPUs a library has code, and which of it some GPUs never load.

Headers alone are read, and the first bytes of each entry's code, of any size. Code that was overwritten by zeros
does not count: the driver would find it by its header, and nothing in it.

NVIDIA documents no format. What stands here was read off libraries and nvcc's own output and compared with
cuobjdump. All numbers are little-endian. A section holds fat binaries one after another, with
zeros between them:

    header:  u32 magic · u16 version (1) · u16 size of this header · u64 size of the entries that follow
    entry:   u16 kind · u16 version · u32 size of this header · u64 size of the code · u32 its compressed size · …
             at 28: u32 architecture, 70 for 7.0 · at 40: u64 flags
"""

import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple, NoReturn

from treeaudit.elf import Extent
from treeaudit.errors import FileError
from treeaudit.gpus import compiles_for, has_code, numbers, ordered
from treeaudit.values import GpuCode

_MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ12xI8xQ")
_PTX, _SASS = 1, 2  #: kinds of entries; others hold what no driver loads, such as link-time code
_ARCHITECTURE_SPECIFIC, _FAMILY_SPECIFIC = 0x100000, 0x200000  #: sm_90a, sm_100f
#: magic, version 1, a header of 16 bytes: eight bytes that mean nothing in text, tables and machine code
BEGINNING = struct.pack("<IHH", _MAGIC, 1, _HEADER.size)
_CHUNK, _SCAN = 1 << 16, 1 << 24
BEGIN = 16  #: bytes of code to look at: machine code is ELF or compressed, PTX is text or compressed


class FatbinEntry(NamedTuple):
    """Code of a fat binary for one architecture, and its place in the file."""

    kind: int
    capability: str
    code: Extent


def read(stream: BinaryIO, extent: Extent, name: str) -> list[list[FatbinEntry]]:
    """The entries of each fat binary in these bytes of a file. Raises FileError, calling the file `name`."""
    return list(_Reader(stream, extent, name).binaries())


class Unloaded(NamedTuple):
    """Code that none of some GPUs loads, and the number of fat binaries of which that is not known."""

    code: tuple[Extent, ...]
    whole: int


def unloaded(
    stream: BinaryIO, extent: Extent, name: str, capabilities: Sequence[str], *, keep_ptx: bool = False
) -> Unloaded:
    """Find what GPUs of these capabilities never load. `keep_ptx`: the newest PTX stays, for GPUs to come.

    A fat binary is one module where it has each kind and architecture once: the driver takes the best machine code of
    the GPU's generation, and the best PTX where there is none (CUDA programming guide, fatbinaries). One that has an
    architecture twice holds several modules, which nothing tells apart: it stays whole. Raises as `read`.
    """
    extents: list[Extent] = []
    whole = 0
    for entries in read(stream, extent, name):
        if len({(entry.kind, entry.capability) for entry in entries}) < len(entries):
            whole += 1
            continue
        loaded = {entry for capability in capabilities for entry in _loaded(entries, capability)}
        if keep_ptx and (ptx := [entry for entry in entries if entry.kind == _PTX]):
            loaded.add(max(ptx, key=lambda entry: numbers(entry.capability)))
        extents += [entry.code for entry in entries if entry not in loaded]
    return Unloaded(tuple(extents), whole)


def scattered(stream: BinaryIO, extent: Extent) -> Iterator[Extent]:
    """Find what begins as a fat binary does in these bytes of a file, among other data: cuFFT has 22,000 so."""
    at, end = extent.offset, extent.offset + extent.size
    before = b""
    while at < end:
        stream.seek(at)
        if not (piece := stream.read(min(_SCAN, end - at))):
            return
        text, start = before + piece, at - len(before)
        offset = text.find(BEGINNING)
        while offset >= 0:
            if offset + _HEADER.size <= len(text):
                yield Extent(start + offset, _HEADER.size + _HEADER.unpack_from(text, offset)[3])
            offset = text.find(BEGINNING, offset + 1)
        # What begins at the end of a piece is found whole with the next one, and nothing twice.
        before, at = text[-_HEADER.size + 1 :], at + len(piece)


def _loaded(entries: Sequence[FatbinEntry], capability: str) -> list[FatbinEntry]:
    """Choose the parts that a driver may take for a GPU. 9.0a goes for 9.0 alone, 10.0f for its family."""
    runs = {_SASS: lambda code: has_code((code,), capability), _PTX: lambda code: compiles_for(code, capability)}
    for kind in (_SASS, _PTX):
        fitting = [entry for entry in entries if entry.kind == kind and runs[kind](entry.capability)]
        best = max((numbers(entry.capability) for entry in fitting), default=())
        if fitting:
            return [entry for entry in fitting if numbers(entry.capability) == best]
    return []


def usual(binaries: Iterable[Sequence[FatbinEntry]]) -> GpuCode:
    """Return the GPU code that most of these parts have, and that fewer have; parts without code do not count.

    Kernels for one generation of GPUs alone (attention, FP8) are in few parts, and nvcc's linker adds parts of its own.
    """
    parts = [{(entry.kind, entry.capability) for entry in entries} for entries in binaries if entries]
    counts = Counter(code for part in parts for code in part)
    most = {code for code, count in counts.items() if 2 * count >= len(parts)}
    return GpuCode(
        sass=ordered(name for kind, name in most if kind == _SASS),
        some=ordered(name for kind, name in counts.keys() - most if kind == _SASS),
        ptx=ordered(name for kind, name in most if kind == _PTX),
    )


class _Reader:
    def __init__(self, stream: BinaryIO, extent: Extent, name: str) -> None:
        self._stream, self._name = stream, name
        self._begin, self._end = extent.offset, extent.offset + extent.size
        if not 0 <= self._begin <= self._end <= stream.seek(0, os.SEEK_END):
            self._fail(0, "the file ends before its GPU code does")

    def _fail(self, at: int, what: str) -> NoReturn:
        raise FileError(
            f"{self._name}: GPU code, byte {max(at - self._begin, 0)}: {what}",
            cause="The file was damaged, or a CUDA newer than is known here wrote it in another format.",
        )

    def binaries(self) -> Iterator[list[FatbinEntry]]:
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
            yield list(self._entries(first, end))
            at = self._skip_zeros(end)

    def _entries(self, at: int, end: int) -> Iterator[FatbinEntry]:
        """Machine code and PTX that is there."""
        while at < end:
            kind, _, header, size, architecture, flags = _ENTRY.unpack(self._read(at, _ENTRY.size, end))
            if header < _ENTRY.size or at + header + size > end:
                self._fail(at, "an entry reaches out of its fat binary")
            code = Extent(at + header, size)
            if kind in (_PTX, _SASS) and any(self._read(code.offset, min(size, BEGIN), end)):
                yield FatbinEntry(kind, _capability(architecture, flags), code)
            at += header + size

    def _read(self, at: int, count: int, end: int) -> bytes:
        if at + count > end:
            self._fail(at, "ends in the middle of a header")
        self._stream.seek(at)
        return self._stream.read(count)

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
