"""A project's folder: read what it imports and lists, write its recipe, find the recipe again."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.utils import canonicalize_name

from graphcrate.compat.adopt import stack
from graphcrate.compat.adopt.draft import StackSigns
from graphcrate.compat.requirements import begun, own, own_packages, own_typed, package_text
from graphcrate.compat.requirements.begun import Begun, Imports
from graphcrate.compat.requirements.within import Within
from graphcrate.compat.variants import catalog, explain
from graphcrate.compat.variants.targets import MachineRequest
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.host.sandbox import gpu
from graphcrate.model.command import command, for_shell
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Additions, Expected
from graphcrate.model.words import joined

#: folders that are not a project's own code
_NOT_CODE = {"venv", "env", "node_modules", "site-packages", "dist", "build", "__pycache__"}
_MOST_FILES, _LARGEST = 5000, 1 << 20


class Written(NamedTuple):
    """The recipe that was written, and what its user is told."""

    path: Path
    notes: tuple[str, ...]


def init(folder: Path, ctx: Context) -> Written:
    """Write the recipe of a project. Raises UsageError where it has one already, and for a list that is not taken."""
    path = folder / f"{begun.recipe_name(folder.resolve().name)}.toml"
    if (there := recipes(folder)) or path.exists():
        shown = (there or [path])[0].name
        raise UsageError(f"{shown} is there already", next_step=f"{command('add', 'PACKAGE')}    adds to it")
    lists = [name for name in begun.LISTS if (folder / name).is_file()]
    read = list(_code(folder))
    if not lists and not read:
        raise UsageError(
            "this folder has neither Python code nor a list of packages",
            cause=f"It would be one of {', '.join(begun.LISTS)}.",
            next_step="cd ~/project, then the same command",
        )
    additions = package_text.read_requirements(folder / lists[0], Within(folder.resolve())) if lists else Additions()
    listed = {own_packages.name_of(package) for package in additions.packages} | {
        entry.name for entry in additions.expected
    }
    local = {name for path_, _ in read for name in (*Path(path_).parts[:-1], Path(path_).stem)}
    made = begun.begin((imports for _, imports in read if imports), local, listed, _of_stacks(ctx))
    cuda = _cuda(made.stack, additions.expected, ctx)
    write_file(path, begun.recipe(made, lists[0] if lists else "", cuda.version).encode())
    notes = _notes(made, lists, [name for name, imports in read if imports is None])
    return Written(path, (f"CUDA {cuda.version}: {cuda.why}", *notes))


class _Cuda(NamedTuple):
    version: str
    why: str


def _cuda(name: str, expected: Sequence[Expected], ctx: Context) -> _Cuda:
    """Choose the CUDA version of a project's recipe: as its lists say, else for this machine's GPUs, else the usual."""
    recipe, signs = catalog.find_recipe(ctx, name), StackSigns()
    for entry in expected:
        if entry.name == "cuda":
            stack.note_label(signs, f"cu{''.join(re.findall(r'[0-9]+', entry.specifier)[:2])}")
        elif entry.specifier or entry.build:
            stack.note_package(signs, f"{entry.name}{entry.specifier}", 0)
            stack.note_label(signs, entry.build)
    if signs.torch or signs.least or signs.cuda:
        choice = stack.choose([recipe], signs)
        differs = choice.differs if signs.torch or signs.cuda else ()
        return _Cuda(choice.cuda, "; ".join(["nearest to what the list says", *differs]))
    if models := gpu.gpu_models():
        machine = MachineRequest(gpu=",".join(dict.fromkeys(models)), driver=gpu.driver_version())
        with contextlib.suppress(UsageError):  # a GPU or driver that no table has
            judged = explain.explain(recipe, catalog.find_target(ctx, machine), machine)
            if row := explain.chosen_row(judged):
                return _Cuda(row.cuda, f"the newest that runs on this machine's {joined(dict.fromkeys(models))}")
    return _Cuda(explain.USUAL_CUDA, f"runs on most GPUs; {command('explain', gpu='…')} names the newest for yours")


def _notes(made: Begun, lists: list[str], unread: list[str]) -> Iterator[str]:
    if made.unsure:
        names = joined(made.unsure, 8)
        yield f"not sure, and left out: {names} (imported); {command('add', 'NAME')}    takes what is a package"
    if lists[1:]:
        yield f"{lists[0]} is taken, and not {joined(lists[1:])}"
    if unread:
        yield f"not read, as it is not Python 3: {joined(unread)}"


def recipes(folder: Path) -> list[Path]:
    """Return the recipes in a project's folder: files of TOML that extend a stack."""
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.toml"))}
    return [path for path, text in texts.items() if re.search(r"^extends\s*=", text, re.MULTILINE)]


def only_recipe(several: str) -> Path:
    """Return the recipe of this folder. Raises UsageError where there is none, or several, with this next step."""
    there = recipes(Path())
    if len(there) != 1:
        what = f"there are several recipes here: {joined(map(str, there))}" if there else "there is no recipe here"
        raise UsageError(what, next_step=several if there else f"{command('init')}    writes one")
    return there[0]


def mounts(path: Path, *, trusts_paths: bool) -> list[str]:
    """Return the folders that a recipe has every `run` mount, as `--mount` takes them.

    Raises UsageError for one out of the recipe's folder, unless its paths are trusted: it may be a stranger's.
    """
    recipe, _ = own.load(path, trusts_paths=trusts_paths)
    folder, mounted = path.absolute().parent, []
    for text in recipe.mounts:
        source, colon, rest = text.partition(":")
        place = folder / Path(source).expanduser()
        if not trusts_paths:
            Within(folder.resolve()).check(place, f"{path}: {source!r} of mounts is not")
        mounted.append(f"{place}{colon}{rest}")
    return mounted


def write_devcontainer(folder: Path, recipe: Path, image: str) -> Path:
    """Write what VS Code opens a project in this image by. Raises UsageError where the project has another one."""
    path = folder / ".devcontainer" / "devcontainer.json"
    mounts(recipe, trusts_paths=False)  # refuses those out of the project's folder
    text = begun.devcontainer(recipe.stem, image, own.load(recipe)[0].mounts)
    if path.exists() and path.read_bytes() != text.encode():
        raise UsageError(
            f"{path} is there already, and is another one",
            next_step=f"mv {for_shell(path)} {for_shell(path.with_suffix('.old'))}    and the same command again",
        )
    write_file(path, text.encode())
    return path


def edit(path: Path | None, packages: list[str], *, removes: bool) -> tuple[Path, str]:
    """Add packages to the recipe of this folder, or remove some; returns its path and its text before.

    Raises UsageError where there is none or several, and for what the recipe cannot have: it is as before then.
    """
    path = path or only_recipe("--recipe FILE")
    if not path.is_file():
        raise UsageError(f"there is no file {path}", next_step=f"{command('init')}    writes one")
    before = path.read_text(encoding="utf-8")
    edited = begun.without(before, packages) if removes else begun.added(before, own_typed.given(packages).packages)
    write_file(path, edited.encode())
    return path, before


def _of_stacks(ctx: Context) -> dict[str, set[str]]:
    """Return the packages that all locks of a stack have, by its name: none of these has to be added to it."""
    common = dict[str, set[str]]()
    for recipe in catalog.all_recipes(ctx):
        for variant in recipe.variants:
            for candidate in variant.candidates:
                if lock := catalog.read_lock(ctx, recipe, variant, candidate):
                    there = {str(canonicalize_name(package.name)) for package in lock.packages}
                    common[recipe.name] = common.get(recipe.name, there) & there
    return common


def _code(folder: Path) -> Iterator[tuple[str, Imports | None]]:
    """Yield the project's Python files with their imports. Links are not followed, nothing is run."""
    number = 0
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _NOT_CODE and not name.startswith("."))
        for name in sorted(files):
            path = Path(parent, name)
            if name.endswith(".py") and path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST:
                number += 1
                if number > _MOST_FILES:
                    raise UsageError(
                        f"{for_shell(folder.resolve())} has more than {_MOST_FILES} files of Python",
                        next_step="cd ~/project, then the same command",
                    )
                yield str(path.relative_to(folder)), begun.imports_of(path.read_bytes())
