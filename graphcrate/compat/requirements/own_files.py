"""Files and folders that a recipe of one's own puts into the image, and what it says of how the image starts.

Both may be a stranger's: they are validated here, where they are read.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from graphcrate.compat.facts import reserved
from graphcrate.compat.requirements.within import Within
from graphcrate.model.errors import UsageError
from graphcrate.model.plan import VENV
from graphcrate.model.words import printable
from projectfiles import files

WHITEOUT = "/.wh."  #: begins a name that removes another (OCI image-spec, layers)
MOST_FILES = 2000  #: of the folders of a recipe
_MOST_BYTES = 8 * files.LARGEST_FILE  #: of all of them
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: of folders of an image: what no shell, no Dockerfile and no fstab takes for anything else
_FOLDER = re.compile(r"(/[A-Za-z0-9_.+@-]+)+")
_MERGED = re.compile(r"/(bin|sbin|lib|lib32|lib64|libx32)(/|$)")
_MODE = re.compile(r"0?(1?[0-7]{3})")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]*[A-Za-z0-9])?")
#: labels that say what an image is
_OWN_LABELS = re.compile(r"graphcrate\..*|org\.opencontainers\.image\.(title|version|licenses)")
_MOST_WORDS, _LONGEST = 256, 4096  #: of a command, of a word and a label
#: what is left out of a folder: caches, and what belongs to somebody and not to an image
_LEFT_OUT = re.compile(r"\..*|__pycache__|.*\.py[co]|dist|.*\.lock\.json")
_DATA = "Data does not belong into an image: every node would pull it."
_BIND = "bind its folder when the image runs (--bind, --container-mounts)"
_TAKES = "files takes text files beside the recipe, and folders of them"


def mode(text: str) -> int:
    """Return the permissions that a recipe writes as "0755". Raises ValueError."""
    match = _MODE.fullmatch(text)
    if not match:
        raise ValueError(text)
    return int(match[1], 8)


def is_folder(path: str) -> bool:
    """Return whether a path can be a folder of an image that a recipe names."""
    return _FOLDER.fullmatch(path) is not None and posixpath.normpath(path) == path


def merged(path: str) -> str:
    """Return a path of the image without the links that Debian has for /usr/bin, /usr/lib and the like."""
    return f"/usr{path}" if _MERGED.match(path) else path


def of_paths(paths: Sequence[str]) -> Iterator[str]:
    """Yield faults of the paths of a recipe's files."""
    for name in paths:
        if posixpath.normpath(name) != name or not name.startswith("/") or name in ("/", "//") or _CONTROL.search(name):
            yield f"{name!r} is not an absolute path in the image, without . and .. and //"
        if WHITEOUT in name:
            yield f"{name!r} is a whiteout: in a layer it removes what is below it, and not a file"
    yield from reserved.of_files(paths)


def of_folders(folders: Mapping[str, str]) -> Iterator[str]:
    """Yield faults of a recipe's folders, each with its permissions."""
    for path, permissions in folders.items():
        yield from of_folder(path)
        if not _MODE.fullmatch(permissions):
            yield f"{permissions!r} of {path!r} are no permissions: 0755, or 1777 for a folder of everybody's"


def of_folder(path: str) -> Iterator[str]:
    """Yield faults of a folder in the image."""
    if not is_folder(path) or WHITEOUT in path:
        yield f"{path!r} is not an absolute path in the image, of letters, digits and _.+@-, without . and .. and //"
    elif f"{path}/".startswith(f"{VENV}/") or f"{VENV}/".startswith(f"{path}/"):
        yield f"{path} is the stack's own; /opt/mine is free"
    else:
        yield from reserved.of_files([path])


def of_command(command: Sequence[str]) -> Iterator[str]:
    """Yield faults of the command that an image starts with."""
    if any(_CONTROL.search(word) for word in command):
        yield "a control character in it: each word is one line of text"
    if command and command[0].startswith("-"):
        yield f"{command[0]!r} is an option, and the first word is a program"
    if (command and not command[0]) or len(command) > _MOST_WORDS or any(len(word) > _LONGEST for word in command):
        yield f"at most {_MOST_WORDS} words of at most {_LONGEST} characters, of which the first is a program"


def of_labels(labels: Mapping[str, str]) -> Iterator[str]:
    """Yield faults of a recipe's labels."""
    for name, value in labels.items():
        if not _LABEL.fullmatch(name) or len(name) > _LONGEST:
            yield f"{name!r} is not a name of a label, such as org.opencontainers.image.authors"
        elif _OWN_LABELS.fullmatch(name.lower()):
            yield f"{name} says what the image is, and is not a recipe's to set"
        if _CONTROL.search(value) or len(value) > _LONGEST:
            yield f"{name}: a label is one line of at most {_LONGEST} characters"


def contents(home: Path, files: Mapping[str, str], within: Within | None) -> tuple[dict[str, str], tuple[str, ...]]:
    """Read a recipe's files and folders: texts by their paths in the image, and which of them are programs.

    Raises UsageError, for a link that leads out of the recipe's folder and for what is no text, too.
    """
    texts, programs = dict[str, str](), list[str]()
    for target, source in files.items():
        for path, inside in _below(home / source, target, source, within):
            texts[inside], is_program = _content(path, source, within)
            programs += [inside] if is_program else []
            if len(texts) > MOST_FILES or sum(map(len, texts.values())) > _MOST_BYTES:
                raise UsageError(
                    f"{source} has more than {MOST_FILES} files or {_MOST_BYTES >> 20} MB",
                    cause=_DATA,
                    next_step=_BIND,
                )
    for inside in texts:
        if under := next((str(above) for above in PurePosixPath(inside).parents if str(above) in texts), ""):
            raise UsageError(f"{under} is a file, and {inside} makes it a folder", next_step=_TAKES)
    return texts, tuple(sorted({*programs} & texts.keys()))


def _below(path: Path, target: str, source: str, within: Within | None) -> Iterator[tuple[Path, str]]:
    """Yield a file, or those of a folder, with their paths in the image, but for what is left out."""
    try:
        if within:
            within.check(path, f"{source} is not")
        if not path.is_dir():
            yield path, target
            return
        waiting, seen = [(path, target)], 0
        while waiting:
            folder, inside = waiting.pop()
            for entry in sorted(folder.iterdir()):
                seen += 1
                if seen > 10 * MOST_FILES:
                    raise UsageError(f"{source} has too many files", next_step=_BIND)
                if _LEFT_OUT.fullmatch(entry.name):
                    continue
                if entry.is_dir() and entry.is_symlink():
                    raise UsageError(
                        f"{printable(str(entry))} is a link to a folder", next_step="name that folder in files itself"
                    )
                if entry.is_dir():
                    waiting.append((entry, f"{inside}/{entry.name}"))
                else:
                    yield entry, f"{inside}/{entry.name}"
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, a circle of links
        raise _unreadable(path, error) from error


def _content(path: Path, source: str, within: Within | None) -> tuple[str, bool]:
    """Read a text file, and whether its owner may run it. Raises UsageError."""
    try:
        real = path.resolve()
        if within:
            within.check(path, f"{source} is not")
        if real.exists() and not real.is_file():
            raise UsageError(f"{printable(str(path))} is neither a file nor a folder", next_step=_TAKES)
        with real.open("rb") as stream:  # as it was checked, even if a link changes meanwhile
            data = stream.read(files.LARGEST_FILE + 1)
        if len(data) > files.LARGEST_FILE:
            raise UsageError(f"{real} has more than {files.LARGEST_FILE >> 20} MB", cause=_DATA, next_step=_BIND)
        return re.sub("\r\n?", "\n", data.decode("utf-8")), bool(real.stat().st_mode & 0o100)
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name, a circle of links
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> UsageError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        what, next_step = files.unreadable(path, error)
        return UsageError(what, next_step=next_step)
    return UsageError(f"{printable(str(path))} cannot be put into the image: {error}", next_step=_TAKES)
