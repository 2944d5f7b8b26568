"""Providers of CUDA toolkits: from a lock's toolkit to a folder that works as /usr/local/cuda.

For the time of a build, and for devel images; no runtime image holds any of it. Each provider is a module that
satisfies `Provider`, listed in `PROVIDERS` under the name that locks use.
"""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.inputs.toolkits.cache import place
from graphcrate.model.lock import Toolkit


class Provider(Protocol):
    """What a provider does with the `Toolkit` of its own kind."""

    def prepare(
        self,
        toolkit: Any,  # noqa: ANN401
        files: Mapping[str, Path],
        rootfs: Path,
        cache: Cache,
        environment: Mapping[str, str],
        progress: Progress,
    ) -> Path:
        """Bring exactly this toolkit to this machine; at once where it is here."""


def _module(name: str) -> Callable[[], Provider]:
    """A provider is imported when it is used."""
    return lambda: cast("Provider", importlib.import_module(f"graphcrate.inputs.toolkits.{name}"))


PROVIDERS: Mapping[str, Callable[[], Provider]] = {
    "debian": _module("debian"),
    "pypi": _module("wheels"),
    "image": _module("image"),
}


def prepare(
    toolkit: Toolkit,
    files: Mapping[str, Path],
    rootfs: Path,
    cache: Cache,
    environment: Mapping[str, str],
    progress: Progress,
) -> Path:
    """A folder that can be bound to CUDA_HOME: in the cache. Never to be written to.

    `files`: the toolkit's wheels by sha256. `rootfs`: a Debian with Python, in which packages are unpacked. Raises
    BaseDriftError when Debian has replaced a package, NetworkError, IntegrityError,
    BuildError, DiskFullError.
    """
    provider = PROVIDERS[str(type(toolkit).__struct_config__.tag)]()
    return provider.prepare(toolkit, files, rootfs, cache, environment, progress)


def cached(toolkit: Toolkit, cache: Cache) -> Path | None:
    """The toolkit's folder where the cache has it: then no files are wanted. Starts no process, opens no connection."""
    found = place(toolkit, cache)
    return found if found.is_dir() else None
