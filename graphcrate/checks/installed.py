"""Which packages an image has, by dpkg's status and the metadata of Python's packages: nothing else of it is kept."""

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from graphcrate.artifacts.tree import opening
from graphcrate.artifacts.tree.binaries import RELEASES
from graphcrate.artifacts.tree.opening import Fetch
from graphcrate.artifacts.tree.reader import OpenedTree, Selection, Tools
from graphcrate.checks import system
from graphcrate.compat import suites
from graphcrate.host.context import Context
from graphcrate.model.platform import DEFAULT
from graphcrate.model.vulnerability import ImagePackage, ImagePackages
from graphcrate.model.words import printable

_VERSION = 1  #: of what is kept of a layer
_LARGEST = 1 << 26
#: of Debian's slim images dpkg's one file, of images without dpkg a file for each package
_STATUS = re.compile(r"/var/lib/dpkg/status(\.d/[^/]+)?")
_METADATA = re.compile(
    r"(?P<folder>.*/(?:site|dist)-packages/(?P<stem>[^/]+)\.(?:dist-info|egg-info))"
    r"(?P<file>/METADATA|/PKG-INFO|/direct_url\.json)?"
)
_CONDA = re.compile(r".*/conda-meta/([^/]+)-([^-/]+)-[^-/]+\.json")
_FIELDS = 1 << 16  #: bytes of a METADATA that are read: name and version stand before the description
_RELEASE_LINE = re.compile(r"^(\w+)=(.*?)\s*$", re.MULTILINE)


def keeps(path: str, size: int) -> bool:
    """Whether a file says which packages there are."""
    named = path in RELEASES or _STATUS.fullmatch(path) or _METADATA.fullmatch(path)
    return bool(named) and size <= _LARGEST


def read_installed(ref: str, ctx: Context, output: Path = Path("dist"), fetch: Fetch = "small") -> ImagePackages:
    """Read what the user names. Raises as `opening.opened`, LayoutError for layers that cannot be put together."""
    with ExitStack() as stack:
        reading = Tools(ctx, stack, Selection(keep=keeps, hashes=False, name=f"installed-{_VERSION}"))
        opened = opening.opened(ref, reading, output, fetch)
        if opened.broken:
            raise opened.broken
        return of_opened(ref, opened)


def of_opened(name: str, opened: OpenedTree) -> ImagePackages:
    """Of an artifact that was opened with what `keeps` says."""
    texts = {
        path: data for path, entry in opened.entries.items() if entry.kind == "file" and (data := _read(opened, path))
    }
    release = _release(opened, texts)
    suite = _suite(release)
    settings = opened.settings
    return ImagePackages(
        image=name,
        packages=tuple(sorted(_packages(opened.entries, texts), key=lambda each: (each.kind, each.name, each.version))),
        system=release.get("PRETTY_NAME", "") or release.get("ID", ""),
        suite=suite,
        platform=(settings.platform if settings else "") or DEFAULT.name,
        unread=(*opened.unread, *opened.left),
    )


def _read(opened: OpenedTree, path: str) -> bytes:
    if not keeps(path, opened.entries[path].size):
        return b""
    try:
        return opened.read(path)
    except (KeyError, OSError):  # not kept; or in a folder of another user
        return b""


def _release(opened: OpenedTree, texts: Mapping[str, bytes]) -> dict[str, str]:
    """What os-release(5) says, which is a link in most images."""
    for path in RELEASES:
        entry = opened.entries.get(path)
        if entry is not None and entry.kind == "symlink":
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), entry.link))
        if data := texts.get(path):
            return {
                name: printable(value.strip("\"'"))
                for name, value in _RELEASE_LINE.findall(data.decode("utf-8", "replace"))
            }
    return {}


def _suite(release: Mapping[str, str]) -> str:
    """The suite of a known system; empty for another one."""
    distribution = suites.distributions().get(release.get("ID", ""))
    if distribution is None:
        return ""
    name = release.get("VERSION_CODENAME") or suites.of_release(release.get("VERSION_ID", ""), distribution.name)
    row = suites.known().get(name)
    return name if row is not None and row.distribution == distribution.name else ""


def _packages(paths: Iterable[str], texts: Mapping[str, bytes]) -> Iterator[ImagePackage]:
    """All packages, each once: a version may lie in several folders."""
    by_name: dict[tuple[str, str, str], ImagePackage] = {}
    for package in (*_debian(texts), *_python(texts), *_conda(paths)):
        by_name.setdefault((package.kind, package.name, package.version), package)
    yield from by_name.values()


def _debian(texts: Mapping[str, bytes]) -> Iterator[ImagePackage]:
    for path in sorted(filter(_STATUS.fullmatch, texts)):
        for entry in system.installed(texts[path].decode("utf-8", "replace")):
            name, version, source, architecture = map(printable, entry)
            yield ImagePackage(kind="debian", name=name, version=version, source=source, architecture=architecture)


def _python(texts: Mapping[str, bytes]) -> Iterator[ImagePackage]:
    for path, data in sorted(texts.items()):
        match = _METADATA.fullmatch(path)
        if match is None or match["file"] == "/direct_url.json":
            continue
        message = HeaderParser().parsestr(data[:_FIELDS].decode("utf-8", "replace"))
        name, version = str(message["Name"] or "").strip(), str(message["Version"] or "").strip()
        if name:
            origin = _origin(texts.get(f"{match['folder']}/direct_url.json", b""))
            yield ImagePackage(
                kind="python", name=printable(canonicalize_name(name)), version=printable(version), origin=origin
            )


def _origin(data: bytes) -> str:
    """Where a package came from that no index gave (PEP 610), in a few words; empty for one of an index."""
    if not data:
        return ""
    try:
        url: Any = json.loads(data)["url"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "installed from somewhere else than an index"
    if isinstance(url, str) and url.startswith("file:"):
        return "installed from a local file or folder"
    return "installed from an address, not from an index"


def _conda(paths: Iterable[str]) -> Iterator[ImagePackage]:
    read: Callable[[str], re.Match[str] | None] = _CONDA.fullmatch
    for match in filter(None, map(read, (path for path in paths if path.endswith(".json")))):
        yield ImagePackage(kind="conda", name=printable(match[1]), version=printable(match[2]))
