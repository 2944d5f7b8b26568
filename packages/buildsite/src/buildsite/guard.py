"""Before every page: the host's name, a request's size and time, where it comes from, whose it is; answers' headers.

It knows no page. What it refuses gets one line of text, and a line in the log, as what changes something.
"""

import asyncio
import base64
import binascii
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from buildsite.users import LONGEST_TOKEN, Users, is_name
from graphcrate.host import settings
from graphcrate.model.errors import GraphcrateError
from graphcrate.model.words import printable

LARGEST_BODY = 512 << 10  #: bytes of a request
LONGEST_ADDRESS = 8000  #: bytes of a path with its query
BODY_SECONDS = 20.0  #: for a request to arrive
MOST_EACH = 60  #: requests of a user at once
_TOO_LARGE = f"a request has at most {LARGEST_BODY >> 10} kB"
_CHANGING = ("POST", "DELETE")
_METHODS = ("GET", "HEAD", *_CHANGING)
#: of pages of ours; a report, which has style and script in itself, gets an origin of its own
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
APART = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


UNIX = "unix"  #: in place of the address of who comes by a socket that is a file


class Proxy(NamedTuple):
    """A web server that logs users in; its header is taken from no one else."""

    address: str  #: that it comes from, or `UNIX`
    header: str
    is_only_way: bool  #: all others are turned away


class Doors(NamedTuple):
    """Names, tokens and the proxy by which requests are let in; with none of the last two, all are."""

    hosts: Collection[str]  #: names, with ports, by which it may be called
    users: Users
    proxy: Proxy | None = None

    @property
    def are_open(self) -> bool:
        """Return whether users need not say who they are."""
        return not self.users.has_tokens and self.proxy is None


class Denial(NamedTuple):
    """Status and reason of a request that is not looked at."""

    status: int
    why: str
    headers: dict[str, str] = {}  # noqa: RUF012 (nobody changes it)


class Guard:
    """An ASGI application before another."""

    def __init__(self, app: App, doors: Doors, log: Callable[[str], None]) -> None:
        """`log` gets a line for each request that changes something or is refused."""
        self._app, self._doors, self._log = app, doors, log
        self._requests = Counter[str]()  #: that are worked on, of each user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        scope["user"] = ""
        refusal = self._refusal(scope, headers)
        answered = _Sending(send)
        if refusal is None:
            try:
                with self._counted(scope["user"]):
                    await self._app(scope, _limited(receive), answered)
            except HTTPException as error:
                refusal = Denial(error.status_code, error.detail)
        if refusal is not None:
            answer = PlainTextResponse(f"{refusal.why}\n", refusal.status, refusal.headers)
            await answer(scope, receive, answered)
        if refusal is not None or scope["method"] in _CHANGING:
            self._log(_log_line(scope, answered.status))

    @contextlib.contextmanager
    def _counted(self, user: str) -> Iterator[None]:
        """Count a request among its user's. Raises HTTPException for one too many."""
        if user and self._requests[user] >= MOST_EACH:
            raise HTTPException(429, f"{MOST_EACH} requests of yours are answered already")
        self._requests[user] += 1
        try:
            yield
        finally:
            self._requests -= Counter((user,))  # no names are kept

    def _refusal(self, scope: Scope, headers: Headers) -> Denial | None:
        proxy = self._doors.proxy
        if proxy and proxy.is_only_way and _peer(scope) != proxy.address:
            return Denial(403, "only the web server of the site may ask")
        return (
            self._not_ours(scope, headers)
            or self._unknown(scope, headers)
            or (_forged(scope, headers) if scope["method"] in _CHANGING else None)
        )

    def _not_ours(self, scope: Scope, headers: Headers) -> Denial | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._doors.hosts:
            return Denial(421, "this is not a name of the site: serve --host localhost:9000 adds a tunnel's other end")
        if scope["method"] not in _METHODS:
            return Denial(405, f"methods are {', '.join(_METHODS)}")
        if len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
            return Denial(414, "the address is too long; send a form")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal() and len(length) < 20) or int(length) > LARGEST_BODY:
            return Denial(413, _TOO_LARGE)
        return None

    def _unknown(self, scope: Scope, headers: Headers) -> Denial | None:
        """Set the user of a request. Who is sent by the proxy needs no token."""
        doors, proxy = self._doors, self._doors.proxy
        if proxy and _peer(scope) == proxy.address and headers.get("x-forwarded-proto") == "https":
            scope["scheme"] = "https"  # in addresses on pages
        try:
            doors.users.refresh()
        except GraphcrateError as error:
            self._log(f"nobody is let in: {error.brief}")
            return Denial(503, "the site's list of users cannot be read")
        if doors.are_open:
            return None
        if proxy and (sent := headers.getlist(proxy.header)):
            if _peer(scope) != proxy.address:
                return Denial(403, f"{proxy.header} is taken from the web server of the site alone")
            if len(sent) != 1 or not is_name(sent[0]):
                return Denial(403, f"{proxy.header} has no name of a user")
            scope["user"] = sent[0]
            return None
        if doors.users.has_tokens and (name := doors.users.of_token(_token(headers))):
            scope["user"] = name
            return None
        asked = {"www-authenticate": 'Basic realm="graphcrate", charset="UTF-8"'} if doors.users.has_tokens else {}
        return Denial(401, "who are you? Send a token of the site, or log in at its web server", asked)


def _peer(scope: Scope) -> str:
    """The address from which a request came, by its connection."""
    client = scope.get("client")
    return client[0] if client else UNIX


def _token(headers: Headers) -> str:
    """Return the token of a request: a Bearer's, or the password of Basic, which browsers ask for; empty for none."""
    sent = headers.getlist("authorization")
    kind, _, value = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
    value = value.strip()
    if kind.lower() == "bearer":
        return value
    if kind.lower() != "basic" or len(value) > 2 * LONGEST_TOKEN:
        return ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def _forged(scope: Scope, headers: Headers) -> Denial | None:
    """Refuse what a page of another site could send: its form has another origin, and no JSON."""
    if not _is_same_site(headers, headers["host"]):
        return Denial(403, "another site sent this request")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    # a form always says its type, and its page's script may say JSON to its own site alone
    is_bare = not kind and headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    is_json = kind == "application/json" or is_bare
    if scope["path"].startswith("/v1/") and scope["method"] == "POST" and not is_json:
        return Denial(415, "send JSON: Content-Type: application/json")
    return None


def _log_line(scope: Scope, status: int) -> str:
    user, asked = scope["user"] or "-", printable(f"{scope['method'][:10]} {scope['path'][:200]}")
    return f"{settings.now_utc()} {_peer(scope)} {user} {asked} {status}"


def _is_same_site(headers: Headers, host: str) -> bool:
    """Return whether a page of this site, or a program that is not a browser, sent what changes something."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _limited(receive: Receive) -> Receive:
    """The same, of which no more is taken than a request may have, and no longer waited for.

    Raises HTTPException, which the application answers.
    """
    length, is_whole, end = 0, False, 0.0

    async def limited() -> MutableMapping[str, Any]:
        nonlocal length, is_whole, end
        if is_whole:
            return await receive()
        end = end or asyncio.get_running_loop().time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(end):
                message = await receive()
        except TimeoutError as error:
            raise HTTPException(408, f"the request did not arrive within {BODY_SECONDS:g} s") from error
        length += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        if length > LARGEST_BODY:
            raise HTTPException(413, _TOO_LARGE)
        return message

    return limited


class _Sending:
    """The sender of answers, with the headers that every answer has unless it has them already."""

    def __init__(self, send: Send) -> None:
        self._send, self.status = send, 0

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)
