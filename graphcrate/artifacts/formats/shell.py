"""Words and variables for the shell scripts that runtimes read in an image."""

import re
from collections.abc import Iterable, Iterator, Sequence

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def quoted(text: str) -> str:
    """One word of a POSIX shell, whatever is in it.

    A single quote in double ones: Apptainer's own interpreter keeps the backslash of `\\'` where it is assigned.
    """
    return "'" + text.replace("'", "'\"'\"'") + "'"


def words(arguments: Iterable[str]) -> str:
    """A command line of a POSIX shell."""
    return " ".join(map(quoted, arguments))


def variables(env: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names and values of a configuration's `Env`; without what no shell can name."""
    for entry in env:
        name, _, value = entry.partition("=")
        if _NAME.fullmatch(name):
            yield name, value
