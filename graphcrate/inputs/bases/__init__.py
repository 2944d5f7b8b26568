"""Base providers: where the operating system under the wheels comes from.

Each is a module with `lock`, which asks what the base consists of today, and `prepare`, which brings it into the cache.
"""

import hashlib
import importlib
from pathlib import Path
from types import ModuleType

import msgspec

from graphcrate.host.sandbox.emulation import Emulator
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import DebianBase, RegistryBase
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.report import LayerRecord


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """A base in the cache, ready to put wheels on."""

    layers: tuple[LayerRecord, ...]  #: lowest first; their blobs are in the cache
    rootfs: Path  #: unpacked, never written to
    python: str  #: inside it, e.g. "/usr/bin/python3.11"
    python_version: str  #: "3.11.2"
    identity: str = ""  #: what all of its files depend on, as one word: see `identity`
    glibc: str  #: "2.36"
    environment: dict[str, str]
    labels: dict[str, str]
    platform: Platform = DEFAULT
    emulator: Emulator | None = None  #: what runs its programs where this machine's processor does not


class BaseDriftError(ResolutionError):
    """The base that a lock names is no longer available: its packages were replaced. Lock again."""


def identity(lock: DebianBase | RegistryBase) -> str:
    """Hash what all files of a base depend on, by its lock alone: part of the keys of all that its programs make.

    A version says too little: two distributions' Python 3.11.2 differ, and a stranger's base may have any.
    """
    if isinstance(lock, RegistryBase):
        return hashlib.sha256(f"{lock.digest} {lock.platform} {lock.interpreter}".encode()).hexdigest()
    return str(provider("debian").key(lock))


def provider(name: str) -> ModuleType:
    """The provider "debian" or "registry". It is imported when it is used: each needs libraries that others do not."""
    return importlib.import_module(f"graphcrate.inputs.bases.{name}")
