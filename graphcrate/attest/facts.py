"""What packages' own files in an image say of licences and requirements, for the bill of materials.

Shapes: Python's core metadata up to 2.4 (PEP 639's License-Expression); Debian's machine-readable copyright files, 1.0
(DEP 5), which most packages of a base have. A copyright file in free words tells which of Debian's common licences it
refers to, and no more.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from email import message_from_bytes
from email.message import Message

from packaging.utils import canonicalize_name

from graphcrate.model import requirements as metadata
from graphcrate.model.proof import Facts, PackageFacts

_METADATA = re.compile(r".*/site-packages/[^/]+\.dist-info/METADATA")
_COPYRIGHT = re.compile(r"/usr/share/doc/([^/]+)/copyright")
_DOCUMENTS = "/usr/share/doc/"
_COMMON = re.compile(r"/usr/share/common-licenses/([A-Za-z]+(?:-\d+(?:\.\d+)?)?)")
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
#: DEP 5's short names that SPDX calls otherwise; GNU's are made by `_GNU`
_SHORT = {"expat": "MIT", "zlib": "Zlib", "artistic-2": "Artistic-2.0", "apache-2": "Apache-2.0", "mpl-2": "MPL-2.0"}
_GNU = re.compile(r"(A?GPL|LGPL|GFDL)-(\d)(\.\d)?(\+?)")
_JOINED = re.compile(r"(?:,\s*)?\s+(and|or)\s+")


def of_image(texts: Mapping[str, bytes], links: Mapping[str, str], python: str) -> Facts:
    """Of all packages. `texts`: files by absolute path, `links`: symbolic links; `python`: the image's, "3.11"."""
    distributions = {}
    for path, data in sorted(texts.items()):
        if not _METADATA.fullmatch(path):
            continue
        message = message_from_bytes(data)
        if name := _text(message, "Name"):
            distributions[str(canonicalize_name(name))] = _of_message(message, python)
    packages = {found[1]: of_copyright(data) for path, data in texts.items() if (found := _COPYRIGHT.fullmatch(path))}
    for path, target in links.items():  # /usr/share/doc/libgcc-s1 → gcc-12-base
        name, other = path.removeprefix(_DOCUMENTS), posixpath.basename(target)
        if path.startswith(_DOCUMENTS) and "/" not in name and other in packages:
            packages.setdefault(name, packages[other])
    return Facts(
        python=distributions, debian={name: found for name, found in sorted(packages.items()) if found.licences}
    )


def of_copyright(data: bytes) -> PackageFacts:
    """Of a Debian package: each licence that some of its files are under."""
    text = data.decode("utf-8", "replace")
    if not text.startswith("Format:"):
        # "GPL-2" there does not say whether later versions will do
        return PackageFacts(licences=tuple(sorted(set(_COMMON.findall(text)))))
    names = (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("License:"))
    return PackageFacts(licences=tuple(dict.fromkeys(spdx(name) for name in names if name)))


def spdx(short: str) -> str:
    """What SPDX calls a licence or expression that DEP 5 has a short name for; others as they are."""
    parts = _JOINED.split(short)
    return " ".join(part.upper() if number % 2 else _named(part) for number, part in enumerate(parts))


def _named(short: str) -> str:
    if found := _GNU.fullmatch(short):
        family, major, minor, later = found.groups()
        return f"{family}-{major}{minor or '.0'}-{'or-later' if later else 'only'}"
    return _SHORT.get(short.lower(), short)


def of_metadata(data: bytes, python: str) -> PackageFacts:
    """`python`: the image's, "3.11". What cannot be parsed is left out."""
    return _of_message(message_from_bytes(data), python)


def _of_message(message: Message, python: str) -> PackageFacts:
    lines = [str(line) for line in message.get_all("Requires-Dist", [])]
    return PackageFacts(licences=tuple(_licences(message)), requires=requirements(lines, python))


def requirements(lines: Iterable[str], python: str) -> tuple[str, ...]:
    """Normalised names of what `Requires-Dist` lines ask for under this Python on linux/amd64, without extras."""
    return tuple(sorted({str(canonicalize_name(one.name)) for one in metadata.requirements(lines, python)}))


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
