"""A layer as a stream: tar inside concatenated gzip members, whose bytes depend on the content alone.

Headers, padding and small files are gathered into blocks of `GATHER` bytes and compressed by libdeflate, each block
one gzip member. A large file that is already a raw deflate stream (a member of a wheel) is copied unchanged into a
gzip member of its own: header, stream, CRC-32, size. It is inflated once while it passes, to check it and to compute
the diff_id. RFC 1952 lets a gzip file be any number of members. See `docs/decisions/layer-splice.md`.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, NamedTuple, Protocol, cast

import deflate
from isal import igzip_lib

from ocilayout import spec
from ocilayout.errors import LayerError
from ocilayout.tar import BLOCK, END_OF_ARCHIVE, EntryType, header, padding

#: Raise it whenever the same input would give other bytes. Part of every layer's cache key.
LAYER_FORMAT = 1
#: Uncompressed bytes per gathered gzip member: past this size the ratio gains nothing.
GATHER = 1 << 20
#: libdeflate's level for gathered blocks; measured in `docs/decisions/layer-splice.md`.
LEVEL = 6
#: Most bytes that inflating hands out at once, so that a bomb cannot fill the memory.
_INFLATE_AT_ONCE = 1 << 18
# Deflate, no flags, no time, no extra flags, operating system unknown (RFC 1952).
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

#: An empty part, ".", "..", or a character that no path can have.
_NO_PATH = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)|\0")
_InflateError = cast("type[Exception]", igzip_lib.error)  # its stub declares an instance

#: Folders whose mode in every base is not 0755. Writing an entry for a parent folder sets its mode.
FOLDER_MODES = {"root": 0o700, "tmp": 0o1777, "var/tmp": 0o1777}


class Layer(NamedTuple):
    """A layer's blob. `diff_id`, of the tar, and `digest` with `sha256:` before the hex; sizes in bytes."""

    digest: str
    diff_id: str
    size: int
    unpacked_size: int  #: of the tar
    media_type: str = spec.LAYER_GZIP


class LayerCopy(Protocol):
    """A receiver of a layer's entries while it is written: each path once, below folders that came before."""

    def folder(self, path: str, mode: int) -> None:
        """Take a folder."""

    def symlink(self, path: str, target: str) -> None:
        """Take a symbolic link."""

    def file(self, path: str, mode: int, size: int) -> AbstractContextManager[Callable[[bytes], object]]:
        """Begin a file of so many bytes; give what takes its content, piece by piece."""


class LayerWriter:
    """Writes one layer's compressed bytes to `stream`, with root as owner and `mtime` (Unix seconds) everywhere.

    Paths are relative to the image's root; a leading slash is dropped. Missing parent folders are written first, each
    folder once. The caller decides the order of entries. Raises LayerError for a path that leaves the root, is
    written twice, or is below a file.
    """

    def __init__(self, stream: BinaryIO, mtime: int, copies: Sequence[LayerCopy] = ()) -> None:
        """`copies`: get the same entries, but for those of `raw_tar`."""
        self._stream = stream
        self._copies = copies
        self._mtime = mtime
        self._digest = hashlib.sha256()
        self._diff_id = hashlib.sha256()
        self._size = 0
        self._unpacked = 0
        self._pending = bytearray()
        self._folders: dict[str, int] = {}
        self._files: set[str] = set()

    @property
    def size(self) -> int:
        """Compressed bytes so far; up to `GATHER` bytes of content wait to be compressed."""
        return self._size

    def folder(self, path: str, mode: int = 0o755) -> None:
        """A folder; to be named before anything in it. The same one again does nothing."""
        path = self._checked(path)
        if path in self._folders:
            if self._folders[path] != mode:
                raise LayerError(f"folder {path} is written with mode {self._folders[path]:o} and again {mode:o}")
            return
        self._claim(path)
        self._folders[path] = mode
        for copy in self._copies:
            copy.folder(path, mode)
        self._tar(header(path, EntryType.FOLDER, mode=mode, mtime=self._mtime))

    def symlink(self, path: str, target: str) -> None:
        """A symbolic link; `target` is written as it is."""
        path = self._checked(path)
        self._claim(path)
        self._files.add(path)
        for copy in self._copies:
            copy.symlink(path, target)
        self._tar(header(path, EntryType.SYMBOLIC_LINK, mode=0o777, mtime=self._mtime, link=target))

    def data(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """A file with this content."""
        self.stream(path, len(content), (content,), mode)

    def stream(self, path: str, size: int, chunks: Iterable[bytes], mode: int = 0o644) -> None:
        """A file of `size` bytes, compressed here. The bytes written do not depend on how `chunks` are cut."""
        seen = 0
        with self._file(path, size, mode) as copies:
            for chunk in chunks:
                seen += len(chunk)
                self._tar(chunk)
                for copy in copies:
                    copy(chunk)
        if seen != size:
            raise LayerError(f"{path}: {seen} bytes where {size} were announced")
        self._tar(padding(size))

    def deflated(
        self,
        path: str,
        size: int,
        crc32: int,
        raw_chunks: Iterable[bytes],
        mode: int = 0o644,
        on_chunk: Callable[[bytes], object] | None = None,
        label: str = "",
    ) -> None:
        """A file of `size` bytes given as a raw deflate stream, copied unchanged.

        `on_chunk` sees the inflated bytes, for a hash; `label` names the stream in errors (else `path` does).
        Raises LayerError unless the stream inflates to exactly `size` bytes with this CRC-32 and ends with its
        last chunk.
        """
        with self._file(path, size, mode) as copies:
            self._flush()
            self._write(_GZIP_HEADER)
            for chunk in inflate(label or path, size, crc32, self._copied(raw_chunks)):
                self._diff_id.update(chunk)
                for copy in copies:
                    copy(chunk)
                if on_chunk is not None:
                    on_chunk(chunk)
        self._write(_gzip_trailer(crc32, size))
        self._unpacked += size
        self._tar(padding(size))

    def raw_tar(self, chunks: Iterable[bytes]) -> None:
        """An existing tar's entries: whole blocks, without the end-of-archive blocks. Its paths are not checked."""
        before = self._unpacked
        for chunk in chunks:
            self._tar(chunk)
        if (self._unpacked - before) % BLOCK:
            raise LayerError("a tar stream does not end at a block border; it is cut off")

    def finish(self) -> Layer:
        """Write the end of the archive and return what was written. Does not close the stream."""
        self._tar(END_OF_ARCHIVE)
        self._flush()
        return Layer(
            digest=f"sha256:{self._digest.hexdigest()}",
            diff_id=f"sha256:{self._diff_id.hexdigest()}",
            size=self._size,
            unpacked_size=self._unpacked,
        )

    @contextlib.contextmanager
    def _file(self, path: str, size: int, mode: int) -> Iterator[Sequence[Callable[[bytes], object]]]:
        """Begin a file; give what its content goes to besides."""
        path = self._checked(path)
        self._claim(path)
        self._files.add(path)
        self._tar(header(path, EntryType.FILE, mode=mode, mtime=self._mtime, size=size))
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(copy.file(path, mode, size)) for copy in self._copies]

    def _checked(self, path: str) -> str:
        relative = path.removeprefix("/")
        if _NO_PATH.search(relative):
            raise LayerError(f"{path!r} is not a path inside an image")
        return relative

    def _claim(self, path: str) -> None:
        """Check that the path is free and write the folders above it."""
        if path in self._files or path in self._folders:
            raise LayerError(f"{path} is written twice in one layer")
        parent = path.rpartition("/")[0]
        if parent and parent not in self._folders:
            if parent in self._files:
                raise LayerError(f"{path} is below {parent}, which is a file")
            self.folder(parent, FOLDER_MODES.get(parent, 0o755))

    def _tar(self, content: bytes) -> None:
        """Uncompressed bytes of the tar. Blocks are cut at fixed places, for any sizes of `content`."""
        self._diff_id.update(content)
        self._unpacked += len(content)
        self._pending += content
        if len(self._pending) >= GATHER:
            whole = len(self._pending) // GATHER * GATHER
            with memoryview(self._pending) as view:
                for start in range(0, whole, GATHER):
                    self._compress(view[start : start + GATHER])
            del self._pending[:whole]

    def _flush(self) -> None:
        if self._pending:
            self._compress(self._pending)
            self._pending = bytearray()

    def _compress(self, content: bytearray | memoryview) -> None:
        self._write(_GZIP_HEADER)
        self._write(deflate.deflate_compress(content, LEVEL))
        self._write(_gzip_trailer(deflate.crc32(content), len(content)))

    def _copied(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._write(chunk)
            yield chunk

    def _write(self, content: bytes | bytearray) -> None:
        self._digest.update(content)
        self._size += len(content)
        self._stream.write(content)


def inflate(path: str, size: int, crc32: int, raw_chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of a raw deflate stream in pieces of bounded size.

    Raises LayerError, naming `path`, unless it has exactly this size and CRC-32 and ends with the last chunk.
    """
    decompressor = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE)
    seen, checksum = 0, 0
    for raw in raw_chunks:
        if decompressor.eof:
            raise LayerError(f"{path}: bytes follow the end of its compressed data")
        data = raw
        while True:
            try:
                content = decompressor.decompress(data, _INFLATE_AT_ONCE)
            except _InflateError as error:
                raise LayerError(f"{path}: its compressed data is damaged ({error})") from error
            seen += len(content)
            checksum = deflate.crc32(content, checksum)
            if seen > size:
                raise LayerError(f"{path}: holds more than the {size} bytes that its header says")
            if content:
                yield content
            if decompressor.needs_input or decompressor.eof:
                break
            data = b""
    if not decompressor.eof or decompressor.unused_data or seen != size:
        raise LayerError(f"{path}: its compressed data does not end where its header says ({seen} of {size} bytes)")
    if checksum != crc32:
        raise LayerError(f"{path}: its CRC-32 is {checksum:08x} and its header says {crc32:08x}")


def _gzip_trailer(crc32: int, size: int) -> bytes:
    # RFC 1952: the size field is the size modulo 2**32.
    return crc32.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little")
