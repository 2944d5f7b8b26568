"""Words of messages: names in a row, and texts of files for a terminal."""

from collections.abc import Iterable


def listed(names: Iterable[str], joint: str = "and") -> str:
    """`a, b and c`."""
    names = list(names)
    return ", ".join(names[:-1]) + f" {joint} {names[-1]}" if len(names) > 1 else "".join(names)


def printable(text: str) -> str:
    """Return a text in which nothing speaks to the terminal or breaks a line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
