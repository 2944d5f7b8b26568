"""Commands of ours as values: what a user may type next, as it is typed where this package is.

A checkout has `make`, with settings for most of what builds, and `./build.py` for all; an installed package has
`graphcrate`. If `/path/build.py` ran, that path is printed, and no make.
A text has a value in its place: `f"{command('lock', name, cuda='11.8')}    (takes what is there today)"`.
Where such a text is stored, in a report, it has the words of its writer. Locks and rendered files have none:
their bytes are the same everywhere.
"""

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcrate.model.options import ROWS
from graphcrate.model.platform import OS

#: Whether `make` and `./build.py` are missing. The one look of `model` at the disk: at where it is itself, for good.
INSTALLED = not Path(__file__).resolve().parents[2].joinpath("build.py").is_file()
CHECKOUT_PROGRAM, INSTALLED_PROGRAM = "./build.py", "graphcrate"


def typed_path(argv0: str) -> str:
    """Return the path by which a checkout's program was called; empty where make called it, or something else did.

    make calls it `build.py`, without a folder.
    """
    return argv0 if argv0.endswith("/build.py") and not INSTALLED else ""


TYPED_PATH = typed_path(sys.argv[0])  #: what is printed works in the folder where it was typed

ETC = "…"  #: stands for words that were typed before, or that only the user knows
USUAL_STACK = "pyg"  #: make's, where none is named

#: Commands that get a recipe and what is to be made of it → their options that a request may have.
OPTIONS = {
    verb: tuple(row.name for row in ROWS if verb in row.again) for verb in ("image", "lock", "publish", "render")
}
#: Commands that are shown as make takes them, and its settings there. (`make publish` builds the image, too.)
SETTINGS = {verb: tuple(row.name for row in ROWS if verb in row.make) for verb in ("image", "publish")}

#: an option whose setting has another name, and its values without what they begin with
_PLATFORM, _ARCH, _BEFORE_ARCH = "platform", "arch", f"{OS}/"

_IN_BRACES = re.compile(r"\{([^{}]+)\}")
_BY_MAKE = rf"make (?:{'|'.join(SETTINGS)})(?: (?:[A-Z_]+=[\w.+{ETC}-]+|{ETC}))+"
_OF_A_CHECKOUT = re.compile(rf"{_BY_MAKE}|{re.escape(CHECKOUT_PROGRAM)}(?=\s)")

#: of an option: `True` for a flag, several for one that is repeated; left out where there is none
Value = bool | str | int | Path | Iterable[str | Path] | None


@dataclass(frozen=True)
class Setting:
    """An option with its value; `None`: a flag. Make's has the name in capitals, and `yes` for a flag."""

    name: str
    value: str | None = None

    def by_make(self) -> str:
        """One word, for make."""
        name, value = self.name, "yes" if self.value is None else self.value
        if name == _PLATFORM:
            name, value = _ARCH, value.removeprefix(_BEFORE_ARCH)
        return f"{name.upper().replace('-', '_')}={value}"

    @classmethod
    def of_make(cls, word: str) -> "Setting":
        """Read a word of make's, as `by_make` writes it; a flag's value stays `yes`."""
        name, _, value = word.partition("=")
        name = name.lower().replace("_", "-")
        if name == _ARCH:
            name, value = _PLATFORM, value and _BEFORE_ARCH + value.removeprefix(_BEFORE_ARCH)
        return cls(name, value)

    def words(self) -> tuple[str, ...]:
        """For the command line."""
        return (f"--{self.name}",) if self.value is None else (f"--{self.name}", self.value)

    def both(self) -> str:
        """For who may have typed either: `LOCKED=yes (--locked)`."""
        return str(self) if _by_program() else f"{self} ({joined(self.words())})"

    def __str__(self) -> str:
        return joined(self.words() if _by_program() else [self.by_make()])


@dataclass(frozen=True)
class Command:
    """A command with its arguments, of which the first is a recipe's name or file where it takes one."""

    verb: str
    arguments: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()

    def by_make(self) -> str | None:
        """For make; None where it has no setting for an argument or an option."""
        names = [setting.name for setting in self.settings]
        recipes = [word for word in self.arguments if word != ETC]
        known = SETTINGS.get("image" if self.verb == ETC else self.verb)
        if known is None or not set(names) <= set(known) or len(set(names)) < len(names):
            return None
        if len(recipes) > 1 or any(":" in recipe for recipe in recipes):  # an image
            return None
        words = ["make", self.verb, *self.arguments[len(recipes) :]]
        words += [f"{'RECIPE' if is_recipe_file(name) else 'STACK'}={name}" for name in recipes if name != USUAL_STACK]
        return joined([*words, *(setting.by_make() for setting in self.settings)])

    def by(self, program: str) -> str:
        """For the command line under this name."""
        return joined(
            [program, self.verb, *self.arguments, *(word for setting in self.settings for word in setting.words())]
        )

    def by_program(self) -> str:
        """For the command line, as it is called here."""
        return self.by(program())

    def __str__(self) -> str:
        return (not _by_program() and self.by_make()) or self.by_program()


def command(verb: str, *arguments: str | Path, **options: Value) -> Command:
    """A command by its words: `command("image", name, cuda="11.8", with_=["rdkit", "ase"], keep_going=True)`."""
    settings = tuple(setting for name, value in options.items() for setting in _settings(name, value))
    return Command(verb, tuple(map(str, arguments)), settings)


def setting(**option: str | bool) -> Setting:
    """An option alone: `setting(mirror="sjtu")`, `setting(locked=True)`."""
    (only,) = (given for name, value in option.items() for given in _settings(name, value))
    return only


def without(option: str) -> Command:
    """The typed command but for an option, which has no value here: `without("channel")`."""
    return Command(ETC, (), (Setting(option, ""),))


#: an image or a lock again, as it was asked for; and whatever was typed
IMAGE_AGAIN, LOCK_AGAIN, AGAIN = Command("image", (ETC,)), Command("lock", (ETC,)), Command(ETC)


def filled(text: str) -> str:
    """A text of a data file with what it has in braces as it is typed here: `{make image CUDA=12.1}`, `{WITH=igraph}`.

    What is no command, and no setting of make, stays as it is.
    """
    return _IN_BRACES.sub(lambda match: str(_read(match[1]) or match[0]), text)


def as_typed(text: str) -> str:
    """A text of a program that is the same everywhere, for a checkout, with its commands as they are typed here."""
    return _OF_A_CHECKOUT.sub(lambda match: _typed_here(match[0]), text) if _by_program() else text


def _by_program() -> bool:
    """Return whether commands are printed as the command line takes them, and not as make does."""
    return INSTALLED or bool(TYPED_PATH)


def program() -> str:
    """Return the command line's name, as it is called here."""
    return INSTALLED_PROGRAM if INSTALLED else TYPED_PATH or CHECKOUT_PROGRAM


def _typed_here(of_a_checkout: str) -> str:
    if of_a_checkout == CHECKOUT_PROGRAM:
        return joined([program()])
    return str(_read(of_a_checkout) or Command(of_a_checkout.split()[1], (ETC,)))


def for_shell(word: str | Path) -> str:
    """Return a word of a command of another program's as a shell takes it: what it names may be anybody's choice."""
    return shlex.quote(str(word))


def is_recipe_file(recipe: str) -> bool:
    """Return whether a name given for a recipe is the path of a file."""
    return recipe.endswith(".toml") or "/" in recipe


def is_upkeeps(words: Sequence[str]) -> bool:
    """Return whether a command line is of upkeep, which no wheel has: `update`, `catalog`, `lock --check`."""
    return bool(words) and (words[0] in ("update", "catalog") or (words[0] == "lock" and "--check" in words))


def _settings(name: str, value: Value) -> Iterator[Setting]:
    name = name.strip("_").replace("_", "-")
    if value is True:
        yield Setting(name)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        yield from (Setting(name, str(item)) for item in value)
    elif value:
        yield Setting(name, str(value))


def _read(text: str) -> Command | Setting | None:
    """Read what is typed to make, or to `./build.py` where make has no such command; None for anything else."""
    try:
        typed = shlex.split(text)
    except ValueError:  # a quote that does not end
        return None
    match typed:
        case [program, verb, *words] if program == CHECKOUT_PROGRAM:
            return Command(verb, tuple(words))
        case ["make", verb, *words]:
            pass
        case words:
            verb = ""
    options = {each.name: each.value or "" for each in map(Setting.of_make, words)}
    recipe = (verb and (options.pop("recipe", "") or options.pop("stack", ""))) or USUAL_STACK
    if not options.keys() <= set(SETTINGS.get(verb or "image", ())) or not all(options.values()):
        return None
    if verb:
        return command(verb, recipe, **options) if verb in SETTINGS else None
    return setting(**options) if len(options) == 1 else None


def joined(words: Iterable[str]) -> str:
    """Join words for a shell; what stands for something else is not quoted."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """Quote a word where a shell needs it, and one whose end looks like the end of a sentence around the command."""
    plain = word.replace(ETC, "_")
    if shlex.quote(plain) != plain:
        return shlex.quote(word)
    return f"'{word}'" if word.endswith((".", ",")) else word
