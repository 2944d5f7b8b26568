"""Extras of what stays: `torch_geometric[graphgym]` adds what the extra needs, and PyG itself stays as it is."""

from collections.abc import Iterable, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.compat.facts.packages import requirements
from graphcrate.inputs.wheels.sdist import read_sdist
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.words import listed, printable
from graphcrate.resolve.additions.conflicts import Conflicts
from graphcrate.resolve.additions.solving import name_of
from graphcrate.resolve.sources.fetch import fetch_one
from graphcrate.resolve.sources.offers import Offer, Offers
from graphcrate.resolve.sources.source import Link


def with_extras(
    required: Sequence[Requirement], conflicts: Conflicts, offers: Offers, python: str
) -> list[Requirement]:
    """Return the requirements, with what extras of packages that stay need besides, also by extras that need others.

    `python`: "3.11". Raises ResolutionError for an extra that a package does not have, NetworkError.
    """
    made, to_do, done = [*required], [*required], set[tuple[str, str]]()
    while to_do:
        requirement = to_do.pop(0)
        package = conflicts.staying.get(name_of(requirement))
        extras = [extra for extra in sorted(requirement.extras) if (name_of(requirement), extra) not in done]
        if package is None or not extras:
            continue
        done |= {(package.name, extra) for extra in extras}
        needs = [*requirements(_lines(package, extras, conflicts, offers), python)]
        made += needs
        to_do += needs
    return made


def _lines(package: LockedPackage, extras: Iterable[str], conflicts: Conflicts, offers: Offers) -> list[str]:
    """Return what these extras of a package need besides, as lines without their markers of extras."""
    if not package.file.name.endswith(".whl"):
        fetch_one(package, offers)  # a source, which is small; what it needs stands in it
        known = read_sdist(offers.sources.cache.file(package.file.sha256, package.file.name), package.file.name).extras
        if unknown := [extra for extra in extras if canonicalize_name(extra) not in known]:
            raise _refusal(package, unknown, f"It has {listed(known)}." if known else "It has none.")
        return [line for extra in extras for line in known[canonicalize_name(extra)]]
    release = Offer(package.name, package.version, package.channel, Link(name=package.file.name, url=""))
    lines: list[str] = []
    for extra in extras:
        needs = conflicts.needs_of_extras(release, [extra])
        if not needs:
            raise _refusal(package, [extra], "Nothing of what its wheel needs names it.")
        lines += map(str, needs)
    return lines


def _refusal(package: LockedPackage, extras: Sequence[str], cause: str) -> ResolutionError:
    names = listed(printable(extra) for extra in extras)
    return ResolutionError(
        f"{package.name} {package.version} has no extra {names}",
        cause=cause,
        next_step=f"ask for {package.name} without it, or name what you need: a package of its own",
    )
