"""Exceptions that the import of a package ends with, and what to ask for so that it does not. Pure."""

import fnmatch
import re

import msgspec

from graphcrate.compat.facts import names, standard_library, together
from graphcrate.compat.facts.facts import table_reader
from graphcrate.compat.failures.failure import More

_NO_MODULE = re.compile(r"No module named '([^']+)'")


class _Raised(msgspec.Struct, frozen=True, kw_only=True):
    """A remedy where the import of `package`, a pattern, ends with this."""

    package: str
    pattern: str
    ask: str


_raised = table_reader("together", tuple[_Raised, ...], "raised")


def remedy(package: str, raised: str, python: str) -> tuple[More, str] | None:
    """The option and the package to ask for so that the import of `package` does not end so; None if unknown.

    `python`: the image's ("3.11"), if it is known.
    """
    absent = _NO_MODULE.search(raised)
    if ask := known(package, raised) or (names.package_of(absent[1]) if absent else ""):
        return "with_", ask
    if module := apart(raised, python):
        return "apt", module[1]
    programs = (row for row in together.programs() if row.package == package and row.program in raised)
    runs = next(programs, None)
    return ("apt", runs.apt) if runs else None


def known(package: str, raised: str) -> str:
    """Say what to ask for where it is known of packages of this name; empty if unknown."""
    return next(
        (row.ask for row in _raised() if row.pattern in raised and fnmatch.fnmatchcase(package, row.package)), ""
    )


def apart(raised: str, python: str = "") -> tuple[str, str] | None:
    """The module of the standard library that is not there, and Debian's package with it; None of any other error."""
    absent = _NO_MODULE.search(raised)
    package = standard_library.package_of(absent[1], python) if absent else ""
    return (absent[1], package) if absent and package else None
