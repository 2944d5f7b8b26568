"""Whom a request goes to (proxy, credentials), and what its failures are called."""

import base64
import contextlib
import errno
import http.client
import ipaddress
import netrc
import os
import shlex
import socket
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from graphcrate.host.net.patience import HeadTooLargeError, TooSlowError
from graphcrate.model.command import setting
from graphcrate.model.errors import NetworkError
from graphcrate.model.words import is_loopback

if TYPE_CHECKING:
    import urllib3

FOLLOWED = (301, 302, 303, 307, 308)
#: statuses that may be gone at the next try
TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})


#: statuses of a server that does not give a file
ABSENT = frozenset({401, 403, 404, 410, 451})


class NoAnswer(StrEnum):
    """The reason why there is no answer; the value is what a user reads."""

    NAME = "name does not resolve"
    NAME_SERVER = "name server does not answer"
    REFUSED = "connection refused"
    UNREACHABLE = "network is unreachable"
    NO_ANSWER = "no answer to the attempt to connect"
    STALLED = "the server stopped sending"
    CUT = "connection was cut"
    CERTIFICATE = "certificate is not trusted"
    TLS = "no secure connection"
    PROXY = "the proxy does not let us through"
    STATUS = "HTTP error"
    REDIRECTS = "too many redirects"
    TOO_LARGE = "the answer is too large"
    DAMAGED = "the page is damaged"
    NO_INDEX = "the answer is not an index of packages"
    ADDRESS = "not an address that can be fetched"


#: passes by itself
_TEMPORARY = frozenset({NoAnswer.STALLED, NoAnswer.CUT})
#: worth one more try: the choice between candidates should not wait long
NOT_REACHED = frozenset(
    {
        *(NoAnswer.NAME, NoAnswer.NAME_SERVER, NoAnswer.REFUSED, NoAnswer.UNREACHABLE),
        *(NoAnswer.NO_ANSWER, NoAnswer.TLS, NoAnswer.PROXY),
    }
)
#: of getaddrinfo(3): the name server was asked in vain, or refused; others say that it knows no such name
_NAME_SERVER_FAILS = frozenset({socket.EAI_AGAIN, socket.EAI_FAIL})

#: what the system's own words add nothing to
_SAYS_ALL = frozenset({NoAnswer.NAME, NoAnswer.NAME_SERVER, NoAnswer.NO_ANSWER, NoAnswer.STALLED, NoAnswer.REFUSED})

_HELP = {
    NoAnswer.NAME: "The name is misspelt, or only the name servers of another network (a VPN, a site) know it.",
    NoAnswer.NAME_SERVER: "The name servers in /etc/resolv.conf are down, or no network leads to them.",
    NoAnswer.REFUSED: "The server, or the proxy before it, is down.",
    NoAnswer.UNREACHABLE: "This machine has no route to the host.",
    NoAnswer.NO_ANSWER: "A firewall drops the packets, or the host is down.",
    NoAnswer.STALLED: "The server, or the line to it, is overloaded or down; or a firewall lets the connection hang.",
    NoAnswer.CERTIFICATE: "A proxy of your site may sign connections with its own certificate.",
    NoAnswer.NO_INDEX: "A login page or a portal answers in its place, or the address is that of another page.",
}

_NEXT = {
    NoAnswer.NAME: (
        f"getent hosts {{host}}    asks the name servers of this machine; or name a mirror: {setting(mirror='…')}"
    ),
    NoAnswer.NAME_SERVER: "getent hosts {host}    asks them again; once it answers, the same command again",
    NoAnswer.CERTIFICATE: "set SSL_CERT_FILE=/path/of/the/ca-bundle.crt and run the same command again",
    NoAnswer.PROXY: "check https_proxy and no_proxy",
    NoAnswer.NO_INDEX: f"open the address in a browser and log in there, or name a mirror: {setting(mirror='sjtu')}",
}


class HttpError(NetworkError):
    """No usable answer. `host` and `reason` for people and programs; `status` with NoAnswer.STATUS."""

    reason: NoAnswer = NoAnswer.STATUS
    host: str = ""
    status: int | None = None
    retry_after: float | None = None
    is_final: bool = False  #: the budget of tries is used up

    def __reduce__(self) -> tuple[object, ...]:
        return *super().__reduce__(), dict(self.__dict__)

    @classmethod
    def of(cls, reason: NoAnswer, url: str, detail: str = "") -> "HttpError":
        """The error for this address."""
        host = host_of(url)
        step = _NEXT.get(reason, f"check the network of this machine, or name a mirror: {setting(mirror='…')}")
        error = cls(
            f"{redacted(url)}: {reason}" + (f" ({detail})" if detail else ""),
            cause=_HELP.get(reason, ""),
            next_step=step.replace("{host}", shlex.quote(host)),
        )
        error.reason, error.host = reason, host
        return error

    @property
    def constraint(self) -> str:
        """In a few words, for a list of candidates: `name does not resolve (download.pytorch.org)`."""
        what = str(self.reason) if self.status is None else f"HTTP {self.status}"
        return f"{what} ({self.host})" if self.host else what

    @property
    def is_temporary(self) -> bool:
        """Return whether the server may answer at the next try."""
        return self.status in TEMPORARY if self.reason is NoAnswer.STATUS else self.reason in _TEMPORARY

    @property
    def retries(self) -> int:
        """Tries that this failure is worth of a server without an earlier answer."""
        return int(self.reason in NOT_REACHED)


def redacted(url: str) -> str:
    """The address without user, password, query and fragment. The user of ssh stays: `git` is everybody's there."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return "a malformed address"
    user, at, host = parts.netloc.rpartition("@")
    shown = user.partition(":")[0] + at if parts.scheme.endswith("ssh") else ""
    return urllib.parse.urlunsplit((parts.scheme, shown + host, parts.path, "", ""))


def host_of(url: str) -> str:
    """The host's name, or an empty string."""
    try:
        return urllib.parse.urlsplit(url).hostname or ""
    except ValueError:
        return ""


def server_of(url: str) -> str:
    """Host and port of an address, without user and password; the address itself where it has no host."""
    address = redacted(url)
    return address.partition("://")[2].partition("/")[0] or address


def without_credentials(url: str) -> tuple[str, str]:
    """Split `user:password` off the address: (address, credentials or an empty string)."""
    parts = urllib.parse.urlsplit(url)
    credentials, _, location = parts.netloc.rpartition("@")
    return urllib.parse.urlunsplit(parts._replace(netloc=location, fragment="")), urllib.parse.unquote(credentials)


def authorization(url: str, credentials: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The header for these credentials, else for those that netrc has for the host."""
    if not credentials:
        home = environment.get("HOME")
        path = environment.get("NETRC") or (f"{home}/.netrc" if home else "")
        with contextlib.suppress(OSError, netrc.NetrcParseError):
            credentials = _netrc(path, host_of(url)) if path else ""
    if not credentials:
        return {}
    user, _, password = credentials.partition(":")
    raw = f"{user}:{password}".encode("utf-8", "surrogateescape")
    return {"Authorization": "Basic " + base64.b64encode(raw).decode()}


def _netrc(path: str, host: str) -> str:
    """Look up a netrc's entry for a host, "user:password" or empty; bytes that are no UTF-8 stay as they are.

    As curl has it: no encoding is written down for a netrc. Python's reader takes text alone, so it gets such a file
    with each byte as the letter of that number.
    """
    data = Path(path).read_bytes()
    with contextlib.suppress(UnicodeDecodeError):
        data.decode()
        return _pair(netrc.netrc(path), host)
    with os.fdopen(os.memfd_create("netrc"), "w+b") as copy:
        copy.write(data.decode("latin-1").encode())
        copy.flush()
        credentials = _pair(netrc.netrc(f"/proc/self/fd/{copy.fileno()}"), host)
    return credentials.encode("latin-1").decode("utf-8", "surrogateescape")


def _pair(entries: netrc.netrc, host: str) -> str:
    entry = entries.authenticators(host)
    return f"{entry[0]}:{entry[2]}" if entry else ""


def proxy_for(url: str, environment: Mapping[str, str]) -> str:
    """The proxy's address for this one, or an empty string: none for this very machine.

    Lower-case variables win, as in curl. `no_proxy` has names of hosts or domains, networks, or `*`.
    """
    import urllib.request  # 20 ms

    parts = urllib.parse.urlsplit(url)
    host, proxies = parts.hostname or "", {}
    for scheme in ("http", "https", "all", "no"):
        proxies[scheme] = environment.get(f"{scheme}_proxy") or environment.get(f"{scheme.upper()}_PROXY") or ""
    address = f"{host}:{parts.port}" if parts.port else host
    if is_loopback(host) or urllib.request.proxy_bypass_environment(address, proxies):  # type: ignore[attr-defined]
        return ""
    with contextlib.suppress(ValueError):
        if any(ipaddress.ip_address(host) in network for network in _networks(proxies["no"])):
            return ""
    proxy = proxies.get(parts.scheme) or proxies["all"]
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _networks(exempt: str) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    for entry in exempt.split(","):
        with contextlib.suppress(ValueError):
            yield ipaddress.ip_network(entry.strip(), strict=False)


def transport_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that sending and reading may raise, for an `except` clause."""
    import urllib3

    return (urllib3.exceptions.HTTPError, OSError, ValueError)


def refused(url: str, response: "urllib3.BaseHTTPResponse") -> HttpError:
    """The error for an unexpected status; closes the answer."""
    error = HttpError.of(NoAnswer.STATUS, url, f"{response.status} {response.reason or ''}".strip())
    error.status = response.status
    if (after := response.headers.get("Retry-After")) is not None:
        # A date (RFC 9110 allows one) is taken as a minute: the clocks may disagree.
        error.retry_after = float(after) if after.strip().isdigit() else 60.0
    response.close()
    return error


def broken(url: str, error: Exception, *, body: bool = False) -> HttpError:
    """Name a failure of the transport. `body`: after the headers came."""
    reason = _reason(error, body)
    if slow := next((cause for cause in _chain(error) if isinstance(cause, TooSlowError)), None):
        return HttpError.of(NoAnswer.STALLED, url, str(slow))
    if any(map(_is_head, _chain(error))):
        return HttpError.of(NoAnswer.TOO_LARGE, url, "its headers have no end")
    if reason in _SAYS_ALL:
        return HttpError.of(reason, url)
    last = _chain(error)[-1]  # in its own words: urllib3's texts hold object addresses
    return HttpError.of(reason, url, getattr(last, "strerror", None) or type(last).__name__)


def _reason(error: Exception, body: bool) -> NoAnswer:
    import urllib3.exceptions as kinds

    causes = _chain(error)
    numbers = {getattr(cause, "errno", None) for cause in causes}
    late = isinstance(error, kinds.ConnectTimeoutError) and not isinstance(error, kinds.NewConnectionError)
    tests = (
        (NoAnswer.PROXY, isinstance(error, kinds.ProxyError)),
        (
            NoAnswer.NAME_SERVER,
            any(isinstance(cause, socket.gaierror) and cause.errno in _NAME_SERVER_FAILS for cause in causes),
        ),
        (NoAnswer.NAME, any(isinstance(cause, socket.gaierror) for cause in causes)),
        (NoAnswer.CERTIFICATE, any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes)),
        (NoAnswer.NO_ANSWER, late),
        (NoAnswer.STALLED, isinstance(error, (kinds.ReadTimeoutError, TimeoutError))),
        (NoAnswer.REFUSED, any(isinstance(cause, ConnectionRefusedError) for cause in causes)),
        (NoAnswer.UNREACHABLE, bool(numbers & {errno.ENETUNREACH, errno.EHOSTUNREACH})),
        (NoAnswer.ADDRESS, isinstance(error, (kinds.LocationValueError, ValueError)) and not body),
        (NoAnswer.TLS, any(isinstance(cause, ssl.SSLError) for cause in causes)),
    )
    return next((reason for reason, holds in tests if holds), NoAnswer.CUT)


def _is_head(error: BaseException) -> bool:
    """Return whether an answer's headers are more than anybody reads: by our limits, or the standard library's."""
    return isinstance(error, (HeadTooLargeError, http.client.LineTooLong)) or (
        type(error) is http.client.HTTPException and "headers" in str(error)
    )


def _chain(error: BaseException) -> list[BaseException]:
    """The error and all that it was raised from or carries."""
    seen: list[BaseException] = []
    queue: list[object] = [error]
    while queue:
        item = queue.pop(0)
        if isinstance(item, BaseException) and item not in seen:
            seen.append(item)
            queue += [item.__cause__, item.__context__, getattr(item, "original_error", None), *item.args]
    return seen
