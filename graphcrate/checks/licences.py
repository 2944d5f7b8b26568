"""Licences, requirements and bundled libraries of an image's Python packages, for the bill of materials.

Shape: Python's core metadata up to 2.4 (PEP 639's License-Expression).
"""

import re
from collections.abc import Mapping
from email import message_from_bytes
from email.message import Message

import msgspec
from packaging.utils import canonicalize_name

from graphcrate.checks import bundled
from graphcrate.checks.bundled import Bundled
from graphcrate.compat.facts import licences
from graphcrate.compat.facts import packages as metadata

_METADATA = re.compile(r".*/site-packages/[^/]+\.dist-info/METADATA")
_CLASSIFIER = "License :: "
_NONE = ("", "unknown", "none")


class PackageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts from a package's own files."""

    licences: tuple[str, ...] = ()  #: all that hold for parts of it, each an SPDX expression or a name in words
    requires: tuple[str, ...] = ()  #: normalised names of what it needs, whether the image has them or not
    bundled: tuple[Bundled, ...] = ()  #: what else its wheel brought along


def of_image(texts: Mapping[str, bytes], python: str) -> dict[str, PackageFacts]:
    """Read the METADATA among files by absolute path; facts by normalised name. `python`: the image's, "3.11"."""
    distributions = {}
    for path, data in sorted(texts.items()):
        if not _METADATA.fullmatch(path):
            continue
        message = message_from_bytes(data)
        if text := _text(message, "Name"):
            name = str(canonicalize_name(text))
            lines = [str(line) for line in message.get_all("Requires-Dist", [])]
            required = {
                str(canonicalize_name(requirement.name)) for requirement in metadata.requirements(lines, python)
            }
            distributions[name] = PackageFacts(
                licences=licences.of_package(name, _licences(message)),
                requires=tuple(sorted(required)),
                bundled=bundled.of_package(name, path.rpartition("/")[0], texts),
            )
    return distributions


def _licences(message: Message) -> tuple[str, ...]:
    classifiers = [str(value) for value in message.get_all("Classifier", []) if str(value).startswith(_CLASSIFIER)]
    names = [value.rpartition(" :: ")[2] for value in classifiers if value != "License :: OSI Approved"]
    return licences.of_metadata(_text(message, "License-Expression"), names, _text(message, "License"))


def _text(message: Message, field: str) -> str:
    value = str(message.get(field, "")).strip()
    return "" if value.lower() in _NONE else value
