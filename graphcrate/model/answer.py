"""A command's result, as text that reads alike on a terminal, in a pipe and in a log. Pure."""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from graphcrate.model.words import printable

_LEAST, _BELOW = 24, "    "  #: columns of a text beside its label; else it is below, by so much
_LABELLED = re.compile(r"  \S+(?: \S+)*?  +|    ")


class AnswerLine(NamedTuple):
    """A finding: its label and one sentence, details below it. `style`: rich's words for the label and sentence."""

    label: str
    text: str
    details: tuple[str, ...] = ()
    style: str = ""


class Section(NamedTuple):
    """Entries below a heading, their sentences in one column."""

    entries: tuple[AnswerLine, ...]
    heading: str = ""


class Answer(NamedTuple):
    """Lines first, then sections, then a summary."""

    sections: tuple[Section, ...]
    opening: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()

    def worded(self, shown: Callable[[str], str]) -> "Answer":
        """Return the answer with the texts of its entries in other words."""
        sections = tuple(
            section._replace(
                entries=tuple(
                    entry._replace(text=shown(entry.text), details=tuple(map(shown, entry.details)))
                    for entry in section.entries
                )
            )
            for section in self.sections
        )
        return Answer(sections, tuple(map(shown, self.opening)), tuple(map(shown, self.summary)))

    def lines(self, width: int = 0) -> Iterator[tuple[str, str]]:
        """Yield lines and their styles, wrapped to `width` columns (0: never), without control characters."""
        yield from _plain(self.opening)
        for number, section in enumerate(section for section in self.sections if section.entries):
            if number or self.opening:
                yield "", ""
            yield from _plain([section.heading] if section.heading else ())
            column = max(len(printable(entry.label)) for entry in section.entries) + 2
            for entry in section.entries:
                yield from ((line, entry.style) for line in _wrapped(entry.label, entry.text, column, width))
                for detail in entry.details:
                    yield from _plain(_wrapped("", detail, column, width))
        if self.summary and (self.opening or any(section.entries for section in self.sections)):
            yield "", ""
        yield from _plain(self.summary)


def folded(lines: Iterable[str], width: int) -> Iterator[str]:
    """Yield lines of `label  text` wrapped to `width` columns (0: never), what follows below the text."""
    for line in lines:
        match = _LABELLED.match(line)
        if not width or len(line) <= width or not line.startswith("  "):
            yield line
        elif match is None:  # of a longer label
            yield from textwrap.wrap(
                line, width, subsequent_indent=_BELOW, break_on_hyphens=False, break_long_words=False
            )
        else:
            yield from _wrapped(match[0].rstrip(), line[match.end() :], match.end(), width)


def _plain(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((printable(line), "") for line in lines)


def _wrapped(label: str, text: str, column: int, width: int) -> list[str]:
    first = f"{printable(label):{column}}"
    if not width:
        return [(first + printable(text)).rstrip()]
    if column + _LEAST > width:  # of a narrow terminal: the text is below the label
        below = textwrap.wrap(
            printable(text),
            width,
            initial_indent=_BELOW,
            subsequent_indent=_BELOW,
            break_on_hyphens=False,
            break_long_words=False,
        )
        return [*([first.rstrip()] if label else []), *below]
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent=first,
        subsequent_indent=" " * column,
        break_on_hyphens=False,
        break_long_words=False,
    ) or [first.rstrip()]
