"""Image references, `[host[:port]/]repository[:tag][@sha256:…]`, as the distribution specification writes them."""

import re

import msgspec

from ociregistry import errors
from ociregistry.errors import Fault, RegistryError, RegistryFailure

DOCKER_HUB = "docker.io"
SCHEME = "docker://"  #: what skopeo, Apptainer and enroot put before a reference
TAG_RULE = "letters, digits, `.`, `_`, `-`; at most 128"
MAX_NAME = 255  #: of host and repository together
MAX_PORT = 65535

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = re.compile(rf"\[[0-9a-fA-F:]+\]|{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed reference; `tag` and `digest` may be empty, never both (the tag is then `latest`)."""

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """Registry and repository, without tag or digest."""
        return f"{self.host}/{self.repository}"

    @property
    def enroot(self) -> str:
        """As enroot and pyxis write it: `host#repository:tag`; Docker Hub's host is left out."""
        rest = str(self).removeprefix(f"{self.host}/")
        return rest if self.host == DOCKER_HUB else f"{self.host}#{rest}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"


def parse(text: str) -> Reference:
    """Parse a reference; a missing host is docker.io, a bare name there is below `library/`.

    Raises ReferenceFormError that says which part is wrong.
    """
    rest, at, digest = text.partition("@")
    first, slash, path = rest.partition("/")
    # Docker's rule: the first part is a host if nothing else can look like it.
    if slash and ("." in first or ":" in first or first == "localhost" or first != first.lower()):
        host = first
    else:
        host, path = DOCKER_HUB, rest
    path, colon, tag = path.partition(":")
    _check_host(text, host)
    if not _REPOSITORY.fullmatch(path):
        raise _malformed(text, f"{path!r} is not a repository (lower-case letters, digits, `.`, `_`, `-`, `/`)")
    if colon and not is_tag(tag):
        raise _malformed(text, f"{tag!r} is not a tag ({TAG_RULE})")
    if at and not _DIGEST.fullmatch(digest):
        raise _malformed(text, f"{digest!r} is not a digest (`sha256:` and 64 hexadecimal digits)")
    if host in ("index.docker.io", "registry-1.docker.io"):
        host = DOCKER_HUB
    if host == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    if len(f"{host}/{path}") > MAX_NAME:
        raise _malformed(text, f"host and repository are longer than {MAX_NAME} characters")
    return Reference(host=host, repository=path, tag=tag if colon or digest else "latest", digest=digest)


def on_registry(text: str) -> str:
    """The reference in what a user types for an image on a registry; empty for what may be a name or a path.

    That is docker://[HOST/]NAME, or HOST/NAME with a host that can be nothing else; both also with enroot's `#`.
    """
    name = text.removeprefix(SCHEME).replace("#", "/", 1)
    host, slash, _ = name.partition("/")
    host_name, port = _split_port(host)
    is_host = bool(slash and _HOST.fullmatch(host_name) and (port is None or _PORT.fullmatch(port)))
    is_host &= "." in host or port is not None or host == "localhost"
    return name if is_host or text.startswith(SCHEME) else ""


def is_tag(text: str) -> bool:
    """Return whether a registry takes it as a tag."""
    return bool(_TAG.fullmatch(text))


def _split_port(host: str) -> tuple[str, str | None]:
    """Name and port of a host; None where it has no port. An IPv6 address is in brackets."""
    end = host.rfind("]") + 1
    name, colon, port = host[end:].partition(":")
    return host[:end] + name, port if colon else None


def _check_host(text: str, host: str) -> None:
    name, port = _split_port(host)
    if not _HOST.fullmatch(name):
        raise _malformed(text, f"{name!r} is not a host name")
    if port is not None and not (_PORT.fullmatch(port) and 1 <= int(port) <= MAX_PORT):
        raise _malformed(text, f"{port!r} is not a port of {name} (1 to {MAX_PORT})")


def _malformed(text: str, why: str) -> RegistryError:
    shown = text if len(text) <= 120 else f"{text[:117]}…"
    return errors.error(RegistryFailure(kind=Fault.REFERENCE, subject=shown, detail=why))
