"""A user's own recipe: the stack that it extends, and what comes on top.

extends = "pyg"
cuda = "11.8"
pip = ["lightning", "./mypkg"]
apt = ["git"]
smoke = ["python /opt/mine/train.py --epochs 1"]
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from graphcrate.compat.facts import allowances, build_environment, reserved
from graphcrate.compat.requirements import own_files
from graphcrate.compat.requirements.own_packages import below, merge_additions
from graphcrate.compat.requirements.own_typed import DEBIAN_NAME
from graphcrate.compat.requirements.package_text import read_packages, read_requirements
from graphcrate.compat.requirements.within import Within
from graphcrate.model import toml
from graphcrate.model.allowance import Allowance
from graphcrate.model.command import command, for_shell, is_recipe_file
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Additions

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_IMAGE_NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _about(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


class OwnRecipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user's own recipe file. Paths are relative to it."""

    extends: Annotated[str, _about("The stack, such as pyg; `list` has all.")]
    name: Annotated[str, _about("Name of the image; else the file's.")] = ""
    cuda: Annotated[str, _about('CUDA version, or "cpu"; else as for the stack.')] = ""
    pip: Annotated[tuple[str, ...], _about("Packages: PEP 508, ./folder, ./file.whl, git+https://…@COMMIT.")] = ()
    requirements: Annotated[
        str | tuple[str, ...],
        _about("More: requirements.txt, environment.yml, pyproject.toml, uv.lock; one, or a list."),
    ] = ""
    apt: Annotated[tuple[str, ...], _about("Debian packages.")] = ()
    build_apt: Annotated[tuple[str, ...], _about("Debian packages to compile with, not in the image.")] = ()
    build_env: Annotated[dict[str, str], _about("Variables to compile with; they are in the lock.")] = {}
    env: Annotated[dict[str, str], _about("Variables of the image; PATH takes `/opt/mine/bin:$PATH`.")] = {}
    files: Annotated[
        dict[str, str],
        _about("Absolute path in the image → text file beside the recipe, or folder, without hidden files and dist."),
    ] = {}
    directories: Annotated[dict[str, str], _about("Folders of the image → permissions, such as 0755, 1777.")] = {}
    workdir: Annotated[str, _about("The folder that `command` starts in.")] = ""
    command: Annotated[tuple[str, ...], _about("What the image starts where nothing else is asked for.")] = ()
    labels: Annotated[dict[str, str], _about("Labels of the image.")] = {}
    mounts: Annotated[
        tuple[str, ...],
        _about("Folders of every `run` here without an image's name, as `--mount`; below the recipe's own."),
    ] = ()
    smoke: Annotated[tuple[str, ...], _about("Shell commands that have to succeed inside the image, in /tmp.")] = ()
    smoke_minutes: Annotated[int, _about("The limit of each.")] = 10
    allow: Annotated[
        tuple[Allowance, ...],
        _about("Findings of the audit that do not fail the image: package, why, and check, file, library."),
    ] = ()


class NamedStack(NamedTuple):
    """The meaning of NAME or FILE on a command line: a stack, and what a file of the user's own adds to it."""

    name: str
    cuda: str | None = None  #: None: not said
    additions: Additions = Additions()
    file: Path | None = None  #: None: it is the stack itself


def find_stack(name: str, cuda: str | None = None, *, trusts_paths: bool = False) -> NamedStack:
    """The stack of a NAME or a FILE. A CUDA version that was typed goes before the file's. Raises as `load` does."""
    if not is_recipe_file(name):
        return NamedStack(name, cuda)
    recipe, additions = load(Path(name), trusts_paths=trusts_paths)
    return NamedStack(recipe.extends, cuda or recipe.cuda or None, additions, Path(name))


def load(path: Path, *, trusts_paths: bool = False) -> tuple[OwnRecipe, Additions]:
    """Read the user's own recipe file. Raises RecipeError, UsageError for what it refers to.

    It may be a stranger's: unless the user trusts its paths, nothing outside of its folder is looked at.
    """
    recipe = toml.load(path, OwnRecipe, _contradictions, _fields())
    folder = path.absolute().parent
    within = None if trusts_paths else Within(folder.resolve())
    named, lists = read_packages(recipe.pip, folder, f"{path}: pip", within), recipe.requirements
    additions = named
    for name in [lists] if isinstance(lists, str) else lists:
        if name:
            additions = merge_additions(
                additions, below(named, read_requirements(folder / name, within), name, alone=True)
            )
    files, programs = own_files.contents(folder, recipe.files, within)
    return recipe, msgspec.structs.replace(
        additions,
        apt=recipe.apt,
        build_apt=recipe.build_apt,
        build_environment=recipe.build_env,
        environment=recipe.env,
        files=files,
        programs=programs,
        directories={target: own_files.mode(text) for target, text in recipe.directories.items()},
        workdir=recipe.workdir,
        command=recipe.command,
        labels=recipe.labels,
        smoke=recipe.smoke,
        smoke_minutes=recipe.smoke_minutes,
        allow=recipe.allow,
        name=recipe.name or image_name(path),
    )


def image_name(path: Path) -> str:
    """Return the name of a recipe's image, as registries take it: `My net.toml` makes `my-net`. Raises UsageError."""
    name = re.sub(r"[^a-z0-9]{2,}|[^a-z0-9._-]", "-", path.stem.lower()).strip("._-")
    if not name:
        raise UsageError(
            f"{path.name} gives its image no name that a registry takes",
            cause="Names of images have small letters, digits, dots, dashes and underscores.",
            next_step=f"mv {for_shell(path)} {for_shell(path.with_name('mine.toml'))}",
        )
    return name


def parse(text: str, name: str) -> OwnRecipe:
    """Return a recipe of one's own from its text; nothing that it names is looked at. Raises RecipeError."""
    return toml.parse(text, name, OwnRecipe, _contradictions, _fields())


def _fields() -> str:
    return f"{command('schema', own=True)} lists every field, docs/customize.md shows them"


def _contradictions(recipe: OwnRecipe) -> Iterator[tuple[str, str]]:
    if recipe.name and not _IMAGE_NAME.fullmatch(recipe.name):
        yield "name", f"{recipe.name!r} is not a name of an image: small letters, digits, and . _ - between them"
    for field, names in (("apt", recipe.apt), ("build_apt", recipe.build_apt)):
        for name in names:
            if not DEBIAN_NAME.fullmatch(name):
                yield field, f"{name!r} is not a name of a Debian package"
    for name in recipe.env:
        if not _VARIABLE.fullmatch(name):
            yield "env", f"{name!r} is not a name of a variable"
    for name, value in recipe.env.items():
        if _CONTROL.search(value):
            yield "env", f"{name} has a control character ({value!r}): a variable is one line of text"
    for allowance in recipe.allow:
        if any(_CONTROL.search(text) for text in (allowance.package, allowance.why, allowance.file, allowance.library)):
            yield "allow", f"a control character in what is allowed of {allowance.package!r}: each is one line of text"
        if (allowance.package, allowance.file, allowance.library) == ("*", "*", "*"):
            yield "allow", f"it allows every finding of the check {allowance.check}: name the package"
    if len(recipe.allow) > allowances.MOST:
        yield "allow", f"at most {allowances.MOST}"
    yield from (("env", what) for what in reserved.of_environment(recipe.env))
    yield from (("build_env", what) for what in build_environment.faults(recipe.build_env))
    yield from (("files", what) for what in own_files.of_paths(tuple(recipe.files)))
    yield from (("directories", what) for what in own_files.of_folders(recipe.directories))
    yield from (("workdir", what) for what in own_files.of_folder(recipe.workdir or "/opt/mine"))
    yield from (("command", what) for what in own_files.of_command(recipe.command))
    yield from (("labels", what) for what in own_files.of_labels(recipe.labels))
    if is_recipe_file(recipe.extends):
        yield "extends", f"{recipe.extends!r} is a file: a recipe of yours extends a stack, such as pyg; `list` has all"
    if recipe.smoke_minutes < 1:
        yield "smoke_minutes", "at least 1"
