"""An adopted file as a recipe with the lines that it came from, and as a table of what becomes of each line. Pure."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from dockerread import contents
from dockerread.errors import ReadError
from graphcrate.compat.adopt import definitions, instructions, stack
from graphcrate.compat.adopt.draft import FATES, Draft, Fate, Item, Row, shortened
from graphcrate.compat.requirements import own
from graphcrate.model.command import command
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Recipe
from graphcrate.model.words import in_lines, listed, number_of

#: ends of names of files that list packages, or that a reader of such lists names what to do about
_LISTS = (".yml", ".yaml", ".lock", ".toml", ".txt", ".in", ".py", ".cfg", ".json")
_NAMES = ("pipfile",)
_TEXTS = ("readme", "install", "dockerfile", "containerfile", "singularity")  #: begins of names of others
#: what to do about a file that cannot be read as what its name says
_NEXT = {
    "instruction": "docker build --check .    (says what Docker makes of it)",
    "stages": "give a Dockerfile, a .def, a script or an environment.yml",
    "bootstrap": "give the file that `singularity build` takes",
    "length": "give a part of the file",
    "notebook": "give a notebook as Jupyter saves it",
}


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """A file's rows, its recipe's text, and what differs of the stack."""

    rows: tuple[Row, ...]
    recipe: str
    extends: str
    cuda: str
    differs: tuple[str, ...]

    @property
    def counts(self) -> dict[Fate, int]:
        """The number of rows of each fate."""
        return {fate: sum(row.fate == fate for row in self.rows) for fate in FATES}


def adopt(
    text: str,
    file: Path,
    context: Path,
    recipes: Sequence[Recipe],
    arguments: dict[str, str],
    below: str | None = "",
    *,
    trusts_paths: bool = False,
) -> Adopted:
    """Read a text as what its file is by its name or first lines. `below`: from the recipe's folder to the context.

    `trusts_paths`: it may name what is outside of the context.
    Raises UsageError for what is none of them, and where the context is not `below` the recipe that names files of it.
    """
    draft = Draft(name=str(file), context=context, trusts_paths=trusts_paths)
    reader = _reader(text, file)
    if reader is None:
        whole, home = file.absolute(), context.absolute()
        if not whole.is_relative_to(home):
            raise UsageError(f"{file} is not in {context}", next_step=command("adopt", file))
        instructions.of_list(draft, whole.relative_to(home).as_posix())
    else:
        try:
            reader(text, draft, arguments)
        except ReadError as error:
            raise UsageError(error.what, next_step=_NEXT[error.kind]) from error
    if not draft.rows:
        raise UsageError(
            f"{file} has no command that could be adopted",
            cause="These are read: a Dockerfile, a definition of Singularity, a script, a page or a notebook with "
            "commands, an environment.yml.",
            next_step=f"{command('adopt', 'Dockerfile')}    (or write a recipe: docs/customize.md)",
        )
    if below is None and (draft.files or draft.requirements or any(item.value.startswith(".") for item in draft.pip)):
        raise UsageError(
            f"the recipe names files of {context}, which is not below its folder",
            next_step=f"{command('adopt', str(file), output=str(context / 'mine.toml'))}",
        )
    choice = stack.choose(recipes, draft.evidence)
    recipe = in_lines(_recipe(draft, choice, file.name, below or ""))
    own.parse(recipe, "recipe")
    return Adopted(
        rows=tuple(draft.rows), recipe=recipe, extends=choice.recipe, cuda=choice.cuda, differs=choice.differs
    )


def lines(adopted: Adopted, name: str) -> list[str]:
    """The table, and its sum."""
    width = max(len(row.lines) for row in adopted.rows)
    made = [f"{row.lines:>{width}}  {FATES[row.fate]:<19} {row.text}" + _behind(row) for row in adopted.rows]
    counts = adopted.counts
    verbs = {"recipe": "recipe", "stack": "the stack's already", "nothing": "mean nothing here", "yours": "left to you"}
    sums = ", ".join(f"{counts[fate]} {verbs[fate]}" for fate in FATES)
    made.append(f"{name}: {number_of(len(adopted.rows), 'command')}: {sums}")
    stacks = f"stack: {adopted.extends}, CUDA {adopted.cuda}"
    return [*made, stacks + "".join(f"; {text}" for text in adopted.differs)]


def _behind(row: Row) -> str:
    joint = ": because " if row.fate == "yours" else ": "
    return f"{joint}{row.what}" if row.what else ""


def _reader(text: str, file: Path) -> Callable[[str, Draft, dict[str, str]], None] | None:
    """The reader of a file; None for a list of requirements."""
    name = file.name.lower()
    if name in _NAMES or (name.endswith(_LISTS) and not name.startswith(_TEXTS)):
        return None
    kind = contents.kind_of(name, text)
    if kind == "dockerfile":
        return instructions.of_dockerfile
    if kind == "definition":
        return definitions.of_definition
    return lambda text, draft, given: instructions.of_script(contents.script_of(kind, text, draft.name), draft, given)


def _recipe(draft: Draft, choice: stack.Choice, name: str, below: str) -> Iterator[str]:
    yield f"# Adopted from {shortened(name)} by {command('adopt', 'FILE')}: the numbers are its lines."
    yield from (f"# {shortened(text)}." for text in choice.differs)
    where = _numbers(draft.evidence.lines)
    yield f"extends = {_text(choice.recipe)}" + (f"  # {where}" if where else "")
    yield f"cuda = {_text(choice.cuda)}"
    pip = [item._replace(value=_moved(item.value, below)) for item in draft.pip]
    lists = [item._replace(value=_joined(below, item.value)) for item in draft.requirements]
    yield from _list("pip", pip)
    yield from _list("requirements", lists)
    yield from _list("apt", draft.apt)
    yield from _table("build_env", draft.build_env)
    yield from _table("env", draft.env)
    yield from _table(
        "files", {key: item._replace(value=_joined(below, item.value)) for key, item in draft.files.items()}
    )
    yield from _table("directories", draft.directories)
    if draft.workdir:
        yield f"workdir = {_text(draft.workdir.value)}  # {draft.workdir.line}"
    words, line = draft.command
    if words:
        yield f"command = [{', '.join(map(_text, words))}]  # {line}"
    yield from _table("labels", draft.labels)
    yield from _list("smoke", draft.smoke)
    left = [row for row in draft.rows if row.fate == "yours"]
    if left:
        yield "# Left to you:"
    yield from (f"# {row.lines}: {row.text} ({row.what})" for row in left)


def _moved(value: str, below: str) -> str:
    if not value.startswith("."):
        return value
    return f"./{_joined(below, value)}" if below or value != "." else "."


def _joined(below: str, path: str) -> str:
    path = path.removeprefix("./")
    return f"{below}/{path}" if below and path != "." else below or path


def _numbers(numbers: Sequence[int]) -> str:
    return listed(map(str, sorted(set(numbers))))


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _list(name: str, items: Sequence[Item]) -> Iterator[str]:
    if items:
        yield f"{name} = ["
        yield from (f"    {_text(item.value)},  # {item.line}" for item in items)
        yield "]"


def _table(name: str, items: dict[str, Item]) -> Iterator[str]:
    """Yield an inline table in lines of `name.key`."""
    yield from (f"{name}.{_text(key)} = {_text(item.value)}  # {item.line}" for key, item in items.items())
