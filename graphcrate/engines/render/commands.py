"""Shell commands as values, and how a Dockerfile and a definition file lay them out."""

from collections.abc import Iterable

import msgspec

#: One command; its lines after the first are its arguments, one or a few on each.
Command = tuple[str, ...]


class Commands(msgspec.Struct, frozen=True, kw_only=True):
    """Commands that belong together, with a comment that says why. One RUN of a Dockerfile."""

    why: str
    commands: tuple[Command, ...]
    allowed: str = ""  #: rule of the linter that they break for the reason that `why` gives
    cached: bool = False  #: downloads packages: a cache mount helps


def quoted(text: str) -> str:
    """For a POSIX shell, always in single quotes."""
    return "'" + text.replace("'", "'\\''") + "'"


def write_lines(path: str, lines: Iterable[str]) -> Command:
    """Write a text file. printf, because here-documents are not for every engine's Dockerfile."""
    return (f"printf '%s\\n' > {path}", *(f"    {quoted(line)}" for line in lines))


def one(*words: str) -> Command:
    """A command on one line."""
    return (" ".join(words),)


def run(commands: Iterable[Command]) -> str:
    """`RUN`, each command after the one before has succeeded."""
    return "RUN " + " \\\n && ".join(_continued(command, "    ") for command in commands)


def script(commands: Iterable[Command]) -> str:
    """Lines of a definition's section, which ends at the first command that fails (`sh -e`)."""
    return "\n".join("    " + _continued(command, "    ") for command in commands)


def _continued(command: Command, indent: str) -> str:
    return f" \\\n{indent}".join(command)
