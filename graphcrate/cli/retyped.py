"""Next steps as whole commands: what was typed, with one thing changed, in the form that was typed.

A room below knows what is to change, and says `make image … GPU=v100`: the words that were typed, with this setting.
Here, where messages are printed, the … becomes those words, without passwords. It stays where they are unknown: in a
library, in JSON and reports, which others read too, and where the command is of no stack (`run pyg:1`).
"""

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from graphcrate.host.defects import redacted
from graphcrate.model import command as commands
from graphcrate.model.command import ETC, OPTIONS, SETTINGS, USUAL_STACK, Command, Setting, is_recipe_file
from graphcrate.model.options import ROWS

#: an option of Python itself (-X) with the command that was typed, where it is not this process's own: make's goal and
#: settings, for a job of Slurm the line of its login node; empty for a job of a site, which a page has asked for
TYPED = "typed"

#: how Python calls this program, and that of upkeep
_PROGRAMS = ("/build.py", "/graphcrate", "/graphcrate/__main__.py", "/cli/main.py", "/upkeep/__main__.py")
_FLAGS = {row.name for row in ROWS if row.flag} | {"json", "smoke", "dry-run"}
_SHORT = {"-q": "--quiet"}
_ADDING = {row.name for row in ROWS if row.adds}
_NAMES = {row.name for row in ROWS}
_NAMING = {"recipe", "stack"}  #: make's settings for what the program takes as its first argument
_ORDER = {name: place for place, name in enumerate(("recipe", "stack", *(row.name for row in ROWS)))}
#: commands whose first argument is a stack, whose options an image of it has too
_OF_A_STACK = (*OPTIONS, "explain")
_OF_ANY_IMAGE = tuple(name for name in SETTINGS["image"] if name in SETTINGS["publish"])
#: goal of make → commands that it calls → settings that reach them
_GOALS: dict[str, dict[str, tuple[str, ...]]] = {
    "image": {"image": SETTINGS["image"]},
    "sif": {"image": _OF_ANY_IMAGE},
    "publish": {"image": _OF_ANY_IMAGE, "publish": SETTINGS["publish"]},
    "test-upstream": {"image": _OF_ANY_IMAGE},
    "lock": {"lock": OPTIONS["lock"]},
    "images": {"matrix": ("cuda", "platform", "disk", "again", "jobs")},
}

_OVER = "over"  #: make's setting for the SIF below the one that is made
_CHOOSING = {"cuda", "gpu", "driver", "target"}  #: settings that choose a stack's CUDA version
#: settings that an image and the one below it have alike
_SAME_BELOW = {*_CHOOSING, "stack", "platform", "channel", "mirror", "wheels", "extensions"}

_BARE = rf"[\w@%+=:,./{ETC}-]*[\w@%+=/{ETC}-]"  #: as `shlex.quote` leaves it; a comma at its end is the sentence's
_REST = "[^']*'(?:\"'\"'[^']*')*"  #: of a word in quotation marks, as `shlex.quote` writes it
_WORD = rf"(?:'{_REST}|{_BARE})"
_SETTING = rf"(?: (?:'[A-Z_]+={_REST}|[A-Z_]+=(?:{_BARE})?))"
_BY_MAKE = rf"make (?:(?P<goal>[a-z]+) )?{ETC}(?!\w)(?P<settings>{_SETTING}*)"
_OPTION = rf" --(?:(?:{'|'.join(sorted(_FLAGS))})(?![\w-])(?: '')?|[a-z][a-z-]*(?: (?!--){_WORD})?)"
_PROGRAM = r"(?:'[^']*/build\.py'|[^\s']*/build\.py|graphcrate)"
_BY_PROGRAM = rf"{_PROGRAM} (?:(?P<verb>[a-z]+) )?{ETC}(?!\w)(?P<options>(?:{_OPTION})*)"
_AS_TYPED = re.compile(rf"(?<![\w/.-])(?:{_BY_MAKE}|{_BY_PROGRAM})")
#: a step that a room below made of the whole request, which knows neither the goal nor what is no part of an image
_REQUEST = re.compile(
    rf"(?<![\w/.-])(?:make (?P<goal>{'|'.join(SETTINGS)})(?P<settings>{_SETTING}+)|"
    rf"{_PROGRAM} (?P<verb>{'|'.join(OPTIONS)})(?: (?P<name>(?!--|{ETC}){_WORD}))(?P<options>(?:{_OPTION})+))"
)


def whole(text: str, built: Callable[[Sequence[str]], Command | None] = lambda _: None) -> str:
    """Return a message with its next steps as whole commands, as far as what was typed says them.

    `built`: finds the request for the image that the words of a command name.
    """
    typed = Typed.here()
    if typed is None:
        return text

    def asked(match: re.Match[str]) -> str:
        return typed.asking(*_step(match), match["name"]) or match[0]

    def again(match: re.Match[str]) -> str:
        verb, changed = _step(match)
        return typed.again(verb, changed) or of_the_image(verb, changed) or match[0]

    def of_the_image(verb: str, changed: Sequence[Setting]) -> str:
        request = built(typed.words) if verb in OPTIONS else None
        return str(_as(request, verb, changed)) if request else ""

    text = _REQUEST.sub(asked, text)
    return _AS_TYPED.sub(again, text) if ETC in text else text


def line() -> str:
    """Return the command that was typed, whole and without passwords; empty where it is unknown."""
    typed = Typed.here()
    return typed.again("") if typed else ""


def _step(match: re.Match[str]) -> tuple[str, list[Setting]]:
    """Read a step of a message: its command, empty for whichever was typed, and what is changed."""
    if match["settings"] is not None:
        return match["goal"] or "", list(_of_make(shlex.split(match["settings"])))
    options = (shlex.split(option) for option in re.findall(_OPTION, match["options"]))
    return match["verb"] or "", [Setting(name.removeprefix("--"), *value) for name, *value in options]


def _of_make(words: Sequence[str]) -> Iterator[Setting]:
    """Read settings of make."""
    for each in map(Setting.of_make, words):
        yield Setting(each.name) if each.name in _FLAGS and each.value == "yes" else each


@dataclass(frozen=True)
class Typed:
    """A command that was typed: the words that the program got, and the goal and settings of make, if make called."""

    words: tuple[str, ...]
    goal: str = ""
    given: tuple[Setting, ...] = ()
    folder: str = ""  #: of `make -C`

    @classmethod
    def here(cls) -> "Typed | None":
        """Return this process's command; None where it was started by another program."""
        program, *words = sys.argv
        if (option := sys._xoptions.get(TYPED)) is None:
            return cls(tuple(words)) if f"/{program}".endswith(_PROGRAMS) else None
        match shlex.split(option):
            case ["make", "-C", folder, goal, *settings]:
                return cls(tuple(words), goal, tuple(_of_make(settings)), folder)
            case ["make", goal, *settings]:
                return cls(tuple(words), goal, tuple(_of_make(settings)))
            case [_, *others]:
                return cls(tuple(others))
        return None

    @property
    def verb(self) -> str:
        """The command that the program got; empty where it got none."""
        return self.words[0] if self.words else ""

    @property
    def request(self) -> Command | None:
        """The command as a value; None for one that is of no stack, or has an option that is in no row."""
        if self.verb not in _OF_A_STACK:
            return None
        arguments, settings, words = list[str](), list[Setting](), iter(self.words[1:])
        for word in words:
            option, equals, value = _SHORT.get(word, word).partition("=")
            name = option.removeprefix("--")
            if not option.startswith("-"):
                arguments.append(word)
            elif name in _FLAGS:
                settings.append(Setting(name))
            elif name in _NAMES:
                settings.append(Setting(name, value if equals else next(words, "")))
            else:
                return None
        is_an_image = any(":" in word for word in arguments)
        return None if is_an_image or len(arguments) > 1 else Command(self.verb, tuple(arguments), tuple(settings))

    def again(self, verb: str, changed: Sequence[Setting] = ()) -> str:
        """Return the command with these settings; empty where what was typed is no request for this command.

        `verb`: empty for whichever was typed.
        """
        names = {each.name for each in changed}
        if verb == "image" and self.verb in ("lock", "render") and names and names <= {*OPTIONS[self.verb]}:
            verb = self.verb  # whose lock or texts are asked for in another way
        is_its_own = verb in ("", self.verb)
        if self._calls(verb) and names <= self._reached(verb):
            return redacted(self._by_make(changed))
        if self.request and (is_its_own or verb in OPTIONS):
            return redacted(str(_as(self.request, verb or self.verb, changed)))
        return redacted(commands.joined([commands.program(), *_replaced(self.words, changed)])) if is_its_own else ""

    def asking(self, verb: str, asked: Sequence[Setting], name: str | None) -> str:
        """Return the command with the settings of another request; empty where what was typed makes no such request.

        `name`: its stack or recipe, where it is not among the settings. What no request has stays as it was typed.
        """
        names = (each.value for each in asked if each.name in _NAMING)
        name = name or next(names, None) or USUAL_STACK
        asked = [each for each in asked if each.name not in _NAMING]
        if self._calls(verb):
            return redacted(self._goal_asking(asked, name))
        if self.request and not self.goal and verb == self.verb:
            changed = _differences(self.request.settings, asked)
            return redacted(str(_as(replace(self.request, arguments=(name,)), verb, changed)))
        return ""

    def _goal_asking(self, asked: Sequence[Setting], name: str) -> str:
        """Return the goal with the settings of another request; empty where one of them does not reach its commands."""
        reached = self._reached("") | _NAMING
        if self.request is None:
            changed = self._below(asked)
            if any(each.name == "from" for each in self.given):
                changed.append(_naming(name))  # the recipe that is written in its place
        else:
            # Others are the goal's own: `make sif` passes an engine.
            own = {each.name for each in self.request.settings} - reached
            differences = _differences(self.request.settings, asked)
            changed = [each for each in differences if each.name not in own]
            if self.request.arguments != (name,):
                changed += [*(Setting(each, "") for each in _NAMING), _naming(name)]
        return self._by_make(changed) if {each.name for each in changed} <= reached else ""

    def _below(self, asked: Sequence[Setting]) -> list[Setting]:
        """Return what changes the goal into one for the image that is asked for.

        Where OVER= was typed, that is the image below: of the same stack and for the same machine, without additions.
        """
        names = {each.name for each in self.given}
        if _OVER not in names:
            return list(asked)
        removed = [Setting(name, "") for name in names & ({_OVER, "recipe", *_OF_ANY_IMAGE} - _SAME_BELOW)]
        return removed if names & _CHOOSING else [*removed, *asked]

    def _calls(self, verb: str) -> bool:
        """Return whether a goal of make was typed that calls this command; empty: any."""
        return bool(self.goal) and (not verb or verb in _GOALS.get(self.goal, {}))

    def _reached(self, verb: str) -> set[str]:
        """Return the settings by which the goal of make changes this command; empty: any, and those that were typed."""
        settings = _GOALS.get(self.goal, {})
        return set(settings[verb]) if verb else {each.name for each in self.given}.union(*settings.values())

    def _by_make(self, changed: Sequence[Setting]) -> str:
        """Return the goal with its settings, and these."""
        settings = _changed(self._given(), changed, in_one=True)
        settings.sort(key=lambda each: _ORDER.get(each.name, len(ROWS)))
        make = ["make", "-C", self.folder] if self.folder else ["make"]
        return commands.joined([*make, self.goal, *(each.by_make() for each in settings)])

    def _given(self) -> list[Setting]:
        """Return the settings that make got, from its environment too."""
        given = [each for each in self.given if each.value != "" and each.name != "from"]  # a recipe is written by now
        if self.request is None:
            return given
        names = {each.name for each in given}
        if not names & _NAMING:
            given += [_naming(name) for name in self.request.arguments if name != USUAL_STACK]
        by_make = {name for settings in _GOALS.get(self.goal, {}).values() for name in settings}
        others = by_make - names - {"plan"}
        return [*given, *(each for each in self.request.settings if each.name in others)]


def _naming(name: str) -> Setting:
    """Return make's setting for a stack or the file of a recipe."""
    return Setting("recipe" if is_recipe_file(name) else "stack", name)


def _differences(typed: Sequence[Setting], asked: Sequence[Setting]) -> list[Setting]:
    """Return what changes the settings that were typed into those that are asked for; empty values remove.

    A step with a value that only the user knows is no whole request.
    """
    if any(ETC in (each.value or "") for each in asked):
        return list(asked)
    changed = list[Setting]()
    for row in ROWS:
        before, after = ([each for each in settings if each.name == row.name] for settings in (typed, asked))
        if row.field and _words(before) != _words(after):
            if row.adds or not after:
                changed.append(Setting(row.name, ""))
            changed += after
    return changed


def _words(settings: Sequence[Setting]) -> list[str]:
    """Return the values of one setting, as they are with several in one word."""
    return [word for each in settings for word in (each.value or "yes").split()]


def _as(request: Command, verb: str, changed: Sequence[Setting]) -> Command:
    """Return the request as one for this command, which has the options that it takes."""
    kept = [each for each in request.settings if verb == request.verb or each.name in OPTIONS[verb]]
    return Command(verb, request.arguments or (USUAL_STACK,), tuple(_changed(kept, changed)))


def _changed(given: Sequence[Setting], changed: Sequence[Setting], *, in_one: bool = False) -> list[Setting]:
    """Return settings with others in place of those of their name, or beside them.

    `in_one`: as make takes several values.
    """
    settings = list(given)
    if any(each.name == "gpu" for each in changed):  # which needs a CUDA
        settings = [each for each in settings if (each.name, each.value) != ("cuda", "cpu")]
    for new in changed:
        settings = _with(settings, new, in_one=in_one)
    return settings


def _with(settings: list[Setting], new: Setting, *, in_one: bool) -> list[Setting]:
    """Return settings with one more, in place of those of its name or beside them; without them if it is empty."""
    same = [position for position, each in enumerate(settings) if each.name == new.name]
    if new.value == "":
        return [each for each in settings if each.name != new.name]
    if not same:
        return [*settings, new]
    first, last = same[0], same[-1]
    if new.name not in _ADDING:
        return [*settings[:first], new, *(each for each in settings[first:] if each.name != new.name)]
    if in_one:
        return [*settings[:first], _in_one(settings[first], new), *settings[first + 1 :]]
    return settings if new in settings else [*settings[: last + 1], new, *settings[last + 1 :]]


def _in_one(setting: Setting, other: Setting) -> Setting:
    """Return one setting with the values of two, each once."""
    values = [*(setting.value or "").split(), *(other.value or "").split()]
    return Setting(setting.name, " ".join(dict.fromkeys(values)))


def _replaced(words: Sequence[str], changed: Sequence[Setting]) -> list[str]:
    """Return the words of a command without a row, with these options in place of their own."""
    end = words.index("--") if "--" in words else len(words)
    own = list(words[:end])
    for new in changed:
        own = _with_option(own, new)
    return [*own, *words[end:]]


def _with_option(words: list[str], new: Setting) -> list[str]:
    """Return the words of a command with an option in place of its own, or without it if its value is empty."""
    option, *value = new.words()
    added = [] if value == [""] else [option, *value]
    for position, word in enumerate(words):
        if word == option:
            return [*words[:position], *added, *words[position + 1 + len(value) :]]
        if word.startswith(f"{option}="):
            return [*words[:position], *added, *words[position + 1 :]]
    return [*words, *added]
