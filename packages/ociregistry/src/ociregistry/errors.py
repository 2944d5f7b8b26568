"""Failures of registries, and of what is sent to them: values, one table of their words, errors that hold them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

#: what cannot be read raises one of these: text that is no UTF-8, and brackets within brackets without end, too
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Fault(StrEnum):
    """Kinds of failures: refusals by a registry, or of what it asks for, and bytes that are not those of a digest."""

    PULL = "pull"
    PUSH = "push"
    PLAIN_LOGIN = "a login without TLS"
    MANY = "more requests"
    LENGTH = "a request of this length"
    UPLOAD = "an upload with TLS"
    ANSWER = "an answer that is expected"
    PAGE = "an answer of a registry"
    TOKEN = "a token"
    REALM = "a realm with TLS"
    OTHER_SITE = "a realm of its own site"
    TLS = "TLS"
    WITHOUT_TLS = "requests without TLS"
    WITHOUT_TLS_HERE = "requests without TLS, on this machine"
    BLOB_ABSENT = "a blob of an image that it has"
    ABSENT = "an image"
    SERVED = "the content of a digest"
    STORED = "a digest as it was sent"
    SIZE = "a blob of its descriptor's size"
    DIGEST = "a digest that is one"
    LIST = "a list of a moderate size"
    SHORT = "a file of its descriptor's size"
    UNREADABLE = "a file that can be read"
    CHANGED = "a file of its digest"
    REFERENCE = "a reference that is one"


class RegistryFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about what ends the work.

    `host`: of the registry, with its port; `name`: of the repository; `digest`: what was asked for or sent; `other`:
    what was found instead, or a host that the registry names; `message`: the registry's own words, cut and without
    secrets; `page`: what came, where that is a web page; `subject`: what it does not take or have, in words, or a
    file; `detail`: of a certificate, a file or a reference; `size`, `stated`: bytes, those that are there and those
    that were to be; `has_login`: one was sent, that of the settings `given`, if any.
    """

    kind: Fault
    host: str = ""
    name: str = ""
    digest: str = ""
    other: str = ""
    status: int = 0
    codes: tuple[str, ...] = ()
    message: str = ""
    page: str = ""
    subject: str = ""
    detail: str = ""
    size: int = 0
    stated: int = 0
    has_login: bool = False
    given: str = ""

    @property
    def what(self) -> str:
        """A line that says what is wrong."""
        return _WORDS[self.kind].what.format_map(self._given)

    @property
    def cause(self) -> str:
        """The likely cause, in sentences; empty where the kind says all."""
        return _WORDS[self.kind].cause.format_map(self._given)

    @property
    def _given(self) -> dict[str, object]:
        paged = self.page and f"The answer is {self.page}. "
        says = self.message and f"The registry says: {self.message}"
        return msgspec.structs.asdict(self) | {
            "listed_codes": "".join(f": {', '.join(self.codes)}" for _ in self.codes[:1]),
            "reason": ", ".join(self.codes) or "no reason given",
            "paged": paged,
            "says": says,
            "first": paged or (says and f"{says.rstrip('.')}. Else: "),
            "login": f"The login of {self.given or 'this machine'} is not enough."
            if self.has_login
            else "There is no login for it here.",
            "came": self.page or "something else than a registry does",
            "malformed": self.page or "malformed",
            "certificate": self.detail and f"; its {self.detail}",
        }


class _Words(NamedTuple):
    what: str
    cause: str = ""


_NO_ACCESS = "{host} refuses access to {name} (HTTP {status}{listed_codes})"
_SPEAKS_TLS = "{host} speaks TLS, and was asked without{certificate}"

_WORDS: Mapping[Fault, _Words] = {
    Fault.PULL: _Words(_NO_ACCESS, "{first}The image is private, or it does not exist. {login}"),
    Fault.PUSH: _Words(_NO_ACCESS, "{first}Not everybody may push there, or it does not exist. {login}"),
    Fault.PLAIN_LOGIN: _Words(
        "{host} asks for a login, which plain http would show to everybody on the way", "None was sent."
    ),
    Fault.MANY: _Words(
        "{host} takes no more requests for now (HTTP 429)", "Registries limit how much can be pulled without a login."
    ),
    Fault.LENGTH: _Words(
        "{host} does not take {subject} at once (HTTP 413)",
        "A proxy before the registry limits requests (nginx: client_max_body_size).",
    ),
    Fault.PAGE: _Words(
        "{host} answers {subject} with {came} (HTTP {status})",
        "A portal or a login of the network answers in the registry's place, or another server has this port.",
    ),
    Fault.UPLOAD: _Words("{host} asks for the image to be sent to {other} without encryption"),
    Fault.ANSWER: _Words("{host} does not take {subject}: HTTP {status} ({reason})", "{says}"),
    Fault.TOKEN: _Words("{other} gave no token for {name}: its answer is {malformed}"),
    Fault.REALM: _Words("{host} asks for a login at {other} without encryption"),
    Fault.OTHER_SITE: _Words(
        "{host} asks for your login to be sent to {other}, a different site",
        "Its token server is elsewhere, or someone on the way asks for the password.",
    ),
    Fault.TLS: _Words(
        "{host} answers without TLS: this registry speaks plain http",
        "Nothing was sent to it: whoever is on the way could read and change it.",
    ),
    Fault.WITHOUT_TLS: _Words(_SPEAKS_TLS),
    Fault.WITHOUT_TLS_HERE: _Words(_SPEAKS_TLS, "A registry on this very machine is asked without TLS."),
    Fault.BLOB_ABSENT: _Words(
        "{host} has the image {name} without its blob {digest} (HTTP 404)", "The image was pushed or deleted in part."
    ),
    Fault.ABSENT: _Words(
        "{subject} does not exist",
        "{paged}The registry knows no such image or tag, or shows it only to those who are logged in.",
    ),
    Fault.SERVED: _Words(
        "{host} served another {subject} than {digest}: {other}",
        "The registry is damaged or a proxy on the way changed the answer.",
    ),
    Fault.STORED: _Words(
        "{host} has taken {subject} {digest} for {other}",
        "The registry is damaged, or a proxy on the way changes what is sent.",
    ),
    Fault.SIZE: _Words(
        "the blob {digest} of {name} has {size} bytes, and its manifest says {stated}",
        "Whoever wrote the manifest did not read the blob, or somebody changed it.",
    ),
    Fault.DIGEST: _Words("the manifest names a blob {digest!r}, which is not a sha256 digest"),
    Fault.LIST: _Words("a list of referrers has {size} bytes, more than {stated}"),
    Fault.SHORT: _Words("{subject} is shorter than its descriptor says ({stated} bytes)"),
    Fault.UNREADABLE: _Words("{subject} cannot be read: {detail}"),
    Fault.CHANGED: _Words(
        "the blob {digest} has other bytes: {other}",
        "The file was changed after it was written, or its disk is faulty.",
    ),
    Fault.REFERENCE: _Words(
        "{subject!r} is not an image reference: {detail}", "A reference is [host[:port]/]repository[:tag][@sha256:…]."
    ),
}


class RegistryError(Exception):
    """An error of this library; `failure` has the facts."""

    failure: RegistryFailure


class RefusedError(RegistryError):
    """A registry does not take or give something, or asks for what it does not get."""


class AbsentError(RegistryError):
    """A registry has no such image."""


class DamagedError(RegistryError):
    """Bytes that a registry has, or says that it has, and that are not those of a digest."""


class BlobError(RegistryError):
    """A blob that is to be sent cannot be read, or is not what its descriptor says."""


class ReferenceFormError(RegistryError):
    """A text is no reference of an image."""


_CLASSES: Mapping[Fault, type[RegistryError]] = {
    Fault.ABSENT: AbsentError,
    **dict.fromkeys((Fault.SERVED, Fault.STORED, Fault.SIZE, Fault.DIGEST, Fault.LIST), DamagedError),
    **dict.fromkeys((Fault.SHORT, Fault.UNREADABLE, Fault.CHANGED), BlobError),
    Fault.REFERENCE: ReferenceFormError,
}


def class_of(kind: Fault) -> type[RegistryError]:
    """Return the class of the errors of a kind."""
    return _CLASSES.get(kind, RefusedError)


def error(failure: RegistryFailure) -> RegistryError:
    """Return the error of a failure."""
    made = class_of(failure.kind)(failure.what + (f"\ncause: {failure.cause}" if failure.cause else ""))
    made.failure = failure
    return made
