"""Variables and places that an image needs for itself (`data/reserved.toml`), and what a recipe may set of them."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from graphcrate.compat.facts import table


class _Variable(msgspec.Struct, frozen=True, kw_only=True):
    """`allowed`: what its value has to match; empty: it is never set."""

    name: str
    why: str
    instead: str
    source: str
    allowed: str = ""


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """A path, and all below it where it ends with a slash."""

    path: str
    why: str
    source: str


variables = functools.cache(functools.partial(table, "reserved", tuple[_Variable, ...], "variable"))
places = functools.cache(functools.partial(table, "reserved", tuple[_Place, ...], "place"))
_OWN_PATH = re.compile(r"\$(?:PATH\b|\{PATH\})")


def of_environment(environment: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with variables of a recipe."""
    for one in variables():
        value = environment.get(one.name)
        if value is not None and not (one.allowed and re.fullmatch(one.allowed, value)):
            yield f"{one.name} = {value!r} does not fit: {one.why}; {one.instead}"


def of_files(paths: Iterable[str]) -> Iterator[str]:
    """What is wrong with where a recipe puts files."""
    known = sorted(paths)
    for path in known:
        for one in places():
            if path == one.path.rstrip("/") or (one.path.endswith("/") and path.startswith(one.path)):
                yield f"{path} is not for files of a recipe: {one.why}; /opt/mine is free"
        if under := next((other for other in known if other.startswith(f"{path}/")), None):
            yield f"{path} is a file, and {under} makes it a folder"


def with_own_path(environment: Mapping[str, str], path: str) -> dict[str, str]:
    """The variables of a recipe with the image's own PATH in place of `$PATH`."""
    return {
        name: _OWN_PATH.sub(lambda _: path, value) if name == "PATH" else value for name, value in environment.items()
    }
