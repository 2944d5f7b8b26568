"""Reading uv's pylock.toml (PEP 751): for each package the one wheel that fits the image."""

import tomllib
import urllib.parse
from typing import TYPE_CHECKING, Any

import msgspec
from packaging.markers import Marker
from packaging.utils import canonicalize_name

from graphcrate.errors import ResolutionError
from graphcrate.resolve.source import Link

if TYPE_CHECKING:
    from graphcrate.resolve.target import Target


class Pinned(msgspec.Struct, frozen=True):
    """A package and the wheel chosen for it. `link` is None for a package that was given by address."""

    name: str
    version: str
    link: Link | None


def parse_pylock(text: str, target: "Target") -> tuple[Pinned, ...]:
    """The packages for this image. Raises ResolutionError when one has no wheel that fits."""
    pinned = []
    for package in tomllib.loads(text).get("packages", ()):
        marker = package.get("marker")
        if marker and not Marker(marker).evaluate(target.markers):
            continue
        name, version = canonicalize_name(package["name"]), str(package.get("version", ""))
        if "archive" in package:
            pinned.append(Pinned(name, version, None))
            continue
        links = {link.name: link for link in map(_link, package.get("wheels", ()))}
        best = target.best(list(links))
        if best is None:
            raise ResolutionError(
                f"{name} {version} has no wheel for Python {target.python} and glibc {target.glibc}",
                cause=f"On offer are {', '.join(links) or 'no wheels at all'}.",
                next_step=f"ask for another version of {name} in the recipe",
            )
        pinned.append(Pinned(name, version, links[best]))
    return tuple(pinned)


def _link(wheel: dict[str, Any]) -> Link:
    url = wheel.get("url") or "file://" + urllib.parse.quote(wheel["path"])
    name = wheel.get("name") or urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
    return Link(name=name, url=url, sha256=wheel.get("hashes", {}).get("sha256", ""), size=wheel.get("size"))
