"""A file of any format by its name: `needs` of its text; `read` with the files that it refers to."""

import codecs
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from projectfiles import requirements_txt
from projectfiles.errors import ProjectFileError
from projectfiles.requirements_txt import CONSTRAINTS, LISTS
from projectfiles.values import Environment, Line, Needs
from projectfiles.words import printable

LARGEST_FILE = 1 << 20  #: bytes of a file that says what a project needs
LARGEST_LOCK = 16 << 20  #: of a lock, which has hashes and addresses of all files for all systems
#: names of files in a project's folder that are read, the first before the others
NAMES = (
    *("uv.lock", "pylock.toml", "poetry.lock", "pdm.lock", "pyproject.toml", "pixi.toml"),
    *("environment.yml", "environment.yaml", "requirements.txt"),
)
#: files that pip reads in other codings than UTF-8 (PowerShell's `pip freeze > requirements.txt` writes UTF-16)
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_EXTRAS = re.compile(r"(.*)\[([\w\s.,-]+)\]", re.DOTALL)
_PYLOCK = re.compile(r"pylock\.([^.]+\.)?toml")  #: names of PEP 751
_WITH_EXTRAS = ("pyproject.toml", "pixi.toml", "uv.lock", "poetry.lock", "pdm.lock")


class FileNeeds(NamedTuple):
    """A file and its needs. `constrains`: it bounds versions, and asks for none."""

    file: str
    needs: Needs
    constrains: bool = False


def with_extras(path: Path) -> tuple[Path, tuple[str, ...]]:
    """Split a path from the extras after it: `pyproject.toml[train]`, for which there is no such file."""
    name, extras = bracketed(str(path))
    if not (name.endswith(_WITH_EXTRAS) or _PYLOCK.fullmatch(Path(name).name)):
        return path, ()
    return Path(name), extras


def bracketed(text: str) -> tuple[str, tuple[str, ...]]:
    """Split a text from the names in brackets at its end, of which there may be none."""
    match = _EXTRAS.fullmatch(text)
    return (match[1], tuple(name.strip() for name in match[2].split(","))) if match else (text, ())


def read_text(path: Path) -> str:
    """Return a file's text, in UTF-8 or as its byte order mark says, up to the size that one may have.

    Raises ProjectFileError.
    """
    largest = LARGEST_LOCK if path.suffix == ".lock" or path.name.startswith("pylock.") else LARGEST_FILE
    try:
        with path.open("rb") as stream:
            data = stream.read(largest + 1)
        if len(data) > largest:
            what = f"{printable(str(path))} has more than {largest >> 20} MB"
            next_step = f"head -c 300 {shlex.quote(str(path))}"
            raise ProjectFileError(what, kind="file", where=str(path), next_step=next_step)
        mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
        return data[len(mark) :].decode(_MARKS.get(mark, "utf-8"))
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError, as what is no UTF-8 is
        raise _unreadable(path, error) from error


def needs(
    path: Path,
    text: str,
    extras: tuple[str, ...],
    text_of: Callable[[Path], str],
    environments: Sequence[Environment],
) -> Needs:
    """Return what a text says by its file's name; a list of conda's is known by its first lines.

    `extras`: with these extras, groups or features. `text_of`: reads the pyproject.toml beside a lock. `environments`:
    the machines that it is read for. Raises ProjectFileError, of a format that is not read too.
    """
    # and YAML and locks, which take longer to load than to read
    from projectfiles import conda, pdm_locks, pixi, poetry_locks, pylocks, pyproject, uv_locks

    name = path.name
    if name.endswith((".yml", ".yaml")):
        return conda.environment(text, str(path))
    if name == "pyproject.toml":
        return pyproject.read(text, str(path), extras, environments)
    if name == "pixi.toml":
        return pixi.pixi_toml(text, str(path), extras)
    if name == "uv.lock":
        return uv_locks.read(text, str(path), extras)
    if _PYLOCK.fullmatch(name):
        return pylocks.read(text, str(path), extras, environments)
    if name in ("poetry.lock", "pdm.lock"):
        beside = path.with_name("pyproject.toml")
        if not beside.is_file():
            raise ProjectFileError(
                f"{path} says which versions, and the pyproject.toml beside it of which packages: it is not there",
                kind="beside",
                where=str(path),
                next_step=f"ls {shlex.quote(str(path.parent))}",
            )
        project = pyproject.read(text_of(beside), str(beside), extras, environments)
        if name == "pdm.lock":
            return pdm_locks.read(text, str(path), project)
        return poetry_locks.read(text, str(path), project, extras)
    if name.endswith((".toml", ".lock", ".py", ".cfg", ".ipynb", ".json")) or name.startswith("Pipfile"):
        raise ProjectFileError(
            f"{path} is not a file of requirements",
            kind="format",
            where=str(path),
            cause="These are read: requirements.txt, environment.yml, pyproject.toml, pixi.toml, "
            "uv.lock, pylock.toml, poetry.lock, pdm.lock.",
            next_step="pipenv requirements > requirements.txt"
            if name.startswith("Pipfile")
            else "pip freeze > requirements.txt",
        )
    if conda.is_list(text):
        return conda.listed_packages(text, str(path))
    return Needs(lines=[Line(f"{path}:{number}", line) for number, line in requirements_txt.logical_lines(text)])


def read(path: Path, environments: Sequence[Environment]) -> list[FileNeeds]:
    """Read a file (`pyproject.toml[train]` with an extra) and those that its -r and -c name, each once.

    Raises ProjectFileError; for one out of the first one's folder too, as a stranger's file could name any of yours.
    """
    home = path.absolute().parent.resolve()
    made, done, waiting = list[FileNeeds](), set[tuple[Path, bool]](), [(path, False)]
    while waiting:
        file, constrains = waiting.pop(0)
        file, extras = with_extras(file)
        _check(file, home)
        if (file.resolve(), constrains) in done:
            continue
        done.add((file.resolve(), constrains))

        def beside(other: Path) -> str:
            _check(other, home)
            return read_text(other)

        entry = FileNeeds(str(file), needs(file, read_text(file), extras, beside, environments), constrains)
        made.append(entry)
        waiting += [(file.parent / name, constrains or bounds) for name, bounds in references(entry.needs.lines)]
    return made


def references(lines: Iterable[Line]) -> Iterator[tuple[str, bool]]:
    """Yield the files that lines refer to, and whether they constrain."""
    for line in lines:
        if line.of == "pip" and line.text.startswith("-"):
            for option in requirements_txt.options(line.text, line.where):
                if option.name in (*LISTS, *CONSTRAINTS) and option.value:
                    yield option.value, option.name in CONSTRAINTS


def _check(path: Path, home: Path) -> None:
    try:
        is_inside = path.resolve().is_relative_to(home)
    except (OSError, ValueError, RuntimeError) as error:
        raise _unreadable(path, error) from error
    if not is_inside:
        what = f"{printable(str(path))} is not in the folder {printable(str(home))}"
        raise ProjectFileError(what, kind="file", where=str(path), next_step="put it into that folder")


def _unreadable(path: Path, error: Exception) -> ProjectFileError:
    what, next_step = unreadable(path, error)
    return ProjectFileError(what, kind="file", where=str(path), next_step=next_step)


def unreadable(path: Path, error: Exception) -> tuple[str, str]:
    """Return what is said of a text file that is not there or cannot be read, and the next step.

    What is not in UTF-8 is most often in an encoding of Chinese, as Windows has it.
    """
    shown = printable(str(path))
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        there = next((folder for folder in path.parents if folder.is_dir()), path.absolute().parent)
        return f"there is no file {shown}", f"ls {shlex.quote(str(there))}    (shows what is there)"
    if isinstance(error, IsADirectoryError):
        return f"{shown} is a folder, and a text file is meant", f"ls {shlex.quote(str(path))}"
    if isinstance(error, UnicodeDecodeError) and error.encoding == "utf-8":
        line = error.object.count(b"\n", 0, error.start) + 1
        old, new = shlex.quote(str(path)), shlex.quote(f"{path}.utf8")
        step = f"iconv -f gb18030 -t utf-8 {old} > {new} && mv {new} {old}"
        what = f"{shown} is not in UTF-8: line {line} has the byte {error.object[error.start]:#04x}"
        return what, f"{step}    (or -f with the encoding that it has)"
    what = f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}"
    return what, "give the path of a text file, in UTF-8"
