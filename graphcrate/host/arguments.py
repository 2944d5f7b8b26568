"""Command lines of other programs: our own words, and words that others may have chosen.

Programs take a word that begins with a dash for an option wherever it stands, and many have options that start other
programs. `line` is the one way to a command line (`Argv`), which is what `host.process` and `host.sandbox.attach`
start."""

from collections.abc import Iterable, Sequence

from graphcrate.model.errors import UsageError
from graphcrate.model.words import printable


class Argv(list[str]):
    """A command line that `line` has made."""


def line(*ours: str, strange: Iterable[str] = (), inside: Sequence[str] = ()) -> Argv:
    """Return a command line: the program with options that are `ours`, then words of others, each as `operand` has it.

    A value of an option that is not ours is written in one word with it: `--name=VALUE`. `inside`: what the program
    starts elsewhere (in an image, in a sandbox) and does not read itself; it stands behind the first operand.
    Raises UsageError.
    """
    return Argv([*ours, *map(operand, strange), *inside])


def operand(word: str) -> str:
    """Return a word that others may have chosen. Raises UsageError where a program could take it for an option.

    An empty word is no operand either: the next one would take its place.
    """
    if word.startswith("-") or not word:
        raise UsageError(
            f"{printable(word[:200])!r} is not given to another program: it begins with a dash"
            if word
            else "an empty word is not given to another program",
            cause="Programs take such a word for an option of theirs, and some of these start other programs.",
            next_step="write a file's name with its folder: ./NAME",
        )
    if any(character in word for character in "\0\n\r"):
        raise UsageError(
            f"{printable(word[:200])!r} is not given to another program: it has a NUL or more than one line",
            next_step="give it a name in one line",
        )
    return word
