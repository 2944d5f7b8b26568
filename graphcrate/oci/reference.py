"""Image references, `[host[:port]/]repository[:tag][@sha256:…]`, as the distribution specification writes them."""

import re

import msgspec

from graphcrate.model.errors import UsageError

DOCKER_HUB = "docker.io"
SCHEME = "docker://"  #: what skopeo, Apptainer and enroot put before a reference
EXAMPLE = "docker.io/library/python:3.11-slim"
TAG_RULE = "letters, digits, `.`, `_`, `-`; at most 128"
MAX_NAME = 255  #: of host and repository together

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = re.compile(rf"(?:\[[0-9a-fA-F:]+\]|{_LABEL}(?:\.{_LABEL})*)(?::[0-9]{{1,5}})?", re.ASCII)
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

    Raises UsageError.
    """
    rest, at, digest = text.partition("@")
    first, slash, path = rest.partition("/")
    # Docker's rule: the first part is a host if nothing else can look like it.
    if slash and ("." in first or ":" in first or first == "localhost" or first != first.lower()):
        host = first
    else:
        host, path = DOCKER_HUB, rest
    path, colon, tag = path.partition(":")
    if host in ("index.docker.io", "registry-1.docker.io"):
        host = DOCKER_HUB
    if host == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    fits = _HOST.fullmatch(host) and _REPOSITORY.fullmatch(path) and len(f"{host}/{path}") <= MAX_NAME
    if not fits or (colon and not is_tag(tag)) or (at and not _DIGEST.fullmatch(digest)):
        shown = text if len(text) <= 120 else f"{text[:117]}…"
        raise UsageError(
            f"{shown!r} is not an image reference",
            cause="A reference is [host[:port]/]repository[:tag][@sha256:…], the repository in lower case "
            f"(letters, digits, `.`, `_`, `-`, `/`); of a tag: {TAG_RULE}.",
            next_step=f"write it like {EXAMPLE}",
        )
    return Reference(host=host, repository=path, tag=tag if colon or digest else "latest", digest=digest)


def on_registry(text: str) -> str:
    """The reference in what a person types for an image on a registry; empty for what may be a name or a path.

    That is docker://[HOST/]NAME, or HOST/NAME with a host that can be nothing else; both also with enroot's `#`.
    """
    name = text.removeprefix(SCHEME).replace("#", "/", 1)
    host, slash, _ = name.partition("/")
    is_host = slash and _HOST.fullmatch(host) and ("." in host or ":" in host or host == "localhost")
    return name if is_host or text.startswith(SCHEME) else ""


def is_tag(text: str) -> bool:
    """Whether a registry takes it as a tag."""
    return bool(_TAG.fullmatch(text))
