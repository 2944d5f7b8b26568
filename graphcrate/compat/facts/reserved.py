"""Variables and places that an image needs for itself (`data/reserved.toml`), and what a recipe may set of them."""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from graphcrate.compat.facts.facts import table_reader


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


variables = table_reader("reserved", tuple[_Variable, ...], "variable")
places = table_reader("reserved", tuple[_Place, ...], "place")
_OWN_PATH = re.compile(r"\$(?:PATH\b|\{PATH\})")


def of_environment(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield faults of a recipe's variables."""
    for variable in variables():
        value = environment.get(variable.name)
        if value is not None and not (variable.allowed and re.fullmatch(variable.allowed, value)):
            yield f"{variable.name} = {value!r} does not fit: {variable.why}; {variable.instead}"


def of_files(paths: Iterable[str]) -> Iterator[str]:
    """Yield faults of the paths where a recipe puts files."""
    for path in sorted(paths):
        for place in places():
            if path == place.path.rstrip("/") or (place.path.endswith("/") and path.startswith(place.path)):
                yield f"{path} is not for files of a recipe: {place.why}; /opt/mine is free"


def with_own_path(environment: Mapping[str, str], path: str) -> dict[str, str]:
    """The variables of a recipe with the image's own PATH in place of `$PATH`."""
    return {
        name: _OWN_PATH.sub(lambda _: path, value) if name == "PATH" else value for name, value in environment.items()
    }
