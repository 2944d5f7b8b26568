"""Select files that fit an image: its Python and glibc as wheel tags (PEP 425, PEP 600), best first."""

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
from packaging.tags import Tag
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from graphcrate.artifacts.wheel import supported_tags
from graphcrate.compat.facts import suites
from graphcrate.model.platform import DEFAULT, Platform
from graphcrate.model.recipe import BaseSpec

if TYPE_CHECKING:
    from graphcrate.resolve.sources.source import Link

#: where a registry reference does not say on what it is built: old enough for all that is in use
OLDEST_GLIBC = "2.28"
#: minor versions of glibc that uv knows; wheels for a newer one do not exist yet
UV_GLIBC = (28, *range(31, 41))


class WheelTarget(msgspec.Struct, frozen=True):
    """The image that wheels are chosen for: `python` "3.11", `glibc` "2.36"."""

    python: str
    glibc: str
    platform: Platform = DEFAULT

    @property
    def uv_platform(self) -> str:
        """The name uv has for this platform, or for the newest older one it knows."""
        minor = int(self.glibc.split(".")[1])
        return self.platform.uv_name(max((known for known in UV_GLIBC if known <= minor), default=17))

    def rank(self, name: str) -> tuple[int, tuple[int, str]] | None:
        """Rank a wheel by its name: larger is better, None does not fit; the higher build number wins, as in pip."""
        try:
            _, _, build, tags = parse_wheel_filename(name)
        except (InvalidWheelFilename, InvalidVersion):
            return None
        order = _order(self.python, self.glibc, self.platform)
        fitting = [order[tag] for tag in tags if tag in order]
        return (-min(fitting), build or (-1, "")) if fitting else None

    def ordered(self, links: Iterable["Link"]) -> list["Link"]:
        """Return the wheels that fit of one version, those first that pip would install first."""
        ranked = [(rank, link.name, link) for link in links if (rank := self.rank(link.name))]
        return [link for _, _, link in sorted(ranked, key=lambda row: row[:2], reverse=True)]

    def best(self, names: list[str]) -> str | None:
        """The file that pip would install of these, all of one version; None where none fits."""
        ranked = [(rank, name) for name in names if (rank := self.rank(name))]
        return max(ranked)[1] if ranked else None


@functools.lru_cache
def _order(python: str, glibc: str, platform: Platform) -> dict[Tag, int]:
    return {tag: rank for rank, tag in reversed(list(enumerate(supported_tags(python, glibc, platform))))}


def target_of(base: BaseSpec, python: str) -> WheelTarget:
    """The image on this base. A registry reference is searched for a suite's name."""
    known = suites.bases().get(suites.of_base(base))
    return WheelTarget(python, known.glibc if known else OLDEST_GLIBC, base.runs_on)


def project_and_version(name: str) -> tuple[str, Version] | None:
    """(normalised project, version) of a wheel's or sdist's file name; None for other files."""
    try:
        if name.endswith(".whl"):
            return parse_wheel_filename(name)[:2]
        return parse_sdist_filename(name)
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
