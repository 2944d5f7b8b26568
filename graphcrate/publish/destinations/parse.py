"""What `--to` says becomes a Destination. Pure: nothing is looked for on a disk or on the network."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import msgspec

from graphcrate.compat import addresses
from graphcrate.model.errors import UsageError
from graphcrate.oci import reference
from graphcrate.oci.reference import Reference

FORMS = """\
--to is one of
    registry.example/team             a registry: image and tag are appended (docker.io/USER on Docker Hub)
    registry.example/team/pyg:1.2     the whole name, taken as it is because it has a tag
    acr:cn-hangzhou/NAMESPACE         Alibaba Cloud (acr:INSTANCE@cn-hangzhou/NAMESPACE for an instance of one's own)
    oras://registry.example/team      a SIF in a registry, for apptainer pull oras://…
    /shared/images, ./images          a folder for .sif, .sqsh and .oci.tar (file:PATH for any other name)"""
_SUFFIXES = (".sif", ".sqsh", ".squashfs", ".tar", ".tgz")
#: instance, region, what lies there
_ACR = re.compile(r"(?:([a-z0-9]+(?:-[a-z0-9]+)*)@)?([a-z]{2,}(?:-[a-z0-9]+)+)/([^:].*)", re.ASCII)


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """A registry. With a tag it is the whole reference; without, `repository` is what image names are put below."""

    host: str  #: with its port
    repository: str  #: empty: names stand directly below the host
    tag: str = ""
    oras: bool = False  #: it gets a SIF, as Apptainer's `oras://` has it


#: a folder is one that several machines share, or that is carried to a site without a network
Destination = Registry | Path


def parse_destination(text: str, environment: Mapping[str, str]) -> Destination:
    """The destination that a person names. `environment`: for HOME in paths. Raises UsageError with the forms."""
    scheme, colon, rest = text.partition(":")
    match scheme if colon else "":
        case "acr":
            return _acr(text, rest)
        case "file":
            return _folder(text, f"/{rest.lstrip('/')}" if rest.startswith("///") else rest, environment)
        case "docker" | "oras":
            if not rest.startswith("//"):
                _refuse(text, "two slashes are missing after the colon")
            return _location(text, rest[2:], oras=scheme == "oras")
        case "http" | "https":
            _refuse(text, f"a registry is named without its scheme: {rest.strip('/')}")
    if text.startswith(("/", "./", "../", "~")) or text in (".", ".."):
        return _folder(text, text, environment)
    if text.endswith(_SUFFIXES):
        _refuse(text, "it looks like a file, and files are published to a folder")
    first = text.partition("/")[0]
    if not _is_host(first):
        _refuse(text, f"no host of a registry begins it; a folder is ./{text}, on Docker Hub it is docker.io/{text}")
    return _location(text, text)


def reference_for(destination: Registry, name: str, tag: str) -> Reference:
    """Where the image `name`:`tag` goes there: the destination's own name and tag where it has them.

    Raises UsageError for a name or tag that no registry takes.
    """
    if destination.tag:
        where, tag = destination.repository, destination.tag
    else:
        where = f"{destination.repository}/{name}".strip("/")
    return reference.parse(f"{destination.host}/{where}:{tag}")


def vpc_reference(there: Reference) -> Reference | None:
    """The same image inside the region's own network, where the host is one of Alibaba Cloud's registry; else None."""
    inside = addresses.inside_vpc(there.host)
    return msgspec.structs.replace(there, host=inside) if inside else None


def _is_host(first: str) -> bool:
    """Docker's rule (`oci.reference`), but for capitals, which folders have more often than hosts."""
    return "." in first or ":" in first or first == "localhost"


def _location(text: str, where: str, *, oras: bool = False) -> Registry:
    """Parse HOST[:PORT][/PATH][:TAG]."""
    if "@" in where:
        _refuse(text, "a digest says what an image is, not where it goes")
    host, _, path = where.rstrip("/").partition("/")
    if not _is_host(host):
        _refuse(text, f"invalid host of a registry: {host!r}")
    path, colon, tag = path.partition(":")
    if colon and not tag:
        _refuse(text, "the tag is missing")
    try:
        # a stand-in where names are to be appended: `host` alone has no repository to check
        known = reference.parse(f"{host}/{path or 'name'}:{tag or 'tag'}")
    except UsageError as error:
        raise UsageError(error.what, cause=error.cause, next_step=FORMS) from error
    if known.host == reference.DOCKER_HUB and not (path if not tag else "/" in path):
        _refuse(text, "on Docker Hub images lie below a user's name: docker.io/USER")
    return Registry(host=known.host, repository=path, tag=tag, oras=oras)


def _acr(text: str, rest: str) -> Registry:
    parts = _ACR.fullmatch(rest.strip("/"))
    if parts is None:
        _refuse(text, "it is not acr:REGION/NAMESPACE or acr:INSTANCE@REGION/NAMESPACE; cn-hangzhou is a region")
    instance, region, path = parts.groups(default="")
    found = _location(text, f"{addresses.alibaba_registry(region, instance)}/{path}")
    depth = found.repository.count("/") + 1
    if depth > (2 if found.tag else 1) and (not instance or instance.startswith("crpi-")):
        _refuse(text, "the Personal Edition has no repositories deeper than NAMESPACE/NAME")
    if found.tag and depth == 1:
        _refuse(text, "a tag belongs to a repository: acr:cn-hangzhou/NAMESPACE/NAME:TAG")
    return found


def _folder(text: str, path: str, environment: Mapping[str, str]) -> Path:
    if path.endswith(_SUFFIXES):
        _refuse(text, "a folder is wanted: files in it are named after the image and its tag")
    if not path or "\0" in path:
        _refuse(text, "the path is missing")
    if path == "~" or path.startswith("~/"):
        home = environment.get("HOME", "")
        if not home:
            _refuse(text, "HOME is not set, so nothing tells what ~ is")
        return Path(f"{home.rstrip('/')}{path[1:]}" or "/")
    if path.startswith("~"):
        _refuse(text, "homes of other users are to be written out")
    return Path(path)


def _refuse(text: str, why: str) -> NoReturn:
    shown = text if len(text) <= 120 else f"{text[:117]}…"
    raise UsageError(f"{shown!r} cannot be published to: {why}", next_step=FORMS)
