"""Small layers for tests, written with `tarfile` and the standard compressors: not by the code under test."""

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

import zstandard

from graphcrate.model.report import LayerRecord
from ocilayout import spec
from ocilayout.spec import LayerBlob


def entry(name, kind=tarfile.REGTYPE, content=b"", *, link="", mode=None, **more):
    """A member and its content."""
    member = tarfile.TarInfo(name)
    member.type, member.size, member.linkname = kind, len(content), link
    member.mode = mode if mode is not None else (0o755 if kind == tarfile.DIRTYPE else 0o644)
    for field, value in more.items():
        setattr(member, field, value)
    return member, content


def file(name, content=b"content", **more):
    return entry(name, tarfile.REGTYPE, content, **more)


def folder(name, **more):
    return entry(name, tarfile.DIRTYPE, **more)


def symlink(name, target, **more):
    return entry(name, tarfile.SYMTYPE, link=target, **more)


def hardlink(name, target, **more):
    return entry(name, tarfile.LNKTYPE, link=target, **more)


def tar(entries: Iterable, format=tarfile.PAX_FORMAT) -> bytes:
    """An uncompressed tar of these entries, in this order."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format) as archive:
        for member, content in entries:
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def compressed(data: bytes, media_type: str) -> bytes:
    """These bytes as this type; gzip comes as two members, as our own layers are."""
    if media_type == spec.LAYER_TAR:
        return data
    if media_type == spec.LAYER_ZSTD:
        return zstandard.ZstdCompressor().compress(data)
    half = len(data) // 2
    return b"".join(gzip.compress(part, 6, mtime=0) for part in (data[:half], data[half:]))


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def overwrite(path: Path, data: bytes) -> None:
    """Write a file that may be read-only, as blobs of a layout are, and that others may read meanwhile."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(data)
    os.rename(new, path)  # noqa: PTH104 (a test has `Path.replace` fail)


def blob(directory: Path, entries: Iterable, media_type=spec.LAYER_GZIP) -> LayerBlob:
    """A layer's file in this directory, under its hash."""
    data = compressed(tar(entries), media_type)
    path = directory / sha256(data).removeprefix("sha256:")
    overwrite(path, data)
    return LayerBlob(path=path, media_type=media_type)


def record(directory: Path, title: str, entries: Iterable, media_type=spec.LAYER_GZIP) -> LayerRecord:
    """As `blob`, with the record that goes into an image."""
    entries = list(entries)
    plain = tar(entries)
    path = blob(directory, entries, media_type).path
    return LayerRecord(
        title=title,
        digest=f"sha256:{path.name}",
        diff_id=sha256(plain),
        size=path.stat().st_size,
        unpacked_size=len(plain),
        media_type=media_type,
    )
