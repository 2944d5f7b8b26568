"""Full-width characters and curly quotes in values that are never paths: an input method writes them."""

import unicodedata
from collections.abc import Sequence

from graphcrate.model.command import ETC, Command, Setting
from graphcrate.model.errors import UsageError
from graphcrate.model.options import ROWS

#: options whose values are names, versions and lists of them
_NAMING = {"cuda", "gpu", "driver", "kernel", "with", "apt", "suite", "channel", "mirror", "platform", "target"}
#: of these, those whose typed value a next step would keep beside another
_ADDING = {row.name for row in ROWS if row.adds}
#: double and single ones; and the comma of enumerations
_QUOTES = dict.fromkeys(range(0x2018, 0x2020), None) | {0x3001: ","}


def check_characters(words: Sequence[str]) -> None:
    """Raise UsageError for the first of such a value, with what was meant."""
    before = ""
    for word in words:
        if word == "--":
            return
        option, equals, value = word.partition("=")
        option, value = (option, value) if equals and word.startswith("--") else (before, word)
        before = word
        name = option.removeprefix("--")
        if option.startswith("--") and name in _NAMING and (plain := _plain(value)) != value:
            meant = Setting(name, plain)
            raise UsageError(
                f"{option} is {value!r}, with full-width characters or curly quotes",
                next_step=str(meant if name in _ADDING else Command(ETC, (), (meant,))),
            )


def _plain(text: str) -> str:
    """Return a text in the characters of a keyboard for Latin letters."""
    return "".join(unicodedata.normalize("NFKC", char) if char > "\u2fff" else char for char in text.translate(_QUOTES))
