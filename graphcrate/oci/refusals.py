"""Failures of registries as errors of ours, and one table of their next steps. Pure."""

from collections.abc import Mapping

from graphcrate.host.settings import PLAIN_HTTP
from graphcrate.model.command import ETC, command, for_shell
from graphcrate.model.errors import GraphcrateError, IntegrityError, LayoutError, NetworkError, ResolutionError
from graphcrate.oci.layout import REBUILD
from ociregistry import errors
from ociregistry.errors import Fault, RegistryFailure
from patienthttp.errors import NOT_REACHED, OF_THE_PROXY, FetchFailure, NoAnswer


class RefusedError(NetworkError, errors.RefusedError):
    """A registry refuses something, or asks for what it does not get."""


class AbsentError(ResolutionError, errors.AbsentError):
    """A registry has no such image."""


class DamagedError(IntegrityError, errors.DamagedError):
    """Bytes of a registry that are not those of a digest."""


class BlobError(LayoutError, errors.BlobError):
    """A blob that is to be sent is not what its descriptor says."""


_CLASSES: Mapping[type[errors.RegistryError], type[GraphcrateError]] = {
    errors.RefusedError: RefusedError,
    errors.AbsentError: AbsentError,
    errors.DamagedError: DamagedError,
    errors.BlobError: BlobError,
}

_LOG_IN = "{see}check the name, or log in with podman or docker: podman login {registry}"
#: where variables give the login, which go before what these programs store
_CORRECT = "{see}correct REGISTRY_USER and REGISTRY_TOKEN; or unset both, and podman login {registry}"
_ADMINISTRATOR = "ask the registry's administrator"

#: kind → next step; of those that are absent the usual one of the class
_NEXT: Mapping[Fault, str] = {
    Fault.PULL: _LOG_IN,
    Fault.PUSH: _LOG_IN,
    Fault.PLAIN_LOGIN: "in a network that you trust: REGISTRY_REALMS={other}, then again; else a registry with TLS",
    Fault.MANY: "wait, or log in: podman login {registry}",
    Fault.LENGTH: f"{_ADMINISTRATOR} to raise that limit",
    Fault.UPLOAD: f"{_ADMINISTRATOR}: the Location of an upload must be an https address",
    Fault.ANSWER: f"try again; where it repeats itself, {_ADMINISTRATOR}",
    Fault.PAGE: "open {host}/v2/ in a browser and log in there; or name the registry with its own port",
    Fault.TOKEN: "log in again (docker login), or ask who runs the registry",
    Fault.REALM: f"{_ADMINISTRATOR}: the realm of its challenge must be an https address",
    Fault.OTHER_SITE: "if {other_host} is known to be the registry's token server: REGISTRY_REALMS={other}, then again",
    Fault.TLS: f"{command(ETC, plain_http=True)}    in a network that you trust "
    f"(of what a recipe names: {PLAIN_HTTP}={{host}})",
    Fault.WITHOUT_TLS: f"the same command without --plain-http (and {PLAIN_HTTP})",
    Fault.WITHOUT_TLS_HERE: "start it without TLS, or name it by this machine's host name, which its certificate has "
    "to have",
    Fault.BLOB_ABSENT: "push the image again, or name another base",
    Fault.ABSENT: "check the name; list the tags: skopeo list-tags {docker}",
    Fault.SERVED: "try again, or name the base in another registry",
    Fault.STORED: "run the same command again; where it repeats itself, push to another registry",
    Fault.SIZE: "push it again, or ask whoever published it",
    Fault.CHANGED: REBUILD,
}

#: kinds that keep the words of any fetch: they are about this machine
_OF_ANY_FETCH = frozenset({NoAnswer.CERTIFICATE, NoAnswer.NAME_SERVER}) | OF_THE_PROXY
_PASSING = frozenset({NoAnswer.STATUS, NoAnswer.CUT, NoAnswer.STALLED})


def error(failure: RegistryFailure) -> errors.RegistryError:
    """Return the error for a failure: of `errors.class_of` its kind, and of ours."""
    given = {
        "host": for_shell(failure.host),
        "registry": for_shell(failure.name.partition("/")[0]),
        "docker": for_shell(f"docker://{failure.name}"),
        "other": for_shell(failure.other),
        "other_host": failure.other,
        "see": "see what the registry says; else " if failure.message else "",
    }
    step = _NEXT.get(failure.kind, "")
    next_step = (_CORRECT if failure.given and step is _LOG_IN else step).format_map(given)
    made = _CLASSES[errors.class_of(failure.kind)](failure.what, cause=failure.cause, next_step=next_step)
    assert isinstance(made, errors.RegistryError)
    made.failure = failure
    return made


def reworded(failure: FetchFailure, host: str, *, writes: bool, has_answered: bool = False) -> tuple[str, str]:
    """Return cause and next step of a registry without an answer; empty where those of any fetch are right.

    No mirror stands in for the registry that the user named. `has_answered`: it did so before, by that name.
    """
    if failure.kind in _OF_ANY_FETCH:
        return "", ""
    if failure.kind in _PASSING:
        return (
            "The registry, or a proxy before it, is overloaded or down.",
            "wait a little and run the same command again: what has arrived is not sent again",
        )
    if failure.kind in NOT_REACHED and has_answered:
        return "", "wait until it is back and run the same command again: what has arrived is not sent again"
    if failure.kind in NOT_REACHED:
        return "", f"check the registry's name{' in --to' * writes}, and the network of this machine"
    return "", f"ask who runs the registry {host}, or name another"
