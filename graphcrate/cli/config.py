"""A person's and a folder's defaults: ~/.config/graphcrate/config.toml, and graphcrate.toml of the current folder."""

import functools
from collections.abc import Iterator
from pathlib import Path

import msgspec

from graphcrate.compat import toml
from graphcrate.host import settings
from graphcrate.host.context import Context


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults of options, by their names. What the command line or a variable says goes before them."""

    mirror: str = ""
    target: str = ""  #: of `image`, where it names neither a GPU nor a driver
    to: str = ""  #: of `publish`
    cache: str = ""  #: a folder, as GRAPHCRATE_CACHE


@functools.cache
def config() -> Config:
    """Read both files, the folder's over the person's. Raises RecipeError that names file, line and field."""
    fields = {"fields": "its fields are mirror, target, to and cache"}
    values: dict[str, str] = {}
    for path in _files():
        if path.is_file():
            value = toml.parse(toml.read(path, "configuration"), str(path), Config, lambda _: (), **fields)
            values |= {name: text for name, text in msgspec.structs.asdict(value).items() if text}
    return Config(**values)


def here() -> Context:
    """The context of a command, with the configured cache."""
    context = Context.here()
    cache = config().cache
    if not cache or "GRAPHCRATE_CACHE" in context.environment:
        return context
    return Context(root=context.root, environment={**context.environment, "GRAPHCRATE_CACHE": cache})


def _files() -> Iterator[Path]:
    environment = settings.environment()
    home = settings.home(environment)
    if folder := environment.get("XDG_CONFIG_HOME") or (home and home / ".config"):
        yield Path(folder, "graphcrate", "config.toml")
    yield Path("graphcrate.toml")
