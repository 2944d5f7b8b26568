"""Stages of a Dockerfile: which of them its last one is made of, values of ARG, ENV and LABEL, commands of RUN."""

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import NamedTuple

from dockerread import shell
from dockerread.dockerfile import Instruction
from dockerread.errors import ReadError

_FROM = re.compile(r"(\S+)(?:\s+[Aa][Ss]\s+(\S+))?")
_ARGUMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=(.*))?", re.DOTALL)


class Stage(NamedTuple):
    """A stage from its FROM on. `origin`: the image or stage that it begins with, as it is written."""

    origin: str
    name: str  #: in lower case; empty: none
    steps: tuple[Instruction, ...]


class Stages(NamedTuple):
    """The instructions before the first FROM (ARGs), and the stages."""

    before: tuple[Instruction, ...]
    stages: tuple[Stage, ...]


def split(parsed: Sequence[Instruction], file: str) -> Stages:
    """Split instructions into stages. Raises ReadError for a file without FROM."""
    begins = [number for number, step in enumerate(parsed) if step.keyword == "FROM"]
    if not begins:
        raise ReadError(f"{file} has no FROM", kind="stages", file=file)
    parts = [tuple(parsed[begin:end]) for begin, end in zip(begins, [*begins[1:], len(parsed)], strict=True)]
    return Stages(tuple(parsed[: begins[0]]), tuple(Stage(*_origin(part[0]), part) for part in parts))


def needed(stages: Sequence[Stage], counts: Callable[[Instruction], bool] = lambda copy: True) -> set[int]:
    """Return the numbers of the stages that the last one begins with, or copies from where `counts` is true of COPY."""
    by_name = {stage.name: number for number, stage in enumerate(stages) if stage.name}
    by_name |= {str(number): number for number in range(len(stages))}
    reached, waiting = set[int](), [len(stages) - 1]
    while waiting:
        number = waiting.pop()
        if number in reached:
            continue
        reached.add(number)
        origin = stages[number].origin.lower()
        waiting += [by_name[origin]] if by_name.get(origin, number) < number else []
        for step in stages[number].steps:
            source = dict(step.flags).get("from", "").lower()
            if step.keyword == "COPY" and by_name.get(source, number) < number and counts(step):
                waiting.append(by_name[source])
    return reached


def image(step: Instruction) -> str:
    """Return the image or stage that a FROM names, as it is written."""
    return _FROM.sub(r"\1", step.flat)


def take_arguments(
    step: Instruction, given: Mapping[str, str], into: MutableMapping[str, str], known: Mapping[str, str]
) -> None:
    """Put the values of an ARG into a mapping: those that are given, else its own, else what is `known`."""
    for word in shell.commands(f"ARG {step.text}", 1, {**known, **into})[0].words[1:]:
        if match := _ARGUMENT.fullmatch(word):
            value = given.get(match[1], match[2] if match[2] is not None else known.get(match[1]))
            if value is not None:
                into[match[1]] = value


def commands(step: Instruction, variables: Mapping[str, str]) -> list[shell.Simple]:
    """Return the commands of a RUN in any of its forms."""
    if step.words is not None:
        return shell.unwrapped(shell.Simple(step.line, step.end, step.words), variables)
    here = dict(variables)
    if step.flat.startswith("<<"):  # else a document is what a command reads
        return [command for first, body in step.heredocs for command in shell.commands(body, first, here)]
    return shell.commands(step.text, step.line, here)


def pairs(text: str, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield names and values of ENV and LABEL in both forms: `ENV NAME value` has one. Raises shell.Unknown."""
    first = text.split(maxsplit=1)
    if first and "=" not in first[0]:
        value = re.sub(r"^=\s*", "", first[1]) if len(first) > 1 else ""  # `LABEL name = value`, as people write it
        yield first[0], shell.expand(value.strip("\"'"), variables)
        return
    for word in shell.expand_words(text, variables):
        name, _, value = word.partition("=")
        yield name, value


def _origin(step: Instruction) -> tuple[str, str]:
    match = _FROM.fullmatch(step.flat)
    return (match[1], (match[2] or "").lower()) if match else (step.flat, "")
