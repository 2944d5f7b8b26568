"""One blob to a registry: asked for, taken over from a sister repository, or sent in chunks that go on after a break.

Distribution specification 1.1, "Pushing blobs". The file is read piece by piece and hashed on the way; the upload is
closed only when the hash is the digest.
"""

import hashlib
import threading
import urllib.parse
from collections.abc import Callable, Generator, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from graphcrate.errors import IntegrityError, LayoutError, NetworkError
from graphcrate.host.connections import HttpError, Reason, host_of
from graphcrate.host.http import Response
from graphcrate.oci import chunks, spec
from graphcrate.oci.chunks import ChunkSize
from graphcrate.oci.registry import Repository

PIECE = 1 << 17  #: bytes read and sent at once
UPLOADS = 6  #: of one blob that a registry forgets or refuses in the middle, before it is given up
BLIND = 3  #: tries in a row to go on with an upload of which a registry does not say how far it is
_STREAM = "application/octet-stream"
_NO_CHUNKS = (405, 501)
_TAKEN = (200, 201, 202, 204)


class Outcome(StrEnum):
    """How the registry came to have a blob."""

    THERE = "there"
    MOUNTED = "mounted"
    SENT = "sent"


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be sent: a file, or a few bytes where `path` is None."""

    descriptor: spec.Descriptor
    path: Path | None = None
    data: bytes = b""

    @property
    def size(self) -> int:
        return self.descriptor.size

    def pieces(self, begin: int, length: int) -> Generator[bytes, None, None]:
        """These bytes, a piece at a time. Raises LayoutError for a file that is shorter or cannot be read."""
        if self.path is None:
            yield from (self.data[at : min(at + PIECE, begin + length)] for at in range(begin, begin + length, PIECE))
            return
        try:
            with self.path.open("rb", buffering=0) as stream:
                stream.seek(begin)
                while length > 0:
                    piece = stream.read(min(PIECE, length))
                    if not piece:
                        raise LayoutError(f"{self.path} is shorter than its descriptor says ({self.size} bytes)")
                    length -= len(piece)
                    yield piece
        except OSError as error:
            raise LayoutError(f"{self.path} cannot be read: {error.strerror}") from error


class Pace:
    """What the uploads to one registry have learned of its chunks, in common. Safe from many threads."""

    def __init__(self, size: ChunkSize | None = None) -> None:
        self._size, self._lock = size or ChunkSize(), threading.Lock()

    @property
    def size(self) -> ChunkSize:
        return self._size

    def learn(self, change: Callable[[ChunkSize], ChunkSize | None]) -> bool:
        """Replace the size by what `change` makes of it; false where that is nothing."""
        with self._lock:
            changed = change(self._size)
            self._size = changed or self._size
        return changed is not None


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an upload. `sent`: bytes of the blob that went to the connection, those of failed tries too."""

    outcome: Outcome
    sent: int = 0


def upload(
    repository: Repository, blob: Blob, advance: Callable[[int], None], pace: Pace, *, mount_from: Sequence[str] = ()
) -> Arrived:
    """See to it that the repository has this blob. `advance` gets bytes, negative for those that were lost.

    `mount_from` are repositories of the same registry that may have it. Raises NetworkError, IntegrityError,
    LayoutError.
    """
    if repository.has(blob.descriptor):
        advance(blob.size)
        return Arrived(outcome=Outcome.THERE)
    place = _mount(repository, blob.descriptor, mount_from, pace)
    if place is None:
        advance(blob.size)
        return Arrived(outcome=Outcome.MOUNTED)
    sending = _Sending(repository, blob, advance, pace)
    sending.run(place)
    return Arrived(outcome=Outcome.SENT, sent=sending.sent)


class _Place(msgspec.Struct):
    """An upload that was begun: its address and how far it is."""

    url: str
    offset: int = 0
    breaks: int = 0
    blind: int = 0  #: how often in a row the registry did not say how far it is


class _LostError(Exception):
    """The registry forgot the upload, or it cannot be continued."""

    def __init__(self, answer: Response | None = None, *, counts: bool = True) -> None:
        """`answer`: why, where the registry said it. `counts`: not when the budget of pauses does."""
        super().__init__("the upload is lost")
        self.answer, self.counts = answer, counts


def _mount(repository: Repository, descriptor: spec.Descriptor, sources: Sequence[str], pace: Pace) -> _Place | None:
    """Take the blob over from the first source that has it: None. Else an upload that was begun, maybe without one."""
    begun = _Place(url="")
    for source in sources:
        query = urllib.parse.urlencode({"mount": descriptor.digest, "from": source})
        try:
            response = _begin(repository, f"?{query}")
        except HttpError:
            raise
        except NetworkError:  # no right to read there
            continue
        if response.status == 201:
            _check_digest(repository, response, descriptor.digest)
            if begun.url:
                _cancel(repository, begun.url)
            return None
        if response.status == 202:
            if begun.url:
                _cancel(repository, begun.url)
            begun = _opened(repository, response, pace)
    return begun


def _begin(repository: Repository, query: str = "") -> Response:
    session = repository.session
    try:
        return session.ask("POST", repository.url("blobs", f"uploads/{query}"), {"Content-Length": "0"})
    except HttpError as error:
        raise session.explained(error) from error


def _opened(repository: Repository, response: Response, pace: Pace) -> _Place:
    """The upload that an answer begins. Raises NetworkError."""
    session, url = repository.session, repository.session.resolved(response)
    if response.status != 202 or not url:
        raise session.unexpected(response, f"an upload to {repository.name}")
    if session.address.startswith("https:") and not url.startswith("https:"):
        raise NetworkError(
            f"{session.host} wants the image sent to {host_of(url)} without encryption",
            next_step="ask the registry's administrator: the Location of an upload must be an https address",
        )
    least = response.headers.get("OCI-Chunk-Min-Length") or ""
    if least.isdigit():
        pace.learn(lambda size: size.demanded(int(least)))
    return _Place(url=url)


def _cancel(repository: Repository, url: str) -> None:
    """Let the registry forget an upload at once instead of some day; whether it does makes no difference."""
    try:
        repository.session.once("DELETE", url)
    except NetworkError:
        return


def _whole(size: ChunkSize) -> ChunkSize:
    return msgspec.structs.replace(size, whole=True)


def _check_digest(repository: Repository, response: Response, digest: str) -> None:
    found = response.headers.get("Docker-Content-Digest") or digest
    if found != digest:
        raise IntegrityError(
            f"{repository.session.host} has taken {digest} for {found}",
            cause="The registry is damaged, or a proxy on the way changed the upload.",
            next_step="run the same command again",
        )


class _Sending:
    """One blob on its way. Not for several threads."""

    def __init__(self, repository: Repository, blob: Blob, advance: Callable[[int], None], pace: Pace) -> None:
        self._repository, self._session = repository, repository.session
        self._blob, self._advance, self._pace = blob, advance, pace
        self._hash, self._hashed = hashlib.sha256(), 0  # of the bytes up to there
        self._shown = 0
        self._failures = 0  # in a row, whatever upload they were in
        self.sent = 0

    def run(self, place: _Place) -> None:
        """Send it, in a new upload where one is lost."""
        losses = 0
        while True:
            if not place.url:
                place = _opened(self._repository, _begin(self._repository), self._pace)
            try:
                self._fill(place)
            except _LostError as lost:
                losses += lost.counts
                if not self._repository.has(self._blob.descriptor):  # else closed, and only the answer was lost
                    self._lost(place, lost, losses)
                    place = _Place(url="")
                    continue
            except IntegrityError:
                _cancel(self._repository, place.url)
                raise
            self._show(self._blob.size)
            return

    def _lost(self, place: _Place, lost: _LostError, losses: int) -> None:
        """Learn from it. Raises NetworkError when there is no sense in another upload."""
        if lost.counts and place.breaks and losses > 1:
            # This registry keeps nothing of an upload that broke, so there is nothing to be had from chunks.
            self._pace.learn(_whole)
        if losses >= UPLOADS:
            name = f"the blob {self._blob.descriptor.digest}"
            if lost.answer is not None:
                raise self._session.unexpected(lost.answer, name)
            raise NetworkError(
                f"{self._session.host} lost {name} {losses} times", next_step="run the same command again"
            )

    def _fill(self, place: _Place) -> None:
        """Send what is missing and close the upload. Raises _LostError where that does not work out."""
        while True:
            before = place.offset
            length = self._pace.size.of(self._blob.size - place.offset)
            closing = place.offset + length == self._blob.size and (place.offset == 0 or length == 0)
            try:
                if closing and self._close(place, length):
                    return
                if not closing:
                    self._chunk(place, length)
                self._failures = 0 if place.offset > before else self._failures
            except HttpError as error:
                self._pace.learn(ChunkSize.broken)
                self._recover(place, error, closing)
                self._failures = 1 if place.offset > before else self._failures + 1

    def _recover(self, place: _Place, error: HttpError, closing: bool) -> None:
        """Wait, then find out where the registry is."""
        place.breaks += 1
        try:
            self._session.patience.wait(error, self._failures)
        except HttpError as last:
            raise self._session.explained(last) from error
        if closing and place.offset == 0 and self._blob.size:
            self._failures += 1
            raise _LostError(counts=False)
        self._look(place)

    def _look(self, place: _Place) -> None:
        """Ask the upload for its Range."""
        try:
            answer = self._session.ask("GET", place.url)
        except HttpError as error:
            raise self._session.explained(error) from error
        if answer.status not in _TAKEN:
            # Not all registries can tell, and those that have lost it say so at the next chunk as well.
            place.blind += 1
            if place.blind > BLIND:
                raise _LostError(answer)
            self._show(place.offset)
            return
        place.blind = 0
        there = chunks.arrived_bytes(answer.headers.get("Range"))
        if there is None or there > self._hashed:
            raise _LostError()
        place.url, place.offset = self._session.resolved(answer) or place.url, there
        self._show(there)

    def _chunk(self, place: _Place, length: int) -> None:
        headers = {"Content-Range": chunks.content_range(place.offset, length)}
        answer = self._send("PATCH", place.url, headers, place.offset, length)
        if answer.status in _TAKEN:
            said = answer.headers.get("Range")
            there = place.offset + length if said is None else chunks.arrived_bytes(said)
            if there is None or not place.offset < there <= place.offset + length:
                raise _LostError()
            place.url, place.offset, place.blind = self._session.resolved(answer) or place.url, there, 0
            self._pace.learn(ChunkSize.arrived)
            self._show(there)
        elif answer.status == 413:
            self._too_large(length)
        elif answer.status == 416 and not place.blind:
            raise self._stuck(place.url, "the registry has another part of the blob")
        elif answer.status in (401, 403):
            raise self._session.unexpected(answer, f"the blob {self._blob.descriptor.digest}")
        else:
            # Who refuses the second chunk though nothing went wrong takes no chunks.
            if answer.status in _NO_CHUNKS or (place.offset > 0 and not place.breaks):
                self._pace.learn(_whole)
            raise _LostError(answer)

    def _close(self, place: _Place, length: int) -> bool:
        """Close the upload with its last `length` bytes, all or none; false where they were too many."""
        digest = self._blob.descriptor.digest
        if not length:
            self._check_hash()
        url = f"{place.url}{'&' if '?' in place.url else '?'}{urllib.parse.urlencode({'digest': digest})}"
        answer = self._send("PUT", url, {}, place.offset, length)
        if answer.status in (200, 201, 204):
            _check_digest(self._repository, answer, digest)
            return True
        if answer.status == 413 and length:
            self._too_large(length)
            return False
        if answer.status in (401, 403):
            raise self._session.unexpected(answer, f"the blob {digest}")
        if answer.status == 416 and not place.blind:
            raise self._stuck(place.url, "the registry has not all of the blob")
        raise _LostError(answer)

    def _send(self, method: str, url: str, headers: dict[str, str], begin: int, length: int) -> Response:
        self._show(begin)
        sent = {**headers, "Content-Type": _STREAM, "Content-Length": str(length)}
        return self._session.once(method, url, sent, (lambda: self._pieces(begin, length)) if length else None)

    def _pieces(self, begin: int, length: int) -> Generator[bytes, None, None]:
        """The bytes of a request, hashed when they are read for the first time, counted when they are gone."""
        at, end = begin, begin + length
        for piece in self._blob.pieces(begin, length):
            if at + len(piece) > self._hashed:
                self._hash.update(memoryview(piece)[self._hashed - at :])
                self._hashed = at + len(piece)
            if at + len(piece) == end == self._blob.size:
                self._check_hash()
            self.sent += len(piece)
            at += len(piece)
            self._show(at)
            yield piece

    def _check_hash(self) -> None:
        """Before the last byte goes out. Raises LayoutError for other bytes than the digest says."""
        found = f"sha256:{self._hash.hexdigest()}"
        if self._hashed == self._blob.size and found != self._blob.descriptor.digest:
            raise LayoutError(
                f"the blob {self._blob.descriptor.digest} has other bytes: {found}",
                cause="The file was changed after it was written, or its disk is faulty.",
                next_step="build the image again; unchanged parts come from the cache",
            )

    def _too_large(self, length: int) -> None:
        if not self._pace.learn(lambda size: size.refused(length)):
            raise NetworkError(
                f"{self._session.host} does not take {length} bytes at once (HTTP 413)",
                cause="A proxy before the registry limits requests (nginx: client_max_body_size).",
                next_step="ask the registry's administrator to raise that limit",
            )

    def _stuck(self, url: str, what: str) -> HttpError:
        return HttpError.of(Reason.CUT, url, what)

    def _show(self, position: int) -> None:
        if position != self._shown:
            self._advance(position - self._shown)
            self._shown = position
