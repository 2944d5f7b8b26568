"""Next steps of errors for who reads a page: a command of ours becomes the question that it would ask. Pure."""

import itertools
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from graphcrate.model.command import CHECKOUT_PROGRAM, ETC, INSTALLED_PROGRAM, Setting
from graphcrate.model.errors import UsageError
from graphcrate.remote import questions
from graphcrate.remote.questions import OPTIONS, Question

#: of a next step: a command, what it does, further steps
_STEP = re.compile(r"(?P<command>\S.*?)(?:\s{2,}(?P<remark>[^;]*))?(?:; .*)?", re.DOTALL)
#: of a command that a site gave its child process, or that its question has otherwise
_ITS_OWN = {"requirements", "walled", "plan", "json", "output", "quiet"}


class Advice(NamedTuple):
    """The next step of an error. `question`: None for what is no command of ours, which is `text` then.

    `changes`: its fields that differ from what was asked, and their values.
    """

    text: str
    question: Question | None = None
    changes: Mapping[str, str] = {}


def advice(step: str, asked: Question) -> Advice:
    """Read a next step for who asked a question."""
    match = _STEP.fullmatch(step)
    fields = _fields(match["command"]) if match else None
    if match is None or fields is None:
        return Advice(step)
    try:
        question = questions.of_form({**asked.fields, "stack": asked.stack, **fields})
    except UsageError:
        return Advice(step)
    changes = {name: value for name, value in question.fields.items() if getattr(asked, name) != value}
    return Advice((match["remark"] or "").strip(), question, changes) if changes else Advice(step)


def _fields(command: str) -> dict[str, str] | None:
    """Return the fields of a question that a command asks; None where it is none of ours, or no question's."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    match words:
        case ["make", "image", *settings]:
            options = [Setting.of_make(word) for word in settings if word != ETC]
            return _of_options((each.name, each.value or "") for each in options)
        case [program, "image", name, *rest] if program in (CHECKOUT_PROGRAM, INSTALLED_PROGRAM):
            fields = _of_options(_pairs(rest))
            return None if fields is None else fields if name == ETC else {"stack": name, **fields}
        case _:
            return None


def _pairs(words: list[str]) -> Iterable[tuple[str, str]]:
    """Yield options with their values; those that a question has all have one."""
    for word, following in itertools.pairwise([*words, ""]):
        if word.startswith("--"):
            yield word.removeprefix("--"), following


def _of_options(options: Iterable[tuple[str, str]]) -> dict[str, str] | None:
    fields = dict[str, str]()
    for name, value in options:
        field = "stack" if name == "stack" else OPTIONS.get(name)
        if field and value and ETC not in value:
            fields[field] = f"{fields[field]} {value}" if name in ("with", "apt") and field in fields else value
        elif name not in _ITS_OWN:
            return None
    return fields
