"""dist/docs/errors.md: the errors that the doctor knows, as a person meets them, with cause and fix."""

import re
from collections.abc import Iterator
from pathlib import Path

from doctor.explain import read_patterns

TABLE = Path(__file__).resolve().parent.parent / "doctor" / "errors.ini"
#: escaped characters that mean themselves, as characters of no use in a message while a pattern is taken apart
_ESCAPED = {"\\[": "\x01", "\\]": "\x02", "\\(": "\x03", "\\)": "\x04", "\\.": "\x05", "\\|": "\x06", "\\{": "\x07"}
_HEAD = """# Errors
Look for your message with your browser's search, or paste it into `./build.py doctor --explain "the message"`.
Inside an image that is `python3 /opt/graphcrate/examples/doctor.py --explain "the message"`.
Of a missing library `./build.py doctor --explain` names the Debian package too: `libx11-6 of Debian bookworm`.
The first error of an output counts, of several processes that of the one which failed first. `…` is what differs.
"""


def errors(text: str = "") -> str:
    """Return the page, a table for each part of errors.ini, or of a text like it.

    Raise configparser.Error or KeyError for a text with which the doctor would not start.
    """
    head = "| it says | because | do |\n|---|---|---|\n"
    parts = _parts(text or TABLE.read_text(encoding="utf-8"))
    return _HEAD + "".join(f"\n## {title}\n{head}{rows}" for title, rows in parts)


def _parts(text: str) -> Iterator[tuple[str, str]]:
    patterns = {pattern.id: pattern for pattern in read_patterns(text)}
    for part in re.split(r"^; (?=[\w, ]+\n\n\[)", text, flags=re.MULTILINE)[1:]:
        title, _, table = part.partition("\n")
        known = [patterns[name] for name in re.findall(r"^\[(.+)\]$", table, re.MULTILINE)]
        rows = [(f"`{message(row.sign)}`", _filled(row.cause), _code(_filled(row.fix))) for row in known]
        yield title[:1].upper() + title[1:], "".join(f"| {' | '.join(row)} |\n" for row in rows)


def message(sign: str) -> str:
    """The message that a pattern is for: its first alternative, with `…` for what differs."""
    for escaped, mark in _ESCAPED.items():
        sign = sign.replace(escaped, mark)
    text = _without_lookarounds(sign)
    text = _first(text)
    while (found := re.search(r"\((?:\?P<\w+>|\?:)?([^()]*)\)(\{[^}]*\}|[?*+])?\??", text)) is not None:
        text = text[: found.start()] + _first(found[1]) + text[found.end() :]
    text = re.sub(r"\[([A-Z])[a-z]\]", r"\1", text)
    text = re.sub(r"(\[[^\]]*\]|\\[wWsSdD]|\.)(\{[^}]*\}|[+*])\??", "…", text)
    text = re.sub(r"\\[bBAZz]|\(\?\w+\)", "", text)
    text = text.replace("\\s", " ").replace("[ ]", " ").replace("\\d", "0")
    text = re.sub(r"\\[wWS]|\.|\[[^\]]*\]", "…", text)
    text = re.sub(r"\\(.)", r"\1", text)
    for escaped, mark in _ESCAPED.items():
        text = text.replace(mark, escaped[1:])
    return re.sub(r"…+", "…", text).strip("^$ ").replace("?", "").replace("|", "\\|").replace("`", "'")


def _first(text: str) -> str:
    """The first of the alternatives on the top level."""
    depth = in_class = 0
    for at, letter in enumerate(text):
        if letter == "[":
            in_class = 1
        elif letter == "]":
            in_class = 0
        elif not in_class:
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if letter == "|" and not depth:
                return text[:at]
    return text


def _without_lookarounds(text: str) -> str:
    while (found := re.search(r"\(\?<?[!=]", text)) is not None:
        depth, at = 0, found.start()
        while True:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
            if not depth:
                break
        text = text[: found.start()] + text[at:]
    return text


def _filled(text: str) -> str:
    return re.sub(r"\{\w+\}", "…", text).replace("|", "\\|")


def _code(fix: str) -> str:
    """A command before its remark, as code."""
    command, space, remark = fix.partition("    ")
    if space or re.match(r"(\./build\.py|make|srun|docker|export|sudo|python3?) ", command):
        return f"`{command.replace('`', '')}`{' ' + remark if remark else ''}"
    return fix
