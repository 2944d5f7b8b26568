"""Libraries that a package opens only where they can be, or one of several of: `data/optional.toml`.

That such a library cannot be loaded is no fault by itself.
"""

import fnmatch
import functools
import re

import msgspec

from graphcrate.compat import tables


class Optional(msgspec.Struct, frozen=True, kw_only=True):
    """`package` and `file` (below site-packages) are patterns; `why` says what is lost where it cannot be loaded.

    `one_of`: several libraries of which the package needs one. `by_torch`: the one whose name has torch's version.
    """

    package: str
    file: str
    why: str
    known: str
    one_of: bool = False
    by_torch: bool = False


class _Facts(msgspec.Struct, frozen=True):
    optional: tuple[Optional, ...]


@functools.cache
def facts() -> tuple[Optional, ...]:
    """The whole table."""
    return tables.read("optional", _Facts).optional


def reason(package: str, file: str, torch: str = "") -> str | None:
    """What is lost where this file of a package cannot be loaded; None for a file that has to be.

    `torch`: the version that is installed.
    """
    for one in facts():
        if matches(one, package, file) and not (one.by_torch and is_for(file, torch)):
            return one.why
    return None


def matches(one: Optional, package: str, file: str) -> bool:
    """Whether the entry is about this file of a package."""
    return fnmatch.fnmatchcase(package, one.package) and fnmatch.fnmatchcase(file, one.file)


def is_for(file: str, torch: str) -> bool:
    """Whether a library's name has this version of torch: `_pytorch_2.0.1` its release, `_torch24-` its series."""
    name, version = file.rpartition("/")[2], torch.partition("+")[0]
    if found := re.search(r"(?<![\d.])(\d+\.\d+\.\d+)(?!\d)", name):
        return found[1] == version
    series = re.search(r"torch(\d)(\d+)", name)
    return series is not None and version.split(".")[:2] == [series[1], series[2]]
