"""Emulators for another platform's programs, by host: `emulators.toml`."""

import msgspec

from graphcrate.compat.facts.facts import table_reader
from graphcrate.model.lock import DebianPackage


class EmulatorPackage(msgspec.Struct, frozen=True, kw_only=True):
    """An emulator that runs programs of the platform `runs` on `host`, and the package of `suite` that brings it."""

    host: str
    runs: str
    suite: str
    listed: str  #: as of a DebianBase
    program: str  #: path in the package
    package: DebianPackage


_rows = table_reader("emulators", tuple[EmulatorPackage, ...], "emulator")


def emulator_package(host: str, runs: str) -> EmulatorPackage | None:
    """Find the package that runs programs of one platform on another, as OCI names both; None where none is known."""
    return next((row for row in _rows() if (row.host, row.runs) == (host, runs)), None)
