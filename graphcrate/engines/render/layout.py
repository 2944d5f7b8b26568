"""What the templates share: jinja2 with delimiters that neither shell nor definition files use, and text filters."""

import functools
import importlib.resources
import shlex
import textwrap
from collections.abc import Mapping

import jinja2

import graphcrate.engines.render.commands as commands

WIDTH = 118


@functools.cache
def _environment() -> jinja2.Environment:
    folder = importlib.resources.files("graphcrate.engines.render") / "templates"
    names = ("Dockerfile", "definition", "page.md", "job-options", "job-singularity", "job-pyxis", "job-docker")
    environment = jinja2.Environment(
        # Part of the package, as constant as code.
        loader=jinja2.DictLoader({name: (folder / name).read_text(encoding="utf-8") for name in names}),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # shell and Markdown: nothing is to be turned into HTML entities
        autoescape=False,
    )
    environment.filters |= {
        "run": commands.run,
        "script": commands.script,
        "comment": comment,
        "double": double,
        "pairs": pairs,
        "quoted": commands.quoted,
        "word": shlex.quote,
    }
    return environment


def rendered(template: str, values: Mapping[str, object]) -> str:
    """A template with its values. A value that it lacks is an error."""
    return _environment().get_template(template).render(values)


def comment(text: str, indent: str = "") -> str:
    """Lines of a comment."""
    return "\n".join(wrapped(text, WIDTH, f"{indent}# "))


def wrapped(text: str, width: int, start: str = "") -> list[str]:
    """Lines of at most `width` characters, each with this start; names and paths stay whole."""
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=start, break_on_hyphens=False, break_long_words=False
    )


def double(text: str) -> str:
    """In double quotes, for ENV, LABEL and `export`."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
    return f'"{escaped}"'


def pairs(values: Mapping[str, str], indent: str) -> str:
    """`A="1" \\` and so on, one on each line."""
    return f" \\\n{indent}".join(f"{name}={double(value)}" for name, value in values.items())
