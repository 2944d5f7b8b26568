"""Forms of `--to`: a place in a registry, the path of a folder. Pure: nothing is looked for on a disk or a network."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from graphcrate.compat.facts import addresses
from graphcrate.model.command import command
from graphcrate.model.errors import UsageError
from graphcrate.oci import reference
from ociregistry.reference import DOCKER_HUB, Reference

_SUFFIXES = (".sif", ".sqsh", ".squashfs", ".tar", ".tgz")
#: instance, region, path
_ACR = re.compile(r"(?:([a-z0-9]+(?:-[a-z0-9]+)*)@)?([a-z]{2,}(?:-[a-z0-9]+)+)/([^:].*)", re.ASCII)


class Location(NamedTuple):
    """A place in a registry."""

    host: str  #: with its port
    repository: str  #: empty: names stand directly below the host
    tag: str  #: empty: the image's own


def folder_path(text: str, environment: Mapping[str, str]) -> Path | None:
    """The folder that `--to` names; None where it has no form of a path. `environment`: for HOME. Raises UsageError."""
    if text.startswith("file:"):
        rest = text.removeprefix("file:")
        return _folder(text, f"/{rest.lstrip('/')}" if rest.startswith("///") else rest, environment)
    if text.startswith(("/", "./", "../", "~")) or text in (".", ".."):
        return _folder(text, text, environment)
    return None


def oras_location(text: str) -> Location | None:
    """Parse `oras://…`; None for another form. Raises UsageError."""
    return _after_slashes(text, "oras:") if text.startswith("oras:") else None


def registry_location(text: str) -> Location:
    """Parse HOST[:PORT][/PATH][:TAG], `docker://…` or `acr:…`. Raises UsageError for anything else."""
    scheme, colon, rest = text.partition(":")
    match scheme if colon else "":
        case "acr":
            return _acr(text, rest)
        case "docker":
            return _after_slashes(text, "docker:")
        case "http" | "https":
            refuse(text, f"a registry is named without its scheme: {rest.strip('/')}")
    if text.endswith(_SUFFIXES):
        refuse(text, "it looks like a file, and files are published to a folder")
    first = text.partition("/")[0]
    if not _is_host(first):
        refuse(text, f"no host of a registry begins it; a folder is ./{text}, on Docker Hub it is docker.io/{text}")
    return _location(text, text)


def _after_slashes(text: str, scheme: str) -> Location:
    rest = text.removeprefix(scheme)
    if not rest.startswith("//"):
        refuse(text, "two slashes are missing after the colon")
    return _location(text, rest[2:])


def vpc_reference(there: Reference) -> Reference | None:
    """The same image inside the region's own network, where the host is one of Alibaba Cloud's registry; else None."""
    inside = addresses.inside_vpc(there.host)
    return msgspec.structs.replace(there, host=inside) if inside else None


def _is_host(first: str) -> bool:
    """Docker's rule (`oci.reference`), but for capitals, which folders have more often than hosts."""
    return "." in first or ":" in first or first == "localhost"


def _location(text: str, where: str) -> Location:
    """Parse HOST[:PORT][/PATH][:TAG]."""
    if "@" in where:
        refuse(text, "a digest says what an image is, not where it goes")
    host, _, path = where.rstrip("/").partition("/")
    if not _is_host(host):
        refuse(text, f"invalid host of a registry: {host!r}")
    path, colon, tag = path.partition(":")
    if colon and not tag:
        refuse(text, "the tag is missing")
    # a stand-in where names are to be appended: `host` alone has no repository to check
    known = reference.parse(f"{host}/{path or 'name'}:{tag or 'tag'}")
    if known.host == DOCKER_HUB and not (path if not tag else "/" in path):
        refuse(text, "on Docker Hub images lie below a user's name: docker.io/USER")
    return Location(known.host, path, tag)


def _acr(text: str, rest: str) -> Location:
    parts = _ACR.fullmatch(rest.strip("/"))
    if parts is None:
        refuse(text, "it is not acr:REGION/NAMESPACE or acr:INSTANCE@REGION/NAMESPACE; cn-hangzhou is a region")
    instance, region, path = parts.groups(default="")
    location = _location(text, f"{addresses.alibaba_registry(region, instance)}/{path}")
    depth = location.repository.count("/") + 1
    if depth > (2 if location.tag else 1) and (not instance or instance.startswith("crpi-")):
        refuse(text, "the Personal Edition has no repositories deeper than NAMESPACE/NAME")
    if location.tag and depth == 1:
        refuse(text, "a tag belongs to a repository: acr:cn-hangzhou/NAMESPACE/NAME:TAG")
    return location


def _folder(text: str, path: str, environment: Mapping[str, str]) -> Path:
    if path.endswith(_SUFFIXES):
        refuse(text, "a folder is wanted: files in it are named after the image and its tag")
    if not path or "\0" in path:
        refuse(text, "the path is missing")
    if path == "~" or path.startswith("~/"):
        home = environment.get("HOME", "")
        if not home:
            refuse(text, "HOME is not set, so nothing tells what ~ is")
        return Path(f"{home.rstrip('/')}{path[1:]}" or "/")
    if path.startswith("~"):
        refuse(text, "homes of other users are to be written out")
    return Path(path)


def refuse(text: str, why: str) -> NoReturn:
    """Raise UsageError for what `--to` says; who asked adds the forms that there are."""
    shown = text if len(text) <= 120 else f"{text[:117]}…"
    raise UsageError(f"{shown!r} cannot be published to: {why}", next_step=command("publish", help=True))
