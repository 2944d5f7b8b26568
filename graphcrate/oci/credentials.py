"""Logins that `ociregistry` finds on this machine, and the one that CI puts into the environment."""

from collections.abc import Mapping

from graphcrate.host import arguments, process, settings
from graphcrate.model.command import for_shell
from graphcrate.model.errors import GraphcrateError, UsageError
from ociregistry import credentials
from ociregistry.credentials import Credential
from ociregistry.reference import Reference
from patienthttp.errors import host_of


def find(reference: Reference, environment: Mapping[str, str]) -> Credential | None:
    """The login for this image, or None. Files that cannot be read or parsed are passed over."""
    return credentials.find(reference, environment, _ask)


def _ask(helper: str, registry: str) -> str | None:
    """Ask Docker's credential helper, where it is installed."""
    program = process.find(f"docker-credential-{helper}")
    if program is None:
        return None
    try:
        return process.output(
            arguments.line(program, "get"), stdin=registry.encode(), timeout=credentials.HELPER_SECONDS
        )
    except GraphcrateError:
        return None


def for_destination(reference: Reference, environment: Mapping[str, str]) -> Credential | None:
    """The login for the registry that the user sends to: `$REGISTRY_USER` with `$REGISTRY_TOKEN`, else `find`.

    The variables name no host, so they are for the registry that the command names, never for those that bases are
    pulled from. Raises UsageError where only one of them is set.
    """
    user, token = environment.get("REGISTRY_USER", ""), environment.get("REGISTRY_TOKEN", "")
    if bool(user) != bool(token):
        present, missing = ("REGISTRY_USER", "REGISTRY_TOKEN") if user else ("REGISTRY_TOKEN", "REGISTRY_USER")
        raise UsageError(
            f"{present} is set, and {missing} is not",
            cause="A login has two parts. With an access token, any user name will do for many registries.",
            next_step=f"set {missing} too, or unset {present} and log in: podman login {for_shell(reference.host)}",
        )
    if user:
        return Credential(user=user, password=token, given="REGISTRY_USER and REGISTRY_TOKEN")
    return find(reference, environment)


def trusted_realms(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Hosts of token servers that may see a login though they are of another site: `$REGISTRY_REALMS`, by commas."""
    return _hosts(environment, "REGISTRY_REALMS")


def is_plain(host: str, environment: Mapping[str, str]) -> bool:
    """Return whether the user asked for the registry at HOST or HOST:PORT without TLS."""
    return bool({settings.ANY, host.lower(), host_of(f"http://{host}")} & {*_hosts(environment, settings.PLAIN_HTTP)})


def _hosts(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(host for part in environment.get(name, "").split(",") if (host := part.strip().lower()))
