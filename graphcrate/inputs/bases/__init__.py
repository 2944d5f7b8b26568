"""Base providers: where the operating system under the wheels comes from.

Each is a module that satisfies `Provider`, listed in `PROVIDERS` under the name that recipes use.
"""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.model.errors import ResolutionError
from graphcrate.model.recipe import BaseSpec
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


class BaseDriftError(ResolutionError):
    """The base that a lock names is no longer available: its packages were replaced. Lock again."""


class Provider(Protocol):
    """What a base provider does. Locks are the `DebianBase` or `RegistryBase` that the provider makes itself."""

    def lock(
        self, spec: BaseSpec, python: str, cache: Cache, environment: Mapping[str, str], progress: Progress
    ) -> Any:  # noqa: ANN401
        """Find out exactly what the base consists of today. `python` is the version that it must have ("3.11")."""

    def prepare(
        self,
        lock: Any,  # noqa: ANN401
        cache: Cache,
        environment: Mapping[str, str],
        progress: Progress,
    ) -> Base:
        """Bring exactly this base into the cache; at once where it is there."""


def _module(name: str) -> Callable[[], Provider]:
    """A provider is imported when it is used: each needs libraries that others do not."""
    return lambda: cast("Provider", importlib.import_module(f"graphcrate.inputs.bases.{name}"))


PROVIDERS: Mapping[str, Callable[[], Provider]] = {"debian": _module("debian"), "registry": _module("registry")}
