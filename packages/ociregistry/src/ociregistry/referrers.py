"""Referrers of an image in its repository, as the distribution specification 1.1 has it: lists and writes.

Registries of today make the list from the manifests that name the image as their `subject`. For others the writers
keep it: an index under a tag made of the image's digest, with the entries of all.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ocilayout import spec
from ocilayout.image import digest_of
from ociregistry import push, web_page
from ociregistry.errors import UNREADABLE, AbsentError, Fault
from ociregistry.repository import ACCEPT, LARGEST_DOCUMENT, Repository

TRIES = 6  #: of writing the index, where others write theirs at the same moment
_UNKNOWN = (
    400,
    404,
    405,
    406,
    415,
    422,
    501,
)  #: what registries answer to a question or a manifest that they do not know


class _List(msgspec.Struct):
    manifests: tuple[dict[str, Any], ...] = ()


# Made once: msgspec crashes where several threads are the first to resolve the annotations of a type.
_LIST, _INDEX = msgspec.json.Decoder(_List), msgspec.json.Decoder(dict[str, Any])
msgspec.json.Decoder(spec.Descriptor)


def tag(digest: str) -> str:
    """The tag of the index on registries that make no list."""
    return digest.replace(":", "-")


def listed(source: Repository, digest: str) -> Iterator[spec.Descriptor]:
    """Yield an image's referrers; skip entries that break the specification. Raises RegistryError, HttpError."""
    entries = _made_by_the_registry(source, digest)
    if entries is None:
        document = _index(source, digest)
        entries = document.get("manifests", []) if document else []
    for entry in entries:
        with contextlib.suppress(*UNREADABLE):
            yield msgspec.convert(entry, spec.Descriptor)


def put(target: Repository, manifest: bytes) -> str:
    """Store a manifest with a `subject` under its digest; why the registry does not take it, empty where it does.

    Raises RegistryError, HttpError.
    """
    digest = digest_of(manifest)
    response = target.ask("PUT", target.url("manifests", digest), {"Content-Type": spec.MANIFEST}, manifest)
    if response.status in _UNKNOWN:
        codes = ", ".join(target.codes(response)) or web_page.found(response.body) or "no reason given"
        return f"{target.host} takes no manifests that refer to an image (HTTP {response.status}: {codes})"
    if response.status not in (200, 201, 202):
        raise target.unexpected(response, f"a statement about an image of {target.name}")
    target.check_stored(response, digest, f"a statement about an image of {target.name}")
    return ""


def add(target: Repository, digest: str, entries: Sequence[spec.Descriptor]) -> str:
    """See to it that these are listed as referrers of an image; why they are not, empty where they are.

    An index cannot be changed in one step: who else wrote one meanwhile may have lost this, so it is read again.
    Raises RegistryError, HttpError.
    """
    if not entries or _made_by_the_registry(target, digest) is not None:
        return ""
    for _ in range(TRIES):
        document = _index(target, digest)
        if document is None:
            return f"the tag {tag(digest)} of {target.name} holds something else than a list of referrers"
        existing = [entry for entry in document.get("manifests") or [] if isinstance(entry, dict)]
        digests = {entry.get("digest") for entry in existing}
        missing = [msgspec.to_builtins(entry) for entry in entries if entry.digest not in digests]
        if not missing:
            return ""
        head = {"schemaVersion": 2, "mediaType": spec.INDEX}
        changed = msgspec.json.encode({**head, **document, "manifests": [*existing, *missing]})
        push.put_manifest(target, tag(digest), changed, spec.INDEX)
    return f"the list of referrers under the tag {tag(digest)} of {target.name} was changed by others {TRIES} times"


def _made_by_the_registry(source: Repository, digest: str) -> list[dict[str, Any]] | None:
    """The registry's own list; None where it makes none. Raises RegistryError, HttpError."""
    entries = list[dict[str, Any]]()
    for response in source.pages(source.url("referrers", digest), {"Accept": ACCEPT}):
        if response.status in (403, *_UNKNOWN) and not entries:  # some give no rights for what they do not know
            return None
        if response.status != 200:
            raise source.unexpected(response, f"a question what refers to an image of {source.name}")
        try:
            entries += _LIST.decode(_checked(source, response.body)).manifests
        except UNREADABLE:  # some proxies answer any question with a page of theirs
            return entries or None
    return entries


def _index(source: Repository, digest: str) -> dict[str, Any] | None:
    """Read the document under the tag, empty where nothing is; None for another document."""
    try:
        document = source.manifest(tag(digest))
    except AbsentError:
        return {}
    if document.digest == digest:  # `cosign copy` leaves the image itself there
        return {}
    try:
        index = _INDEX.decode(document.data)
    except UNREADABLE:
        return None
    is_list = document.media_type == spec.INDEX and isinstance(index.get("manifests", []), list)
    return index if is_list else None


def _checked(source: Repository, body: bytes) -> bytes:
    if len(body) > LARGEST_DOCUMENT:
        raise source.failed(Fault.LIST, size=len(body), stated=LARGEST_DOCUMENT)
    return body
