"""One layer from wheels: their files where an installer would put them, plus the bytecode of the image's Python."""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from graphcrate.artifacts.formats import packed
from graphcrate.artifacts.formats.packed import LayerBlocks
from graphcrate.artifacts.wheel_archive import WheelArchive
from graphcrate.compat.facts.slim import may_cut
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.host.parallel import Advance
from graphcrate.host.workers import default_jobs
from graphcrate.inputs.wheels.bytecode import is_compiled, read_bundle
from graphcrate.inputs.wheels.install import Installation, Placed
from graphcrate.inputs.wheels.slim import Cut, cut
from graphcrate.model.errors import BuildError, IntegrityError
from graphcrate.model.plan import LAYER_MTIME, Slim
from graphcrate.model.report import CutFile, LayerRecord, PackageBytes
from graphcrate.oci import layer_files
from graphcrate.oci.image import recorded, writing_errors
from graphcrate.oci.layer_files import LayerFiles
from layertar.entries import parents
from ocilayout.layer import LayerCopy, LayerWriter
from sifsquash.values import Compression
from wheelread.archive import CHUNK, new_hash
from wheelread.import_names import ImportNames

#: Deflated members of at least this many packed bytes are copied; smaller ones are packed again with their neighbours.
#: Measured in `docs/decisions/layer-splice.md`.
SPLICE_FROM = 1 << 16

_SITE = "/site-packages/"
_NEXT_STEP = "leave one of them out of the recipe, or pin versions that go together"


@dataclass(frozen=True, kw_only=True)
class WheelFile:
    """A wheel in the cache, and the bundles of its bytecode. `origin`: the hash that tells it from all others."""

    name: str
    version: str
    origin: str
    path: Path
    sha256: str = ""  #: what the lock says; empty for a wheel that was built here
    bytecode: tuple[Path, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.name} {self.version}"


class Claims:
    """Owners of paths, over any number of wheels."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[str, str]] = {}
        self._folders: frozenset[str] = frozenset()
        self._counted = 0  #: paths whose folders those are
        self._names = ImportNames()

    def claim(self, owner: str, path: str, identity: str) -> bool:
        """Note `owner`'s path and content; False where another has the same. Raises BuildError for another content."""
        other, claimed = self._owners.setdefault(path, (owner, identity))
        if inside := path.partition(_SITE)[2]:
            self._names.add(owner, inside)
        if claimed != identity:
            raise BuildError(
                f"{other} and {owner} both own {path}, with different content",
                cause="One would silently overwrite the other.",
                next_step=_NEXT_STEP,
            )
        return other == owner

    def owner(self, path: str) -> str:
        """Return the owner of a file; empty if there is none."""
        return self._owners.get(path, ("", ""))[0]

    def is_folder(self, path: str) -> bool:
        """Return whether any owner has a file below this path."""
        if self._counted != len(self._owners):
            self._folders = frozenset(folder for claimed in self._owners for folder in parents(claimed))
            self._counted = len(self._owners)
        return path in self._folders

    def check_names(self) -> None:
        """Raises BuildError where Python would import a package's file in place of another's of another path."""
        for shadow in self._names.shadows():
            raise BuildError(
                shadow.sentence,
                cause=f"Python takes {shadow.path}, and that of {shadow.other} would never be imported.",
                next_step=_NEXT_STEP,
            )

    def check_folders(self) -> None:
        """Raises BuildError when one package has a file where another has a folder."""
        folders: dict[str, str] = {}  #: folder → a path in it
        for path in self._owners:
            parent = path.rpartition("/")[0]
            while parent and parent not in folders:
                folders[parent] = path
                parent = parent.rpartition("/")[0]
        for clash in folders.keys() & self._owners.keys():
            path = folders[clash]
            raise BuildError(
                f"{self._owners[clash][0]} has the file {clash}, and {self._owners[path][0]} has {path} below it",
                cause="One path cannot be a file and a folder.",
                next_step=_NEXT_STEP,
            )


@writing_errors()
def write_wheels_layer(
    title: str,
    wheels: Sequence[tuple[WheelFile, Installation]],
    python: str,
    cache: Cache,
    advance: Advance = lambda _: None,
    slim: Slim | None = None,
    copies: Sequence[LayerCopy] = (),
    *,
    unpack: bool = False,
    pack: Compression | None = None,
) -> LayerRecord:
    """Write the layer of these wheels, equal files once. `advance` gets the wheels' bytes; `slim`: cut libraries;
    `copies` get its entries; `unpack`: this run's `oci.layer_files` has the layer's files then; `pack`: the cache has
    its blocks for a squashfs.

    Raises IntegrityError for a wheel that is not what lock or RECORD say, BuildError for two contents of one path.
    """
    claims = Claims()
    owners: list[PackageBytes] = []
    about: list[CutFile] = []
    bytecode = 0
    with cache.folder() as folder, contextlib.ExitStack() as stack:
        blob = folder / "layer"
        unpacked = LayerFiles(folder / "files", LAYER_MTIME) if unpack else None
        blocks = LayerBlocks(folder / "blocks", pack, LAYER_MTIME, default_jobs()) if pack else None
        if blocks:
            stack.callback(blocks.close)
        with blob.open("wb", buffering=CHUNK) as stream:
            writer = LayerWriter(stream, LAYER_MTIME, [*copies, *(copy for copy in (unpacked, blocks) if copy)])
            for wheel, installation in wheels:
                if wheel.sha256:
                    _check(wheel.path, wheel.sha256)
                with cache.folder() as libraries:
                    ours = _cut(wheel, installation, slim, libraries) if slim else {}
                    written, compiled, cut_files = _write_wheel(
                        writer, wheel, installation, python, claims, advance, ours
                    )
                owners.append(PackageBytes(name=wheel.name, version=wheel.version, bytes=written))
                about += cut_files
                bytecode += compiled
            if bytecode:
                owners.append(PackageBytes(name="bytecode", version=python, bytes=bytecode))
            record = msgspec.structs.replace(recorded(writer.finish(), title, owners), cut=tuple(about))
        cache.adopt(blob, cache.blob(record.digest))
        if unpacked:
            unpacked.finish()
            cache.adopt(unpacked.root, layer_files.place(cache, record.digest))
        if blocks:
            packed.adopt(blocks.finish(), record.digest, blocks.compression, cache)
    return record


def _check(path: Path, sha256: str) -> None:
    if (digest := sha256_of(path)) != sha256:
        if ours := path.parent.name == sha256:  # in the cache; a wheel of the user's own folder stays
            path.unlink(missing_ok=True)
        raise IntegrityError(
            f"{path.name} has sha256 {digest} and the lock says {sha256}",
            cause=f"The file was changed or damaged{' in the cache, and has been removed' if ours else ''}.",
            next_step="the same command again fetches it again" if ours else f"replace {path}, or lock again",
        )


def _cut(wheel: WheelFile, installation: Installation, slim: Slim, folder: Path) -> dict[str, Cut]:
    """The wheel's libraries with unused GPU code, cut, by path."""
    made: dict[str, Cut] = {}
    with WheelArchive(wheel.path) as archive:
        for placed in installation.files:
            is_cut = may_cut(wheel.name, placed.path, placed.size, slim)
            if is_cut and (library := cut(wheel.name, archive, placed, slim, folder)):
                made[placed.path] = library
    return made


def _write_wheel(
    writer: LayerWriter,
    source: WheelFile,
    installation: Installation,
    python: str,
    claims: Claims,
    advance: Advance,
    cut: Mapping[str, Cut],
) -> tuple[int, int, list[CutFile]]:
    """Bytes that were written of the wheel's own files, and of bytecode; and what was cut."""
    about: list[CutFile] = []
    sources = [placed.path for placed in installation.files if is_compiled(placed.path, python)]
    bundles = (read_bundle(bundle, sources, python) for bundle in source.bytecode)
    compiled = {path: content for bundle in bundles for path, content in bundle.items()}
    with WheelArchive(source.path) as archive:
        record_path = installation.record_path
        changed = {path: library.identity for path, library in cut.items()}
        record = installation.record(compiled, python, changed)
        files = {placed.path: placed for placed in installation.files}
        files[record_path] = Placed(record_path, 0o644, None, record, hashlib.sha256(record).hexdigest())
        written = bytecode = advanced = 0
        # Sorted, so that sources of one folder, and its bytecode, are neighbours in what is compressed together.
        for path in sorted(files.keys() | compiled.keys()):
            if (content := compiled.get(path)) is not None:
                if claims.claim(source.label, path, hashlib.sha256(content).hexdigest()):
                    writer.data(path, content)
                    bytecode += len(content)
                continue
            placed = files[path]
            if not claims.claim(source.label, path, changed.get(path, placed.identity)):
                continue
            written += placed.size
            if (member := placed.member) is None:
                writer.data(path, placed.content, placed.mode)
                continue
            if path in cut:
                begin = writer.size
                writer.stream(path, member.size, cut[path].chunks(), placed.mode)
                about.append(msgspec.structs.replace(cut[path].about, packed=writer.size - begin))
            elif member.deflated and member.packed >= SPLICE_FROM:
                digest = new_hash(placed.identity)
                chunks, label = archive.packed_chunks(member), f"{archive.path.name}: {member.name}"
                writer.deflated(path, member.size, member.crc32, chunks, placed.mode, digest.update, label)
                archive.check(member, placed.identity, digest)
            else:
                writer.stream(path, member.size, archive.chunks(member, placed.identity), placed.mode)
            advance(member.packed)
            advanced += member.packed
        advance(source.path.stat().st_size - advanced)
    return written, bytecode, about
