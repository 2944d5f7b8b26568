"""A whole file: the images that it begins with, what its commands install, and the commands that are not read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from dockerread import definition, dockerfile, installers, notebook, shell, stages

FileKind = Literal["dockerfile", "definition", "page", "notebook", "script"]
_PAGES = (".md", ".rst", ".markdown")
#: program → its verbs that install
_VERBS = {
    "pip": ("install",),
    "conda": ("install", "create", "update"),
    "apt-get": ("install",),
    "apt": ("install",),
    "uv": ("add",),
    "poetry": ("add",),
}
#: those of which a project's folder comes in, with what its lock or its lists name
_PROJECTS = {"uv": ("sync",), "poetry": ("install",), "pdm": ("install", "sync")}
_OPTIONS = {"apt-get": "apt", "apt": "apt", "conda": "conda"}
#: of base images: what those set stays as it is written
_OF_BASE = {name: f"${name}" for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME")}


class Install(NamedTuple):
    """A command that installs. `packages`: `.` is the project of the folder; `lists`: files with packages.

    `sources`: indexes, pages and channels that it names.
    """

    line: int
    end: int
    program: str
    packages: tuple[str, ...]
    lists: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


class Other(NamedTuple):
    """A command or an instruction that installs nothing that is known here; `unknown`: why its words are not known."""

    line: int
    end: int
    text: str
    unknown: str = ""


class Contents(NamedTuple):
    """Images, installs, variables and other commands of a file.

    Of a Dockerfile's stages those count that the last one begins with or copies from.
    """

    kind: FileKind
    bases: tuple[str, ...]
    installs: tuple[Install, ...]
    variables: dict[str, str]
    others: tuple[Other, ...]


def kind_of(name: str, text: str) -> FileKind:
    """Return what a file is, by its name, else by its first lines."""
    name = name.lower()
    if name.endswith(".def") or name == "singularity" or definition.is_definition(text):
        return "definition"
    if name.startswith(("dockerfile", "containerfile")) or name.endswith((".dockerfile", ".containerfile")):
        return "dockerfile"
    if name.endswith(_PAGES) or name == "readme":
        return "page"
    if name.endswith(".ipynb"):
        return "notebook"
    if name.endswith((".sh", ".bash")) or text.startswith("#!") or name in ("install", "setup"):
        return "script"
    first = next((line.split()[0].upper() for line in text.splitlines() if line.strip() and line[0] != "#"), "")
    return "dockerfile" if first in ("FROM", "ARG") else "script"


def read(text: str, name: str, arguments: Mapping[str, str] | None = None) -> Contents:
    """Read a text as what a file of this name is; `arguments`: of ARG or `%arguments`. Raises ReadError."""
    given, kind = dict(arguments or {}), kind_of(name.rpartition("/")[2], text)
    if kind == "dockerfile":
        return _of_dockerfile(text, name, given)
    if kind == "definition":
        return _of_definition(text, name, given)
    return _made(kind, (), _sorted(shell.commands(script_of(kind, text, name), 1, given)), {})


def script_of(kind: FileKind, text: str, name: str) -> str:
    """Return a page or notebook with nothing but its commands, in their lines; another text as it is.

    `name`: the file's, for the message. Raises ReadError for a notebook that is not JSON.
    """
    match kind:
        case "page":
            return definition.commands_of_page(text)
        case "notebook":
            return notebook.commands_of_notebook(text, name)
    return text


def _of_dockerfile(text: str, name: str, given: Mapping[str, str]) -> Contents:
    before, parts = stages.split(dockerfile.instructions(text, name), name)
    outer = dict[str, str]()
    for step in before:
        if step.keyword == "ARG":
            stages.take_arguments(step, given, outer, outer)
    bases, sorted_, environment = list[str](), list[Install | Other](), dict[str, str]()
    names = {part.name for part in parts if part.name}
    for part in (parts[number] for number in sorted(stages.needed(parts))):
        variables = dict[str, str]()
        for step in part.steps:
            try:
                if step.keyword == "FROM" and part.origin.lower() not in names:
                    bases.append(shell.expand(stages.image(step), outer))
                elif step.keyword == "ARG":
                    stages.take_arguments(step, given, variables, outer)
                elif step.keyword == "ENV":
                    pairs = dict(stages.pairs(step.flat, _OF_BASE | variables))
                    variables |= pairs
                    environment |= pairs
                elif step.keyword == "RUN":
                    sorted_ += _sorted(stages.commands(step, variables))
                elif step.keyword != "FROM":
                    sorted_.append(Other(step.line, step.end, _text(step)))
            except shell.Unknown as error:
                sorted_.append(Other(step.line, step.end, _text(step), str(error)))
    return _made("dockerfile", bases, sorted_, environment)


def _text(step: dockerfile.Instruction) -> str:
    flags = (f"--{name}={value}" if value else f"--{name}" for name, value in step.flags)
    return " ".join((step.keyword, *flags, step.flat))


def _of_definition(text: str, name: str, given: Mapping[str, str]) -> Contents:
    bases, sorted_, environment = list[str](), list[Install | Other](), dict[str, str]()
    for part in definition.parts(text, name, given):
        if part.name == "from":
            bases.append(part.text)
        elif part.name == "%post":
            sorted_ += _sorted(map(_with_values, shell.commands(part.text, part.line + 1, {})))
        elif part.name == "%environment":
            for command in shell.commands(part.text, part.line + 1, dict(_OF_BASE)):
                environment |= command.exported
        elif part.name not in ("bootstrap", "stage", "%arguments"):
            sorted_.append(Other(part.line, part.end, f"{part.name} {part.options}".strip()))
    return _made("definition", bases, sorted_, environment)


def _with_values(command: shell.Simple) -> shell.Simple:
    """Return a command of a definition, one that is not known where `%arguments` lacks a value."""
    is_known = not any("{{" in word for word in command.words)
    return command if is_known else command._replace(unknown=command.unknown or "a value of %arguments is not known")


def _sorted(commands: Iterable[shell.Simple]) -> Iterator[Install | Other]:
    for command in commands:
        words = () if command.unknown else installers.plain_words(command.words)
        if words[:2] == ("conda", "env"):  # conda env update -f environment.yml
            words = (words[0], *words[2:])
        program, verb = (*words, "", "")[:2]
        if verb in _VERBS.get(program, ()):
            yield _install(command, program, words[2:])
        elif verb in _PROJECTS.get(program, ()):
            yield Install(command.line, command.end, program, (".",), flags=words[2:])
        else:
            yield Other(command.line, command.end, command.text, command.unknown)


def _install(command: shell.Simple, program: str, words: Sequence[str]) -> Install:
    options = installers.options(words, installers.WITH_VALUE[_OPTIONS.get(program, "pip")])
    lists, sources, bounds = (
        (("-f", "--file"), ("-c", "--channel"), ())
        if program == "conda"
        else (installers.LISTS, installers.SOURCES, installers.CONSTRAINTS)
    )
    return Install(
        command.line,
        command.end,
        _OPTIONS.get(program, program),
        (*options.of("-e", "--editable"), *options.words),
        tuple(options.of(*lists)),
        tuple(options.of(*sources)),
        (*options.flags, *(f"--constraint={name}" for name in options.of(*bounds))),
    )


def _made(kind: FileKind, bases: Sequence[str], each: Iterable[Install | Other], env: dict[str, str]) -> Contents:
    each = list(each)
    installs = tuple(step for step in each if isinstance(step, Install))
    return Contents(kind, tuple(bases), installs, env, tuple(step for step in each if isinstance(step, Other)))
