"""Failures of registries: each has words of its own, and keeps what the registry says apart."""

import pytest

from graphcrate.model.errors import IntegrityError, LayoutError, NetworkError, ResolutionError, UsageError
from graphcrate.oci import reference, refusals
from ociregistry.errors import Fault, RegistryFailure
from patienthttp.errors import FetchFailure, NoAnswer

FACTS = {
    "host": "registry.example:5000",
    "name": "registry.example:5000/team/image",
    "other": "token.example",
    "digest": "sha256:ab",
    "size": 7,
    "stated": 8,
    "status": 403,
    "codes": ("DENIED", "UNAUTHORIZED"),
    "message": "no {such} user.",
    "subject": "the blob sha256:ab",
    "detail": "certificate is not trusted",
}
#: words of what, cause and next step
WORDS = {
    Fault.PULL: ("refuses access to registry", "says: no {such} user. Else: The image is private", "podman login"),
    Fault.PUSH: ("(HTTP 403: DENIED, UNAUTHORIZED)", "Not everybody may push", "see what the registry says; else"),
    Fault.PLAIN_LOGIN: ("asks for a login", "None was sent", "REGISTRY_REALMS=token.example"),
    Fault.MANY: ("HTTP 429", "limit how much", "podman login registry.example:5000"),
    Fault.LENGTH: ("does not take the blob sha256:ab at once (HTTP 413)", "client_max_body_size", "raise that limit"),
    Fault.UPLOAD: ("the image to be sent to token.example", "", "must be an https address"),
    Fault.ANSWER: ("the blob sha256:ab: HTTP 403 (DENIED, UN", "The registry says: no {such} user.", "try again"),
    Fault.PAGE: (
        "answers the blob sha256:ab with something else than a registry does",
        "A portal or a login",
        "browser",
    ),
    Fault.TOKEN: ("token.example gave no token for registry", "", "docker login"),
    Fault.REALM: ("a login at token.example without encryption", "", "realm of its challenge"),
    Fault.OTHER_SITE: ("to be sent to token.example", "elsewhere", "REGISTRY_REALMS=token.example, then"),
    Fault.TLS: ("speaks plain http", "Nothing was sent", "REGISTRY_PLAIN_HTTP=registry.example:5000"),
    Fault.WITHOUT_TLS: ("asked without; its certificate is not trusted", "", "without --plain-http"),
    Fault.WITHOUT_TLS_HERE: ("asked without; its certificate", "on this very machine", "this machine's host name"),
    Fault.BLOB_ABSENT: ("without its blob sha256:ab (HTTP 404)", "in part", "push the image again, or name another"),
    Fault.ABSENT: ("the blob sha256:ab does not exist", "logged in", "list-tags docker://registry.example:5000/team"),
    Fault.SERVED: ("served another the blob sha256:ab than sha256:ab: token", "on the way changed", "another registry"),
    Fault.STORED: ("has taken the blob sha256:ab sha256:ab for token", "changes what is sent", "push to another"),
    Fault.SIZE: ("has 7 bytes, and its manifest says 8", "did not read the blob", "push it again, or ask whoever"),
    Fault.DIGEST: ("a blob 'sha256:ab', which is not a sha256 digest", "", "fetch or copy it again"),
    Fault.LIST: ("a list of referrers has 7 bytes, more than 8", "", "fetch or copy it again"),
    Fault.SHORT: ("is shorter than its descriptor says (8 bytes)", "", "build the image again"),
    Fault.UNREADABLE: ("cannot be read: certificate", "", "build the image again"),
    Fault.CHANGED: ("the blob sha256:ab has other bytes: token", "its disk is faulty", "remove the image's folder"),
}
#: the error of ours; of others NetworkError
KINDS = {
    Fault.ABSENT: ResolutionError,
    **dict.fromkeys((Fault.SERVED, Fault.STORED, Fault.SIZE, Fault.DIGEST, Fault.LIST), IntegrityError),
    **dict.fromkeys((Fault.SHORT, Fault.UNREADABLE, Fault.CHANGED), LayoutError),
}


@pytest.mark.parametrize("kind", [kind for kind in Fault if kind is not Fault.REFERENCE])
def test_each_failure_says_what_why_and_what_to_do(kind):
    error = refusals.error(RegistryFailure(kind=kind, **FACTS))
    assert isinstance(error, KINDS.get(kind, NetworkError))
    assert error.exit_code == KINDS.get(kind, NetworkError).exit_code
    for text, word in zip((error.what, error.cause, error.next_step), WORDS[kind], strict=True):
        assert word in text
        assert text or not word
    assert "{" not in str(error).replace("{such}", "")


def test_refusal_without_a_word_of_the_registry_says_that_none_was_given():
    error = refusals.error(RegistryFailure(kind=Fault.ANSWER, host="h", subject="a blob", status=500))
    assert (error.what, error.cause) == ("h does not take a blob: HTTP 500 (no reason given)", "")
    error = refusals.error(RegistryFailure(kind=Fault.PULL, host="h", name="h/x", status=401))
    assert error.what == "h refuses access to h/x (HTTP 401)"
    assert error.cause == "The image is private, or it does not exist. There is no login for it here."
    assert error.next_step == "check the name, or log in with podman or docker: podman login h"


@pytest.mark.parametrize(
    ("kind", "writes", "words"),
    [
        (NoAnswer.STALLED, True, "wait a little"),
        (NoAnswer.REFUSED, True, "registry's name in --to,"),
        (NoAnswer.REFUSED, False, "registry's name, and"),
        (NoAnswer.CERTIFICATE, False, ""),
        (NoAnswer.NAME_SERVER, False, ""),
        (NoAnswer.FOREIGN, False, "ask who runs the registry h, or name another"),
    ],
)
def test_no_answer_of_a_registry_names_no_mirror(kind, writes, words):
    _, next_step = refusals.reworded(FetchFailure.of(kind, "https://h/v2/"), "h", writes=writes)
    assert words in next_step
    assert bool(words) == bool(next_step)


def test_text_that_is_no_reference_is_a_usage_error_with_an_example():
    with pytest.raises(UsageError, match="'Python' is not a repository") as caught:
        reference.parse("Python")
    assert caught.value.next_step == "write it like docker.io/library/python:3.11-slim"
