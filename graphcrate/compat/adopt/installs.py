"""Commands that install: pip's, conda's, apt's, those of projects and of cloned repositories, as parts of a recipe.

A reader takes the words of one command, adds to the draft what a recipe has, and returns its fate.
"""

import posixpath
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from packaging.requirements import Requirement

from dockerread import installers
from graphcrate.compat.adopt import stack
from graphcrate.compat.adopt.draft import Clone, Draft, Fate, Item, Place, kinds
from graphcrate.compat.requirements import conda, own
from graphcrate.compat.requirements.requirement_files import without_build
from graphcrate.compat.requirements.translated import is_stacks
from graphcrate.model import git_address as git_addresses
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import CHANNELS
from graphcrate.model.words import joined, listed
from patienthttp.errors import host_of

_APT = re.compile(r"([a-z0-9][a-z0-9+.-]+)(?::[a-z0-9]+)?(?:[=/]\S+)?")
_OF_STACK = re.compile(
    r"python3?(\.\d+)?(-(pip|dev|venv|distutils|setuptools|wheel|full|minimal|tk|virtualenv))?|python-is-python3"
    r"|(cuda|libcudnn|libnccl|libcublas|nvidia)[a-z0-9.+-]*"
)
_TOOLS = ("pip", "setuptools", "wheel", "uv", "poetry", "pdm", "virtualenv", "pipenv", "pip-tools", "conda", "mamba")
_WHEEL = re.compile(r"https?://\S+\.whl")
_COMMIT = re.compile(r"[0-9a-f]{7,40}|[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
_OURS = {host_of(row.root) for row in CHANNELS.values()}


class Outcome(NamedTuple):
    """A command's fate, and as what or why."""

    fate: Fate
    what: str = ""


def pip(draft: Draft, place: Place, words: Sequence[str], line: int) -> Outcome:
    """Take an install of pip's, uv's or poetry's: packages, lists and projects."""
    given = installers.options(words, installers.WITH_VALUE["pip"])
    if strange := [address for address in given.of(*installers.SOURCES) if not _is_ours(address)]:
        why = f"its packages are of {strange[0]}, which a recipe does not name: a requirements file does (-f, -i)"
        return Outcome("yours", why)
    for address in given.of(*installers.SOURCES):
        stack.note_page(draft.evidence, address)
    made = list[str]()
    problems = list[str]()
    for name in given.of(*installers.LISTS):
        _take(problems, made, partial(take_list, draft, place, name, line))
    for text in (*given.of("-e", "--editable"), *given.words):
        _take(problems, made, partial(_package, draft, place, text, line))
    if problems:
        return _partly(problems, made)
    if not made:
        tools = [word for word in given.words if _plain(word) in _TOOLS]
        if tools and all(_plain(word) in _TOOLS for word in given.words):
            return Outcome("nothing", f"{listed(dict.fromkeys(map(_plain, tools)))}: an image has pip of its lock")
        return Outcome("stack", "torch, CUDA and PyG") if given.words else Outcome("nothing", "it installs nothing")
    odd = [flag for flag in given.flags if flag in ("--pre", "--no-deps", "--force-reinstall", "--no-build-isolation")]
    odd += [f"{option} {value}" for option, value in given.values if option in ("-t", "--target", "--prefix")]
    passed = f" ({', '.join(odd)} is passed over: versions are the lock's)" if odd else ""
    return Outcome("recipe", joined(made, 8) + passed)


def take_list(draft: Draft, place: Place, name: str, line: int) -> str:
    """Add a file of requirements to the recipe. Raises UsageError."""
    path = below(place, name)
    if path is None:
        raise UsageError(f"{name} is not in {draft.context}", next_step="name it in requirements, where it is")
    read = own.read_requirements(draft.context / path, draft.within)
    for entry in read.expected:
        stack.note_package(draft.evidence, f"{entry.name}{entry.specifier}", line) if is_stacks(entry.name) else None
        stack.note_label(draft.evidence, entry.build)
        if entry.name in ("cuda", "python") and (version := entry.specifier.strip("=<>~!.*")):
            short = ".".join(version.split(",")[0].split(".")[:2])
            setattr(draft.evidence, entry.name, short)
    for package in read.packages:
        if not own.is_local(package) and stack.is_known(own.name_of(package)):
            stack.note_package(draft.evidence, package, line)
            if Requirement(package).specifier:  # the stack's own in place of the file's version
                add(draft.pip, Item(Requirement(package).name, line))
    if path not in {item.value for item in draft.requirements}:
        draft.requirements.append(Item(path, line))
    return f"requirements: {path}"


def conda_packages(draft: Draft, place: Place, words: Sequence[str], line: int) -> Outcome:
    """Take an install of conda's, by the names that the package index has for its packages."""
    given = installers.options(words, installers.WITH_VALUE["conda"])
    problems, made = list[str](), list[str]()
    for name in given.of("-f", "--file"):
        _take(problems, made, partial(take_list, draft, place, name, line))
    known = [text for text in given.words if text not in ("env", "create", "update", "install")]
    notes = list[str]()
    for text in known:
        _take(problems, made, partial(_of_conda, draft, text, line, notes))
    if not given.words and not given.values:
        return Outcome("nothing", "it installs nothing")
    problems += notes
    if problems:
        return _partly(problems, made)
    if made:
        return Outcome("recipe", joined(made, 8))
    return (
        Outcome("stack", "Python, torch, CUDA and PyG") if known else Outcome("nothing", "an image has one environment")
    )


def _partly(problems: Sequence[str], made: Sequence[str]) -> Outcome:
    """Leave a command to the user, of which a part may be taken."""
    return Outcome("yours", "; ".join(problems) + (f"; the recipe has {joined(made, 8)}" if made else ""))


def apt(draft: Draft, _: Place, words: Sequence[str], line: int) -> Outcome:
    """Take Debian's packages, by Debian's names."""
    given = installers.options(words, installers.WITH_VALUE["apt"])
    made, stacks = list[str](), list[str]()
    for text in given.words:
        match = _APT.fullmatch(text)
        if not match:
            return Outcome("yours", f"{text} is not a name of a Debian package")
        name = kinds().apt.get(match[1], match[1])
        if not name or _OF_STACK.fullmatch(name):
            stacks.append(match[1])
            continue
        add(draft.apt, Item(name, line))
        made.append(name)
    if made:
        return Outcome("recipe", f"apt: {joined(made, 8)}")
    return Outcome("stack", joined(stacks)) if stacks else Outcome("nothing", "it installs nothing")


def project(draft: Draft, place: Place, words: Sequence[str], line: int) -> Outcome:
    """Take what a project's own lock or pyproject.toml asks for, and the project itself."""
    names = {"uv": ("uv.lock", "pyproject.toml"), "poetry": ("poetry.lock", "pyproject.toml")}
    for name in names.get(words[0], ("pylock.toml", "pyproject.toml")):
        path = below(place, name)
        if path is None or not (draft.context / path).is_file():
            continue
        problems, made = list[str](), list[str]()
        _take(problems, made, partial(take_list, draft, place, name, line))
        if not {"--no-install-project", "--no-root", "--only-deps"} & set(words):
            pyproject = draft.context / posixpath.join(posixpath.dirname(path), "pyproject.toml")
            if pyproject.is_file() and "[build-system]" in pyproject.read_text(encoding="utf-8", errors="replace"):
                _take(problems, made, partial(_package, draft, place, ".", line))
        return Outcome("yours", "; ".join(problems)) if problems else Outcome("recipe", joined(made))
    return Outcome("yours", f"the project of {words[0]} is not in {draft.context}")


def setup(draft: Draft, place: Place, _: Sequence[str], line: int) -> Outcome:
    """Take a setup.py as pip does."""
    return pip(draft, place, ["."], line)


def clone(draft: Draft, place: Place, words: Sequence[str], line: int) -> Outcome:
    """Remember a repository: what is installed of it is a git address."""
    given = installers.options(
        words, ("-b", "--branch", "--depth", "-c", "--config", "-j", "--jobs", "--filter", "--shallow-since")
    )
    text, revision = next(iter(given.words), ""), next(iter(given.of("-b", "--branch")), "")
    folder = given.words[1] if len(given.words) > 1 else text.rstrip("/").rpartition("/")[2].removesuffix(".git")
    try:
        address = git_addresses.read(f"{text}@{revision}" if revision else text)
    except ValueError as error:
        return Outcome("yours", f"it is not an address that git is given: {error}")
    place.cloned[_absolute(place, folder)] = Clone(address, len(draft.rows))
    return Outcome("yours", f"name what is needed of it in files, or in pip as git+{address.written}")


def checkout(draft: Draft, place: Place, words: Sequence[str], line: int) -> Outcome:
    """Take the commit of a repository that was cloned."""
    revision = next((word for word in reversed(words) if not word.startswith("-")), "")
    parsed = place.cloned.get(place.folder)
    if not parsed or not _COMMIT.fullmatch(revision):
        return Outcome("yours", "no repository that is known here is cloned to this folder")
    parsed.address = parsed.address._replace(revision=revision)
    return Outcome("nothing" if not parsed.used else "recipe", "the commit of the git address")


def add(items: list[Item], item: Item) -> None:
    """Add a value that is not there."""
    if item.value not in {other.value for other in items}:
        items.append(item)


def below(place: Place, name: str) -> str | None:
    """Return the path below the context of what a command names in the image; None for what is not known."""
    if place.is_host:
        path = posixpath.normpath(posixpath.join(place.folder.lstrip("/"), name))
        return None if path.startswith(("..", "/")) else path
    full = _absolute(place, name)
    for target, source in reversed(place.copied.items()):
        if full == target or full.startswith(f"{target.rstrip('/')}/"):
            return posixpath.normpath(posixpath.join(source, posixpath.relpath(full, target)))
    projects = (place.copied.get(posixpath.join(full, file)) for file in ("pyproject.toml", "setup.py"))
    return next((posixpath.dirname(source) or "." for source in projects if source), None)


def _absolute(place: Place, name: str) -> str:
    return posixpath.normpath(posixpath.join(place.folder, name))


def _is_ours(address: str) -> bool:
    return host_of(address) in _OURS


def _plain(text: str) -> str:
    return re.split(r"[\[=<>!~; ]", text)[0].lower().replace("_", "-")


def _take(problems: list[str], made: list[str], read: Callable[[], str]) -> None:
    """Add what a reader gives, or what it says against."""
    try:
        if text := read():
            made.append(text)
    except UsageError as error:
        problems.append(error.what.rpartition(": ")[2] if len(error.what) > 300 else error.what)


def _package(draft: Draft, place: Place, text: str, line: int) -> str:
    """Add a package as pip takes it; empty for what the stack has. Raises UsageError."""
    text = text.strip()
    where = f"line {line}"
    if _WHEEL.match(text) and _is_ours(text):
        name, _, version = text.rpartition("/")[2].partition("-")
        stack.note_page(draft.evidence, text)
        stack.note_package(draft.evidence, f"{name}=={version.partition('-')[0].replace('%2B', '+')}", line)
        return ""
    if text.startswith((".", "/", "~")) or (place.is_host and "/" in text and "+" not in text and "@" not in text):
        return _of_folder(draft, place, text, line)
    if _plain(text) in _TOOLS:
        return ""
    plain, expected = without_build(text, where)
    package = own.read_package(plain, draft.context, where, draft.within)
    if own.is_local(package):
        return _named(draft, package, line)
    requirement = Requirement(package)
    if stack.is_known(requirement.name):
        stack.note_package(draft.evidence, text, line)
        if not requirement.extras or requirement.name == "pyg":
            return ""
        package = f"{requirement.name}[{','.join(sorted(requirement.extras))}]"
    for entry in expected:
        stack.note_label(draft.evidence, entry.build)
    return _named(draft, package, line)


def _of_folder(draft: Draft, place: Place, name: str, line: int) -> str:
    """Add a project's folder, with its extras, or a repository that was cloned. Raises UsageError."""
    name, bracket, extras = name.partition("[")
    full = _absolute(place, name)
    for target, parsed in place.cloned.items():
        if full == target or full.startswith(f"{target}/"):
            parsed.used = True
            inside = posixpath.relpath(full, target)
            text = f"git+{parsed.address._replace(subdirectory='' if inside == '.' else inside).written}"
            package = own.read_package(text, draft.context, f"line {line}", draft.within)
            row = draft.rows[parsed.row]
            draft.rows[parsed.row] = row._replace(fate="recipe", what=f"pip: {package}")
            return _named(draft, package, line)
    path = below(place, name)
    if path is None:
        raise UsageError(
            f"{name} is not a folder that is here", next_step="COPY it, or name its project in the recipe's pip"
        )
    own.read_package(f"./{path}", draft.context, f"line {line}", draft.within)
    written = "." if path == "." else f"./{path}"
    if bracket:
        listed_extras = f"{posixpath.normpath(posixpath.join(path, 'pyproject.toml'))}[{extras}"
        own.read_requirements(draft.context / listed_extras, draft.within)
        add(draft.requirements, Item(listed_extras, line))
    return _named(draft, written, line) + bracket + extras


def _named(draft: Draft, package: str, line: int) -> str:
    add(draft.pip, Item(package, line))
    return package


def _of_conda(draft: Draft, text: str, line: int, notes: list[str]) -> str:
    """Add a package of conda's; empty for what the stack has, or an image does without. Raises UsageError."""
    translated = conda.sorted_out([(f"line:{line}", text)], "conda")
    for entry in translated.expected:
        if entry.name in ("python", "cuda") and (version := entry.specifier.strip("=<>~!.*")):
            setattr(draft.evidence, entry.name, ".".join(version.split(",")[0].split(".")[:2]))
    made = ""
    for _, named in translated.lines:
        requirement = Requirement(named)
        if stack.is_known(requirement.name):
            stack.note_package(draft.evidence, named, line)
        else:
            own.read_package(named, draft.context, f"line {line}")
            made = _named(draft, named, line)
    if text.partition("=")[0].rpartition("::")[2] == "cpuonly":
        draft.evidence.cuda = "cpu"
    elif debian := conda.of_debian(text):
        add(draft.apt, Item(debian, line))
        return f"apt: {debian}"
    elif refused := [note for note in translated.notes if "not taken" in note and "by itself" not in note]:
        notes += [f"{text}: conda's, and no package that is known on the index" for _ in refused[:1]]
    return made
