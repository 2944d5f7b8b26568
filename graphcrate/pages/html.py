"""jinja2 for pages: everything that comes from an image is escaped; style and script stand in the page itself.

The catalogue's words are in `templates/words.toml`, a column for each language.
"""

import functools
import importlib.resources
import tomllib
from collections.abc import Mapping

import jinja2

from graphcrate import __version__
from graphcrate.model.command import command, filled
from graphcrate.model.words import size
from graphcrate.pages.colours import COLOURS


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("graphcrate.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"size": size, "filled": filled}
    environment.globals |= {"version": __version__, "colours": COLOURS, "typed": command}
    return environment


@functools.cache
def page_words() -> Mapping[str, Mapping[str, str]]:
    """Word → its text by language. The word "language" has all languages, each with its own name."""
    file = importlib.resources.files("graphcrate.pages") / "templates" / "words.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def render_page(template: str, values: Mapping[str, object]) -> str:
    """Fill a template of `templates/`. A name that is missing raises jinja2.UndefinedError."""
    return _environment().get_template(template).render(values)
