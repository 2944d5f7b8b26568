"""Where finished wheels lie in the cache."""

from pathlib import Path

from graphcrate.host.cache import Cache
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import CompileStep
from graphcrate.wheelhouse.keys import origin


def cached(step: CompileStep, cache: Cache) -> dict[str, Path]:
    """The step's wheels that are there, by the sha256 of their sdist. Starts no process."""
    found = {}
    for package in step.packages:
        wheel = next(folder(package, step, cache).glob("*.whl"), None)
        if wheel is not None:
            found[package.file.sha256] = wheel
    return found


def folder(package: LockedPackage, step: CompileStep, cache: Cache) -> Path:
    """Where the wheel of a package lies, or will lie."""
    return cache.root / "compiled" / origin(package, step)
