"""A recipe of one's own, begun from a project's code and edited afterwards, as text: comments stay. Pure."""

import ast
import json
import re
import sys
import tomllib
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from packaging.utils import canonicalize_name

from graphcrate.compat.facts import names
from graphcrate.compat.requirements import own_packages
from graphcrate.compat.requirements.conda import on_index
from graphcrate.compat.requirements.translated import is_stacks
from graphcrate.model.errors import UsageError
from graphcrate.model.words import joined

#: files that say what a project needs, the one that says most first: one of them is taken
LISTS = ("uv.lock", "pylock.toml", "pyproject.toml", "requirements.txt", "environment.yml", "environment.yaml")
_OF_PYG = ("torch_geometric", "pyg_lib", "torch_scatter", "torch_sparse", "torch_cluster", "torch_spline_conv")
#: module → the smallest stack that has it, the largest stack first
_STACKS = {"graphlearn_torch": "glt", **dict.fromkeys(_OF_PYG, "pyg"), "torch": "torch"}
#: module of the stack that wants a package of its own → that package's module
_BEHIND = {"torch.utils.tensorboard": "tensorboard"}
_USUAL = "pyg"  #: of a project that says nothing of it
_KEY = re.compile(r"^pip\s*=\s*\[", re.MULTILINE)
_TABLE = re.compile(r"^\[", re.MULTILINE)
#: a mount of a recipe, of a folder below the project's
_BIND = re.compile(r"(?:\./)?(?P<source>\w[\w. /-]*):(?P<target>/[\w./-]+)(?P<readonly>:ro)?")
#: a word of an array in TOML: a string, a comment, or what stands between them
_WORD = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|[\],]|\s+')


class Imports(NamedTuple):
    """Top-level modules that code imports; `optional`: only where an exception is caught."""

    needed: frozenset[str]
    optional: frozenset[str]


class Begun(NamedTuple):
    """The stack and packages that a project's imports ask for, and the modules that nothing is known of."""

    stack: str
    packages: tuple[str, ...]
    unsure: tuple[str, ...]


def imports_of(code: bytes) -> Imports | None:
    """Return the modules that a file imports; None for what is not Python. Nothing is run."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(code)
            caught = {
                id(below)
                for node in ast.walk(tree)
                if isinstance(node, ast.Try) and node.handlers
                for statement in node.body
                for below in ast.walk(statement)
            }
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    needed, optional = set[str](), set[str]()
    for node in ast.walk(tree):
        kind = optional if id(node) in caught else needed
        modules = list[str]()
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        kind |= {module.partition(".")[0] for module in modules}
        kind |= {_BEHIND[module] for module in modules if module in _BEHIND}
    return Imports(frozenset(needed), frozenset(optional - needed))


def begin(
    files: Iterable[Imports], local: Collection[str], listed: Collection[str], stacks: Mapping[str, Collection[str]]
) -> Begun:
    """Sort a project's imports. `local`: its own modules; `listed`: packages that it lists; `stacks`: those of each.

    A name that no table has is not taken: the package index may have a stranger's project of that name.
    """
    files = list(files)
    modules = {module for imports in files for module in imports.needed}
    optional = {module for imports in files for module in imports.optional} - modules
    named = modules | optional | {name.replace("-", "_") for name in listed}
    stack = next((stack for module, stack in _STACKS.items() if module in named), _USUAL)
    known = {name for names_ in stacks.values() for name in names_}
    packages, unsure = set[str](), set[str]()
    for module in (modules | optional) - set(local) - sys.stdlib_module_names - _STACKS.keys():
        canonical = str(canonicalize_name(module))
        package = names.package_of(module) or on_index(canonical) or (canonical if canonical in known else "")
        name = str(canonicalize_name(package or module))
        if name in listed or name in stacks.get(stack, ()) or is_stacks(name):
            continue
        if package and module in modules:
            packages.add(package)
        else:
            unsure.add(package or module)
    return Begun(stack, tuple(sorted(packages)), tuple(sorted(unsure)))


def recipe_name(folder: str) -> str:
    """Return a name for the recipe of a project's folder, which names its image: that of no stack."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.lower()).strip("-")[:40].strip("-")
    return name if name and name not in _STACKS.values() else f"my-{name or 'image'}"


def recipe(begun: Begun, requirements: str, cuda: str) -> str:
    """Return the text of the recipe."""
    lines = ["# packages of this project, as `init` found them; `add` and `remove` edit them"]
    lines += [f"extends = {json.dumps(begun.stack)}", f"cuda = {json.dumps(cuda)}"]
    lines += [f"requirements = {json.dumps(requirements)}"] if requirements else []
    lines += [f"pip = [{', '.join(map(json.dumps, begun.packages))}]"]
    lines += [f"# imported, not sure, left out: {', '.join(begun.unsure)}"] if begun.unsure else []
    return "\n".join(lines) + "\n"


def devcontainer(name: str, image: str, mounts: Iterable[str]) -> str:
    """Return a devcontainer.json for an image in Docker's store. `mounts`: the recipe's, below the project's folder.

    Raises UsageError for a mount of other words: commas and variables would be Docker's and the editor's.
    """
    binds = []
    for mount in mounts:
        if (known := _BIND.fullmatch(mount)) is None:
            raise UsageError(
                f"the recipe's mount {mount!r} has no form that devcontainer.json takes",
                cause="It takes folders of the project, by names without commas and variables.",
                next_step='write it as mounts = ["data:/data:ro"], then the same command',
            )
        source = f"${{localWorkspaceFolder}}/{known['source']}"
        binds.append(f"source={source},target={known['target']},type=bind{',readonly' if known['readonly'] else ''}")
    document = {
        "name": name,
        "image": image,
        "workspaceMount": "source=${localWorkspaceFolder},target=/work,type=bind",
        "workspaceFolder": "/work",
        **({"mounts": binds} if binds else {}),
        "runArgs": ["--shm-size=8g"],
        "hostRequirements": {"gpu": "optional"},
        "customizations": {
            "vscode": {
                "extensions": ["ms-python.python"],
                "settings": {"python.defaultInterpreterPath": "/opt/venv/bin/python"},
            }
        },
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def added(text: str, packages: Sequence[str]) -> str:
    """Return a recipe's text with these packages in `pip`, in place of those of the same name. Raises UsageError."""
    kept = without(text, [own_packages.name_of(package) for package in packages], missing_too=True)
    before = tomllib.loads(kept).get("pip", [])
    words = ", ".join(map(_quoted, packages))
    if (key := _KEY.search(kept)) is None:
        table = _TABLE.search(kept)
        at = table.start() if table else len(kept)
        start = "" if not at or kept[at - 1] == "\n" else "\n"
        edited = f"{kept[:at]}{start}pip = [{words}]\n{kept[at:]}"
    else:
        strings, _ = _array(kept, key.end())
        if not strings:
            edited = f"{kept[: key.end()]}{words}{kept[key.end() :]}"
        else:
            last = strings[-1][1]
            lead = kept[kept.rfind("\n", 0, strings[-1][0]) + 1 : strings[-1][0]]
            own_lines = not lead.strip()
            space = f"\n{lead}" if own_lines else " "
            more = f",{space}".join(map(_quoted, packages))
            comma = _comma(kept, last)
            at = last if comma is None else comma + 1
            note = re.match(r"[ \t]*#[^\n]*", kept[at:]) if own_lines else None
            after = at + (note.end() if note else 0)
            edited = (
                f"{kept[:at]}{',' if comma is None else ''}{kept[at:after]}{space}{more}{',' * own_lines}{kept[after:]}"
            )
    return _checked(text, edited, [*before, *packages])


def without(text: str, removed: Sequence[str], *, missing_too: bool = False) -> str:
    """Return a recipe's text without packages of these names in its `pip`. Raises UsageError for one that it lacks."""
    before = _read(text).get("pip", [])
    doomed = {str(canonicalize_name(name)) for name in removed}
    listed = {own_packages.name_of(package): package for package in before}
    if missing := sorted(doomed - listed.keys()):
        if not missing_too:
            raise UsageError(
                f"pip of the recipe has no {missing[0]}; it has {joined(sorted(listed)) or 'nothing'}",
                cause="What a requirements file lists is removed there.",
                next_step="name one that `pip` has",
            )
        if not doomed & listed.keys():
            return text
    key = _KEY.search(text)
    if key is None:
        raise _by_hand()
    strings, _ = _array(text, key.end())
    edited = text
    for start, end in reversed(strings):
        if own_packages.name_of(tomllib.loads(f"x = {text[start:end]}")["x"]) in doomed:
            edited = _cut(edited, start, end)
    return _checked(text, edited, [package for package in before if own_packages.name_of(package) not in doomed])


def _cut(text: str, start: int, end: int) -> str:
    """Take a string out of an array, with its comma, and with its line where it has one of its own."""
    comma = _comma(text, end)
    if comma is not None and text[end:comma].strip(" \t"):  # on a line of its own
        return text[:start] + text[end:comma] + text[comma + 1 :]
    end = end if comma is None else comma + 1
    line = text.rfind("\n", 0, start) + 1
    tail = re.match(r"[ \t]*(?:#[^\n]*)?\n", text[end:])
    if not text[line:start].strip() and tail:
        return text[:line] + text[end + tail.end() :]
    if comma is None:  # the last one: the comma before it goes
        return re.sub(r",?[ \t]*$", "", text[:start]) + text[end:]
    space = re.match(r"[ \t]*", text[end:])
    return text[:start] + text[end + (space.end() if space else 0) :]


def _comma(text: str, at: int) -> int | None:
    """Return the place of the comma behind a string of an array; None behind the last one."""
    while (word := _WORD.match(text, at)) and word[0] != "]":
        if word[0] == ",":
            return at
        at = word.end()
    return None


def _array(text: str, at: int) -> tuple[list[tuple[int, int]], int]:
    """Places of the strings of an array that begins at `at`, and of its end. Raises UsageError for one with others."""
    strings = list[tuple[int, int]]()
    while word := _WORD.match(text, at):
        if word[0] == "]":
            return strings, at
        if word[0][0] in "\"'":
            strings.append((word.start(), word.end()))
        at = word.end()
    raise _by_hand()


def _quoted(package: str) -> str:
    return json.dumps(package, ensure_ascii=False)


def _read(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the recipe is not TOML: {error}", next_step="correct it, then the same command") from error


def _checked(before: str, edited: str, packages: list[str]) -> str:
    """Return the edited text if it says the same as before but for `pip`. Raises UsageError."""
    try:
        read = tomllib.loads(edited)
    except tomllib.TOMLDecodeError:
        read = {}
    if read != {**_read(before), "pip": packages}:
        raise _by_hand()
    return edited


def _by_hand() -> UsageError:
    return UsageError(
        "`pip` of the recipe is written in a form that is not edited here",
        next_step='write it as pip = ["einops", "rich"], then the same command',
    )
