"""Lines of pip's requirements files: packages with their hashes, and options."""

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from projectfiles.errors import ProjectFileError

INDEXES = ("-i", "--index-url", "--extra-index-url", "--pypi-url")
LINKS = ("-f", "--find-links")
LISTS = ("-r", "--requirement")
CONSTRAINTS = ("-c", "--constraint")
#: options without a value; what else begins with - takes one
FLAGS = (
    *("--pre", "--prefer-binary", "--require-hashes", "--no-deps", "--no-cache-dir", "--no-build-isolation"),
    *("-U", "--upgrade", "--disable-pip-version-check", "--no-input", "-q", "--quiet", "--user", "--use-pep517"),
)
_OPTION = re.compile(r"(--[a-z-]+)(?:=(.*))?|(-[a-zA-Z])(.*)", re.DOTALL)
_HASH = re.compile(r"\s--hash[= ](\S+)")
_BUILD_OPTION = re.compile(r"\s(--(?:config-settings?|global-option))[= ]\S+")
#: options that pip takes behind a package, and passes over
_BEHIND = re.compile(r"\s+((?:-f|--find-links|-i|--index-url|--extra-index-url|--pypi-url)(?:\s+|=)\S+)")


class Option(NamedTuple):
    """An option of a line. `value`: None of a flag; `=` with nothing behind it is an empty one."""

    name: str
    value: str | None


class Package(NamedTuple):
    """A package of a line, as it is written. `hashes`: with their algorithm (`sha256:…`); `build_options`: names."""

    text: str
    hashes: tuple[str, ...] = ()
    build_options: tuple[str, ...] = ()


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines without comments, those that end with a backslash joined; with the number of the first."""
    begun, first = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        first = first or number
        begun += re.sub(r"(^|\s)#.*$", "", line).lstrip()
        if begun.endswith("\\"):
            begun = begun[:-1]
            continue
        if begun.strip():
            yield first, begun.strip()
        begun, first = "", 0


def options(line: str, where: str) -> Iterator[Option]:
    """Return the options of a line, of which there may be several. Raises ProjectFileError for an open quotation."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        what = f"{where}: {error}"
        raise ProjectFileError(what, kind="syntax", where=where, next_step="close the quotation") from error
    return _options(words)


def split(line: str) -> tuple[str, list[str]]:
    """Split a line of a package from options behind it, each of which is a line of its own."""
    return _BEHIND.sub("", line), _BEHIND.findall(line)


def package(line: str) -> Package:
    """Return a package without what pip takes behind it."""
    text = _BUILD_OPTION.sub("", _HASH.sub("", line)).strip()
    return Package(text, tuple(_HASH.findall(line)), tuple(_BUILD_OPTION.findall(line)))


def _options(words: list[str]) -> Iterator[Option]:
    while words:
        word = words.pop(0)
        match = _OPTION.fullmatch(word)
        name = (match[1] or match[3]) if match else word
        value = (match[2] if match[1] else match[4] or None) if match else None
        if name not in FLAGS and value is None:
            value = words.pop(0) if words else ""
        yield Option(name, value)
