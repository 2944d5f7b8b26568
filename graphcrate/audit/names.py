"""Names of symbols and versions, for people."""

from collections.abc import Iterable

import itanium_demangler
from packaging.version import InvalidVersion, Version


def demangled(symbol: str) -> str:
    """A C++ name as a person reads it, or the symbol itself."""
    try:
        return str(itanium_demangler.parse(symbol) or symbol)
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError):  # names of a kind that it does not know
        return symbol


def ordered(capabilities: Iterable[str]) -> tuple[str, ...]:
    """Compute capabilities, lowest first."""
    return tuple(sorted(capabilities, key=lambda name: (*map(int, name.rstrip("af").split(".")), name)))


def by_number(name: str) -> tuple[str, Version]:
    """Orders GLIBC_2.9 before GLIBC_2.10, and compute capabilities."""
    prefix, _, number = name.rpartition("_")
    try:
        return prefix, Version(number)
    except InvalidVersion:  # GLIBC_PRIVATE, 9.0f
        return name, Version("0")
