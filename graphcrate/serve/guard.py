"""Before every page: the host's name, the request's size and time, where it comes from; headers of every answer.

It knows no page. What it refuses gets one line of text.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

LARGEST_BODY = 512 << 10  #: bytes of a request
LONGEST_ADDRESS = 8000  #: bytes of a path with its query
BODY_SECONDS = 20.0  #: for a request to arrive
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


class Denial(NamedTuple):
    """Status and reason of a request that is not looked at."""

    status: int
    why: str


class _TooLargeError(Exception):
    """More came than was announced."""


class Guard:
    """An ASGI application before another."""

    def __init__(self, app: App, hosts: Collection[str]) -> None:
        """`hosts`: the names, with ports, by which the site may be called."""
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is None:
            try:
                await self._app(scope, _limited(receive), _with_headers(send))
            except _TooLargeError:
                refusal = Denial(413, f"a request has at most {LARGEST_BODY >> 10} kB")
            except TimeoutError:
                refusal = Denial(408, f"the request did not arrive within {BODY_SECONDS:g} s")
        if refusal is not None:
            answer = PlainTextResponse(f"{refusal.why}\n", refusal.status)
            await answer(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: Headers) -> Denial | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return Denial(421, "this is not the name of the site: serve --host NAME adds one")
        if scope["method"] not in _METHODS:
            return Denial(405, f"methods are {', '.join(_METHODS)}")
        if len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"]) > LONGEST_ADDRESS:
            return Denial(414, "the address is too long; send a form")
        if not headers.get("content-length", "0").isdecimal() or int(headers.get("content-length", "0")) > LARGEST_BODY:
            return Denial(413, f"a request has at most {LARGEST_BODY >> 10} kB")
        if scope["method"] in _CHANGING and not _is_same_site(headers, hosts[0]):
            return Denial(403, "another site sent this request")
        return None


def _is_same_site(headers: Headers, host: str) -> bool:
    """Return whether a page of this site, or a program that is not a browser, sent what changes something."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def _limited(receive: Receive) -> Receive:
    """The same, of which no more is taken than a request may have, and no longer waited for."""
    length, is_whole = 0, False

    async def limited() -> MutableMapping[str, Any]:
        nonlocal length, is_whole
        if is_whole:
            return await receive()
        message = await asyncio.wait_for(receive(), BODY_SECONDS)
        length += len(message.get("body", b""))
        is_whole = not message.get("more_body", False)
        if length > LARGEST_BODY:
            raise _TooLargeError
        return message

    return limited


def _with_headers(send: Send) -> Send:
    """The same, with the headers that every answer has unless it has them already."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
