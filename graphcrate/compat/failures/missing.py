"""Missing parts of a failed build, by the words of its compiler or back-end, and Debian's packages with them. Pure."""

import re
from typing import NamedTuple

from graphcrate.compat.facts.facts import table_reader
from graphcrate.compat.failures import importing

_headers = table_reader("build_packages", dict[str, str], "header")
_libraries = table_reader("build_packages", dict[str, str], "library")
_programs = table_reader("build_packages", dict[str, str], "program")

_NAME = r"(?P<name>[\w.+/-]{1,80})"
#: of gcc, ld, meson, CMake, the crate pkg-config, Python and the shell, in this order
_HEADER = (rf"fatal error: {_NAME}: No such file",)
_LIBRARY = (
    rf"cannot find -l{_NAME}",
    rf"ERROR: (?:C|C\+\+) shared or static library '{_NAME}' not found",
    rf"ERROR: Dependency \"{_NAME}\" not found",
    rf"Could NOT find {_NAME}",
    rf"package configuration file provided by \"{_NAME}\"",
    rf"could not find system library '{_NAME}'",
    rf"The system library `{_NAME}` required by crate",
)
_PROGRAM = (
    rf"ERROR: Program '{_NAME}' not found",
    rf"ERROR: Unknown compiler\(s\): \[\['{_NAME}'",
    rf"No such file or directory: '{_NAME}'",
    rf"command '{_NAME}' failed: No such file or directory",
    r"build program corresponding to \"(?P<name>Unix Makefiles)\"",
    rf"Error: {_NAME} must be installed\b",
    rf"(?:^|[\s:]){_NAME}: (?:command )?not found",
)
#: of CMake and numpy.distutils
_LANGUAGE = (
    r"No CMAKE_(?P<name>Fortran)_COMPILER could be found",
    r"has (?P<name>Fortran) sources but no Fortran compiler found",
)
#: of meson
_BY_PKG_CONFIG = re.compile(
    rf"Dependency lookup for {_NAME} with method 'pkg-config' failed: Pkg-config for machine .{{1,40}} not found"
)
#: of ninja, where a setup.py gives CMake's generator what make takes: `cmake --build . -- VERBOSE=1`
_FOR_MAKE = re.compile(r"ninja: error: unknown target '[A-Z]\w*=")

#: headers of every Python, or of earlier ones: no other package brings them
_OF_PYTHON = re.compile(r"Python\.h|longintrepr\.h")
#: which the lock names
_COMPILER = re.compile(r"(?:.*[/-])?(?:gcc|cc|g\+\+|c\+\+|nvcc)(?:-\d+)?")


class Missing(NamedTuple):
    """A header, library, program, compiler or module of Python's own.

    `package`: of Debian, empty where none is known; `finder`: the program that finds it, and is absent as well.
    """

    kind: str
    name: str
    package: str = ""
    finder: str = ""


def missing(error: str, python: str = "") -> Missing | None:
    """Find what this error says is absent. `python`: the suite's ("3.9"), if it is known."""
    if module := importing.apart(error, python):
        return Missing("module", *module)
    if match := _BY_PKG_CONFIG.search(error):
        return Missing("library", match["name"], _libraries().get(match["name"].lower(), ""), "pkg-config")
    if _FOR_MAKE.search(error):
        return Missing("program", "make", _programs()["make"])
    for kind, patterns, packages in (
        ("header", _HEADER, _headers()),
        ("library", _LIBRARY, _libraries()),
        ("program", _PROGRAM, _programs()),
        ("compiler for", _LANGUAGE, _programs()),
    ):
        for pattern in patterns:
            match = re.search(pattern, error)
            if match and not (_OF_PYTHON.fullmatch(match["name"]) or _COMPILER.fullmatch(match["name"])):
                name = match["name"]
                known = name.lower().removeprefix("lib") if kind == "library" else name
                return Missing(kind, name, packages.get(known) or packages.get(name.lower(), ""))
    return None
