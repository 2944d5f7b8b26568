"""The command line in Chinese: its help, and a line below an error on a terminal, where the locale asks for it.

Messages stay English: logs, JSON and other programs read them. The texts are rows of `chinese.toml`.
"""

import functools
import importlib.resources
import tomllib
from collections.abc import Mapping

import msgspec

from graphcrate.model import codec


class ErrorRow(msgspec.Struct, frozen=True):
    """An error that many meet. `part`: of its English message."""

    part: str
    meaning: str


class Spoken(msgspec.Struct, frozen=True):
    """The texts of a language."""

    groups: Mapping[str, str]
    commands: Mapping[str, str]
    help: Mapping[str, str]  #: of options and arguments, by their English help
    error: tuple[ErrorRow, ...]
    codes: Mapping[str, str]

    def meaning(self, message: str, code: int) -> str:
        """Say what an error means, by its message or else by its exit code; empty for a code without a row."""
        rows = (row.meaning for row in self.error if row.part in message)
        return next(rows, self.codes.get(str(code), ""))


def asked_for(environment: Mapping[str, str]) -> Spoken | None:
    """Return the texts that the locale asks for by the first of its variables that is set; None for English."""
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    locale = next((environment[name] for name in names if environment.get(name)), "")
    return chinese() if locale.partition("_")[0].partition(".")[0] == "zh" else None


@functools.cache
def chinese() -> Spoken:
    """Read the Chinese texts."""
    text = importlib.resources.files("graphcrate.cli").joinpath("chinese.toml").read_text(encoding="utf-8")
    return codec.convert(tomllib.loads(text), Spoken)
