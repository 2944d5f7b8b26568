"""Refused before anything is resolved for them, or after: names that mean something else, and files written twice."""

from collections.abc import Collection, Sequence

import msgspec
from packaging.requirements import Requirement

from graphcrate.compat.facts import names
from graphcrate.compat.requirements import own_packages
from graphcrate.compat.requirements.expected import lacking
from graphcrate.model.command import command, filled
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Lock
from graphcrate.model.recipe import Additions
from graphcrate.model.words import listed
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.stack.locks import ResolveContext


def refuse_traps(context: ResolveContext, stack: Lock, packages: Sequence[str], offers: Offers) -> None:
    """Raises ResolutionError for names that mean something else, with what to type instead.

    `packages`: of `Additions`. What the stack has under such a name is meant, and so is what an index has where the
    name is only said to be nowhere: a company's index may.
    """
    traps: dict[str, names.Trap] = {}  #: as it was given
    for package in packages:
        if not own_packages.is_local(package):
            requirement = Requirement(package)
            trap = names.refused(requirement)
            if trap is None or stack.package(trap.name):
                continue
            if trap.kind in ("placeholder", "other") or not any(offers.releases(trap.name)):
                traps[package] = trap
    if not traps:
        return
    steps = [filled(trap.next) for trap in traps.values() if trap.next]
    there = [stacked for trap in traps.values() if (stacked := stack.package(trap.instead))]
    if not steps:
        have = {package.name for package in there}
        right = [traps[package].instead if package in traps else package for package in packages]
        right = [package for package in dict.fromkeys(right) if package not in have]
        instead = context.next_steps.instead(right) if context.next_steps else ""
        steps = [instead or "; ".join(_in_place(package, trap, have) for package, trap in traps.items())]
    more = [f"the stack has {package.name} {package.version}" for package in there]
    raise ResolutionError(
        "\n".join(trap.why(Requirement(package).name) for package, trap in traps.items()),
        next_step="; or ".join(steps) + (f"    ({listed(more)})" if more else ""),
    )


def _in_place(package: str, trap: names.Trap, have: Collection[str]) -> str:
    """Say what to write in place of a name, as in a file; `have`: packages of the stack."""
    name = Requirement(package).name
    return f"leave out {name}" if trap.instead in have else f"write {trap.instead} in place of {name}"


def without_lacking(stack: Lock, additions: Additions, offers: Offers) -> Additions:
    """Return the additions without what files alone ask for and no place has: the plan says each with its line."""
    left = {name for name in lacking(additions.expected, stack) if not any(offers.releases(name))}
    kept = [
        package
        for package in additions.packages
        if own_packages.is_local(package) or own_packages.name_of(package) not in left
    ]
    return msgspec.structs.replace(additions, packages=tuple(kept))


def refuse_twice(packages: Collection[str], title: str) -> None:
    """Raises ResolutionError for packages that write over each other."""
    if pairs := names.twice(packages):
        raise ResolutionError(
            f"these packages cannot be together in {title}: {pairs}",
            cause="The later one would write over files of the earlier one.",
            next_step=f"leave one of them out; a stack without torch_geometric: {command('image', 'torch')}",
        )
