"""Places of a shared cache: a repository of a registry, a folder, a web server: entries by tag, files by hash.

A place is asked and never trusted: what it gives counts by its signature, and a file by its hash.
"""

import contextlib
import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from graphcrate.attest.signing import ENVELOPE
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file, writing
from graphcrate.host.net import Client
from graphcrate.inputs.shared import entry
from graphcrate.inputs.shared.entry import CacheEntry, SharedFile
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, IntegrityError, NetworkError, ResolutionError, UsageError
from graphcrate.oci import access, credentials, push, reference
from graphcrate.oci.registry import Repository
from graphcrate.oci.upload import UploadBlob
from ocilayout import spec
from ocilayout.image import descriptor_of
from patienthttp.errors import ABSENT, redacted

_FILE = "application/octet-stream"
_PIECE = 1 << 20
_WRITING = 86400.0  #: seconds that writing an entry takes at most, and clocks differ
_LONGEST_PAUSE = 0.25  #: seconds between two tries: compiling is the other way


class CachePlace(ABC):
    """One of the places with entries. Methods raise NetworkError, IntegrityError and OSError where the place fails."""

    name: str  #: as the user wrote it, without a password
    is_writable = True

    @abstractmethod
    def read(self, tag: str) -> bytes | None:
        """Return the envelope of an entry; None where there is none."""

    @abstractmethod
    def fetch(self, known: SharedFile, target: Path, advance: Callable[[int], None]) -> None:
        """Write a file of an entry to `target`. Its hash is for the caller to check."""

    @abstractmethod
    def write(self, made: CacheEntry, envelope: bytes, sources: Sequence[Path]) -> None:
        """Put an entry's files there, then the entry: who reads meanwhile finds all or none.

        `sources`: where the files are here, in their order.
        """

    @abstractmethod
    def tags(self) -> list[str]:
        """List the names of its entries."""

    @abstractmethod
    def remove(self, tag: str) -> None:
        """Remove an entry, where it is there. Its files may stay."""


@dataclass(frozen=True)
class CacheFolder(CachePlace):
    """A folder that several users have: `entries/<tag>.json` and `blobs/sha256/<hex>`."""

    name: str
    path: Path

    def read(self, tag: str) -> bytes | None:
        """Read it, if it is a plain file of that name."""
        try:
            return self._open(self._entry(tag), entry.MOST_BYTES)
        except FileNotFoundError:
            return None

    def fetch(self, known: SharedFile, target: Path, advance: Callable[[int], None]) -> None:
        """Copy it; no more than it should have."""
        with self._opened(self._blob(known)) as source, target.open("wb") as stream:
            left = known.size + 1
            while left > 0 and (piece := source.read(min(_PIECE, left))):
                stream.write(piece)
                left -= len(piece)
                advance(len(piece))

    def write(self, made: CacheEntry, envelope: bytes, sources: Sequence[Path]) -> None:
        """Write all under temporary names, and rename them; what another entry has brought is there already."""
        for file, path in zip(made.files, sources, strict=True):
            if file.is_at(self._blob(file)):
                with contextlib.suppress(OSError):  # another user's
                    os.utime(self._blob(file))  # `unnamed` leaves it
                continue
            with path.open("rb") as source, writing(self._blob(file), mode=0o644) as part, part.open("wb") as stream:
                while piece := source.read(_PIECE):
                    stream.write(piece)
        write_file(self._entry(made.tag), envelope)

    def tags(self) -> list[str]:
        """List them; files with other names are left out."""
        folder = self.path / "entries"
        names = [path.stem for path in folder.glob("*.json")] if folder.is_dir() else []
        return sorted(name for name in names if entry.TAG.fullmatch(name))

    def remove(self, tag: str) -> None:
        """Unlink it; who has it open reads on."""
        self._entry(tag).unlink(missing_ok=True)

    def unnamed(self, named: Collection[str]) -> list[Path]:
        """List files whose hash is none of these, and halves of entries, but for what is being written."""
        old = settings.now() - _WRITING
        halves = [path for path in (self.path / "entries").glob("*") if path.suffix != ".json"]
        paths = sorted([*(self.path / "blobs" / "sha256").glob("*"), *halves])
        states = {path: path.lstat() for path in paths if path.name not in named}
        return [path for path, state in states.items() if state.st_mtime < old]

    def _entry(self, tag: str) -> Path:
        return self.path / "entries" / f"{tag}.json"

    def _blob(self, file: SharedFile) -> Path:
        return self.path / "blobs" / "sha256" / file.sha256

    def _open(self, path: Path, most: int) -> bytes:
        with self._opened(path) as stream:
            return stream.read(most)

    @staticmethod
    def _opened(path: Path) -> IO[bytes]:
        """Open a plain file. Others write to the folder: a link would lead out of it, and a pipe never ends."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        else:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return os.fdopen(descriptor, "rb")
            os.close(descriptor)
        raise IntegrityError(f"{path} is not a file", cause="A shared cache has files alone.")


@dataclass(frozen=True)
class WebServer(CachePlace):
    """A folder as a web server shows it. Nothing is written there."""

    name: str
    address: str
    client: Client
    is_writable = False

    def read(self, tag: str) -> bytes | None:
        """Ask once: a cache that is slow to answer is none."""
        url = f"{self.address}/entries/{tag}.json"
        answer = self.client.request("GET", url, accept=(200, *ABSENT), tries=1, limit=entry.MOST_BYTES)
        return answer.body if answer.status == 200 else None

    def fetch(self, known: SharedFile, target: Path, advance: Callable[[int], None]) -> None:
        """Download it."""
        url = f"{self.address}/blobs/sha256/{known.sha256}"
        self.client.download(url, target, size=known.size, sha256=known.sha256, advance=advance, tries=1)

    def write(self, made: CacheEntry, envelope: bytes, sources: Sequence[Path]) -> None:
        """Raise NetworkError: it is read-only."""
        raise self._refusal

    def tags(self) -> list[str]:
        """Raise NetworkError: it answers for names alone."""
        raise self._refusal

    def remove(self, tag: str) -> None:
        """Raise NetworkError: it is read-only."""
        raise self._refusal

    @property
    def _refusal(self) -> NetworkError:
        return NetworkError(
            f"{self.name} is a web server, of which entries are read by their names alone",
            next_step="name the folder that it shows, or a registry",
        )


@dataclass(frozen=True)
class RegistryCache(CachePlace):
    """A repository of a registry: an artifact for each entry, with the envelope and the files as its blobs."""

    name: str
    reading: Repository
    writing: Repository

    def read(self, tag: str) -> bytes | None:
        """Read the artifact's first blob."""
        try:
            document = self.reading.manifest(tag)
        except ResolutionError:
            return None
        try:
            layers = codec.decode(document.data, spec.Manifest).layers
        except UNREADABLE as error:
            raise IntegrityError(f"{self.name}:{tag} is not an entry of a cache") from error
        if not layers or layers[0].media_type != ENVELOPE or layers[0].size > entry.MOST_BYTES:
            raise IntegrityError(f"{self.name}:{tag} is not an entry of a cache")
        return self.reading.config(layers[0])

    def fetch(self, known: SharedFile, target: Path, advance: Callable[[int], None]) -> None:
        """Pull the blob that the statement names, the manifest is not asked which."""
        self.reading.blob(_descriptor(known), target, advance)

    def write(self, made: CacheEntry, envelope: bytes, sources: Sequence[Path]) -> None:
        """Push the blobs, then the manifest under its tag: it names all of them, so that none is collected."""
        statement = descriptor_of(ENVELOPE, envelope)
        config = descriptor_of(spec.EMPTY, spec.EMPTY_BLOB)
        files = [_descriptor(file) for file in made.files]
        manifest = spec.Manifest(schema_version=2, media_type=spec.MANIFEST, config=config, layers=(statement, *files))
        blobs = [UploadBlob(descriptor=blob, path=path) for blob, path in zip(files, sources, strict=True)]
        blobs += [UploadBlob(descriptor=statement, data=envelope), UploadBlob(descriptor=config, data=spec.EMPTY_BLOB)]
        push.push_blobs(self.writing, blobs, lambda _: None)
        push.put_manifest(self.writing, made.tag, msgspec.json.encode(manifest), spec.MANIFEST)

    def tags(self) -> list[str]:
        """List its tags; those of images are left out."""
        return sorted(tag for tag in self.reading.tags() if entry.TAG.fullmatch(tag))

    def remove(self, tag: str) -> None:
        """Remove the manifest; the registry collects the blobs that none has."""
        self.writing.remove(tag)


def _descriptor(file: SharedFile) -> spec.Descriptor:
    title = {"org.opencontainers.image.title": file.name}
    return spec.Descriptor(media_type=_FILE, digest=f"sha256:{file.sha256}", size=file.size, annotations=title)


def _pause(seconds: float) -> None:
    settings.wait(min(seconds, _LONGEST_PAUSE))


def parse(text: str, ctx: Context) -> CachePlace:
    """Return the place that a user names. Raises UsageError for what is none."""
    if text.startswith(("https://", "http://")):
        address = text.rstrip("/")
        return WebServer(redacted(address), address, Client(ctx.environment, note=ctx.progress.note, sleep=_pause))
    if named := reference.on_registry(text):
        repository = reference.parse(named)
        return RegistryCache(
            repository.name,
            access.repository(repository, ctx, pause=_pause),
            access.repository(repository, ctx, find=credentials.for_destination, writes=True, pause=_pause),
        )
    path = Path(text).expanduser()
    if "/" not in text or not path.parent.is_dir():
        raise UsageError(
            f"{text!r} is not a place of a shared cache",
            cause="It is neither a repository of a registry, nor a folder that is there, nor an address.",
            next_step="one of registry.example/team/cache, /shared/cache, https://site.example/cache",
        )
    return CacheFolder(text, path.absolute())
