"""A repository of a registry over HTTP: manifests and blobs, each checked against its digest (distribution spec 1.1).

`session` logs in; `upload` and `push` write.
"""

import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ocilayout import spec
from ocilayout.image import digest_of
from ociregistry.errors import UNREADABLE, AbsentError, Fault
from ociregistry.session import LARGEST_ANSWER, Session
from patienthttp.errors import HttpError

if TYPE_CHECKING:
    from patienthttp.client import Response

ACCEPT = ", ".join((*spec.INDEX_TYPES, *spec.MANIFEST_TYPES))
PAGES = 64  #: of a list; a registry that answers with more is broken
_NEXT = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?')
LARGEST_DOCUMENT = 4 << 20  #: the distribution spec asks registries to take manifests of at least this size


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest or index as it was served. `digest` is over its bytes."""

    data: bytes
    media_type: str

    @property
    def digest(self) -> str:
        return digest_of(self.data)


class _Tags(msgspec.Struct):
    tags: tuple[str, ...] | None = ()


class _Typed(msgspec.Struct, rename="camel"):
    media_type: str = ""


# Made once: msgspec crashes where several threads are the first to resolve the annotations of a type.
_TAGS, _TYPED = msgspec.json.Decoder(_Tags), msgspec.json.Decoder(_Typed)


class Repository(Session):
    """One repository of a registry. Safe from many threads."""

    def url(self, kind: str, what: str) -> str:
        """An address below the repository's: `url("manifests", "v1")`."""
        return f"{self.address}/v2/{self.name.partition('/')[2]}/{kind}/{what}"

    def manifest(self, what: str) -> Document:
        """The manifest or index of a tag or digest. Raises AbsentError where there is none."""
        name = f"{self.name}{'@' if what.startswith('sha256:') else ':'}{what}"
        response = self._ask("GET", self.url("manifests", what), {"Accept": ACCEPT}, LARGEST_DOCUMENT)
        if response.status == 404:
            raise self.failed(Fault.ABSENT, response, subject=name)
        self.check_answer(response, f"a question about {name}")
        document = Document(data=response.body, media_type=_media_type(response))
        if what.startswith("sha256:"):
            self._check("manifest", what, document.digest)
        return document

    def config(self, descriptor: spec.Descriptor) -> bytes:
        """A small blob, checked. Raises DamagedError, RefusedError."""
        response = self._ask("GET", self.url("blobs", self._checked(descriptor)), {})
        if response.status == 404:
            raise self.failed(Fault.BLOB_ABSENT, digest=descriptor.digest)
        if digest_of(response.body) != descriptor.digest:
            self.check_answer(response, f"a question about {self.name}")
        self._check("blob", descriptor.digest, digest_of(response.body))
        if len(response.body) != descriptor.size:
            raise self.failed(Fault.SIZE, digest=descriptor.digest, size=len(response.body), stated=descriptor.size)
        return response.body

    def has(self, descriptor: spec.Descriptor) -> bool:
        """Return whether a blob is there, whole."""
        response = self.ask("HEAD", self.url("blobs", self._checked(descriptor)))
        if response.status in (401, 403) and self.is_ours(response.url):
            raise self.refused(response)
        # A portal's page has no length that counts; a blob may be called a page by the server that stores it.
        is_page = (response.headers.get("Content-Type") or "").startswith("text/html")
        lengths = {str(descriptor.size), *([] if is_page else [None])}
        return response.status == 200 and response.headers.get("Content-Length") in lengths

    def blob(self, descriptor: spec.Descriptor, partial: Path, advance: Callable[[int], None]) -> None:
        """Fill the file `partial` with a blob, going on where an earlier try stopped.

        Raises DifferentFileError for other bytes than the digest says, HttpError.
        """
        url = self.url("blobs", self._checked(descriptor))
        sha256 = descriptor.digest.removeprefix("sha256:")
        for renewed in (False, True):
            headers = self.authorization
            try:
                self.client.download(
                    url, partial, size=descriptor.size, sha256=sha256, headers=headers, advance=advance
                )
                return
            except HttpError as error:
                if error.failure.status != 401 or renewed:
                    raise self.explained(error) from error
            # A token lasts minutes, and the layers before this one may have taken longer.
            self._ask("HEAD", url, {})

    def pages(self, url: str, headers: Mapping[str, str] = {}) -> Iterator["Response"]:
        """Yield the answers of a list that comes in pages."""
        for _ in range(PAGES):
            response = self.ask("GET", url, headers)
            yield response
            link = _NEXT.search(response.headers.get("Link") or "")
            url = urllib.parse.urljoin(response.url, link[1]) if link else ""
            if not self.is_ours(url):
                return

    def tags(self) -> list[str]:
        """List the repository's tags; none where there is no such repository."""
        names: list[str] = []
        for response in self.pages(self.url("tags", "list?n=1000")):
            if response.status == 404:
                break
            if response.status != 200:
                raise self.unexpected(response, f"a question what {self.name} has")
            try:
                names += _TAGS.decode(response.body).tags or ()
            except UNREADABLE as error:
                raise self.unexpected(response, f"a question what {self.name} has") from error
        return names

    def remove(self, tag: str) -> None:
        """Remove the manifest of a tag, where there is one."""
        try:
            digest = self.manifest(tag).digest
        except AbsentError:
            return
        response = self.ask("DELETE", self.url("manifests", digest))
        if response.status not in (200, 202, 204, 404):
            raise self.unexpected(response, f"the removal of {self.name}:{tag}")

    def _ask(self, method: str, url: str, headers: Mapping[str, str], limit: int = LARGEST_ANSWER) -> "Response":
        """An answer of 200 or 404, after logging in where the registry asks for it."""
        response = self.ask(method, url, headers, limit=limit)
        if response.status not in (200, 404):
            raise self.unexpected(response, f"a question about {self.name}")
        return response

    def _check(self, what: str, digest: str, served: str) -> None:
        if served != digest:
            raise self.failed(Fault.SERVED, subject=what, digest=digest, other=served)

    def _checked(self, descriptor: spec.Descriptor) -> str:
        if not spec.DIGEST.fullmatch(descriptor.digest):
            raise self.failed(Fault.DIGEST, digest=descriptor.digest)
        return descriptor.digest


def _media_type(response: "Response") -> str:
    """Return the document's own media type; an old OCI manifest leaves it to the header."""
    try:
        stated = _TYPED.decode(response.body).media_type
    except UNREADABLE:
        stated = ""
    return stated or (response.headers.get("Content-Type") or "").partition(";")[0].strip()
