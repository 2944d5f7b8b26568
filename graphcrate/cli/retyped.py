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
    if (typed := Typed.here()) is None:
        return text
    text = _REQUEST.sub(lambda match: typed.asking(*_step(match), match["name"]) or match[0], text)
    if ETC not in text:
        return text

    def of(match: re.Match[str]) -> str:
        verb, changed = _step(match)
        if made := typed.again(verb, changed):
            return made
        request = built(typed.words) if verb in OPTIONS else None
        return str(_as(request, verb, changed)) if request else match[0]

    return _AS_TYPED.sub(of, text)


def line() -> str:
    """Return the command that was typed, whole and without passwords; empty where it is unknown."""
    typed = Typed.here()
    return typed.again("") if typed else ""


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

    def again(self, verb: str, changed: Sequence[Setting] = ()) -> str:
        """Return the command with these settings; empty where what was typed is no request for this command."""
        own, names = "".join(self.words[:1]), {setting.name for setting in changed}
        if own in ("lock", "render") and verb == "image" and names and names <= set(OPTIONS[own]):
            verb = own
        goals = _GOALS.get(self.goal, {})
        reached = {each.name for each in self.given}.union(*goals.values()) if not verb else goals.get(verb)
        if self.goal and reached is not None and names <= set(reached):
            return redacted(self._by_make(changed))
        if (request := self.request) and (verb in (own, "") or verb in OPTIONS):
            return redacted(str(_as(request, verb or own, changed)))
        if verb in (own, ""):
            return redacted(commands.joined([commands.program(), *_replaced(self.words, changed)]))
        return ""

    def asking(self, verb: str, given: Sequence[Setting], name: str | None) -> str:
        """Return the command with the settings of another request; empty where what was typed makes no such request.

        `name`: its stack or recipe, where it is not among the settings. What no request has stays as it was typed.
        """
        own, goals = "".join(self.words[:1]), _GOALS.get(self.goal, {})
        if verb not in (goals if self.goal else (own,)):
            return ""
        request = self.request
        places = {each.name: each.value or "" for each in given if each.name in ("recipe", "stack")}
        name = name or next(iter(places.values()), USUAL_STACK)
        given = [each for each in given if each.name not in places]
        changed = _differences(request.settings if request else None, given)
        if not self.goal:
            return redacted(str(_as(replace(request, arguments=(name,)), verb, changed))) if request else ""
        if request and request.arguments != (name,):
            kind, other = ("recipe", "stack") if is_recipe_file(name) else ("stack", "recipe")
            changed += [Setting(kind, name), Setting(other, "")]
        reached = {"recipe", "stack"}.union(each.name for each in self.given).union(*goals.values())
        by_the_goal = {each.name for each in request.settings} - reached if request else set[str]()
        changed = [each for each in changed if each.name not in by_the_goal]
        return redacted(self._by_make(changed)) if {each.name for each in changed} <= reached else ""

    @property
    def request(self) -> Command | None:
        """The command as a value; None for one that is of no stack, or has an option that is in no row."""
        verb, *rest = self.words or ("",)
        arguments, settings, words = list[str](), list[Setting](), iter(rest)
        if verb not in _OF_A_STACK:
            return None
        for word in words:
            option, equals, value = _SHORT.get(word, word).partition("=")
            name = option.removeprefix("--")
            if not option.startswith("-"):
                arguments.append(word)
            elif name in _FLAGS:
                settings.append(Setting(name))
            elif name in (row.name for row in ROWS):
                settings.append(Setting(name, value if equals else next(words, "")))
            else:
                return None
        if len(arguments) > 1 or any(":" in word for word in arguments):  # an image
            return None
        return Command(verb, tuple(arguments), tuple(settings))

    def _by_make(self, changed: Sequence[Setting]) -> str:
        """The goal with its settings, those that make took from its environment too."""
        request = self.request or Command("")
        taken = {name for names in _GOALS.get(self.goal, {}).values() for name in names} - {"plan"}
        given = [each for each in self.given if each.value != "" and each.name != "from"]  # a recipe is written by now
        named = {each.name for each in given}
        if not named & {"recipe", "stack"}:
            others = [name for name in request.arguments if name != USUAL_STACK]
            given += [Setting("recipe" if is_recipe_file(name) else "stack", name) for name in others]
        given += [each for each in request.settings if each.name in taken - named]
        settings = sorted(_changed(given, changed, in_one=True), key=lambda each: _ORDER.get(each.name, len(ROWS)))
        make = ["make", "-C", self.folder] if self.folder else ["make"]
        return commands.joined([*make, self.goal, *(each.by_make() for each in settings)])


def _differences(typed: Sequence[Setting] | None, asked: Sequence[Setting]) -> list[Setting]:
    """Return what changes the settings that were typed into those that are asked for; empty values remove.

    `typed`: None where the program got none. A step with a value that only the user knows is no whole request.
    """
    if typed is None or any(ETC in (each.value or "") for each in asked):
        return list(asked)
    changed = list[Setting]()
    for row in ROWS:
        before, after = ([each for each in settings if each.name == row.name] for settings in (typed, asked))
        if row.field and _words(before) != _words(after):
            changed += [*([Setting(row.name, "")] if row.adds or not after else ()), *after]
    return changed


def _words(settings: Sequence[Setting]) -> list[str]:
    """Return the values of one setting, as they are with several in one word."""
    return [word for each in settings for word in (each.value or "yes").split()]


def _as(request: Command, verb: str, changed: Sequence[Setting]) -> Command:
    """The request as one for this command, which has the options that it takes."""
    kept = [each for each in request.settings if verb == request.verb or each.name in OPTIONS[verb]]
    return Command(verb, request.arguments or (USUAL_STACK,), tuple(_changed(kept, changed)))


def _changed(given: Sequence[Setting], changed: Sequence[Setting], *, in_one: bool = False) -> list[Setting]:
    """Settings with others in place of those of their name, or beside them. `in_one`: as make takes several values."""
    settings = list(given)
    if any(each.name == "gpu" for each in changed):  # which needs a CUDA
        settings = [each for each in settings if (each.name, each.value) != ("cuda", "cpu")]
    for new in changed:
        same = [place for place, each in enumerate(settings) if each.name == new.name]
        if new.value == "":
            settings = [each for each in settings if each.name != new.name]
        elif not same:
            settings.append(new)
        elif new.name not in _ADDING:
            settings[same[0]] = new
            settings = [each for place, each in enumerate(settings) if place not in same[1:]]
        elif in_one:
            words = [word for each in (settings[same[0]], new) for word in (each.value or "").split()]
            settings[same[0]] = Setting(new.name, " ".join(dict.fromkeys(words)))
        elif new not in settings:
            settings.insert(same[-1] + 1, new)
    return settings


def _replaced(words: Sequence[str], changed: Sequence[Setting]) -> list[str]:
    """The words of a command without a row, with these options in place of their own."""
    own, kept = list(words), list[str]()
    if "--" in words:
        own, kept = own[: own.index("--")], own[own.index("--") :]
    for new in changed:
        option, *value = new.words()
        at = next((place for place, word in enumerate(own) if word.partition("=")[0] == option), len(own))
        taken = 1 if any(word.startswith(f"{option}=") for word in own) else len(new.words())
        own = [*own[:at], *(() if value == [""] else (option, *value)), *own[at + taken :]]
    return [*own, *kept]


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
