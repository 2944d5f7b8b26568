"""The maker of a file that the cache keeps, when and in how many seconds: a record beside it, for shared caches."""

import os
from pathlib import Path

import msgspec

from graphcrate import __version__
from graphcrate.host import settings
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.sealed import kept

_FILE = "made.json"


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """The making of a file: by which graphcrate on which machine, when (UTC), and how long it took."""

    maker: str
    made: str
    seconds: float = 0.0


def here(seconds: float = 0.0) -> Making:
    """Return the making of what this machine has made just now."""
    return Making(maker=this_machine(), made=settings.now_utc(), seconds=seconds)


def this_machine() -> str:
    """Name this graphcrate and its machine."""
    return f"graphcrate {__version__} on {os.uname().nodename}"


def keep(folder: Path, making: Making, cache: Cache) -> None:
    """Write the record of what is in a folder."""
    cache.keep(folder / _FILE, msgspec.json.encode(making))


def is_kept(folder: Path) -> bool:
    """Return whether what is in a folder has a record, damaged or not."""
    return (folder / _FILE).exists()


def read(folder: Path, otherwise: Making | None = None) -> Making:
    """Return the record of what is in a folder; without one `otherwise`, or that its maker is not known."""
    unknown = Making(maker=f"unknown, given by {this_machine()}", made=settings.now_utc())
    return kept(folder / _FILE, Making) or otherwise or unknown
