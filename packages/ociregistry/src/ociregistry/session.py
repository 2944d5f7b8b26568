"""Requests to one registry as one user: logging in as it asks, and sending secrets nowhere else.

None, Basic, or Bearer with a token from the realm that the registry names. Passwords go to the registry itself or to
a realm that `realms.may_see` lets see them; tokens go to the registry's own origin alone, wherever an upload's
Location or a redirect leads; and a challenge from anyone but the registry is not answered.
"""

import functools
import re
import threading
import urllib.parse
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ociregistry import errors, realms, threads, web_page
from ociregistry.credentials import Credential
from ociregistry.errors import UNREADABLE, Fault, RegistryError, RegistryFailure
from ociregistry.realms import Challenge
from ociregistry.reference import DOCKER_HUB, Reference
from patienthttp.errors import FOLLOWED, TEMPORARY, FetchFailure, HttpError, NoAnswer, host_of, is_loopback

if TYPE_CHECKING:
    from patienthttp.client import Body, Client, Response

FindCredential = Callable[[], Credential | None]
Result = TypeVar("Result")
#: what callers judge; the rest is tried again, or followed
ANSWERS = frozenset(range(200, 600)) - TEMPORARY - frozenset(FOLLOWED)
#: how servers with TLS answer those without: Go's, nginx', Apache's
_WANTS_TLS = re.compile(
    rb"HTTP request to an HTTPS server|plain HTTP request was sent to HTTPS port|speaking plain HTTP to an SSL-enabled"
)
#: how OpenSSL calls an answer that is not TLS
_NO_TLS = re.compile("wrong version number|record layer failure|packet length too long", re.IGNORECASE)
_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)
_LONGEST_MESSAGE = 200
LARGEST_ANSWER = 64 << 20  #: bytes of a small blob, of a statement, or of an error
FIRST_PAUSE, TRIES = 0.125, 10  #: of one request of many, before another one and at most: two minutes in all
TOKENS = 5  #: that one request is tried with while others renew them


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""


class _Fault(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Faults(msgspec.Struct):
    errors: tuple[_Fault, ...] = ()


# Made once: msgspec crashes where several threads are the first to resolve the annotations of a type.
_TOKEN, _FAULTS = msgspec.json.Decoder(_Token), msgspec.json.Decoder(_Faults)


class Session:
    """A session with one repository of a registry, for `repository.Repository`. Safe from many threads.

    Its methods raise RegistryError and HttpError. A program with errors of its own overrides `error` and `unanswered`:
    what they return is a kind of these two and of its own.
    """

    parallel: threads.Parallel = staticmethod(threads.parallel)  #: runs the uploads of a push side by side

    def __init__(
        self,
        client: "Client",
        reference: Reference,
        find_credential: FindCredential = lambda: None,
        *,
        writes: bool = False,
        mount_from: Sequence[str] = (),
        trusted_realms: Collection[str] = (),
        plain_http: bool = False,
    ) -> None:
        """`reference` names registry and repository; its tag and digest do not matter here.

        `mount_from`: repositories of the same registry that may have blobs of what is written. `find_credential` is
        called when the registry asks for a login, not before. `trusted_realms`: see `may_see`. `plain_http`: the
        user says that it has no TLS; it gets a login then only where `trusted_realms` names its host.
        """
        self.name = reference.name
        self.mount_from = [name for name in dict.fromkeys(mount_from) if name != reference.repository]
        self.host = "registry-1.docker.io" if reference.host == DOCKER_HUB else reference.host
        host = host_of(f"http://{self.host}")
        # As Docker has it: a registry on this very machine needs no certificate.
        is_here = is_loopback(host)
        self.address = f"{'http' if is_here or plain_http else 'https'}://{self.host}"
        #: a man in the middle reads what is sent, and the user has not allowed a login
        self._is_open = plain_http and not is_here and host not in trusted_realms
        self.client, self.retry = client, client.retry(TRIES)
        self.retry.first_pause = FIRST_PAUSE
        self._origin = realms.origin(self.address)
        self._find_credential, self._trusted, self.writes = find_credential, trusted_realms, writes
        #: what tokens are asked for, beside what the registry says
        self._scopes = [f"repository:{reference.repository}:{'pull,push' if writes else 'pull'}"]
        self._scopes += [f"repository:{name}:pull" for name in self.mount_from]
        self._authorization: dict[str, str] = {}
        self.has_answered = False  #: to any request
        self._lock = threading.Lock()

    @property
    def authorization(self) -> dict[str, str]:
        """The header of the login so far, for the registry's own addresses alone."""
        return self._authorization

    def is_ours(self, url: str) -> bool:
        """Return whether an address is the registry's own: scheme, host and port."""
        return realms.origin(url) == self._origin

    def ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] = {},
        body: bytes | None = None,
        *,
        limit: int = LARGEST_ANSWER,
    ) -> "Response":
        """An answer of any status but redirects, temporary ones and 401, after retries.

        `limit`: its bytes at most.
        """
        return self.retrying(lambda: self.once(method, url, headers, body, limit=limit))

    def retrying(self, attempt: Callable[[], Result], position: Callable[[], int] = lambda: 0) -> Result:
        """Try within the session's budget (`Retry.call`)."""

        def tried() -> Result:
            try:
                return attempt()
            except HttpError as error:
                if error.failure.kind is NoAnswer.CUT and not self.has_answered:
                    self._raise_if_tls()
                raise

        try:
            return self.retry.call(tried, position)
        except HttpError as error:
            raise self.explained(error) from error

    def _raise_if_tls(self) -> None:
        """Raises RefusedError where a registry that was asked without TLS, and cut that, speaks it."""
        if not self.address.startswith("http:"):
            return
        try:
            self.client.send("GET", f"https://{self.host}/v2/", accept=ANSWERS)
        except HttpError as error:
            if error.failure.kind is not NoAnswer.CERTIFICATE and error.failure.status is None:
                return
            raise self._wants_tls(str(error.failure.kind) if error.failure.status is None else "") from error
        raise self._wants_tls()

    def _wants_tls(self, fault: str = "") -> RegistryError:
        """The error for a registry that speaks TLS and was asked without. `fault`: of its certificate."""
        is_here = is_loopback(host_of(self.address))
        return self.failed(Fault.WITHOUT_TLS_HERE if is_here else Fault.WITHOUT_TLS, detail=fault)

    def error(self, failure: RegistryFailure) -> RegistryError:
        """The error of a failure."""
        return errors.error(failure)

    def unanswered(self, error: HttpError) -> HttpError:
        """The error of a registry without a usable answer."""
        return error

    def failed(self, kind: Fault, response: "Response | None" = None, **facts: Any) -> RegistryError:  # noqa: ANN401
        """The error of this repository for these facts; an answer has status, codes and words of its own."""
        if response is not None:
            facts |= {"status": response.status, "codes": self.codes(response), "message": self._message(response)}
            facts |= {"page": self._without_secrets(web_page.found(response.body))}
        return self.error(RegistryFailure(kind=kind, host=self.host, name=self.name, **facts))

    def once(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] = {},
        body: "Body" = None,
        *,
        limit: int = LARGEST_ANSWER,
    ) -> "Response":
        """As `ask`, but one try; with a new token where the old one has expired.

        One that another thread asked for may have expired, too, by the time that it is used here.
        """
        is_own = False
        for left in reversed(range(TOKENS)):
            used = self._authorization
            sent = {**headers, **used} if self.is_ours(url) else dict(headers)
            response = self.client.send(method, url, headers=sent, body=body, accept=ANSWERS, limit=limit)
            self.has_answered = True
            if response.status != 401:
                return response
            if is_own or not left or not self.is_ours(response.url):
                raise self.refused(response)
            is_own = self.log_in(response.headers.get("WWW-Authenticate") or "", used)
        raise AssertionError("the last answer is returned or refused")

    def resolved(self, response: "Response") -> str:
        """The address in an answer's Location; empty where it has none."""
        location = response.headers.get("Location") or ""
        url = urllib.parse.urljoin(response.url, location) if location else ""
        if url.startswith("http://") and urllib.parse.urlsplit(url).netloc == self.host:
            # Registries behind a proxy that speaks TLS for them name themselves with http.
            url = self.address + url.removeprefix(f"http://{self.host}")
        return url

    def log_in(self, header: str, used: Mapping[str, str]) -> bool:
        """Answer the registry's challenge; False where another thread did since `used`. Raises RefusedError."""
        with self._lock:
            if self._authorization != used:
                return False
            self._authorization = self._answer(realms.challenges(header))
            return True

    @functools.cached_property
    def _credential(self) -> Credential | None:
        return None if self._is_open else self._find_credential()

    def _answer(self, offered: tuple[Challenge, ...]) -> dict[str, str]:
        bearer = next((challenge for challenge in offered if challenge.scheme == "bearer" and challenge.realm), None)
        if bearer is not None:
            return {"Authorization": f"Bearer {self._token(bearer)}"}
        if (
            any(challenge.scheme == "basic" for challenge in offered)
            and self._credential is not None
            and self._credential.user
        ):
            return {"Authorization": self._credential.basic}
        raise self.refused()

    def _token(self, challenge: Challenge) -> str:
        self._check_realm(challenge.realm)
        scopes = realms.merged((*challenge.scopes, *self._scopes))
        response = self._ask_realm(challenge, scopes)
        if response.status in (400, 401, 403) and len(self._scopes) > 1:
            # Most token servers leave out what the user may not have; some refuse all of it.
            response = self._ask_realm(challenge, realms.merged((*challenge.scopes, self._scopes[0])))
        if response.status != 200:
            raise self.refused(response)
        try:
            answer = _TOKEN.decode(response.body)
        except UNREADABLE:
            answer = _Token()
        token = answer.token or answer.access_token
        if not token or not token.isascii() or not token.isprintable():
            raise self.failed(Fault.TOKEN, response, other=host_of(challenge.realm))
        return token

    def _check_realm(self, realm: str) -> None:
        """Raises RefusedError where a login would reach someone whom it is not for."""
        host = host_of(realm)
        if self.address.startswith("https:") and not realm.startswith("https://"):
            raise self.failed(Fault.REALM, other=host)
        if self._credential is not None and not realms.may_see(realm, self.address, self._trusted):
            raise self.failed(Fault.OTHER_SITE, other=host)

    def _ask_realm(self, challenge: Challenge, scopes: tuple[str, ...]) -> "Response":
        credential, service = self._credential, challenge.service
        if credential is not None and credential.identity_token:
            form = {"grant_type": "refresh_token", "client_id": self.client.agent, "service": service}
            form |= {"scope": " ".join(scopes), "refresh_token": credential.identity_token}
            body = urllib.parse.urlencode(form).encode()
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            # Whom a redirect names would get the form, and the identity token in it.
            return self.client.send("POST", challenge.realm, headers=headers, body=body, accept=ANSWERS.union(FOLLOWED))
        headers = {"Authorization": credential.basic} if credential is not None else {}
        query = [("service", service)] * bool(service) + [("scope", scope) for scope in scopes]
        address = f"{challenge.realm}{'&' if '?' in challenge.realm else '?'}{urllib.parse.urlencode(query)}"
        return self.client.send("GET", address, headers=headers, accept=ANSWERS)

    def refused(self, response: "Response | None" = None) -> RegistryError:
        """The error for an answer of 401 or 403, or for a challenge that cannot be met."""
        if self._is_open:
            return self.failed(Fault.PLAIN_LOGIN, other=host_of(self.address))
        kind = Fault.PUSH if self.writes else Fault.PULL
        login = self._credential
        given = login.given if login else ""
        return self.failed(kind, response, status=401, has_login=login is not None, given=given)

    def unexpected(self, response: "Response", subject: str) -> RegistryError:
        """The error for an answer that ends the work: what the registry says of it, without our secrets."""
        if response.status in (401, 403):
            return self.refused(response)
        if response.status == 400 and self.address.startswith("http:") and _WANTS_TLS.search(response.body):
            return self._wants_tls()
        if web_page.found(response.body) or response.status < 300:
            return self.failed(Fault.PAGE, response, subject=subject)
        return self.failed(Fault.ANSWER, response, subject=subject)

    def check_answer(self, response: "Response", subject: str) -> None:
        """Raises RefusedError for a web page, which is no answer to this request, with any status."""
        if web_page.found(response.body):
            raise self.unexpected(response, subject)

    def unencrypted(self, url: str) -> RegistryError:
        """The error for an upload that would leave TLS."""
        return self.failed(Fault.UPLOAD, other=host_of(url))

    def too_long(self, length: int) -> RegistryError:
        """The error for a request that is refused however short it is."""
        return self.failed(Fault.LENGTH, subject=f"{length} bytes")

    def explained(self, error: HttpError) -> RegistryError | HttpError:
        """The same error as `unanswered` has it, or a better one, for what users of registries meet often."""
        failure = error.failure
        if failure.status in (401, 403):
            return self.refused()
        if failure.status == 429:
            return self.failed(Fault.MANY)
        if _is_plain_http(failure, str(error)):
            return self.failed(Fault.TLS)
        return self.unanswered(error)

    def check_stored(self, response: "Response", digest: str, what: str) -> None:
        """Raises DamagedError for something stored under another digest, RefusedError where a web page answers."""
        self.check_answer(response, what)
        stored = response.headers.get("Docker-Content-Digest") or digest
        if stored != digest:
            raise self.failed(Fault.STORED, subject=what, digest=digest, other=stored)

    def codes(self, response: "Response") -> tuple[str, ...]:
        """The error codes of the distribution specification in an answer."""
        return tuple(fault.code for fault in _faults(response) if _CODE.fullmatch(fault.code))

    def _message(self, response: "Response") -> str:
        """The registry's own words, cut."""
        text = "; ".join(fault.message for fault in _faults(response) if fault.message)
        text = "".join(letter if letter.isprintable() else " " for letter in text)
        return self._without_secrets(text)[:_LONGEST_MESSAGE]

    def _without_secrets(self, text: str) -> str:
        """A server's words without what we told it: it may repeat a request's headers."""
        secrets = {value.partition(" ")[2] for value in self._authorization.values()}
        if self._credential is not None:
            secrets |= self._credential.secrets
        for secret in sorted(secrets - {""}, key=len, reverse=True):
            text = text.replace(secret, "…")
        return text


def _is_plain_http(failure: FetchFailure, message: str) -> bool:
    """Return whether a server that was asked with TLS has answered without, by OpenSSL's `message`."""
    return failure.kind is NoAnswer.TLS and bool(_NO_TLS.search(message))


def _faults(response: "Response") -> tuple[_Fault, ...]:
    try:
        return _FAULTS.decode(response.body).errors
    except UNREADABLE:
        return ()
