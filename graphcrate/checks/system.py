"""Source packages and licences of an image's Debian packages, from dpkg's status and copyright files.

Shape: deb-control(5), and Debian's copyright-format 1.0 (DEP-5) where a file follows it.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping

import msgspec

from graphcrate.compat.facts import licences

STATUS = "/var/lib/dpkg/status"
_DOC = "/usr/share/doc"
_SOURCE = re.compile(r"(?P<name>[a-z0-9][a-z0-9.+-]*)(?:\s+\((?P<version>[^()\s]+)\))?")
_FORMAT = re.compile(r"(?i)format:\s*\S*(?:copyright-format|dep5)\S*")
_LONGEST = 60  #: characters of a short name; what is longer is a licence's text in the wrong place


class SystemPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A system package by Debian's files. `version`: of its source."""

    source: str
    version: str
    licences: tuple[str, ...] = ()  #: of parts of it, each an SPDX expression or Debian's name; empty: not stated


def of_image(texts: Mapping[str, bytes], links: Mapping[str, str]) -> dict[tuple[str, str, str], SystemPackage]:
    """Read dpkg's status among files by absolute path; packages by name, version and architecture.

    `links`: path → target: a package may have its copyright file in the folder of another.
    """
    packages = {}
    for fields in _paragraphs(texts.get(STATUS, b"").decode("utf-8", "replace")):
        name, version = fields.get("package", ""), fields.get("version", "")
        if not name or not version:
            continue
        source = _SOURCE.fullmatch(fields.get("source", ""))
        packages[name, version, fields.get("architecture", "")] = SystemPackage(
            source=source["name"] if source else name,
            version=(source["version"] if source else "") or version,
            licences=tuple(_licences(_copyright(name, texts, links))),
        )
    return packages


def installed(status: str) -> Iterator[tuple[str, str, str, str]]:
    """Name, version, source and architecture of each package that dpkg's status has as installed.

    A package that was removed stays there for its configuration; images without dpkg say nothing of it.
    """
    for fields in _paragraphs(status):
        name, version = fields.get("package", ""), fields.get("version", "")
        if name and version and fields.get("status", "installed").split()[-1:] == ["installed"]:
            source = _SOURCE.fullmatch(fields.get("source", ""))
            yield name, version, source["name"] if source else name, fields.get("architecture", "")


def _paragraphs(text: str) -> Iterator[dict[str, str]]:
    """Fields of each paragraph, names in lower case; of one with more lines the first alone."""
    for paragraph in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        for line in paragraph.splitlines():
            name, colon, value = line.partition(":")
            if colon and name and not line[0].isspace() and not line.startswith("#"):
                fields.setdefault(name.lower(), value.strip())
        yield fields


def _copyright(name: str, texts: Mapping[str, bytes], links: Mapping[str, str]) -> str:
    path = f"{_DOC}/{name}/copyright"
    for folder in (path, f"{_DOC}/{name}"):
        if target := links.get(folder):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(folder), target) + path.removeprefix(folder))
    return texts.get(path, b"").decode("utf-8", "replace")


def _licences(text: str) -> Iterator[str]:
    """Licences of all files, once each, in the order of the file; none where nothing but people can read it."""
    if not _FORMAT.match(text):
        return
    seen = set()
    for fields in _paragraphs(text):
        name = fields.get("license", "")
        if "files" in fields and name and len(name) <= _LONGEST:
            known = licences.of_debian(name) or name
            if known not in seen:
                seen.add(known)
                yield known
