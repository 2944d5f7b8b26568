"""Commands that install: pip's, conda's, apt's, those of projects and of cloned repositories, as parts of a recipe.

A reader takes the words of one command, adds to the draft what a recipe has, and returns its fate.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from packaging.requirements import Requirement

from dockerread import installers
from graphcrate.compat.adopt import stack
from graphcrate.compat.adopt.draft import FATES, Clone, Draft, Fate, Item, Place, kinds
from graphcrate.compat.facts.addresses import STACK_HOSTS, copied_index
from graphcrate.compat.requirements import conda, own_packages, package_text
from graphcrate.compat.requirements.requirement_files import read_text
from graphcrate.compat.requirements.requirement_lines import without_build
from graphcrate.compat.requirements.translated import is_stacks
from graphcrate.model.command import command, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import CHANNELS
from graphcrate.model.words import joined, listed
from patienthttp.errors import host_of
from projectfiles import git_address as git_addresses

_APT = re.compile(r"([a-z0-9][a-z0-9+.-]+)(?::[a-z0-9]+)?([=/]\S+)?")
_OF_DEBIAN_PYTHON = re.compile(r"python3?-(.+)")
_OF_STACK = re.compile(
    r"python3?(\.\d+)?(-(pip|dev|venv|distutils|setuptools|wheel|full|minimal|tk|virtualenv))?|python-is-python3"
    r"|(cuda|libcu(dnn|blas|sparse|solver|fft|rand|file)|libnccl|libnpp|libnv(jpeg|infer)|nvidia)[a-z0-9.+-]*"
)
_TOOLS = ("pip", "setuptools", "wheel", "uv", "poetry", "pdm", "virtualenv", "pipenv", "pip-tools", "conda", "mamba")
_WHEEL = re.compile(r"https?://\S+\.whl")
_COMMIT = re.compile(r"[0-9a-f]{7,40}|[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
_OURS = STACK_HOSTS | {host_of(row.root) for row in CHANNELS.values()}
_NAMED_INDEX = re.compile(r"^[A-Za-z0-9_-]+=(?=https?:)")  #: uv's `--index mine=https://…`
#: packages that bring a compiler for CUDA, or what is compiled against
_OF_TOOLKIT = re.compile(
    r"nvidia-cuda-toolkit.*|cuda(-toolkit|-compiler|-nvcc|-minimal-build|-libraries-dev|-command-line-tools)?(-\d.*)?"
    r"|libcu.*-dev.*|libnccl-dev"
)
_FIRST: tuple[Fate, ...] = ("yours", "recipe", "stack", "nothing")  #: of the parts of one line
#: options about how a source is compiled
_OF_BUILDS = ("--global-option", "--install-option", "--build-option", "--config-settings", "-C", "--no-binary")


class Outcome(NamedTuple):
    """A command's fate, and as what or why."""

    fate: Fate
    what: str = ""


def all_of(outcomes: Sequence[Outcome]) -> Outcome:
    """Return one outcome of several: what is left to the user first, then what the recipe has."""
    of = {fate: list(dict.fromkeys(outcome.what for outcome in outcomes if outcome.fate == fate)) for fate in FATES}
    if of["yours"] and of["recipe"]:
        return _partly(of["yours"], of["recipe"])
    fate = next((fate for fate in _FIRST if of[fate]), None)
    return Outcome(fate, "; ".join(of[fate])) if fate else Outcome("nothing", "it names nothing")


def pip(draft: Draft, place: Place, words: Sequence[str], line: int) -> Outcome:
    """Take an install of pip's, uv's or poetry's: packages, lists and projects."""
    given = installers.options(words, installers.WITH_VALUE["pip"])
    sources = [_NAMED_INDEX.sub("", address) for address in given.of(*installers.SOURCES)]
    if strange := [address for address in sources if not (host_of(address) in _OURS or copied_index(address))]:
        why = f"its packages are of {strange[0]}, which a recipe does not name: a requirements file does (-f, -i)"
        return Outcome("yours", why)
    for address in sources:
        stack.note_page(draft.evidence, address)
    for backend in given.of("--torch-backend"):
        stack.note_label(draft.evidence, backend)
    made = list[str]()
    bounds = given.of(*installers.CONSTRAINTS)
    problems = [f"put `-c {name}` into a requirements file: it bounds versions" for name in bounds]
    extras = _names(given.of("--extra"))
    for name in given.of(*installers.LISTS):
        _take(problems, made, partial(take_list, draft, place, name, line, extras if name.endswith(".toml") else ()))
    for text in (*given.of("-e", "--editable"), *given.words):
        _take(problems, made, partial(_package, draft, place, text, line))
    if not given.words:  # of `uv add --group dev pytest` it says where its line goes
        groups = given.of("--group")
        problems += [f"{setting(requirements=f'pyproject.toml[{name}]')} takes a group" for name in groups]
    if problems:
        return _partly(problems, made)
    if not made:
        tools = [word for word in given.words if _plain(word) in _TOOLS]
        if tools and all(_plain(word) in _TOOLS for word in given.words):
            return Outcome("nothing", f"{listed(dict.fromkeys(map(_plain, tools)))}: an image has pip of its lock")
        return Outcome("stack", "torch, CUDA and PyG") if given.words else Outcome("nothing", "it installs nothing")
    return Outcome("recipe", joined(made, 8) + "".join(f" ({text})" for text in _passed_over(given, sources)))


def synced(draft: Draft, place: Place, words: Sequence[str], line: int) -> Outcome:
    """Take lists as `pip-sync` and `uv pip sync` do, which name them without -r."""
    lists = words[1:] if words[:1] == ["sync"] else words
    return pip(draft, place, [part for word in lists for part in (("-r", word) if word[:1] != "-" else (word,))], line)


def _passed_over(given: installers.Given, sources: Sequence[str]) -> Iterator[str]:
    """Say what of an install's options a recipe does without, and what it has in their place."""
    odd = [flag for flag in given.flags if flag in ("--pre", "--no-deps", "--force-reinstall", "--no-build-isolation")]
    odd += [f"{option} {value}" for option, value in given.values if option in ("-t", "--target", "--prefix")]
    if odd:
        yield f"{', '.join(odd)} is passed over: versions are the lock's"
    if builds := [f"{option} {value}" for option, value in given.values if option in _OF_BUILDS]:
        yield f"{', '.join(builds)} is passed over: what is compiled takes variables, build_env"
    for name in dict.fromkeys(filter(None, map(copied_index, sources))):
        yield f"{setting(mirror=name)} asks that copy of the index"


def _names(texts: Sequence[str]) -> tuple[str, ...]:
    """Return names that are separated by commas or blanks, each once."""
    return tuple(dict.fromkeys(name for text in texts for name in re.split(r"[,\s]+", text) if name))


def take_list(draft: Draft, place: Place, name: str, line: int, extras: Sequence[str] = ()) -> str:
    """Add a file of requirements to the recipe, with extras and groups of a project's. Raises UsageError."""
    path = below(place, name)
    if path is None:
        raise UsageError(f"{name} is not in {draft.context}", next_step="name it in requirements, where it is")
    path += f"[{','.join(extras)}]" if extras else ""
    read = package_text.read_requirements(draft.context / path, draft.within)
    for entry in read.expected:
        stack.note_package(draft.evidence, f"{entry.name}{entry.specifier}", line) if is_stacks(entry.name) else None
        stack.note_label(draft.evidence, entry.build)
        is_bound = entry.name == "python" and not entry.specifier.startswith("==")
        if entry.name in ("cuda", "python") and not is_bound and (version := entry.specifier.strip("=<>~!.* ")):
            short = ".".join(version.split(",")[0].split(".")[:2])
            setattr(draft.evidence, entry.name, short)
    for package in read.packages:
        if not own_packages.is_local(package) and stack.is_known(own_packages.name_of(package)):
            stack.note_package(draft.evidence, package, line)
            if Requirement(package).specifier:  # the stack's own in place of the file's version
                add(draft.pip, Item(Requirement(package).name, line))
    for note in read.notes:
        if "not taken" in note:
            draft.add(line, line, name, "yours", note.replace(f"{draft.context}/", ""))
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
    for channel in given.of("-c", "--channel"):  # dglteam/label/cu118, nvidia/label/cuda-11.8.0
        _, _, label = channel.partition("/label/")
        stack.note_label(draft.evidence, re.sub(r"cuda-(\d+)\.(\d).*", r"cu\1\2", label))
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
    """Take Debian's packages, by Debian's names; of its Python packages those that the index has."""
    given = installers.options(words, installers.WITH_VALUE["apt"])
    debian, python, stacks, problems = list[str](), list[str](), list[str](), list[str]()
    pins = [f"{option} {value}" for option, value in given.values if option in ("-t", "--target-release")]
    for text in given.words:
        match = _APT.fullmatch(text)
        name = kinds().apt.get(match[1], match[1]) if match else ""
        of_python = _OF_DEBIAN_PYTHON.fullmatch(name)
        if not match:
            problems.append(f"{text} is not a name of a Debian package")
        elif not name or _OF_STACK.fullmatch(name):
            stacks.append(match[1])
            if _OF_TOOLKIT.fullmatch(name):
                draft.evidence.compilers.append(line)
        elif not of_python:
            debian.append(name)
            pins += [text] if match[2] else []
        elif package := conda.on_index(of_python[1]):
            python.append(_named(draft, package, line))
        else:
            problems.append(f"{name} is for Debian's own Python: name its package of the index in pip")
    for name in debian:
        add(draft.apt, Item(name, line))
    made = [*([f"apt: {joined(debian, 8)}"] if debian else []), *python]
    if problems:
        return _partly(problems, made)
    if made:
        passed = f" ({', '.join(pins)} is passed over: versions are Debian's)" if pins else ""
        made += [f"{listed(stacks)}: {FATES['stack']}"] if stacks else []
        return Outcome("recipe", "; ".join(made) + passed)
    return Outcome("stack", joined(stacks)) if stacks else Outcome("nothing", "it installs nothing")


def project(draft: Draft, place: Place, words: Sequence[str], line: int) -> Outcome:
    """Take what a project's own lock or pyproject.toml asks for, and the project itself."""
    names = {
        "uv": ("uv.lock", "pyproject.toml"),
        "poetry": ("poetry.lock", "pyproject.toml"),
        "pixi": ("pixi.toml", "pyproject.toml"),
    }
    given = installers.options(words[2:], installers.WITH_VALUE["project"])
    extras = _names(given.of(*installers.EXTRAS))
    for name in names.get(words[0], ("pdm.lock", "pylock.toml", "pyproject.toml")):
        path = below(place, name)
        if path is None or not (draft.context / path).is_file():
            continue
        every = [flag for flag in given.flags if flag in ("--all-extras", "--all-groups")]
        every += [f"{option} {value}" for option, value in given.values if option in ("-e", "--environment")]
        problems = [f"{flag} is not taken: name them, {setting(requirements=f'{name}[…]')}" for flag in every]
        made = list[str]()
        _take(problems, made, partial(take_list, draft, place, name, line, extras))
        if not {"--no-install-project", "--no-root", "--only-deps"} & set(words):
            _take(problems, made, partial(_project_beside, draft, place, path, line))
        return _partly(problems, made) if problems else Outcome("recipe", joined(made))
    return Outcome("yours", f"the project of {words[0]} is not in {draft.context}")


def _project_beside(draft: Draft, place: Place, path: str, line: int) -> str:
    """Add the project that a list is of, where it has a back-end. Raises UsageError."""
    pyproject = draft.context / posixpath.join(posixpath.dirname(path), "pyproject.toml")
    if not pyproject.is_file():
        return ""
    if draft.within:
        draft.within.check(pyproject, f"{pyproject} is not")
    return _package(draft, place, ".", line) if "[build-system]" in read_text(pyproject) else ""


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
    is_here = place.is_host and folder.casefold() == draft.context.resolve().name.casefold()
    if is_here and not (draft.context / folder).is_dir():  # a README begins with the project's own address
        place.here.add(_absolute(place, folder))
        return Outcome("nothing", "the project that is here")
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


def own_script(draft: Draft, place: Place, words: Sequence[str]) -> Outcome | None:
    """Return what reads a script of the project's own that is run; None for another command."""
    named = [word for word in words[:2] if word.endswith((".sh", ".bash"))]
    path = below(place, named[0]) if named else None
    if path is None or words[0] not in ("bash", "sh", "source", ".", named[0]) or not (draft.context / path).is_file():
        return None
    return Outcome("yours", f"{command('adopt', path, plan=True)} says what that script installs")


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
    if _WHEEL.match(text) and host_of(text) in _OURS:
        name, _, version = text.rpartition("/")[2].partition("-")
        stack.note_page(draft.evidence, text)
        stack.note_package(draft.evidence, f"{name}=={version.partition('-')[0].replace('%2B', '+')}", line)
        return ""
    if text.startswith((".", "/", "~")) or (place.is_host and "/" in text and "+" not in text and "@" not in text):
        return _of_folder(draft, place, text, line)
    if _plain(text) in _TOOLS:
        return ""
    plain, expected = without_build(text, where)
    package = package_text.read_package(plain, draft.context, where, draft.within)
    if own_packages.is_local(package):
        return _named(draft, package, line)
    requirement = Requirement(package)
    for entry in expected:
        stack.note_label(draft.evidence, entry.build)
    if stack.is_known(requirement.name):
        stack.note_package(draft.evidence, plain, line)
        if not requirement.extras or requirement.name == "pyg":
            return ""
        package = f"{requirement.name}[{','.join(sorted(requirement.extras))}]"
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
            package = package_text.read_package(text, draft.context, f"line {line}", draft.within)
            row = draft.rows[parsed.row]
            draft.rows[parsed.row] = row._replace(fate="recipe", what=f"pip: {package}")
            return _named(draft, package, line)
    path = below(place, name)
    if path is None:
        raise UsageError(
            f"{name} is not a folder that is here", next_step="COPY it, or name its project in the recipe's pip"
        )
    package_text.read_package(f"./{path}", draft.context, f"line {line}", draft.within)
    written = "." if path == "." else f"./{path}"
    if bracket:
        listed_extras = f"{posixpath.normpath(posixpath.join(path, 'pyproject.toml'))}[{extras}"
        package_text.read_requirements(draft.context / listed_extras, draft.within)
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
            package_text.read_package(named, draft.context, f"line {line}")
            made = _named(draft, named, line)
    if text.partition("=")[0].rpartition("::")[2] == "cpuonly":
        draft.evidence.cuda = "cpu"
    elif debian := conda.of_debian(text):
        add(draft.apt, Item(debian, line))
        return f"apt: {debian}"
    elif refused := [note for note in translated.notes if "not taken" in note and "by itself" not in note]:
        known = [note.removeprefix(f"line:{line}: ") for note in refused if note.startswith("line:")]
        notes += known or [f"{text}: conda's, and no package that is known on the index"]
    return made
