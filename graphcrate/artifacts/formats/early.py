"""Find the bytes of a file that are read while programs start: a squashfs has them uncompressed.

The rule looks at names and headers alone, since a recording of one start would differ between machines. It is made for
what `import torch` reads of an image (docs/decisions/conversion.md): bytecode, and of libraries the tables of the
loader, constants and the first part of the code, but no GPU code and nothing for debuggers or exceptions.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from treeaudit.fatbin import BEGINNING

MOST_DATA = 24 << 20  #: bytes of a segment without code; what the loader relocates comes first
#: Beginnings of the names of libraries that others open when they are first used, not when they are loaded.
_LATER = ("libcudnn_", "libcusolver", "libnvperf", "libnvrtc", "libtorch_cuda_linalg", "libtriton")
_PACKAGES = "/site-packages/"
_IDENTITY = b"\x7fELF\x02\x01"  #: 64 bits, little-endian
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_LOAD, _EH_FRAME = 1, 0x6474E550
_EXECUTABLE, _WRITABLE = 1, 2


class _Part(NamedTuple):
    """Bytes of a file from `start` to before `end`."""

    start: int
    end: int
    writable: bool


class Early:
    """The rule, as `sifsquash.packer` asks for it.

    `most_code` is the bytes of a segment with code that count; with 0 no library's do.
    """

    def __init__(self, most_code: int) -> None:
        self._most_code = most_code

    def small(self, path: str) -> bool:
        """Return whether a program that imports the file reads all of it."""
        return _is_bytecode(path)

    def large(self, path: str, head: memoryview) -> Callable[[int, memoryview], bool]:
        """Return what tells of a file's blocks, asked in their order."""
        return EarlyBytes(path, head, self._most_code).has


def _is_bytecode(path: str) -> bool:
    return path.endswith(".pyc")


class EarlyBytes:
    """Tells of one file's blocks, asked in their order, whether they are read early.

    `head` is the first block; `most_code` the bytes of a segment with code that count; with 0
    no library's do.
    """

    def __init__(self, path: str, head: bytes | memoryview, most_code: int) -> None:
        self._whole = _is_bytecode(path)
        self._early = _segments(bytes(head), most_code) if most_code and _loaded(path) else ()
        self._gpu = False  # GPU code has begun, after which there is neither other code nor constants

    def has(self, start: int, block: bytes | memoryview) -> bool:
        """Return whether the block that begins at byte `start` has any."""
        here = [early for early in self._early if early.start < start + len(block) and start < early.end]
        if self._whole or any(early.writable for early in here):
            return True
        if here and not self._gpu:
            self._gpu = BEGINNING in bytes(block)
        return bool(here) and not self._gpu


def _loaded(path: str) -> bool:
    """Return whether a library or program of this name may be loaded when another program starts."""
    name = path.rpartition("/")[2]
    # Programs that packages bring, such as ptxas, are called for a purpose.
    return not name.startswith(_LATER) and (".so" in name or _PACKAGES not in path)


def _segments(head: bytes, most_code: int) -> tuple[_Part, ...]:
    """Find the early parts of a library or program; none where its headers are not in `head`, or for another file."""
    if len(head) < _HEADER.size or not head.startswith(_IDENTITY):
        return ()
    *_, table, _, _, _, entry, count, _, _, _ = _HEADER.unpack_from(head)
    if entry != _SEGMENT.size or table + entry * count > len(head):
        return ()
    segments = [_SEGMENT.unpack_from(head, table + entry * number) for number in range(count)]
    frames = [offset for kind, _, offset, *_ in segments if kind == _EH_FRAME]
    early = []
    for kind, flags, offset, _, _, size, _, _ in segments:
        if kind == _LOAD:
            most = most_code if flags & _EXECUTABLE else MOST_DATA
            # The rest of a segment after the table of frames is for exceptions, too.
            ends = [offset + min(size, most), *(frame for frame in frames if offset <= frame < offset + size)]
            early.append(_Part(offset, min(ends), bool(flags & _WRITABLE)))
    return tuple(early)
