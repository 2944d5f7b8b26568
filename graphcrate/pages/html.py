"""jinja2 for pages: everything that comes from an image is escaped; style and script stand in the page itself."""

import functools
import importlib.resources
import tomllib
from collections.abc import Mapping

import jinja2

from graphcrate import __version__
from graphcrate.compat.variants.support import MARKS
from graphcrate.model.command import command, filled
from graphcrate.model.words import size
from graphcrate.pages.colours import COLOURS

_PACKAGE = "graphcrate.pages"
#: a mark's class in the style sheet
_CLASSES = {"native": "yes", "jit": "limits", "built": "built", "unknown": "no", "rejected": "no"}


@functools.cache
def page_words(package: str) -> Mapping[str, Mapping[str, str]]:
    """Word → its text by language, of a package's `templates/words.toml` and of ours.

    The word "language" has all languages, each with its own name.
    """
    files = (importlib.resources.files(name) / "templates" / "words.toml" for name in (_PACKAGE, package))
    return {word: texts for file in files for word, texts in tomllib.loads(file.read_text(encoding="utf-8")).items()}


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
    marks = {mark: sign for mark, (sign, _) in MARKS.items()}
    environment.globals |= {"marks": marks, "mark_classes": _CLASSES}
    return environment


def render_page(template: str, values: Mapping[str, object], *packages: str) -> str:
    """Fill a template of `templates/`, here or in other packages. A name that is missing raises UndefinedError."""
    return _environment((*packages, _PACKAGE)).get_template(template).render(values)
