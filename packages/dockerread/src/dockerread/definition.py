"""Parts of a Singularity or Apptainer definition with their lines, and commands of a page for people.

Source: the definition files of Apptainer's user guide, 2026-11.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dockerread.errors import ReadError
from dockerread.shell import lines_of

_HEADER = re.compile(r"([A-Za-z]+):\s*(\S.*)")
_SECTION = re.compile(r"%([a-z]+)\b[ \t]*(.*)", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]{0,99})\s*\}\}")
_FENCE = re.compile(r"\s*(```|~~~)\s*([a-zA-Z0-9_+-]*)\s*")
_LANGUAGES = ("", "bash", "sh", "shell", "console", "zsh", "terminal", "shell-session", "cmd", "text")
#: a line of code by its indentation alone that installs something: other indented lines may be a list's text
_INDENTED = re.compile(
    r"(?: {4}|\t)\s*(?:\$\s+)?((?:sudo\s+)?(?:python3?\s+-m\s+)?(?:pip3?|conda|mamba|micromamba|uv|apt|apt-get)\s+\S.*)"
)
_PROMPT = re.compile(r"\s*(?:\([\w.-]+\)\s*)?\$\s+")


class DefinitionPart(NamedTuple):
    """A header's field (Bootstrap, From, Stage) or a section, in lower case, with its `%`. `line` is its first.

    `options`: words behind the name of a section; `text`: the field's value, or the lines of the section.
    """

    line: int
    end: int
    name: str
    text: str
    options: str = ""


def parts(text: str, file: str, given: Mapping[str, str]) -> list[DefinitionPart]:
    """Return the parts of a definition with the values of `%arguments`, those that are given before its own.

    Raises ReadError for one without a Bootstrap. What has no value stays.
    """
    parsed = list(_parts(text))
    if not any(part.name == "bootstrap" for part in parsed):
        raise ReadError(f"{file} has no Bootstrap", kind="bootstrap", file=file)
    values = _arguments(parsed) | dict(given)
    return [
        part._replace(text=_PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), part.text)) for part in parsed
    ]


def is_definition(text: str) -> bool:
    """Return whether a text begins as a definition does."""
    first = next((line.strip() for line in lines_of(text) if line.strip() and not line.startswith("#")), "")
    return first.lower().startswith("bootstrap:")


def commands_of_page(text: str) -> str:
    """Return a page for people with nothing but its commands, in their lines: blocks of code, and no other text.

    Of blocks that are only indented, lines that install something.
    """
    made, fence = list[str](), ""
    is_shell, prompts = False, "$ " in text
    for line in lines_of(text):
        match = _FENCE.fullmatch(line)
        if match and not fence:
            fence, is_shell = match[1], match[2].lower() in _LANGUAGES
            made.append("")
        elif match and match[1] == fence:
            fence = ""
            made.append("")
        elif fence and is_shell:
            made.append(_PROMPT.sub("", line) if prompts else line)
        else:
            indented = None if fence else _INDENTED.fullmatch(line)
            made.append(indented[1] if indented else "")
    return "\n".join(made)


def _arguments(parts: Iterable[DefinitionPart]) -> dict[str, str]:
    """Return the values of `%arguments`; of several such sections the first says it."""
    values = dict[str, str]()
    for part in parts:
        if part.name == "%arguments":
            lines = (line.strip().partition("=") for line in lines_of(part.text))
            values = {name.strip(): value.strip() for name, _, value in lines if name.strip()} | values
    return values


def _parts(text: str) -> Iterator[DefinitionPart]:
    section: DefinitionPart | None = None
    lines = list[str]()
    number = 0
    for number, line in enumerate(lines_of(text), 1):
        match = _SECTION.fullmatch(line.rstrip())
        header = _HEADER.fullmatch(line.strip())
        if match:
            if section:
                yield section._replace(end=number - 1, text="\n".join(lines))
            section, lines = DefinitionPart(number, number, f"%{match[1].lower()}", "", match[2]), []
        elif header and header[1].lower() == "bootstrap" and not line.startswith((" ", "\t")):  # the next stage
            if section:
                yield section._replace(end=number - 1, text="\n".join(lines))
            section = None
            yield DefinitionPart(number, number, "bootstrap", header[2].strip())
        elif section:
            lines.append(line)
        elif header:
            yield DefinitionPart(number, number, header[1].lower(), header[2].partition(" #")[0].strip())
    if section:
        yield section._replace(end=number, text="\n".join(lines))
