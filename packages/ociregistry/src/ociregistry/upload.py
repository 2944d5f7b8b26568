"""One blob to a registry: asked for, mounted from a sister repository, or sent in chunks that resume after a break.

Distribution specification 1.1, "Pushing blobs". The file is read piece by piece and hashed on the way: the last piece
of a blob with another digest is not sent, so that no registry ever has all of it.
"""

import contextlib
import hashlib
import io
import re
import threading
import urllib.parse
from collections.abc import Callable, Generator
from enum import StrEnum
from pathlib import Path

import msgspec

from ocilayout import spec
from ociregistry.errors import Fault, RefusedError, RegistryError
from ociregistry.repository import Repository
from patienthttp.client import Response
from patienthttp.errors import HttpError, NoAnswer

PIECE = 1 << 17  #: bytes read and sent at once
SMALLEST, LARGEST = 32 << 10, 32 << 20  #: bytes of one request
REFUSABLE = 256 << 10  #: bytes; a registry that refuses even so few takes no image
PARTS = 512  #: that an image is sent in once a request has failed: what fails is then a small part of it
LISTEN = 0.025  #: seconds before a body from then on: most refusals come at the headers
LOSSES = 2  #: of uploads of one blob, after which blobs go whole
UPLOADS = 4  #: of one blob that a registry forgets or refuses in the middle, before it is given up
_ACCEPTED = (200, 201, 202, 204)
_RANGE = re.compile(r"(?:bytes[= ])?0-(\d+)")


class UploadOutcome(StrEnum):
    """The way in which the registry got a blob."""

    EXISTS = "exists"
    MOUNTED = "mounted"
    SENT = "sent"


class UploadBlob(msgspec.Struct, frozen=True, kw_only=True):
    """A blob to be sent: a file, or a few bytes where `path` is None."""

    descriptor: spec.Descriptor
    path: Path | None = None
    data: bytes = b""

    @property
    def size(self) -> int:
        return self.descriptor.size


class RequestSize:
    """Bytes of a blob in one request of a push: ever more until one fails. Shared by its threads."""

    def __init__(self, total: int) -> None:
        """`total`: bytes of all blobs."""
        self._lock = threading.Lock()
        self._first = max(SMALLEST, total // PARTS)
        self._most = LARGEST  #: not refused by the registry so far
        self._arrived = 0  #: requests
        self.least = 0  #: what the registry asks for (OCI-Chunk-Min-Length)
        self.is_whole = False  #: the registry keeps no parts of a blob
        self.closes_empty = False  #: it takes no bytes with the request that closes an upload

    def next(self, rest: int, *, failed: bool) -> int:
        """Bytes of the next request, where so many are left; `failed`: whether a request of the push has."""
        size = self._first if failed else self._first << min(2 * self._arrived, 16)
        return rest if self.is_whole else min(rest, max(self.least, min(self._most, size)))

    def arrived(self) -> None:
        """Count a request that the registry took."""
        with self._lock:
            self._arrived += 1

    def refused(self, length: int) -> bool:
        """Halve a length that was too much, to a power of two as limits are; False where that is too little."""
        smaller = 1 << max(length - 1, 1).bit_length() - 1
        with self._lock:
            self._most = min(self._most, smaller)
        return smaller >= max(REFUSABLE, self.least)


def upload(
    repository: Repository, blob: UploadBlob, advance: Callable[[int], None], pace: RequestSize
) -> tuple[UploadOutcome, int]:
    """Bring the blob into the repository: how it came there, and its bytes that were sent, those of failed tries too.

    `advance` gets bytes, negative for those that were lost. Raises RegistryError, HttpError.
    """
    return _Upload(repository, blob, advance, pace).run()


def arrived_bytes(header: str | None) -> int | None:
    """Return the number of bytes that the registry has by a `Range`; None for anything but a range from 0.

    `0-0` stands for one byte, and for none too, since the header cannot say that: it is taken for none.
    """
    match = _RANGE.fullmatch((header or "").strip())
    if match is None:
        return None
    end = int(match[1])
    return end + 1 if end else 0


class _Upload:
    """One blob on its way: chunks, resumed where the registry says it is, begun again where it cannot say.

    Not for several threads.
    """

    def __init__(
        self, repository: Repository, blob: UploadBlob, advance: Callable[[int], None], pace: RequestSize
    ) -> None:
        self._repository = repository
        self._blob, self._advance, self._pace = blob, advance, pace
        self._url, self._offset = "", 0  #: of the upload in the registry; empty where none is begun
        self._interrupted = False  #: whether the registry may have more or less than `_offset`
        self._losses = 0  #: uploads that the registry forgot or refused
        self._hash, self._hashed = hashlib.sha256(), 0  #: of the bytes up to there, each as it was read first
        self._shown = self._sent = 0

    def run(self) -> tuple[UploadOutcome, int]:
        """Ask for it, mount it or send it. Raises RegistryError, HttpError."""
        outcome = UploadOutcome.SENT
        if self._repository.has(self._blob.descriptor):
            outcome = UploadOutcome.EXISTS
        elif self._mount():
            outcome = UploadOutcome.MOUNTED
        else:
            self._repository.retrying(self._attempt, lambda: self._offset)
        self._show(self._blob.size)
        return outcome, self._sent

    def _mount(self) -> bool:
        """Mount the blob from the first source that has it; where none has, an upload may be begun."""
        for source in self._repository.mount_from:
            query = urllib.parse.urlencode({"mount": self._blob.descriptor.digest, "from": source})
            try:
                response = self._post(f"?{query}")
            except RefusedError:  # no right to read there
                continue
            if response.status in (201, 202) and self._url:
                with contextlib.suppress(RefusedError, HttpError):  # the registry would forget that upload some day
                    self._repository.once("DELETE", self._url)
            if response.status == 201:
                self._repository.check_stored(response, self._blob.descriptor.digest, "the blob")
                return True
            if response.status == 202:
                self._begin(response)
        return False

    def _post(self, query: str = "") -> Response:
        address = self._repository.url("blobs", f"uploads/{query}")
        return self._repository.ask("POST", address, {"Content-Length": "0"})

    def _begin(self, response: Response) -> None:
        """Take the address of the upload that an answer begins. Raises RefusedError."""
        repository, url = self._repository, self._repository.resolved(response)
        if response.status != 202 or not url:
            raise repository.unexpected(response, f"an upload to {repository.name}")
        if repository.address.startswith("https:") and not url.startswith("https:"):
            raise repository.unencrypted(url)
        least = response.headers.get("OCI-Chunk-Min-Length") or ""
        if least.isdigit():
            self._pace.least = int(least)
        self._url, self._offset = url, 0

    def _attempt(self) -> None:
        """Send what the registry lacks and close the upload. Raises HttpError where another try may go on."""
        if self._interrupted and not self._resume():
            if self._repository.has(self._blob.descriptor):  # closed, and only the answer was lost
                return
            self._url = ""
        if not self._url:
            self._begin(self._post())
        self._interrupted = True
        while True:
            rest = self._blob.size - self._offset
            length = self._pace.next(rest, failed=self._repository.retry.failures > 0)
            if rest and (length < self._blob.size or self._pace.closes_empty):
                self._send_chunk(length)
            elif self._close(length):
                return

    def _resume(self) -> bool:
        """Ask the upload for its Range and go on there; false where it cannot go on."""
        if not self._url or self._pace.is_whole:
            return False
        answer = self._repository.ask("GET", self._url)
        received = arrived_bytes(answer.headers.get("Range")) if answer.status in _ACCEPTED else None
        if received is None or received > self._hashed:
            self._lose()
            return False
        self._url, self._offset = self._repository.resolved(answer) or self._url, received
        self._show(received)
        return True

    def _lose(self) -> None:
        """Note that the registry forgot an upload; one that forgets twice keeps nothing, and gets blobs whole."""
        self._url = ""
        self._losses += 1
        if self._losses >= LOSSES:
            self._pace.is_whole = True

    def _send_chunk(self, length: int) -> None:
        headers = {"Content-Range": f"{self._offset}-{self._offset + length - 1}"}  # both ends count, without a unit
        answer = self._send("PATCH", self._url, headers, length)
        if answer.status == 413:
            self._shrink(length)
            return
        if answer.status not in _ACCEPTED:
            raise self._refused(answer)
        stated = answer.headers.get("Range")
        received = self._offset + length if stated is None else arrived_bytes(stated)
        if received is None or not self._offset < received <= self._offset + length:
            raise self._refused(answer)
        self._pace.arrived()
        self._url, self._offset = self._repository.resolved(answer) or self._url, received
        self._show(received)

    def _close(self, length: int) -> bool:
        """Close the upload with its last `length` bytes, all or none; false where they were too many."""
        digest = self._blob.descriptor.digest
        if not length:
            self._check(self._hash.hexdigest())
        url = f"{self._url}{'&' if '?' in self._url else '?'}{urllib.parse.urlencode({'digest': digest})}"
        answer = self._send("PUT", url, {}, length)
        if answer.status in (200, 201, 204):
            self._repository.check_stored(answer, digest, "the blob")
            return True
        if answer.status != 413 or not length:
            raise self._refused(answer, closing=length > 0)
        self._shrink(length)
        return False

    def _refused(self, answer: Response, *, closing: bool = False) -> RegistryError | HttpError:
        """The error for an answer that does not accept what was sent: an HttpError where another try may help.

        `closing`: it was the request that closes the upload, with bytes.
        """
        if answer.status == 416:  # it has another part of the blob: `_resume` asks which
            return HttpError.of(NoAnswer.CUT, self._url, "the registry has another part of the blob")
        self._lose()
        codes = self._repository.codes(answer)
        if "DIGEST_INVALID" in codes:  # changed between two tries, if not on the way
            self._check_all()
        if closing and answer.status != 404:  # which says that the upload is gone
            self._pace.closes_empty = True
        elif "UNSUPPORTED" in codes:
            self._pace.is_whole = True
        hopeless = self._losses >= UPLOADS or (self._pace.is_whole and self._pace.closes_empty)
        if answer.status in (401, 403) or hopeless:
            return self._repository.unexpected(answer, f"the blob {self._blob.descriptor.digest}")
        return HttpError.of(NoAnswer.CUT, self._repository.url("blobs", "uploads/"), "the registry lost the upload")

    def _send(self, method: str, url: str, headers: dict[str, str], length: int) -> Response:
        self._show(self._offset)
        headers = {**headers, "Content-Type": "application/octet-stream", "Content-Length": str(length)}
        return self._repository.once(method, url, headers, (lambda: self._pieces(length)) if length else None)

    def _pieces(self, length: int) -> Generator[bytes, None, None]:
        """The bytes of a request, counted when they are gone.

        Raises BlobError before the blob's last piece where its bytes are not those of its digest.
        """
        at = self._offset
        if self._repository.retry.failures:
            self._repository.retry.sleep(LISTEN)
        for piece in self._read(at, length):
            end = at + len(piece)
            if end > self._hashed:
                self._hash.update(memoryview(piece)[self._hashed - at :])
                self._hashed = end
            if end == self._blob.size:
                self._check(self._hash.hexdigest())
            at = end
            self._sent += len(piece)
            self._show(at)
            yield piece

    def _shrink(self, length: int) -> None:
        """After HTTP 413."""
        if not self._pace.refused(length):
            raise self._repository.too_long(length)

    def _read(self, begin: int, length: int) -> Generator[bytes, None, None]:
        """These bytes of the blob, a piece at a time. Raises BlobError for a file that is shorter or unreadable."""
        blob, failed = self._blob, self._repository.failed
        try:
            with io.BytesIO(blob.data) if blob.path is None else blob.path.open("rb", buffering=0) as stream:
                stream.seek(begin)
                while length > 0:
                    piece = stream.read(min(PIECE, length))
                    if not piece:
                        raise failed(Fault.SHORT, subject=str(blob.path), stated=blob.size)
                    length -= len(piece)
                    yield piece
        except OSError as error:
            raise failed(Fault.UNREADABLE, subject=str(blob.path), detail=error.strerror) from error

    def _check_all(self) -> None:
        """Read all of the blob. Raises BlobError for other bytes than the digest says."""
        hashed = hashlib.sha256()
        for piece in self._read(0, self._blob.size):
            hashed.update(piece)
        self._check(hashed.hexdigest())

    def _check(self, sha256: str) -> None:
        """Raises BlobError where the hash of all bytes is not the digest."""
        digest = self._blob.descriptor.digest
        if (actual := f"sha256:{sha256}") != digest:
            raise self._repository.failed(Fault.CHANGED, digest=digest, other=actual)

    def _show(self, position: int) -> None:
        if position != self._shown:
            self._advance(position - self._shown)
            self._shown = position
