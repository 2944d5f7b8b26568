"""Words for people: names in a row, and text from elsewhere for a terminal."""

from collections.abc import Iterable


def listed(names: Iterable[str]) -> str:
    """`a, b and c`."""
    names = list(names)
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else "".join(names)


def printable(text: str) -> str:
    """Names and values are an image's to choose; none may speak to the terminal or break a line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
