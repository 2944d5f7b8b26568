"""Modules of the standard library that Debian packages apart from Python: which package has one, who needs it. Pure."""

from collections.abc import Collection

import msgspec

from graphcrate.compat.facts.facts import is_older, table_reader


class Apart(msgspec.Struct, frozen=True, kw_only=True):
    """A `module`, and Debian's `package` with it. `before`: the first Python ("3.12") without it; empty: none is."""

    module: str
    package: str
    known: str
    before: str = ""


class Importer(msgspec.Struct, frozen=True, kw_only=True):
    """`package` (normalised) imports such a `module` where Python is older than `before`; else it `loses` this."""

    package: str
    module: str
    before: str
    loses: str
    known: str


#: all modules that are packaged apart
apart = table_reader("standard_library", tuple[Apart, ...], "apart")
#: who imports one
importers = table_reader("standard_library", tuple[Importer, ...], "importer")


def package_of(module: str, python: str = "") -> str:
    """Debian's package with a module ("distutils.cmd") for a Python ("3.9"; empty: any); empty where none has it."""
    top = module.partition(".")[0]
    return next((row.package for row in apart() if row.module == top and _has(python, row)), "")


def lacked(package: str, python: str, installed: Collection[str]) -> tuple[Importer, ...]:
    """Find what a package (normalised) imports on a Python ("3.9"), and none of Debian's `installed` packages has."""
    return tuple(
        row
        for row in importers()
        if row.package == package and is_older(python, row.before) and package_of(row.module, python) not in installed
    )


def _has(python: str, row: Apart) -> bool:
    return not python or not row.before or is_older(python, row.before)
