"""A layer's files as a squashfs holds them: compressed blocks, made once and kept in the cache by the layer's digest.

A block of a squashfs depends on its file's bytes alone. So a layer is packed in one pass over its blob, for any
image, and a squashfs is put together from packed layers without compressing anything again.
"""

import contextlib
import functools
import hashlib
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from graphcrate.artifacts.formats.early import Early, recorded
from graphcrate.artifacts.formats.merged import IMPLIED, check_digest, inode_of
from graphcrate.compat.facts import facts
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.trees import remove_tree
from graphcrate.host.parallel import parallel
from graphcrate.host.workers import default_jobs
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, LayoutError
from graphcrate.oci.blob import open_blob
from graphcrate.oci.layout import REBUILD, Layout, check_presence
from layertar.entries import Entries, overlaid, read_entries
from layertar.stream import CHUNK, content_of
from ocilayout.spec import LayerBlob
from sifsquash.packer import Packed, Packer
from sifsquash.values import Compression, Inode, Stored

#: Raise it whenever the same layer would give other blocks. Part of `version`.
FORMAT = 6
#: Room that blocks take, over the layers' size: the fastest levels, and what is left uncompressed.
GROWTH = 1.25
_MOST_WAITING = 256  #: blocks in memory over all layers, waiting to be compressed or written


#: What is read while programs start. zstd has libraries compressed: inflating takes less time than the room is worth.
EARLY = {kind: Early(recorded, is_stored=kind is Compression.GZIP) for kind in Compression}


class _Index(msgspec.Struct, frozen=True, kw_only=True):
    """The index kept beside the blocks, together with the layer's `Entries`, which have numbers of inodes."""

    inodes: list[Inode]
    fragments: list[Stored]


def read_packed(
    layout: Layout, compression: Compression, cache: Cache, advance: Callable[[int], None]
) -> tuple[dict[str, Inode], tuple[Packed, ...]]:
    """The image's files and where their blocks are, packing on all cores what the cache lacks.

    `advance` counts bytes of layers. Raises LayoutError for a layer that is missing, cut off or altered (by its
    digest), or that no engine would take.
    """
    check_presence(layout)
    blobs = layout.layer_blobs
    jobs = default_jobs()
    depth = max(4, _MOST_WAITING // min(jobs, len(blobs) or 1))
    same: dict[str, list[int]] = {}  # an image may have a layer several times
    for number, layer in enumerate(layout.layers):
        same.setdefault(layer.digest, []).append(number)
    with ThreadPoolExecutor(jobs) as pool:

        def read(digest: str, advancing: Callable[[int], None]) -> list[tuple[Entries[Inode], Packed]]:
            numbers = same[digest]
            folder, size = _place(digest, compression, cache), layout.layers[numbers[0]].size
            if (loaded := _loaded(folder, numbers)) is None:
                with _alone(folder, cache):
                    if (loaded := _loaded(folder, numbers)) is None:
                        remove_tree(folder)
                        with cache.folder() as new:
                            _pack(blobs[numbers[0]], digest, new, compression, pool, depth, advancing)
                            cache.adopt(new, folder)
                        advancing(size * (len(numbers) - 1))
                        return [_load(folder, number) for number in numbers]
            advancing(size * len(numbers))
            return loaded

        read_layers = parallel(
            read, tuple(same), advance=advance, size=lambda digest: layout.layers[same[digest][0]].size, threads=jobs
        )
    numbered: dict[int, tuple[Entries[Inode], Packed]] = {}
    for numbers, places in zip(same.values(), read_layers, strict=True):
        numbered.update(zip(numbers, places, strict=True))
    layers = [numbered[number] for number in range(len(blobs))]
    merged = overlaid([entries for entries, _ in layers], IMPLIED, error=LayoutError)
    return merged, tuple(packed for _, packed in layers)


def _pack(
    blob: LayerBlob,
    digest: str,
    folder: Path,
    compression: Compression,
    pool: Executor,
    depth: int,
    advance: Callable[[int], None],
) -> None:
    """Write a layer's blocks and index into `folder`. Raises LayoutError where the bytes have another digest."""
    held: list[Inode] = []
    seen = hashlib.sha256()
    with (folder / "data").open("xb", buffering=CHUNK) as data:
        packer = Packer(data, compression, pool, depth, read=EARLY[compression])

        def keep(path: str, header: tarfile.TarInfo) -> Inode:
            inode = inode_of(path, header)
            if inode.is_file:
                stored = packer.add(inode.size, content_of(header, stream), path)
                inode = msgspec.structs.replace(inode, stored=stored)
            held.append(inode)
            return inode

        try:
            with open_blob(blob, advance=advance, digest=seen) as stream:
                entries = read_entries(stream, keep)
        except LayoutError as error:
            again = REBUILD if error.next_step == error.usual else error.next_step
            raise LayoutError(f"layer {digest}: {error.what}", cause=error.cause, next_step=again) from error
        check_digest("layer", digest, f"sha256:{seen.hexdigest()}")
        packer.finish()
    _write_index(folder, entries, held, packer.fragments)


class LayerBlocks:
    """Packs a layer while it is written (`ocilayout.layer.LayerWriter`), byte for byte as it is packed from its blob.

    Writes into the new `folder`; `mtime` everywhere, owner root. To be closed in any case.
    """

    def __init__(self, folder: Path, compression: Compression, mtime: int, jobs: int) -> None:
        folder.mkdir()
        self.compression, self._folder, self._mtime = compression, folder, mtime
        self._stack = contextlib.ExitStack()
        pool = self._stack.enter_context(ThreadPoolExecutor(jobs))
        data = self._stack.enter_context((folder / "data").open("xb", buffering=CHUNK))
        self._packer = Packer(data, compression, pool, max(4, _MOST_WAITING // jobs), read=EARLY[compression])
        self._entries, self._held = Entries[Inode](), list[Inode]()

    def folder(self, path: str, mode: int) -> None:
        """Note a folder."""
        self._entries.folders.add(path)
        self._keep(path, Inode(kind=tarfile.DIRTYPE, mode=mode, mtime=self._mtime))

    def symlink(self, path: str, target: str) -> None:
        """Note a symbolic link."""
        self._keep(path, Inode(kind=tarfile.SYMTYPE, mode=0o777, mtime=self._mtime, link=target))

    @contextlib.contextmanager
    def file(self, path: str, mode: int, size: int) -> Iterator[Callable[[bytes], object]]:
        """Begin a file; give what takes its content, piece by piece."""
        with self._packer.file(size, path) as (stored, write):
            yield write
        self._keep(path, Inode(kind=tarfile.REGTYPE, mode=mode, mtime=self._mtime, size=size, stored=stored))

    def finish(self) -> Path:
        """Write all that waits; give the folder, which is whole then."""
        self._packer.finish()
        self.close()
        _write_index(self._folder, self._entries, self._held, self._packer.fragments)
        return self._folder

    def close(self) -> None:
        """End its threads."""
        self._stack.close()

    def _keep(self, path: str, inode: Inode) -> None:
        self._entries.by_path[path] = inode
        self._held.append(inode)


def version() -> str:
    """Return what blocks depend on besides their layer and its compression."""
    return f"{FORMAT}-{_record()}"


@functools.cache
def _record() -> str:
    """Return a digest of the record of what is read, which has 100 kB."""
    return hashlib.sha256(facts.data("read_set.toml")).hexdigest()[:8]


def adopt(made: Path, digest: str, compression: Compression, cache: Cache) -> None:
    """Move a packed layer into the cache, where none is."""
    folder = _place(digest, compression, cache)
    with _alone(folder, cache):
        if _loaded(folder, [0]) is None:
            remove_tree(folder)
            cache.adopt(made, folder)


def _place(digest: str, compression: Compression, cache: Cache) -> Path:
    return cache.path("squashed", f"{digest.removeprefix('sha256:')}-{compression}{version()}")


def _alone(folder: Path, cache: Cache) -> AbstractContextManager[object]:
    """Keep other processes from a packed layer: or one removes what another has just packed."""
    return cache.exclusively(f"squashed-{folder.name}")


def _write_index(folder: Path, entries: Entries[Inode], held: Sequence[Inode], fragments: Sequence[Stored]) -> None:
    """Write a packed layer's index. `held`: the entries' inodes, each once, in order."""
    numbers = {id(inode): number for number, inode in enumerate(held)}
    index = _Index(inodes=list(held), fragments=list(fragments))
    kept = msgspec.to_builtins(entries.mapped(lambda inode: numbers[id(inode)])) | msgspec.to_builtins(index)
    # By the standard library: names that are not UTF-8 have surrogates, which it alone writes.
    (folder / "index.json").write_text(json.dumps(kept), "ascii")


def _loaded(folder: Path, numbers: Iterable[int]) -> list[tuple[Entries[Inode], Packed]] | None:
    """A packed layer, once for each of its places in the image; None where it is not there, or damaged."""
    with contextlib.suppress(OSError, ValueError, LookupError, *UNREADABLE):
        return [_load(folder, number) for number in numbers]
    return None


def _load(folder: Path, number: int) -> tuple[Entries[Inode], Packed]:
    kept = json.loads((folder / "index.json").read_text("ascii"))
    index = codec.convert(kept, _Index)
    for inode in index.inodes:
        if inode.stored is not None:
            inode.stored.layer = number
    entries = codec.convert(kept, Entries[int]).mapped(index.inodes.__getitem__)
    return entries, Packed(data=folder / "data", fragments=index.fragments)
