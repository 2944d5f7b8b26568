"""A definition of Singularity or Apptainer as a draft of a recipe: a row for each kind of its parts."""

import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from dockerread import definition, shell
from dockerread.definition import DefinitionPart
from graphcrate.compat.adopt import commands, instructions
from graphcrate.compat.adopt.draft import BASE_VARIABLES, Draft, Fate, Item, Place
from graphcrate.compat.adopt.installs import Outcome, all_of
from graphcrate.compat.adopt.instructions import ENVIRONMENT

#: where %post puts variables for later
_FOR_LATER = dict.fromkeys(
    ("SINGULARITY_ENVIRONMENT", "APPTAINER_ENVIRONMENT"), "/.singularity.d/env/91-environment.sh"
)


def of_definition(text: str, draft: Draft, arguments: Mapping[str, str]) -> None:
    """Read a definition; `arguments`: values of its %arguments."""
    place = Place(draft.context)
    for part in definition.parts(text, draft.name, arguments):
        _TAKERS.get(part.name, _unknown)(draft, place, part)


def _bootstrap(draft: Draft, _: Place, part: DefinitionPart) -> None:
    is_image = part.text.lower() in ("docker", "library", "oras", "shub")
    fate: Fate = "stack" if is_image else "yours"
    why = "" if is_image else f"it begins with what is of this machine or of {part.text}"
    draft.add(part.line, part.end, f"Bootstrap: {part.text}", fate, why)


def _from(draft: Draft, _: Place, part: DefinitionPart) -> None:
    draft.add(part.line, part.end, f"From: {part.text}", *instructions.base(draft, part.text, part.line))


def _post(draft: Draft, place: Place, part: DefinitionPart) -> None:
    commands.take(draft, place, shell.commands(part.text, part.line + 1, dict(_FOR_LATER)))


def _environment(draft: Draft, place: Place, part: DefinitionPart) -> None:
    for step in shell.commands(part.text, part.line + 1, dict(BASE_VARIABLES)):
        outcomes = [commands.variable(draft, name, value, step.line) for name, value in step.exported.items()]
        draft.add(step.line, step.end, step.text, *(all_of(outcomes) if outcomes else _other(draft, place, step)))


def _files(draft: Draft, place: Place, part: DefinitionPart) -> None:
    if "from" in part.options.split():
        _files_of_stage(draft, part)
        return
    for number, line in enumerate(part.text.splitlines(), part.line + 1):
        if words := line.partition("#")[0].split():
            _file(draft, place, words, number)


def _files_of_stage(draft: Draft, part: DefinitionPart) -> None:
    is_known = all(ENVIRONMENT.fullmatch(line.split()[0]) for line in part.text.splitlines() if line.split())
    why = "what that stage installs is the recipe's" if is_known else "take its files out of that stage: files"
    draft.add(part.line, part.end, f"%files {part.options}", "nothing" if is_known else "yours", why)


def _labels(draft: Draft, _: Place, part: DefinitionPart) -> None:
    for number, line in enumerate(part.text.splitlines(), part.line + 1):
        if words := line.strip().split(maxsplit=1):
            pairs = [(words[0], words[1] if len(words) > 1 else "")]
            draft.add(number, number, line.strip(), *instructions.labels(draft, pairs, number))


def _tests(draft: Draft, _: Place, part: DefinitionPart) -> None:
    for step in shell.commands(part.text, part.line + 1, {}):
        text = shlex.join(step.words)
        if step.unknown or step.writes or step.before in ("|", "||") or "\n" in text:
            draft.add(step.line, step.end, step.text, "yours", step.unknown or "each of smoke is one command")
        else:
            draft.smoke.append(Item(text, step.line))
            draft.add(step.line, step.end, step.text, "recipe", "smoke")


def _for_people(draft: Draft, _: Place, part: DefinitionPart) -> None:
    draft.add(part.line, part.end, part.name, "nothing", "it is for people, or for services")


def _unknown(draft: Draft, _: Place, part: DefinitionPart) -> None:
    why = "it runs on this machine" if part.name in ("%setup", "%pre") else "it is not known what it is for"
    if part.name.startswith("%app"):
        why = "an app of a container is not a part of a recipe: its program is started by its path, or is `command`"
    draft.add(part.line, part.end, f"{part.name} {part.options}", "yours", why)


def _other(draft: Draft, place: Place, step: shell.Simple) -> Outcome:
    if step.unknown:
        return Outcome("yours", step.unknown)
    start = len(draft.rows)
    commands.take(draft, place, [step])
    row = draft.rows.pop(start)
    return Outcome(row.fate, row.what)


def _file(draft: Draft, place: Place, words: Sequence[str], number: int) -> None:
    target = words[1] if len(words) > 1 else f"/{words[0].lstrip('/')}"
    text = " ".join(words)
    if words[0].startswith(("/", "~")):
        draft.add(number, number, text, "yours", "it is a path of one machine: put it beside the recipe")
        return
    is_into = target.endswith("/")
    outcome = instructions.copied(
        draft, place, words[:1], posixpath.normpath(posixpath.join("/", target)), number, into=is_into
    )
    draft.add(number, number, text, *outcome)


def _runscript(draft: Draft, _: Place, part: DefinitionPart) -> None:
    """Take a runscript of one command, and of the folder that it begins in; its `"$@"` is what a runtime adds."""
    text = re.sub(r"\s*\"?\$[@*]\"?", "", part.text)
    parsed = [step for step in shell.commands(text, part.line + 1, {}) if step.words[:1] not in (("echo",), ("set",))]
    folder = ""
    if len(parsed) == 2 and parsed[0].words[:1] == ("cd",) and parsed[1].before in ("\n", ";", "&&"):
        folder = (*parsed[0].words, "")[1]
    if (
        folder.startswith("/")
        and not parsed[0].unknown
        and instructions.workdir(draft, folder, part.line + 1).fate == "recipe"
    ):
        parsed = parsed[1:]
    if len(parsed) == 1 and not parsed[0].unknown and not parsed[0].writes:
        words = parsed[0].words[1:] if parsed[0].words[0] == "exec" else parsed[0].words
        outcome = (
            instructions.command(draft, words, part.line) if words else Outcome("stack", "what is asked for starts")
        )
        outcome = outcome._replace(what=f"workdir; {outcome.what}") if draft.workdir else outcome
    elif not parsed:
        outcome = Outcome("stack", "what is asked for starts")
    else:
        outcome = Outcome("yours", "it is a script: put it beside the recipe, name it in files and as command")
    draft.add(part.line, part.end, f"%runscript {' '.join(parsed[0].words) if parsed else ''}", *outcome)


_TAKERS: Mapping[str, Callable[[Draft, Place, DefinitionPart], None]] = {
    "bootstrap": _bootstrap,
    "from": _from,
    "%post": _post,
    "%environment": _environment,
    "%files": _files,
    "%labels": _labels,
    "%runscript": _runscript,
    "%test": _tests,
    **dict.fromkeys(("stage", "%help", "%arguments", "%startscript"), _for_people),
}
