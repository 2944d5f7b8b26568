"""From requirements to locked wheels of the package index: uv chooses, sizes that no page states are asked for."""

import tomllib
import urllib.parse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from packaging.markers import Marker
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.host.connections import HttpError, Reason
from graphcrate.model.errors import NetworkError, ResolutionError
from graphcrate.model.lock import LockedFile, LockedPackage
from graphcrate.model.recipe import Channel
from graphcrate.resolve import uv
from graphcrate.resolve.channels import Link
from graphcrate.resolve.fetch import store_unvouched
from graphcrate.resolve.offers import Offers, Sources
from graphcrate.resolve.target import Target

#: (first torch that does not need it, constraint, why): what torch's own metadata forgets to say
CONSTRAINTS = (
    ("2.3", "numpy<2"),  # compiled against numpy 1: "A module that was compiled using NumPy 1.x …"
    ("2.2", "setuptools<70"),  # torch.utils.cpp_extension imports pkg_resources.packaging
)
COMMON = "numpy"  #: a project that every package index has
THREADS = 8


class Pinned(msgspec.Struct, frozen=True):
    """A package and the wheel chosen for it. `link` is None for a package that was given by address."""

    name: str
    version: str
    link: Link | None


def parse_pylock(text: str, target: Target) -> tuple[Pinned, ...]:
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
        links = {link.name: link for link in map(_link_of, package.get("wheels", ()))}
        best = target.best(list(links))
        if best is None:
            raise ResolutionError(
                f"{name} {version} has no wheel for Python {target.python} and glibc {target.glibc}",
                cause=f"On offer are {', '.join(links) or 'no wheels at all'}.",
                next_step=f"ask for another version of {name} in the recipe",
            )
        pinned.append(Pinned(name, version, links[best]))
    return tuple(pinned)


def _link_of(wheel: dict[str, Any]) -> Link:
    url = wheel.get("url") or "file://" + urllib.parse.quote(wheel["path"])
    name = wheel.get("name") or urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
    return Link(name=name, url=url, sha256=wheel.get("hashes", {}).get("sha256", ""), size=wheel.get("size"))


def constraints_of(torch: str) -> list[str]:
    """What goes with this torch beyond what its metadata says."""
    release = Version(torch)
    return [constraint for first, constraint in CONSTRAINTS if release < Version(first)]


def pin_wheels(
    requirements: Sequence[str],
    target: Target,
    offers: Offers,
    *,
    overrides: Sequence[str] = (),
    constraints: Sequence[str] = (),
) -> tuple[LockedPackage, ...]:
    """Wheels for these requirements and what they need, sorted by name. Raises ResolutionError, NetworkError."""
    pinned = resolve_pins(requirements, target, offers, overrides=overrides, constraints=constraints)
    links = [(package.name, package.version, package.link) for package in pinned if package.link is not None]
    return tuple(lock_links(links, offers.market))


def resolve_pins(
    requirements: Sequence[str],
    target: Target,
    offers: Offers,
    *,
    overrides: Sequence[str] = (),
    constraints: Sequence[str] = (),
) -> tuple[Pinned, ...]:
    """What uv chooses for these requirements, from the mirror's or the user's indexes. Raises as `uv`."""
    user = offers.market.user
    text = uv.compile_requirements(
        requirements,
        target=target,
        default_index=_first_that_answers(offers),
        extra_indexes=user.extra,
        merged=user.merged,
        overrides=overrides,
        constraints=constraints,
        cache=offers.market.cache,
        environment=offers.market.environment,
    )
    return parse_pylock(text, target)


def _first_that_answers(offers: Offers) -> str:
    """The mirror's package index if there is one and it answers, else the user's own."""
    user = offers.market.user
    for place in offers.sources(Channel.PYPI):
        if place.location in (*user.extra, user.default):
            continue
        try:
            offers.market.listings.project(place, COMMON)
        except NetworkError:
            continue
        return place.location
    return user.default


def lock_links(links: Sequence[tuple[str, str, Link]], market: Sources) -> list[LockedPackage]:
    """Lock files of the package index; sizes that it does not state are asked for side by side."""

    def lock(item: tuple[str, str, Link]) -> LockedPackage:
        name, version, link = item
        return LockedPackage(name=name, version=version, channel=Channel.PYPI, file=locked_file(link, market))

    with ThreadPoolExecutor(THREADS) as pool:
        return sorted(pool.map(lock, links), key=lambda package: package.name)


def locked_file(link: Link, market: Sources) -> LockedFile:
    """The file with its size: stated, that of the cached copy, or what a HEAD says. Raises NetworkError.

    One whose hash no page states is fetched.
    """
    size = link.size
    if not link.sha256 or (size is None and link.url.startswith("file:")):
        return store_unvouched(link, market.client, market.cache, lambda _: None)
    if size is None:
        cached = market.cache.file(link.sha256, link.name)
        size = cached.stat().st_size if cached.is_file() else _asked_size(link, market)
    return LockedFile(name=link.name, size=size, sha256=link.sha256)


def _asked_size(link: Link, market: Sources) -> int:
    headers = {"Accept-Encoding": "identity"}
    response = market.client.request("HEAD", link.url, headers=headers, accept=(200, 403, 405, 501))
    length = response.headers.get("Content-Length", "")
    if response.status != 200 or not length.isdigit():
        first = market.client.request("GET", link.url, headers=headers | {"Range": "bytes=0-0"}, accept=(206,))
        length = first.headers.get("Content-Range", "").rpartition("/")[2]
    if not length.isdigit():
        raise HttpError.of(Reason.ADDRESS, link.url, "the server does not say how large the file is")
    return int(length)
