"""The compressions of a squashfs that images are given in."""

from enum import StrEnum


class Compression(StrEnum):
    """Of a squashfs: gzip, which every kernel mounts, or zstd."""

    GZIP = "gzip"
    ZSTD = "zstd"
