"""Refusals of registries: each has words of its own, and keeps what the registry says apart."""

import pytest

from graphcrate.oci import refusals
from graphcrate.oci.refusals import Refused, RegistryRefusal
from patienthttp.errors import FetchFailure, NoAnswer

FACTS = {
    "host": "registry.example:5000",
    "name": "registry.example:5000/team/image",
    "other": "token.example",
    "status": 403,
    "codes": ("DENIED", "UNAUTHORIZED"),
    "message": "no {such} user.",
    "doing": "the blob sha256:ab",
    "fault": "certificate is not trusted",
}
#: words of what, cause and next step
WORDS = {
    Refused.PULL: ("refuses access to registry", "says: no {such} user. Else: The image is private", "podman login"),
    Refused.PUSH: ("(HTTP 403: DENIED, UNAUTHORIZED)", "Not everybody may push", "see what the registry says; else"),
    Refused.PLAIN_LOGIN: ("asks for a login", "None was sent", "REGISTRY_REALMS=token.example"),
    Refused.MANY: ("HTTP 429", "limit how much", "podman login registry.example:5000"),
    Refused.LENGTH: ("does not take the blob sha256:ab at once (HTTP 413)", "client_max_body_size", "raise that limit"),
    Refused.UPLOAD: ("the image to be sent to token.example", "", "must be an https address"),
    Refused.ANSWER: ("the blob sha256:ab: HTTP 403 (DENIED, UN", "The registry says: no {such} user.", "try again"),
    Refused.TOKEN: ("token.example gave no token for registry", "", "docker login"),
    Refused.REALM: ("a login at token.example without encryption", "", "realm of its challenge"),
    Refused.OTHER_SITE: ("to be sent to token.example", "elsewhere", "REGISTRY_REALMS=token.example, then"),
    Refused.TLS: ("speaks plain http", "Nothing was sent", "REGISTRY_PLAIN_HTTP=registry.example:5000"),
    Refused.WITHOUT_TLS: ("asked without; its certificate is not trusted", "", "without --plain-http"),
    Refused.WITHOUT_TLS_HERE: ("asked without; its certificate", "on this very machine", "this machine's host name"),
}


@pytest.mark.parametrize("kind", Refused)
def test_each_refusal_says_what_why_and_what_to_do(kind):
    error = refusals.error(RegistryRefusal(kind=kind, **FACTS))
    for text, word in zip((error.what, error.cause, error.next_step), WORDS[kind], strict=True):
        assert word in text
        assert text or not word
    assert "{" not in str(error).replace("{such}", "")


def test_refusal_without_a_word_of_the_registry_says_that_none_was_given():
    error = refusals.error(RegistryRefusal(kind=Refused.ANSWER, host="h", doing="a blob", status=500))
    assert (error.what, error.cause) == ("h does not take a blob: HTTP 500 (no reason given)", "")
    error = refusals.error(RegistryRefusal(kind=Refused.PULL, host="h", name="h/x", status=401))
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
