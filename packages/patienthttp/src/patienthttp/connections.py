"""Whom a request goes to (proxy, credentials), and what its failures are called."""

import base64
import contextlib
import errno
import http.client
import ipaddress
import netrc
import os
import socket
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from patienthttp.errors import NAME_SERVER_FAILS, HttpError, NoAnswer, host_of, is_loopback, redacted
from patienthttp.patience import HeadTooLargeError, TooSlowError

if TYPE_CHECKING:
    import urllib3

#: variables that name the certificates to trust, the first one set
BUNDLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
#: what the system's own words add nothing to
_SAYS_ALL = frozenset({NoAnswer.NAME, NoAnswer.NAME_SERVER, NoAnswer.NO_ANSWER, NoAnswer.STALLED, NoAnswer.REFUSED})


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


def usable_proxy(url: str, environment: Mapping[str, str]) -> str:
    """Return `proxy_for`, checked. Raises HttpError for an address that is neither http nor https, or has no host."""
    proxy = proxy_for(url, environment)
    try:
        parts = urllib.parse.urlsplit(proxy)
        usable = not proxy or (parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0)
    except ValueError:  # a port that is no number
        usable = False
    if not usable:
        raise HttpError.of(NoAnswer.PROXY_ADDRESS, url, redacted(proxy))
    return proxy


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
    detail = f"{response.status} {response.reason or ''}".strip()
    error = HttpError.of(NoAnswer.STATUS, url, detail, response.status)
    if (after := response.headers.get("Retry-After")) is not None:
        # A date (RFC 9110 allows one) is taken as a minute: the clocks may disagree.
        error.retry_after = float(after) if after.strip().isdigit() else 60.0
    response.close()
    return error


def broken(url: str, error: Exception, *, body: bool = False, proxy: str = "") -> HttpError:
    """Name a failure of the transport. `body`: after the headers came; `proxy`: the address of the one that it took."""
    reason = _reason(error, body)
    if reason is NoAnswer.NO_PROXY:
        return HttpError.of(reason, url, redacted(proxy))
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
        (
            NoAnswer.NO_PROXY,
            isinstance(error, kinds.ProxyError)
            and any(isinstance(cause, (kinds.NewConnectionError, kinds.ConnectTimeoutError)) for cause in causes),
        ),
        (NoAnswer.PROXY, isinstance(error, kinds.ProxyError)),
        (
            NoAnswer.NAME_SERVER,
            any(isinstance(cause, socket.gaierror) and cause.errno in NAME_SERVER_FAILS for cause in causes),
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
