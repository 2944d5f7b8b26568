"""Sentences on a base that is not what its lock says, or was locked without its security updates. Pure."""

from collections.abc import Sequence

from graphcrate.compat.facts import suites
from graphcrate.model.command import setting
from graphcrate.model.lock import Drift
from graphcrate.model.words import joined, listed


def drifted(drift: Sequence[Drift]) -> list[str]:
    """List what is not what was locked: "bash 5.2-1 → 5.2-2", "liba 1 (new)", "libb 1 (gone)"."""
    return list(
        dict.fromkeys(
            f"{package.name} {package.locked} → {package.taken}"
            if package.locked and package.taken
            else f"{package.name} {package.taken} (new)"
            if package.taken
            else f"{package.name} {package.locked} (gone)"
            for package in drift
        )
    )


def drift_line(drift: Sequence[Drift]) -> str:
    """Say what of Debian is of today and not the lock's; a report and a label have all of it."""
    where = listed(
        sorted({"the base with the compiler" if package.of == "compiler" else "the base" for package in drift})
    )
    changes = drifted(drift)
    return f"no place has all that was locked of {where}; of today are {joined(changes)}"


def unfixed_line(unfixed: Sequence[str]) -> str:
    """Say of which suites the lock was made without the list of their security updates."""
    option = setting(without_security=True)
    return f"none of the security updates of {listed(map(suites.titled, unfixed))}, which no mirror gave ({option})"
