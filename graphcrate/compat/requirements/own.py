"""A user's additions to a stack: read from the command line, a requirements file, or the user's own recipe.

A recipe of one's own names the stack that it extends and what comes on top:

    extends = "pyg"
    cuda = "11.8"
    pip = ["lightning", "./mypkg"]
    apt = ["git"]
    smoke = ["python /opt/mine/train.py --epochs 1"]
"""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from graphcrate.compat.facts import allowances, build_environment, reserved
from graphcrate.compat.facts.packages import counts
from graphcrate.compat.requirements import own_files, requirement_files
from graphcrate.compat.requirements.requirement_files import Within, not_a_name, without_build
from graphcrate.compat.requirements.translated import is_stacks
from graphcrate.model import toml
from graphcrate.model.allowance import Allowance
from graphcrate.model.command import Setting, command, for_shell, is_recipe_file, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Additions, Expected, Variant
from graphcrate.model.words import printable
from patienthttp.errors import redacted
from projectfiles import git_address as git_addresses
from projectfiles.git_address import GitAddress

#: packages that people expect under one name
FLAVOURS = {"jupyter": ("jupyterlab", "ipykernel", "matplotlib", "pandas")}
LONGEST_SUFFIX = 48  #: characters of a tag that name packages; OCI allows 128 in all
_GIT = "git+"
_NAMES = "lightning, 'dgl==2.1'"
_USUAL = setting(with_="lightning wandb")
#: what stands between packages where no space does; not in brackets, nor before a bound
_LISTED = re.compile(r"[，、；]|,(?=\s*[A-Za-z,]|\s*$)(?![^\[\]]*\])")  # noqa: RUF001 (commas of a Chinese keyboard)
_APT = re.compile(r"[a-z0-9][a-z0-9+.-]+")
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
    named, lists = _named(recipe.pip, folder, f"{path}: pip", within), recipe.requirements
    additions = named
    for name in [lists] if isinstance(lists, str) else lists:
        if name:
            additions = merge_additions(
                additions, _over(named, read_requirements(folder / name, within), name, alone=True)
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


def given(
    packages: Sequence[str],
    requirements: Sequence[Path] = (),
    apt: Sequence[str] = (),
    flavour: str = "",
    build_apt: Sequence[str] = (),
    build_env: Sequence[str] = (),
    *,
    walled: bool = False,
) -> Additions:
    """Read additions from the command line: each of `packages` one or several, separated by spaces.

    `walled`: they are a stranger's; only names are taken, and no file outside of this folder is read.
    Raises UsageError.
    """
    within = Within(Path.cwd().resolve(), names_alone=True) if walled else None
    where = "packages" if walled else "--with"
    additions = _named([word for text in packages for word in _words(text)], Path.cwd(), where, within)
    words = additions
    for path in requirements:
        if within:
            within.check(path, f"{path} is not")
        additions = merge_additions(additions, _over(words, read_requirements(path, within), str(path), alone=True))
    return msgspec.structs.replace(
        additions,
        apt=_debian(apt, setting(apt="git graphviz")),
        build_apt=_debian(build_apt, setting(build_apt="swig libsuitesparse-dev")),
        build_environment=build_environment.read(build_env),
        flavour=flavour if flavour in FLAVOURS else "",
    )


def _debian(texts: Sequence[str], usual: Setting) -> tuple[str, ...]:
    """Names of Debian packages as they were typed. Raises UsageError, which shows what is `usual`."""
    listed = [text.replace(",", " ").split() for text in texts]
    if not all(listed):
        raise _of_none(f"--{usual.name}", usual)
    names = tuple(name for words in listed for name in words)
    for name in names:
        if not _APT.fullmatch(name):
            raise UsageError(f"--{usual.name}: {name!r} is not a name of a Debian package", next_step=usual.both())
    return names


def _over(words: Additions, from_file: Additions, file: str, *, alone: bool = False) -> Additions:
    """Merge a file's additions below packages that were typed, which go first; `alone`: without those.

    So `WITH=torch` takes the stack's torch in place of the file's.
    """
    names = {name_of(package) for package in words.packages}
    dropped = [package for package in from_file.packages if not is_local(package) and name_of(package) in names]
    typed = [
        Expected(name=name_of(package), where=file, specifier=str(specifier))
        for package in dropped
        if (specifier := Requirement(package).specifier) and not is_stacks(name_of(package))
    ]
    rest = msgspec.structs.replace(
        from_file,
        packages=tuple(package for package in from_file.packages if package not in dropped),
        constraints=tuple(
            constraint
            for constraint in from_file.constraints
            if is_local(constraint) or name_of(constraint) not in names
        ),
        expected=(
            *(
                msgspec.structs.replace(expected, binding=expected.binding and expected.name not in names)
                for expected in from_file.expected
            ),
            *typed,
        ),
        hashes={name: hashes for name, hashes in from_file.hashes.items() if name not in names},
    )
    return rest if alone else merge_additions(words, rest)


def _named(texts: Iterable[str], folder: Path, where: str, within: Within | None = None) -> Additions:
    """Packages as they were typed. Raises UsageError."""
    packages, expected = list[str](), list[Expected]()
    for text in texts:
        plain, builds = without_build(text, where)
        packages.append(read_package(plain, folder, where, within))
        expected += builds
    return Additions(packages=tuple(dict.fromkeys(packages)), expected=tuple(expected))


def wanted_packages(additions: Additions) -> tuple[str, ...]:
    """Packages by name, path and address, with those of the flavour."""
    return tuple(dict.fromkeys((*additions.packages, *FLAVOURS.get(additions.flavour, ()))))


def merge_additions(first: Additions, second: Additions) -> Additions:
    """Both; name, files, variables of the image and commands are the first's."""
    return msgspec.structs.replace(
        first,
        packages=tuple(dict.fromkeys((*first.packages, *second.packages))),
        constraints=(*first.constraints, *second.constraints),
        apt=tuple(dict.fromkeys((*first.apt, *second.apt))),
        build_apt=tuple(dict.fromkeys((*first.build_apt, *second.build_apt))),
        build_environment=first.build_environment | second.build_environment,
        flavour=second.flavour or first.flavour,
        channels=tuple(dict.fromkeys((*first.channels, *second.channels))),
        expected=(*first.expected, *second.expected),
        hashes=first.hashes | second.hashes,
        notes=(*first.notes, *second.notes),
    )


def recorded(additions: Additions) -> Additions:
    """As provenance has them: without paths and addresses of this machine, nor what is about a file alone."""
    names = tuple(name_of(package) if is_local(package) else package for package in additions.packages)
    return msgspec.structs.replace(additions, packages=names, channels=(), expected=(), hashes={}, notes=())


def with_apt(variant: Variant, additions: Additions) -> Variant:
    """The variant with the Debian packages that the user adds."""
    packages = tuple(dict.fromkeys((*variant.base.packages, *additions.apt)))
    return msgspec.structs.replace(variant, base=msgspec.structs.replace(variant.base, packages=packages))


def changes(additions: Additions, added: Collection[str]) -> bool:
    """Return whether they make another image than the stack's; `added`: names of the packages that it does not have."""
    return bool(added or msgspec.structs.replace(additions, packages=()))


def suffix(additions: Additions, added: Collection[str]) -> str:
    """Return a tag's suffix for them, `-lightning-wandb`; empty for an image with a name of its own.

    `added`: normalised names. What the stack has already, or a marker excludes, is left out.
    """
    packages = [package for package in additions.packages if is_local(package) or name_of(package) in added]
    rest = [*map(name_of, packages), *additions.apt]
    text = f"-{additions.flavour}" if additions.flavour else ""
    if additions.name:
        return text
    while rest and len(text) + 1 + len(rest[0]) <= LONGEST_SUFFIX:
        text += f"-{rest.pop(0)}"
    return f"{text}-and-{len(rest)}-more" if rest else text


def name_of(package: str) -> str:
    """The name to call a package by, normalised: of a path or an address its last part."""
    if is_local(package):
        path = package
        if package.startswith(_GIT):
            address = git_address(package)
            path = address.subdirectory or address.url
        last = path.partition("#")[0].rstrip("/").rpartition("/")[2].removesuffix(".git")
        return str(canonicalize_name(last.partition("-")[0] if last.endswith(".whl") else last))
    return str(canonicalize_name(Requirement(package).name))


def git_address(package: str) -> GitAddress:
    """A `git+…` address of `Additions`, in its parts. Raises ValueError for one that `read_package` refuses."""
    return git_addresses.read(package.removeprefix(_GIT))


def is_local(package: str) -> bool:
    """Return whether a package of `Additions` is a path or a git address, not a requirement."""
    return package.startswith(("/", _GIT))


def read_requirements(path: Path, within: Within | None = None) -> Additions:
    """Read a file's additions, in any format of `requirement_files`. Raises UsageError with file and line.

    `within`: where all that it names has to be.
    """
    return requirement_files.read(path, read_package, within)


def _of_none(typed: str, usual: Setting) -> UsageError:
    """Return the error for an option with separators alone; `usual` shows what it takes."""
    return UsageError(f"{typed} names no package", next_step=f"name them: {usual.both()}")


def _words(text: str) -> Iterable[str]:
    """One requirement, which may have spaces in it, or several packages separated by spaces."""
    try:
        Requirement(text)
    except InvalidRequirement:
        if "/" not in text and _LISTED.search(text):
            spaced = " ".join(_LISTED.sub(" ", text).split())
            if not spaced:
                raise _of_none(f"--with {text!r}", _USUAL) from None
            raise UsageError(
                f"--with {text!r}: packages are separated by spaces", next_step=f"write {setting(with_=spaced)}"
            ) from None
        try:
            return shlex.split(text)
        except ValueError as error:
            raise UsageError(
                f"--with {text!r} cannot be read: {error}",
                next_step=f"close the quotation: {_USUAL.both()}",
            ) from error
    return [text]


def read_package(text: str, folder: Path, where: str, within: Within | None = None) -> str:
    """A package as `Additions` has it. Raises UsageError."""
    address = re.sub(rf"^[A-Za-z0-9._-]+\s*@\s*(?={re.escape(_GIT)})", "", text)
    is_path = text.startswith((".", "/", "~", "file:")) or (text.endswith(".whl") and "@" not in text)
    names_alone = within is not None and within.names_alone
    if names_alone and is_path:
        raise not_a_name(f"{where}: {text[:200]!r} is not taken")
    if names_alone and (url := re.search(r"[A-Za-z+]+://\S*", text)):
        raise not_a_name(f"{where}: {redacted(url[0])[:200]} is not taken")
    if address.startswith(_GIT):
        return _git_package(address, where, within)
    if match := re.match(rf"([A-Za-z0-9._-]+)\s*\[([^\]]*)\]\s*@\s*({re.escape(_GIT)})", text):
        raise UsageError(
            f"{where}: the extras of {match[1]}, {printable(match[2])}, are not read of a repository",
            next_step=f"{match[1]} @ {text[match.start(3) :]} without them, and what they need beside it",
        )
    if is_path:
        return _local(text, folder, where, within)
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        if match := re.fullmatch(r"([\w.-]+(?:\[[^]]*\])?)\s*=\s*(\d[\w.+!*-]*)", text):
            raise UsageError(
                f"{where}: {text!r} has one = as conda writes it", next_step=f"write {match[1]}=={match[2]}"
            ) from error
        raise UsageError(
            f"{where}: {text!r} is not a package: {str(error).splitlines()[0]}",
            next_step=_NAMES if names_alone else f"{_NAMES}, './mypkg', './file.whl' or 'git+https://HOST/PATH@COMMIT'",
        ) from error
    if counts(requirement, "3.11") is None:
        raise UsageError(
            f"{where}: the marker of {requirement.name} cannot be evaluated: {requirement.marker}",
            cause="`extras` and `dependency_groups` are of lock files (pylock.toml) alone, and versions compare with "
            "versions.",
            next_step=f"{requirement.name} without it, or with python_version, sys_platform or platform_machine",
        )
    if requirement.url:
        raise UsageError(
            f"{where}: {requirement.name} is given by an address, which may have another file tomorrow",
            next_step="download it and give the wheel: ./file.whl",
        )
    return text


def _git_package(text: str, where: str, within: Within | None) -> str:
    """A git address, written again from its parts. Raises UsageError, which repeats nothing that could be pasted."""
    try:
        address = git_address(text)
    except ValueError as error:
        with_folder = "git+https://HOST/PATH@COMMIT#subdirectory=FOLDER"
        usual = "git+https://HOST/PATH@COMMIT, git+ssh://git@HOST/PATH, git+file:///PATH"
        raise UsageError(
            f"{where}: {printable(text[:200])!r} is not an address that git is given: {error}",
            next_step=with_folder if "#" in text else usual,
        ) from error
    if address.folder and within:  # a repository may be made of another's objects, wherever those are
        raise within.refused(f"{where}: {address.url} is a repository of this machine, which is not")
    return f"{_GIT}{address.written}"


def _local(text: str, folder: Path, where: str, within: Within | None) -> str:
    """The wheel or the folder of a project that a path names. Raises UsageError."""
    path = folder / text.removeprefix("file://")
    try:
        path = folder / Path(text.removeprefix("file://")).expanduser()
        if within:
            within.check(path, f"{where}: {text} is not")
        is_wheel = path.suffix == ".whl" and path.is_file()
        if is_wheel or (path / "pyproject.toml").is_file() or (path / "setup.py").is_file():
            return str(path.resolve())
        if not path.exists():
            kind = "file" if path.suffix == ".whl" else "folder"
            raise UsageError(f"{where}: there is no {kind} {text}", next_step=f"ls {shlex.quote(str(path.parent))}")
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL in it, no such user or a circle of links
        raise UsageError(
            f"{where}: {text!r} is not the path of a file here: {error}", next_step="./folder or ./file.whl"
        ) from error
    raise UsageError(
        f"{where}: {text} is neither a wheel nor a folder with a pyproject.toml or a setup.py",
        next_step=f"ls {shlex.quote(str(path))}",
    )


def _contradictions(recipe: OwnRecipe) -> Iterator[tuple[str, str]]:
    if recipe.name and not _IMAGE_NAME.fullmatch(recipe.name):
        yield "name", f"{recipe.name!r} is not a name of an image: small letters, digits, and . _ - between them"
    for field, names in (("apt", recipe.apt), ("build_apt", recipe.build_apt)):
        for name in names:
            if not _APT.fullmatch(name):
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
