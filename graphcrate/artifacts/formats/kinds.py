"""What a file is by its first bytes, whatever its name."""

from pathlib import Path
from typing import Literal

from graphcrate.artifacts.formats import sif, squashfs

GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_HEAD = 512

Kind = Literal["sif", "squashfs", "archive"]


def kind_of(path: Path) -> Kind | None:
    """Tell images' files apart: "archive" for a tar, compressed or not; None for a file that is none of these."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if sif.is_sif(head):
        return "sif"
    if head.startswith(squashfs.MAGIC):
        return "squashfs"
    return "archive" if head[257:262] == b"ustar" or head.startswith((GZIP_MAGIC, ZSTD_MAGIC)) else None
