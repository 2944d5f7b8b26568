"""Words for people: names in a row, and text from elsewhere for a terminal; and what the text of an address says."""

import re
from collections.abc import Iterable, Iterator

#: C0 but for tab and newline, DEL, C1; soft hyphen; marks and overrides of direction, separators of lines and
#: paragraphs, invisible operators, annotations, tags (Unicode's categories Cc, Zl, Zp and Cf, but for joiners)
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)


def listed(names: Iterable[str]) -> str:
    """`a, b and c`."""
    names = list(names)
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else "".join(names)


def either(names: Iterable[str]) -> str:
    """`a, b or c`."""
    names = list(names)
    return ", ".join(names[:-1]) + f" or {names[-1]}" if len(names) > 1 else "".join(names)


def printable(text: str) -> str:
    """Names and values are an image's to choose; none may speak to the terminal or break a line."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def visible(text: str) -> str:
    """Return a text for a terminal or a log: characters that would speak to the terminal, or are not seen, by number.

    Those are control characters but for the end of a line and a tab, and what turns the direction of a text or hides
    in it. JSON stays JSON of the same value.
    """
    return _UNSEEN.sub(lambda match: "".join(f"\\u{unit:04x}" for unit in _units(match[0])), text)


def with_mark(lines: Iterable[str]) -> str:
    """Return what another program said, for the end of a message: each line has a mark, and cannot pose as ours."""
    return "".join(f"\n    | {visible(line)}" for line in lines)


def _units(character: str) -> Iterator[int]:
    """The numbers of a character in UTF-16, as JSON has it."""
    data = character.encode("utf-16-be", "surrogatepass")
    return (int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))


def joined(names: Iterable[str], most: int = 4) -> str:
    """`a, b, c, d and 3 more`."""
    names = list(names)
    if len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    return listed(names)


def in_lines(lines: Iterable[str]) -> str:
    """Return a text of lines, each with its end."""
    return "".join(f"{line}\n" for line in lines)


def number_of(count: int, singular: str) -> str:
    """`1 wheel`, `2 wheels`."""
    return f"{count} {singular}{'s' * (count != 1)}"


def size(count: int) -> str:
    """A number of bytes for people: `812 kB`, `2.37 GB` (powers of ten)."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.2f} {unit}" if unit == "GB" else f"{count / scale:.1f} {unit}"
    return f"{count} B"


def duration(seconds: float) -> str:
    """Word a time of which the minutes count: "a minute", "12 minutes", "1.7 hours"."""
    minutes = max(1, round(seconds / 60))
    if minutes < 100:
        return "a minute" if minutes == 1 else f"{minutes} minutes"
    return f"{seconds / 3600:.1f} hours"


def bytes_of(text: str) -> int:
    """A number of bytes as people write it (40GB, 500M, powers of ten). Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kMGT]?)i?B?", text, re.IGNORECASE)
    if not match:
        raise ValueError(text)
    return int(float(match[1]) * 1000 ** " KMGT".index(match[2].upper() or " "))
