"""Packages that use a GPU, and of which the package index has builds for the CPU alone (`data/cpu_only.toml`)."""

from collections.abc import Iterable, Iterator

import msgspec

from graphcrate.compat.facts.facts import table_reader
from graphcrate.model.lock import LockedPackage
from graphcrate.model.recipe import Channel


class _Build(msgspec.Struct, frozen=True, kw_only=True):
    why: str
    where: str
    known: str
    source: tuple[str, ...]


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    package: dict[str, _Build]


_builds = table_reader("cpu_only", _Table)


def notes(packages: Iterable[LockedPackage], torch_cuda: str) -> Iterator[str]:
    """Yield a note for each of these packages that will not use the GPU of an image with this CUDA ("11.8", "cpu")."""
    for package in packages:
        build = _builds().package.get(package.name)
        is_of_index = package.channel is Channel.PYPI and not package.index and "+" not in package.version
        if build and is_of_index and not package.compiled and torch_cuda != "cpu":
            yield (
                f"{package.name} {package.version} of the package index has no CUDA: {build.why}; "
                f"builds for CUDA are on {build.where}"
            )
