"""Logins that a registry asks for: challenges, scopes, and which token server may see a password. Pure.

RFC 9110, section 11.6.1; Docker's token specification.
"""

import ipaddress
import re
import urllib.parse
from collections.abc import Collection, Iterable

import msgspec

from patienthttp.errors import is_loopback

_PART = re.compile(r'([a-zA-Z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))|([A-Za-z][A-Za-z0-9-]*)')
_ESCAPED = re.compile(r"\\(.)")
#: Second labels under which strangers register names, where the last label is a country's (`example.com.cn`).
_SHARED = frozenset({"ac", "co", "com", "edu", "go", "gob", "gov", "gv", "mil", "ne", "net", "nom", "or", "org"})


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """One way to log in. `scheme` in lower case; `scopes` as the registry names them."""

    scheme: str
    realm: str = ""
    service: str = ""
    scopes: tuple[str, ...] = ()


def challenges(header: str) -> tuple[Challenge, ...]:
    """The challenges of a `WWW-Authenticate` header, which may hold several."""
    parts: list[tuple[str, dict[str, str]]] = []
    for key, quoted, plain, scheme in _PART.findall(header):
        if scheme:
            parts.append((scheme.lower(), {}))
        elif parts:
            parts[-1][1][key.lower()] = _ESCAPED.sub(r"\1", quoted) or plain
    return tuple(
        Challenge(
            scheme=scheme,
            realm=fields.get("realm", ""),
            service=fields.get("service", ""),
            scopes=tuple(fields.get("scope", "").split()),
        )
        for scheme, fields in parts
    )


def merged(scopes: Iterable[str]) -> tuple[str, ...]:
    """Scopes `type:name:action,action` with one entry for each resource, its actions together, in order."""
    actions: dict[str, dict[str, None]] = {}
    for scope in scopes:
        resource, _, names = scope.rpartition(":")
        actions.setdefault(resource, {}).update(dict.fromkeys(names.split(",")))
    return tuple(f"{resource}:{','.join(names)}" for resource, names in actions.items())


def origin(url: str) -> tuple[str, str, int]:
    """(scheme, host, port): to whom a header goes (RFC 6454). Empty for what is no address."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return "", "", 0
    return parts.scheme, (parts.hostname or "").lower(), port


def may_see(realm: str, registry: str, trusted: Collection[str] = ()) -> bool:
    """Return whether the token server at `realm` may see the password that this user has for `registry` (an address).

    Its host has to be the registry's own, of the registry's site, or one of `trusted` (host names); and nothing goes
    over an open line, except within this machine, or where `trusted` has both hosts.
    """
    scheme, host, _ = origin(realm)
    own_scheme, own, _ = origin(registry)
    if scheme != "https" and not (
        scheme == own_scheme == "http" and ({host, own} <= {*trusted} or (is_loopback(host) and is_loopback(own)))
    ):
        return False
    return host == own or (is_loopback(host) and is_loopback(own)) or site(host) == site(own) or host in trusted


def site(host: str) -> str:
    """The part of a host's name that one owner has: `auth.docker.io` → `docker.io`. An IP address is its own.

    A short rule instead of the public suffix list: the last two labels, three below `com.cn` and its like.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        labels = host.split(".")
        several = len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SHARED
        return ".".join(labels[-3:] if several else labels[-2:])
    return host
