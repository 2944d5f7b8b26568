"""Write an OCI image layout: a folder with `oci-layout`, `index.json` and `blobs/sha256/<hex>`, holding one image."""

import contextlib
import errno
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ocilayout import spec
from ocilayout.image import Documents, digest_of

#: A hard link shares its inode with where it came from, so it must not be written through.
BLOB_MODE = 0o444
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS)


def write(folder: Path, image: Documents, blobs: Mapping[str, Path], tag: str, architecture: str) -> None:
    """Write the image into the empty `folder`, readable by all under any umask; an error may leave a part of it there.

    `blobs` gives the file of each layer's digest. They become hard links where the file system allows it, else copies;
    either is read-only.
    """
    descriptor = spec.Descriptor(
        media_type=spec.MANIFEST,
        digest=image.digest,
        size=len(image.manifest),
        annotations={spec.REF_NAME: tag},
        platform=spec.DescriptorPlatform(architecture=architecture, os="linux"),
    )
    index = spec.ImageIndex(schema_version=2, media_type=spec.INDEX, manifests=(descriptor,))
    for below in (folder / "blobs", folder / "blobs" / "sha256"):
        below.mkdir()
        below.chmod(0o755)
    for digest, source in blobs.items():
        _link(source, blob(folder, digest))
    for document in image:
        _write(blob(folder, digest_of(document)), document, BLOB_MODE)
    _write(folder / "index.json", msgspec.json.encode(index) + b"\n", 0o644)
    _write(folder / "oci-layout", msgspec.json.encode({"imageLayoutVersion": spec.LAYOUT_VERSION}) + b"\n", 0o644)
    folder.chmod(0o755)


def blob(folder: Path, digest: str) -> Path:
    """The path of the blob `sha256:<hex>` of a layout."""
    return folder / "blobs" / "sha256" / digest.removeprefix("sha256:")


def _link(source: Path, target: Path) -> None:
    """Hard link, else a copy; read-only for all."""
    with contextlib.suppress(PermissionError):  # another user's file
        source.chmod(BLOB_MODE)
    if source.stat().st_mode & 0o777 == BLOB_MODE:
        try:
            target.hardlink_to(source)
            return
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
    shutil.copyfile(source, target)
    target.chmod(BLOB_MODE)


def _write(path: Path, data: bytes, mode: int) -> None:
    path.write_bytes(data)
    path.chmod(mode)
