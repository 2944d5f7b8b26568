"""Refusals of registries as values, and one table of their causes and next steps. Pure."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from graphcrate.host.settings import PLAIN_HTTP
from graphcrate.model.command import ETC, command, for_shell
from graphcrate.model.errors import NetworkError
from patienthttp.errors import NOT_REACHED, FetchFailure, NoAnswer

#: what OpenSSL says of an answer that is not TLS
_NO_TLS = re.compile("wrong version number|record layer failure|packet length too long", re.IGNORECASE)


class Refused(StrEnum):
    """Refusals by a registry, or of what it asks for."""

    PULL = "pull"
    PUSH = "push"
    PLAIN_LOGIN = "a login without TLS"
    MANY = "more requests"
    LENGTH = "a request of this length"
    UPLOAD = "an upload with TLS"
    ANSWER = "an answer that is expected"
    TOKEN = "a token"
    REALM = "a realm with TLS"
    OTHER_SITE = "a realm of its own site"
    TLS = "TLS"
    WITHOUT_TLS = "requests without TLS"
    WITHOUT_TLS_HERE = "requests without TLS, on this machine"


class RegistryRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about an answer, or a challenge, that ends the work.

    `host`: of the registry, with its port; `name`: of the repository; `other`: a host that it names; `message`: its own
    words, cut and without secrets; `doing`: what it does not take; `fault`: of its certificate; `has_login`: one of
    this machine was sent.
    """

    kind: Refused
    host: str
    name: str = ""
    other: str = ""
    status: int = 0
    codes: tuple[str, ...] = ()
    message: str = ""
    doing: str = ""
    fault: str = ""
    has_login: bool = False


class _Words(NamedTuple):
    what: str
    cause: str
    next_step: str


_NO_ACCESS = "{host} refuses access to {name} (HTTP {status}{codes})"
_LOG_IN = "{see}check the name, or log in with podman or docker: podman login {registry}"
_SPEAKS_TLS = "{host} speaks TLS, and was asked without{fault}"
_HERE = "A registry on this very machine is asked without TLS."
_ADMINISTRATOR = "ask the registry's administrator"

_WORDS: Mapping[Refused, _Words] = {
    Refused.PULL: _Words(_NO_ACCESS, "{first}The image is private, or it does not exist. {login}", _LOG_IN),
    Refused.PUSH: _Words(_NO_ACCESS, "{first}Not everybody may push there, or it does not exist. {login}", _LOG_IN),
    Refused.PLAIN_LOGIN: _Words(
        "{host} asks for a login, which plain http would show to everybody on the way",
        "None was sent.",
        "in a network that you trust: REGISTRY_REALMS={other_word}, then again; else a registry with TLS",
    ),
    Refused.MANY: _Words(
        "{host} takes no more requests for now (HTTP 429)",
        "Registries limit how much can be pulled without a login.",
        "wait, or log in: podman login {registry}",
    ),
    Refused.LENGTH: _Words(
        "{host} does not take {doing} at once (HTTP 413)",
        "A proxy before the registry limits requests (nginx: client_max_body_size).",
        f"{_ADMINISTRATOR} to raise that limit",
    ),
    Refused.UPLOAD: _Words(
        "{host} asks for the image to be sent to {other} without encryption",
        "",
        f"{_ADMINISTRATOR}: the Location of an upload must be an https address",
    ),
    Refused.ANSWER: _Words(
        "{host} does not take {doing}: HTTP {status} ({reason})",
        "{message}",
        f"try again; where it repeats itself, {_ADMINISTRATOR}",
    ),
    Refused.TOKEN: _Words(
        "{other} gave no token for {name}: its answer is malformed",
        "",
        "log in again (docker login), or ask who runs the registry",
    ),
    Refused.REALM: _Words(
        "{host} asks for a login at {other} without encryption",
        "",
        f"{_ADMINISTRATOR}: the realm of its challenge must be an https address",
    ),
    Refused.OTHER_SITE: _Words(
        "{host} asks for your login to be sent to {other}, a different site",
        "Its token server is elsewhere, or someone on the way asks for the password.",
        "if {other} is known to be the registry's token server: REGISTRY_REALMS={other_word}, then again",
    ),
    Refused.TLS: _Words(
        "{host} answers without TLS: this registry speaks plain http",
        "Nothing was sent to it: whoever is on the way could read and change it.",
        f"{command(ETC, plain_http=True)}    in a network that you trust "
        f"(of what a recipe names: {PLAIN_HTTP}={{host_word}})",
    ),
    Refused.WITHOUT_TLS: _Words(_SPEAKS_TLS, "", f"the same command without --plain-http (and {PLAIN_HTTP})"),
    Refused.WITHOUT_TLS_HERE: _Words(
        _SPEAKS_TLS,
        _HERE,
        "start it without TLS, or name it by this machine's host name, which its certificate has to have",
    ),
}

#: kinds that keep the words of any fetch: they are about this machine
_OF_ANY_FETCH = frozenset({NoAnswer.CERTIFICATE, NoAnswer.PROXY, NoAnswer.NAME_SERVER})
_PASSING = frozenset({NoAnswer.STATUS, NoAnswer.CUT, NoAnswer.STALLED})


def error(refusal: RegistryRefusal) -> NetworkError:
    """Return the error for a refusal."""
    given = {
        "host": refusal.host,
        "host_word": for_shell(refusal.host),
        "name": refusal.name,
        "registry": for_shell(refusal.name.partition("/")[0]),
        "other": refusal.other,
        "other_word": for_shell(refusal.other),
        "status": refusal.status,
        "codes": "".join(f": {', '.join(refusal.codes)}" for _ in refusal.codes[:1]),
        "reason": ", ".join(refusal.codes) or "no reason given",
        "message": refusal.message and f"The registry says: {refusal.message}",
        "first": refusal.message and f"The registry says: {refusal.message.rstrip('.')}. Else: ",
        "see": "see what the registry says; else " if refusal.message else "",
        "login": "The login on this machine is not enough." if refusal.has_login else "There is no login for it here.",
        "doing": refusal.doing,
        "fault": refusal.fault and f"; its {refusal.fault}",
    }
    what, cause, next_step = (text.format_map(given) for text in _WORDS[refusal.kind])
    return NetworkError(what, cause=cause, next_step=next_step)


def is_plain_http(failure: FetchFailure, message: str) -> bool:
    """Return whether a server that was asked with TLS has answered without, by OpenSSL's `message`."""
    return failure.kind is NoAnswer.TLS and bool(_NO_TLS.search(message))


def reworded(failure: FetchFailure, host: str, *, writes: bool) -> tuple[str, str]:
    """Return cause and next step of a registry without an answer; empty where those of any fetch are right.

    No mirror stands in for the registry that the user named.
    """
    if failure.kind in _OF_ANY_FETCH:
        return "", ""
    if failure.kind in _PASSING:
        return (
            "The registry, or a proxy before it, is overloaded or down.",
            "wait a little and run the same command again: what has arrived is not sent again",
        )
    if failure.kind in NOT_REACHED:
        return "", f"check the registry's name{' in --to' * writes}, and the network of this machine"
    return "", f"ask who runs the registry {host}, or name another"
