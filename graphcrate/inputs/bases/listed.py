"""Bases that were locked in this cache, from lists that Debian has signed: a lock of anybody's may name others.

What is compiled in such a base may be known by names and versions alone, as those of the lists have their bytes.
"""

import hashlib
from pathlib import Path

from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.sealed import kept_bytes
from graphcrate.model.lock import DebianBase


def keep(base: DebianBase, cache: Cache) -> None:
    """Remember that this base was locked here."""
    cache.keep(_record(base, cache), b"")


def is_kept(base: DebianBase, cache: Cache) -> bool:
    """Return whether exactly this base was locked here."""
    return kept_bytes(_record(base, cache)) == b""


def _record(base: DebianBase, cache: Cache) -> Path:
    """Return the path of a base's record, by what its packages are called as well as by their bytes."""
    named = sorted(f"{package.name} {package.version} {package.file.sha256}" for package in base.packages)
    return cache.path("listed", hashlib.sha256("\n".join([base.suite, *named]).encode()).hexdigest())
