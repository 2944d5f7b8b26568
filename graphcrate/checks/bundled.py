"""Parts of other projects bundled in a wheel: by its own bill of materials, else by its files' names.

PEP 770 puts bills into `.dist-info/sboms/`; auditwheel and others write them since 2025. Older wheels have libraries
alone, in `NAME.libs/` or under names with a hash in them.
"""

import base64
import csv
import re
from collections.abc import Iterator, Mapping

import msgspec
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from graphcrate.compat.facts import licences, slim
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE

#: auditwheel's and older tools' hash in a library's name: libgomp-a34b3233.so.1, libz.e3d3156c.so.1
_HASH = re.compile(r"[-.](?=[0-9a-f]{0,7}\d)[0-9a-f]{8}(?=[-.])")
_LIBRARY = re.compile(r"(?P<name>lib.+?)(?:-?r?(?P<before>\d+(?:\.\w+)+))?\.so(?:\.(?P<after>\d[\d.]*))?")
#: NVIDIA's tools in triton's wheels
_PROGRAM = re.compile(r"(?P<name>ptxas(?:-blackwell)?|cuobjdump|nvdisasm)")
_MOST, _LONGEST = 2000, 200  #: of what a wheel says of itself, which anybody may have written
_LOCAL = "file:"  #: paths of the machine that built the wheel


class Bundled(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Something of another project inside a wheel."""

    name: str
    version: str = ""  #: of the project where a bill says it, else the library's own number
    purl: str = ""
    path: str = ""  #: of the library in the image; empty: the wheel's bill names no file
    sha256: str = ""
    licences: tuple[str, ...] = ()


class _Part(msgspec.Struct, frozen=True):
    name: str
    version: str = ""
    purl: str = ""
    licenses: tuple[Mapping[str, object], ...] = ()
    components: "tuple[_Part, ...]" = ()


class _Bill(msgspec.Struct, frozen=True):
    components: tuple[_Part, ...] = ()


def of_package(package: str, folder: str, texts: Mapping[str, bytes]) -> tuple[Bundled, ...]:
    """Find what the bills in a package's `.dist-info` (its folder) name, else libraries that its RECORD has. Sorted."""
    billed: list[Bundled] = []
    for path, data in sorted(texts.items()):
        if path.startswith(f"{folder}/sboms/"):
            try:
                billed += _of_bill(package, codec.decode(data, _Bill).components)
            except UNREADABLE:  # another format, or another version of this one
                continue
    # one bill may name the libraries, another the crates: those without a path stand for files that cannot be told
    parts = billed or [*_found(package, folder, texts.get(f"{folder}/RECORD", b""))]
    return tuple(sorted(set(parts[:_MOST])))


def _of_bill(package: str, parts: tuple[_Part, ...]) -> Iterator[Bundled]:
    for part in parts:
        yield from _of_bill(package, part.components)
        try:
            purl = PackageURL.from_string(part.purl) if part.purl else None
        except ValueError:
            purl = None
        if not part.name or max(len(part.name), len(part.version), len(part.purl)) > _LONGEST:
            continue
        if purl is not None and purl.type == "pypi" and canonicalize_name(purl.name) == package:
            continue
        yield Bundled(
            name=part.name,
            version=part.version,
            purl=_public(purl) if purl else "",
            licences=tuple(filter(None, (_licence(licence) for licence in part.licenses))),
        )


def _public(purl: PackageURL) -> str:
    """Without addresses on the machine that built the wheel."""
    kept = {name: value for name, value in dict(purl.qualifiers).items() if not value.startswith(_LOCAL)}
    return PackageURL(purl.type, purl.namespace, purl.name, purl.version, kept, purl.subpath).to_string()


def _licence(entry: Mapping[str, object]) -> str:
    if isinstance(expression := entry.get("expression"), str):
        return licences.spdx(expression) or expression
    if isinstance(licence := entry.get("license"), dict) and isinstance(
        name := licence.get("id") or licence.get("name"), str
    ):
        return licences.spdx(name) or name
    return ""


def _found(package: str, folder: str, record: bytes) -> Iterator[Bundled]:
    site = folder.rpartition("/")[0]
    for row in csv.reader(record.decode("utf-8", "replace").splitlines()):
        path = row[0] if row else ""
        file = path.rpartition("/")[2]
        shape = _LIBRARY.fullmatch(_HASH.sub("", file)) or _PROGRAM.fullmatch(file)
        if shape is None or not _is_of_others(package, path, file):
            continue
        numbers = shape.groupdict()
        version = numbers.get("before") or numbers.get("after") or ""
        sha256 = _hex(row[1] if len(row) > 1 else "")
        checksum = {"checksum": f"sha256:{sha256}"} if sha256 else None
        yield Bundled(
            name=shape["name"],
            version=version,
            purl=PackageURL("generic", None, shape["name"], version or None, checksum).to_string(),
            path=f"{site}/{path}",
            sha256=sha256,
            licences=tuple(filter(None, [licences.of_library(file)])),
        )


def _is_of_others(package: str, path: str, file: str) -> bool:
    if slim.is_from_nvidia(package):
        return False
    return ".libs/" in path or bool(_HASH.search(file)) or bool(licences.of_library(file))


def _hex(hash_text: str) -> str:
    """sha256 of a RECORD (PEP 376: URL-safe base64 without its end); empty for another or none."""
    algorithm, _, value = hash_text.partition("=")
    try:
        digest = base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
    except ValueError:
        return ""
    return digest.hex() if algorithm == "sha256" and len(digest) == 32 else ""
