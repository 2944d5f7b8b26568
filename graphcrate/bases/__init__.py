"""Base providers: where the operating system under the wheels comes from.

Each is a module with two functions, `lock(spec, …)` and `prepare(lock, …) -> Base`.
"""

from pathlib import Path

import msgspec

from graphcrate.model.report import LayerRecord


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """A base in the cache, ready to put wheels on."""

    layers: tuple[LayerRecord, ...]  #: lowest first; their blobs are in the cache
    rootfs: Path  #: unpacked, never written to
    python: str  #: inside it, e.g. "/usr/bin/python3.11"
    python_version: str  #: "3.11.2"
    glibc: str  #: "2.36"
    environment: dict[str, str]
    labels: dict[str, str]
