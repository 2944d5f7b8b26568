"""The report for eyes."""

import os
import textwrap
from typing import Iterator, List

from doctor.finding import FAIL, WARN
from doctor.survey import Report

COLOURS = {"ok": "32", "note": "36", "warn": "33", "fail": "31;1"}


def page_lines(report: Report, width: int, colour: bool) -> Iterator[str]:
    """A line for each finding, below it why and what to do."""
    for area, findings in report:
        yield area
        for finding in findings:
            status = finding.status
            mark = f"\033[{COLOURS[status]}m{status:4}\033[0m" if colour else f"{status:4}"
            body = folded(finding.seen, width - 8)
            yield f"  {mark}  {body[0]}"
            for line in body[1:]:
                yield " " * 8 + line
            for label, text in (("why:", finding.why), ("fix:", finding.fix)):
                for number, line in enumerate(folded(text, width - 13) if text else ()):
                    yield " " * 8 + "{:4} {}".format("" if number else label, line)
    yield summary(report)


def folded(text: str, width: int) -> List[str]:
    """Lines of at most `width`; a word that is longer stays whole, to be copied."""
    return textwrap.wrap(text, max(width, 40), break_long_words=False, break_on_hyphens=False) or [""]


def summary(report: Report) -> str:
    """The last line."""
    counts = {kind: sum(each.status == kind for _, found in report for each in found) for kind in (FAIL, WARN)}
    if not counts[FAIL] and not counts[WARN]:
        return "No problem found."
    parts = []
    if counts[FAIL]:
        parts.append(f"{counts[FAIL]} cannot work")
    if counts[WARN]:
        parts.append(f"{counts[WARN]} to look at")
    return ", ".join(parts) + "."


def say(text: str) -> None:
    """A line on stdout, in the letters that it can write; a closed pipe is no reason to fail."""
    try:
        print(text, flush=True)
    except UnicodeEncodeError:
        print(text.encode("ascii", "replace").decode(), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python itself still writes at the end
        raise SystemExit(0) from None
