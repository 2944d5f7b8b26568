"""Licences and requirements of an image's Python packages, from their METADATA, for the bill of materials.

Shape: Python's core metadata up to 2.4 (PEP 639's License-Expression).
"""

import re
from collections.abc import Iterator, Mapping
from email import message_from_bytes
from email.message import Message

import msgspec
from packaging.utils import canonicalize_name

from graphcrate.compat import packages as metadata

_METADATA = re.compile(r".*/site-packages/[^/]+\.dist-info/METADATA")
_CLASSIFIER = "License :: "
_NONE = ("", "unknown", "none")
#: classifiers of PyPI that name one licence of SPDX's list
_CLASSIFIED = {
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "zlib/libpng License": "Zlib",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
}


class PackageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a package's own METADATA says."""

    licences: tuple[str, ...] = ()  #: all that hold for parts of it, each an SPDX expression or a name in words
    requires: tuple[str, ...] = ()  #: normalised names of what it needs, whether the image has them or not


def of_image(texts: Mapping[str, bytes], python: str) -> dict[str, PackageFacts]:
    """Read the METADATA among files by absolute path; facts by normalised name. `python`: the image's, "3.11"."""
    distributions = {}
    for path, data in sorted(texts.items()):
        if not _METADATA.fullmatch(path):
            continue
        message = message_from_bytes(data)
        if name := _text(message, "Name"):
            lines = [str(line) for line in message.get_all("Requires-Dist", [])]
            required = {str(canonicalize_name(one.name)) for one in metadata.requirements(lines, python)}
            distributions[str(canonicalize_name(name))] = PackageFacts(
                licences=tuple(_licences(message)), requires=tuple(sorted(required))
            )
    return distributions


def _licences(message: Message) -> Iterator[str]:
    """The expression, else the classifiers, else the old field where it is a name and no text."""
    if expression := _text(message, "License-Expression"):
        yield expression
        return
    classifiers = [str(value) for value in message.get_all("Classifier", []) if str(value).startswith(_CLASSIFIER)]
    names = [value.rpartition(" :: ")[2] for value in classifiers if value != "License :: OSI Approved"]
    if names:
        yield from dict.fromkeys(_CLASSIFIED.get(name, name) for name in names)
    elif licence := _text(message, "License"):
        yield licence


def _text(message: Message, field: str) -> str:
    value = str(message.get(field, "")).strip()
    return "" if value.lower() in _NONE else value
