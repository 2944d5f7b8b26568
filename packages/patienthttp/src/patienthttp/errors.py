"""Errors of this library, and why there is no usable answer: facts, one table of likely causes and next steps."""

import functools
import ipaddress
import shlex
import socket
import urllib.parse
from collections.abc import Mapping
from enum import StrEnum
from typing import Self

import msgspec

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
    NO_PROXY = "the proxy does not answer"
    PROXY_ADDRESS = "the proxy's address is none of http or https"
    STATUS = "HTTP error"
    REDIRECTS = "too many redirects"
    TOO_LARGE = "the answer is too large"
    DAMAGED = "the page is damaged"
    FOREIGN = "the answer is another page"
    ADDRESS = "not an address that can be fetched"


#: pass by themselves
_TEMPORARY = frozenset({NoAnswer.STALLED, NoAnswer.CUT})
#: worth one more try: the choice between candidates should not wait long
NOT_REACHED = frozenset(
    {
        *(NoAnswer.NAME, NoAnswer.NAME_SERVER, NoAnswer.REFUSED, NoAnswer.UNREACHABLE),
        *(NoAnswer.NO_ANSWER, NoAnswer.TLS, NoAnswer.PROXY, NoAnswer.NO_PROXY),
    }
)
#: failures of a server that others of its files would have too
OF_THE_SERVER = NOT_REACHED | {NoAnswer.CERTIFICATE, NoAnswer.PROXY_ADDRESS}
#: kinds that are about the proxy, which the environment names
OF_THE_PROXY = frozenset({NoAnswer.PROXY, NoAnswer.NO_PROXY, NoAnswer.PROXY_ADDRESS})
#: of getaddrinfo(3): the name server was asked in vain, or refused; others say that it knows no such name
NAME_SERVER_FAILS = frozenset({socket.EAI_AGAIN, socket.EAI_FAIL})

#: kind → likely cause
_CAUSES: Mapping[NoAnswer, str] = {
    NoAnswer.NAME: "The name is misspelt, or only the name servers of another network (a VPN, a site) know it.",
    NoAnswer.NAME_SERVER: "The name servers in /etc/resolv.conf are down, or no network leads to them.",
    NoAnswer.REFUSED: "The server, or the proxy before it, is down.",
    NoAnswer.UNREACHABLE: "This machine has no route to the host.",
    NoAnswer.NO_ANSWER: "A firewall drops the packets, or the host is down.",
    NoAnswer.STALLED: "The server, or the line to it, is overloaded or down; or a firewall lets the connection hang.",
    NoAnswer.CERTIFICATE: "A proxy of your site may sign connections with its own certificate.",
    NoAnswer.NO_PROXY: "It is down, or its name or port in the environment is misspelt.",
    NoAnswer.PROXY_ADDRESS: "Proxies of SOCKS are not spoken to; what gives one often gives one of HTTP too.",
    NoAnswer.FOREIGN: "A login page or a portal answers in its place, or the address is that of another page.",
}

#: kind → next step, with the host in its place
_NEXT: Mapping[NoAnswer, str] = {
    NoAnswer.NAME: "getent hosts {host}    asks the name servers of this machine",
    NoAnswer.NAME_SERVER: "getent hosts {host}    asks them again; once it answers, the same command again",
    NoAnswer.CERTIFICATE: "set SSL_CERT_FILE=/path/of/the/ca-bundle.crt and run the same command again",
    **dict.fromkeys(OF_THE_PROXY, "env | grep -i proxy    shows them: check https_proxy and no_proxy"),
    NoAnswer.FOREIGN: "open the address in a browser and log in there",
}


class FetchFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about something that did not come. `address`: without password and query; `status`: of NoAnswer.STATUS."""

    kind: NoAnswer = NoAnswer.STATUS
    address: str = ""
    host: str = ""
    detail: str = ""
    status: int | None = None

    @classmethod
    def of(cls, kind: NoAnswer, url: str, detail: str = "", status: int | None = None) -> Self:
        """The failure of an address."""
        return cls(kind=kind, address=redacted(url), host=host_of(url), detail=detail, status=status)

    @property
    def what(self) -> str:
        """The address, and why it gave nothing."""
        return f"{self.address}: {self.kind}" + (f" ({self.detail})" if self.detail else "")

    @property
    def cause(self) -> str:
        """The likely cause, a sentence; empty where the kind says all."""
        return _CAUSES.get(self.kind, "")

    @property
    def next_step(self) -> str:
        """Return what to type or to do."""
        return _NEXT.get(self.kind, "check the network of this machine").replace("{host}", shlex.quote(self.host))

    @property
    def why(self) -> str:
        """In a few words, beside the name of the server: `name does not resolve`, `HTTP 403`."""
        return str(self.kind) if self.status is None else f"HTTP {self.status}"

    @property
    def is_absent(self) -> bool:
        """Return whether the server answered that it does not have what was asked for.

        One that refuses says nothing of it.
        """
        return self.status in (404, 410)

    @property
    def is_of_the_server(self) -> bool:
        """Return whether other files of this server would fail for the same reason."""
        return self.kind in OF_THE_SERVER

    @property
    def is_temporary(self) -> bool:
        """Return whether the server may answer at the next try."""
        return self.status in TEMPORARY if self.kind is NoAnswer.STATUS else self.kind in _TEMPORARY


class FetchError(Exception):
    """An error of a request: what is wrong, the likely cause and a next step; the last two may be empty."""

    def __init__(self, what: str, *, cause: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what, self.cause, self.next_step = what, cause, next_step

    def __str__(self) -> str:
        parts = {"": self.what, "\ncause: ": self.cause, "\nnext:  ": self.next_step}
        return "".join(f"{label}{text}" for label, text in parts.items() if text)

    def __reduce__(self) -> tuple[object, ...]:
        make = functools.partial(type(self), self.what, cause=self.cause, next_step=self.next_step)
        return make, (), dict(self.__dict__)


class DifferentFileError(FetchError):
    """A server gave a file of another size or hash than was promised."""


class BundleError(FetchError):
    """The certificates to trust, which the environment names, cannot be read."""


class HttpError(FetchError):
    """No usable answer; `failure` has the facts."""

    failure: FetchFailure = FetchFailure()
    retry_after: float | None = None
    is_final: bool = False  #: the budget of tries is used up

    @classmethod
    def of(cls, kind: NoAnswer, url: str, detail: str = "", status: int | None = None) -> Self:
        """The error for this address."""
        return cls.because(FetchFailure.of(kind, url, detail, status))

    @classmethod
    def because(cls, failure: FetchFailure) -> Self:
        """The error for this failure."""
        error = cls(failure.what, cause=failure.cause, next_step=failure.next_step)
        error.failure = failure
        return error

    @property
    def brief(self) -> str:
        """In a few words, for a list: `name does not resolve (download.pytorch.org)`."""
        where = self.failure.detail if self.failure.kind in OF_THE_PROXY else ""
        where = where or self.failure.host
        return f"{self.failure.why} ({where})" if where else self.failure.why

    @property
    def retries(self) -> int:
        """Tries that this failure is worth of a server without an earlier answer."""
        return int(self.failure.kind in NOT_REACHED)


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


def is_loopback(host: str) -> bool:
    """Return whether a host's name (in lower case, no port) means this very machine.

    `127.example.com` is another's name.
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
