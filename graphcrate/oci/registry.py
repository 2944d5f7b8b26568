"""Pulling from a registry over HTTP: manifests and blobs, each checked against its digest (distribution spec 1.1).

Log-in as registries ask for it: none, Basic, or Bearer with a token from the realm that the registry names. A token
goes to the registry alone; `host.http` drops it when a blob is served from another host.
"""

import functools
import hashlib
import re
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from graphcrate.errors import IntegrityError, NetworkError, ResolutionError
from graphcrate.host.connections import HttpError, host_of
from graphcrate.oci import spec
from graphcrate.oci.credentials import Credential
from graphcrate.oci.reference import DOCKER_HUB, Reference

if TYPE_CHECKING:
    from graphcrate.host.http import Client, Response

ACCEPT = ", ".join((*spec.INDEX_TYPES, *spec.MANIFEST_TYPES))
LARGEST_DOCUMENT = 4 << 20  #: the distribution spec asks registries to take manifests of at least this size
_HANDLED = (200, 401, 403, 404)
_CHALLENGE = re.compile(r'([a-zA-Z_]+)="((?:[^"\\]|\\.)*)"|([a-zA-Z_]+)=([^\s,"]+)')
_ESCAPED = re.compile(r"\\(.)")


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A manifest or index as it was served. `digest` is over its bytes."""

    data: bytes
    media_type: str

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""


class _Typed(msgspec.Struct, rename="camel"):
    media_type: str = ""


class Repository:
    """One repository of a registry, to read from. Safe from many threads."""

    def __init__(
        self, client: "Client", reference: Reference, find_credential: Callable[[], Credential | None] = lambda: None
    ) -> None:
        """`reference` names registry and repository; its tag and digest do not matter here.

        `find_credential` is called when the registry asks for a login, not before.
        """
        self._client, self._find_credential = client, find_credential
        self._name = reference.name
        host = "registry-1.docker.io" if reference.host == DOCKER_HUB else reference.host
        self._host = host
        # As Docker has it: a registry on this very machine needs no certificate.
        self._scheme = "http" if _is_loopback(host) else "https"
        self._base = f"{self._scheme}://{host}/v2/{reference.repository}"
        self._scope = f"repository:{reference.repository}:pull"
        self._authorization: dict[str, str] = {}

    def manifest(self, what: str) -> Document:
        """The manifest or index of a tag or digest. Raises ResolutionError where there is none, NetworkError."""
        response = self._get(f"{self._base}/manifests/{what}", {"Accept": ACCEPT})
        if response.status == 404:
            raise ResolutionError(
                f"{_joined(self._name, what)} does not exist",
                cause="The registry knows no such image or tag, or shows it only to those who are logged in.",
                next_step=f"check the name; list the tags: skopeo list-tags docker://{self._name}",
            )
        document = Document(data=response.body, media_type=_media_type(response))
        if len(response.body) > LARGEST_DOCUMENT:
            raise IntegrityError(f"the manifest of {_joined(self._name, what)} has {len(response.body)} bytes")
        if what.startswith("sha256:") and document.digest != what:
            raise self._wrong("manifest", what, document.digest)
        return document

    def config(self, descriptor: spec.Descriptor) -> bytes:
        """A small blob, checked. Raises IntegrityError, NetworkError."""
        response = self._get(f"{self._base}/blobs/{_checked(descriptor)}", {})
        found = f"sha256:{hashlib.sha256(response.body).hexdigest()}"
        if response.status == 404:
            raise NetworkError(
                f"{self._host} has the image {self._name} without its configuration {descriptor.digest} (HTTP 404)",
                cause="The image was pushed or deleted in part.",
                next_step="push the image again, or name another base",
            )
        if found != descriptor.digest:
            raise self._wrong("configuration", descriptor.digest, found)
        return response.body

    def blob(self, descriptor: spec.Descriptor, partial: Path, advance: Callable[[int], None]) -> None:
        """Fill the file `partial` with a blob, going on where an earlier try stopped.

        Raises IntegrityError for other bytes than the digest says, NetworkError.
        """
        url = f"{self._base}/blobs/{_checked(descriptor)}"
        sha256 = descriptor.digest.removeprefix("sha256:")
        for renewed in (False, True):
            try:
                self._client.download(
                    url, partial, size=descriptor.size, sha256=sha256, headers=self._authorization, advance=advance
                )
                return
            except HttpError as error:
                if error.status != 401 or renewed:
                    raise self._explained(error) from error
            # A token lasts minutes, and the layers before this one may have taken longer.
            self._get(url, {}, method="HEAD", renew=True)

    def _get(self, url: str, headers: Mapping[str, str], *, method: str = "GET", renew: bool = False) -> "Response":
        """An answer of 200 or 404, after logging in where the registry asks for it."""
        if renew:
            self._authorization = {}
        try:
            response = self._ask(method, url, headers)
            if response.status == 401:
                self._authorization = self._log_in(response.headers.get("WWW-Authenticate") or "")
                response = self._ask(method, url, headers)
        except HttpError as error:
            raise self._explained(error) from error
        if response.status in (401, 403):
            raise self._refused(response.status)
        return response

    @functools.cached_property
    def _credential(self) -> Credential | None:
        return self._find_credential()

    def _ask(self, method: str, url: str, headers: Mapping[str, str]) -> "Response":
        return self._client.request(method, url, headers={**headers, **self._authorization}, accept=_HANDLED)

    def _log_in(self, challenge: str) -> dict[str, str]:
        """Answer a challenge (RFC 7235; Docker's token specification). Returns the header to send from now on."""
        scheme, _, rest = challenge.partition(" ")
        fields = {
            (key or bare).lower(): _ESCAPED.sub(r"\1", value) or plain
            for key, value, bare, plain in _CHALLENGE.findall(rest)
        }
        if scheme.lower() == "basic" and self._credential is not None and self._credential.user:
            return {"Authorization": self._credential.basic}
        if scheme.lower() != "bearer" or not fields.get("realm"):
            raise self._refused(401)
        realm = fields["realm"]
        if self._scheme == "https" and not realm.startswith("https://"):
            raise NetworkError(
                f"{self._host} wants a login at {host_of(realm)} without encryption",
                next_step="ask the registry's administrator: the realm of its challenge must be an https address",
            )
        query = {"service": fields.get("service", ""), "scope": fields.get("scope") or self._scope}
        response = self._ask_realm(realm, {key: value for key, value in query.items() if value})
        if response.status != 200:
            raise self._refused(response.status)
        try:
            answer = msgspec.json.decode(response.body, type=_Token)
        except msgspec.DecodeError as error:
            raise NetworkError(f"{host_of(realm)} gave no token for {self._name}: {error}") from error
        token = answer.token or answer.access_token
        if not token or "\n" in token or "\r" in token:
            raise NetworkError(f"{host_of(realm)} gave no token for {self._name}")
        return {"Authorization": f"Bearer {token}"}

    def _ask_realm(self, realm: str, query: dict[str, str]) -> "Response":
        credential = self._credential
        if credential is not None and credential.identity_token:
            form = {**query, "grant_type": "refresh_token", "client_id": "graphcrate"}
            body = urllib.parse.urlencode({**form, "refresh_token": credential.identity_token}).encode()
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            return self._client.request("POST", realm, headers=headers, body=body, accept=_HANDLED)
        headers = {"Authorization": credential.basic} if credential is not None else {}
        address = f"{realm}{'&' if '?' in realm else '?'}{urllib.parse.urlencode(query)}"
        return self._client.request("GET", address, headers=headers, accept=_HANDLED)

    def _refused(self, status: int) -> NetworkError:
        known = "The login on this machine is not enough." if self._credential else "There is no login for it here."
        return NetworkError(
            f"{self._host} refuses access to {self._name} (HTTP {status})",
            cause=f"The image is private, or does not exist. {known}",
            next_step=f"check the name, or log in with podman or docker: podman login {self._name.partition('/')[0]}",
        )

    def _explained(self, error: HttpError) -> NetworkError:
        if error.status in (401, 403):
            return self._refused(error.status)
        if error.status == 429:
            return NetworkError(
                f"{self._host} takes no more requests for now (HTTP 429)",
                cause="Registries limit how much can be pulled without a login.",
                next_step=f"wait, or log in: podman login {self._name.partition('/')[0]}",
            )
        return error

    def _wrong(self, what: str, digest: str, found: str) -> IntegrityError:
        return IntegrityError(
            f"{self._host} served another {what} than {digest}: {found}",
            cause="The registry is damaged or a proxy on the way changed the answer.",
            next_step="try again, or name the base in another registry",
        )


def _is_loopback(host: str) -> bool:
    name = host_of(f"http://{host}")
    return name in ("localhost", "::1") or name.startswith("127.")


def _checked(descriptor: spec.Descriptor) -> str:
    if not spec.DIGEST.fullmatch(descriptor.digest):
        raise IntegrityError(f"the manifest names a blob {descriptor.digest!r}, which is no sha256 digest")
    return descriptor.digest


def _media_type(response: "Response") -> str:
    """What the document says it is; an old OCI manifest leaves it to the header."""
    try:
        said = msgspec.json.decode(response.body, type=_Typed).media_type
    except msgspec.DecodeError:
        said = ""
    return said or (response.headers.get("Content-Type") or "").partition(";")[0].strip()


def _joined(name: str, what: str) -> str:
    return f"{name}@{what}" if what.startswith("sha256:") else f"{name}:{what}"
