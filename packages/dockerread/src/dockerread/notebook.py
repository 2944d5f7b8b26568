"""Commands of a Jupyter notebook: `!`, `%pip`, `%conda`, cells of `%%bash`, in their lines.

Source: nbformat 4, whose files have a line for each line of a cell; IPython, "Built-in magic commands".
"""

import json
import re
from collections.abc import Iterator

from dockerread.errors import ReadError
from dockerread.shell import lines_of

_OF_SHELL = re.compile(r"\s*(?:!|%(?=(?:pip|conda|mamba|micromamba|uv)\s))\s*(.*)")
_CELL_OF_SHELL = re.compile(r"\s*%%(?:bash|sh|script\s+(?:ba)?sh)\b.*")
_CELL = re.compile(r'\s*"cell_type":\s*"([a-z]+)",?\s*')
_SOURCE = re.compile(r'\s*"source":\s*\[\s*')
_PYTHON = re.compile(r"\{\s*sys\.executable\s*\}")


def commands_of_notebook(text: str, file: str) -> str:
    """Return a notebook with nothing but its shell commands, each in the line of the file that has it.

    Of a file without a line for each, all of them in its first lines. Raises ReadError for what is not JSON.
    """
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReadError(f"{file} is not a notebook: {str(error)[:100]}", kind="notebook", file=file) from error
    lines = lines_of(text)
    if any(map(_SOURCE.fullmatch, lines)):
        return "\n".join(_in_their_lines(lines))
    return "\n".join(command for cell in _code(notebook) for command in _commands(cell) if command)


def _in_their_lines(lines: list[str]) -> Iterator[str]:
    kind, cell, is_source = "", list[str](), False
    for line in lines:
        if match := _CELL.fullmatch(line):
            kind = match[1]
        if is_source and line.strip().startswith("]"):
            yield from _commands(cell)
            is_source, cell = False, []
        if is_source:
            cell.append(_string(line) if kind == "code" else "")
        else:
            is_source = _SOURCE.fullmatch(line) is not None
            yield ""


def _string(line: str) -> str:
    try:
        value = json.loads(line.strip().removesuffix(","))
    except ValueError:
        return ""
    return value.rstrip("\n") if isinstance(value, str) else ""


def _code(notebook: object) -> Iterator[list[str]]:
    """Yield the lines of each cell of code."""
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            parts = source if isinstance(source, list) else [source]
            yield lines_of("".join(part for part in parts if isinstance(part, str)))


def _commands(cell: list[str]) -> Iterator[str]:
    """Yield a cell's lines: a command, or an empty one for what is Python's."""
    is_shell = bool(cell) and _CELL_OF_SHELL.fullmatch(cell[0]) is not None
    for number, line in enumerate(cell):
        match = _OF_SHELL.fullmatch(line)
        command = line if is_shell and number else match[1] if match and not is_shell else ""
        yield _PYTHON.sub("python", command)
