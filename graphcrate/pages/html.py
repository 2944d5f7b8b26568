"""jinja2 for pages: everything that comes from an image is escaped; style and script stand in the page itself."""

import functools
from collections.abc import Mapping

import jinja2

from graphcrate import __version__
from graphcrate.model.command import command, filled
from graphcrate.model.words import size
from graphcrate.pages.colours import COLOURS


@functools.cache
def _environment(packages: tuple[str, ...]) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"size": size, "filled": filled}
    environment.globals |= {"version": __version__, "colours": COLOURS, "typed": command}
    return environment


def render_page(template: str, values: Mapping[str, object], *packages: str) -> str:
    """Fill a template of `templates/`, here or in other packages. A name that is missing raises UndefinedError."""
    return _environment((*packages, "graphcrate.pages")).get_template(template).render(values)
