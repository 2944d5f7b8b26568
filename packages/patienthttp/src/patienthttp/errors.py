"""Errors of this library: why there is no usable answer, in words and as values."""

import functools
import ipaddress
import shlex
import socket
import urllib.parse
from enum import StrEnum
from typing import Self

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
    FOREIGN = "the answer is another page"
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
NAME_SERVER_FAILS = frozenset({socket.EAI_AGAIN, socket.EAI_FAIL})

_HELP = {
    NoAnswer.NAME: "The name is misspelt, or only the name servers of another network (a VPN, a site) know it.",
    NoAnswer.NAME_SERVER: "The name servers in /etc/resolv.conf are down, or no network leads to them.",
    NoAnswer.REFUSED: "The server, or the proxy before it, is down.",
    NoAnswer.UNREACHABLE: "This machine has no route to the host.",
    NoAnswer.NO_ANSWER: "A firewall drops the packets, or the host is down.",
    NoAnswer.STALLED: "The server, or the line to it, is overloaded or down; or a firewall lets the connection hang.",
    NoAnswer.CERTIFICATE: "A proxy of your site may sign connections with its own certificate.",
    NoAnswer.FOREIGN: "A login page or a portal answers in its place, or the address is that of another page.",
}

_NEXT = {
    NoAnswer.NAME: "getent hosts {host}    asks the name servers of this machine",
    NoAnswer.NAME_SERVER: "getent hosts {host}    asks them again; once it answers, the same command again",
    NoAnswer.CERTIFICATE: "set SSL_CERT_FILE=/path/of/the/ca-bundle.crt and run the same command again",
    NoAnswer.PROXY: "check https_proxy and no_proxy",
    NoAnswer.FOREIGN: "open the address in a browser and log in there",
}


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
    """No usable answer. `host` and `reason` for people and programs; `status` with NoAnswer.STATUS."""

    reason: NoAnswer = NoAnswer.STATUS
    host: str = ""
    status: int | None = None
    retry_after: float | None = None
    is_final: bool = False  #: the budget of tries is used up

    @classmethod
    def of(cls, reason: NoAnswer, url: str, detail: str = "") -> Self:
        """The error for this address."""
        host = host_of(url)
        step = _NEXT.get(reason, "check the network of this machine").replace("{host}", shlex.quote(host))
        what = f"{redacted(url)}: {reason}" + (f" ({detail})" if detail else "")
        error = cls(what, cause=_HELP.get(reason, ""), next_step=step)
        error.reason, error.host = reason, host
        return error

    @property
    def constraint(self) -> str:
        """In a few words, for a list: `name does not resolve (download.pytorch.org)`."""
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


def is_loopback(host: str) -> bool:
    """Return whether a host's name (in lower case, no port) means this very machine.

    `127.example.com` is another's name.
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
