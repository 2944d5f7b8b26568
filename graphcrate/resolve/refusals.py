"""Refused before anything is resolved for them, or after: names that mean something else, and files written twice."""

from collections.abc import Collection, Sequence

from packaging.requirements import Requirement

from graphcrate.compat import names, own
from graphcrate.model.command import command, filled
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import Lock
from graphcrate.model.words import listed
from graphcrate.resolve.locks import ResolveContext
from graphcrate.resolve.offers import Offers

_MOST_WORDS = 6  #: packages of a command that is told


def refuse_traps(context: ResolveContext, stack: Lock, packages: Sequence[str], offers: Offers) -> None:
    """Raises ResolutionError for names that mean something else, with what to type instead.

    `packages`: of `Additions`. What the stack has under such a name is meant, and so is what an index has where the
    name is only said to be nowhere: a company's index may.
    """
    found: dict[str, names.Trap] = {}  #: as it was given
    for package in packages:
        if not own.is_local(package):
            wanted = Requirement(package)
            trap = names.refused(wanted)
            if trap is None or stack.package(trap.name):
                continue
            if trap.kind in ("placeholder", "other") or not any(offers.releases(trap.name)):
                found[package] = trap
    if not found:
        return
    steps = [filled(trap.next) for trap in found.values() if trap.next]
    there = [one for trap in found.values() if (one := stack.package(trap.instead))]
    if not steps:
        have = {one.name for one in there}
        right = [found[one].instead if one in found else one for one in packages]
        right = [one for one in dict.fromkeys(right) if one not in have]
        steps = [_command(context, right) or "write " + listed(right)]
    more = [f"the stack has {one.name} {one.version}" for one in there]
    raise ResolutionError(
        "\n".join(trap.why(Requirement(one).name) for one, trap in found.items()),
        next_step="; or ".join(steps) + (f"    ({listed(more)})" if more else ""),
    )


def _command(context: ResolveContext, packages: Sequence[str]) -> str:
    """What to type for the same request with these packages; empty where that is no line to type."""
    request = context.typed
    if request is None or request.recipe is not None or request.requirements or len(packages) > _MOST_WORDS:
        return ""
    return str(request.asking(packages).command())


def refuse_twice(packages: Collection[str], title: str) -> None:
    """Raises ResolutionError for packages that write over each other."""
    if found := names.twice(packages):
        raise ResolutionError(
            f"these packages cannot be together in {title}: {found}",
            cause="The later one would write over files of the earlier one.",
            next_step=f"leave one of them out; a stack without torch_geometric: {command('image', 'torch')}",
        )
