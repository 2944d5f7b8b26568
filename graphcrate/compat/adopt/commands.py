"""Commands of a shell as parts of a recipe: which reader takes each, or why none does."""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence

from dockerread.installers import plain_words
from dockerread.shell import Simple
from graphcrate.compat.adopt import installs
from graphcrate.compat.adopt.draft import Draft, Fate, Item, Place, row_of_command, row_of_variable
from graphcrate.compat.adopt.installs import Outcome
from graphcrate.compat.facts import reserved
from graphcrate.compat.requirements import own_files

_Reader = Callable[[Draft, Place, Sequence[str], int], Outcome]
_SHELL_FILES = (".bashrc", ".profile", ".bash_profile", ".zshrc", ".bash_aliases", ".condarc", ".inputrc", ".vimrc")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OCTAL = re.compile(r"0?1?[0-7]{3}")


def take(draft: Draft, place: Place, parsed: Sequence[Simple]) -> None:
    """Add the commands of a RUN, of a section or of a script to the draft, each with its row."""
    for number, command in enumerate(parsed):
        follows = parsed[number + 1] if number + 1 < len(parsed) else None
        installer = _installer(parsed[number - 1], command) if number else None
        outcome = installer or _outcome(draft, place, command, follows)
        draft.add(command.line, command.end, command.text, *outcome)


def _installer(fetching: Simple, shell: Simple) -> Outcome | None:
    """Return the outcome of a shell that runs a fetched installer, which an image does without."""
    words = plain_words(fetching.words)
    row = row_of_command(words)
    is_shell = plain_words(shell.words)[:1] in (("sh",), ("bash",), ("python",))
    if shell.before == "|" and is_shell and words[:1] in (("curl",), ("wget",)) and row and row.fate == "nothing":
        return Outcome("nothing", row.why)
    return None


def variable(draft: Draft, name: str, value: str, line: int) -> Outcome:
    """Take a variable of the image."""
    if not _VARIABLE.fullmatch(name):
        return Outcome("yours", f"{name} is not a name of a variable")
    if name == "PATH" and any(part in value for part in ("conda", "cuda", "venv", "nvidia", ".local/bin", "mamba")):
        return Outcome("stack", "PATH has the image's Python")
    if row := row_of_variable(name):
        return Outcome(row.fate, row.why)
    if any(not char.isprintable() for char in value):
        return Outcome("yours", f"{name} is not one line of text")
    if faults := list(reserved.of_environment({name: value})):
        return Outcome("yours", faults[0])
    draft.env[name] = Item(value, line)
    return Outcome("recipe", f"env: {name}")


def _outcome(draft: Draft, place: Place, command: Simple, follows: Simple | None) -> Outcome:
    if not command.words and not command.unknown:
        return Outcome("nothing", "a variable of the lines behind it")
    words = plain_words(command.words)
    if not words and not command.unknown:
        return Outcome("nothing", "it runs nothing")
    row = row_of_command(words)
    if command.unknown and not (row and row.fate == "nothing"):
        return Outcome("yours", command.unknown)
    is_nothing = row is not None and row.fate == "nothing"
    if command.before == "||":
        fate: Fate = "nothing" if is_nothing else "yours"
        return Outcome(fate, "it is for where the command before it fails")
    if follows and follows.before == "||" and not is_nothing:
        instead = row_of_command(plain_words(follows.words))
        if instead is None or instead.fate != "nothing":
            return Outcome("yours", "another command takes its place where it fails")
    if command.before == "|" and not (row and row.reader):
        is_text = row is not None and row.fate == "nothing"
        return (
            Outcome("nothing", row.why) if row and is_text else Outcome("yours", "it takes what another command says")
        )
    if command.writes:
        return _written(command.writes)
    if row is None:
        return Outcome("yours", f"{words[0]} is a program of its own, and a recipe runs none")
    if not row.reader:
        return Outcome(row.fate, row.why)
    skipped = 2 if row.reader in ("pip", "conda", "apt", "clone", "checkout") else 1
    given = words if row.reader in ("project", "setup") else words[skipped:]
    return _READERS[row.reader](draft, place, given, command.line)


def _written(files: Sequence[str]) -> Outcome:
    if all(posixpath.basename(name) in _SHELL_FILES for name in files):
        return Outcome("nothing", "an image's environment is set without a shell's own files: variables are `env`")
    if all(name.startswith("/etc/sudoers") for name in files):
        return Outcome("nothing", "in an image of a cluster everybody is who starts it")
    return Outcome("yours", f"it writes {files[0]}: put the finished file beside the recipe, and name it in files")


def _cd(draft: Draft, place: Place, words: Sequence[str], line: int) -> Outcome:
    place.folder = posixpath.normpath(posixpath.join(place.folder, words[0] if words else "/"))
    return Outcome("nothing", "the folder of the commands behind it")


def _mkdir(draft: Draft, place: Place, words: Sequence[str], line: int) -> Outcome:
    """Take folders of the image; those of a script are of the user's machine."""
    named = [word for word in words if not word.startswith("-")]
    paths = [own_files.merged(posixpath.normpath(posixpath.join(place.folder, word))) for word in named]
    if place.is_host:
        return Outcome("nothing", "a folder of this machine, not of an image")
    if faults := [fault for path in paths for fault in own_files.of_folder(path)]:
        is_made = all(_is_made_elsewhere(path) for path in paths)
        return Outcome("nothing", "the image or a runtime has it") if is_made else Outcome("yours", faults[0])
    for path in paths:
        draft.directories.setdefault(path, Item("0755", line))
    return Outcome("recipe", f"directories: {', '.join(paths)}")


def _is_made_elsewhere(path: str) -> bool:
    """Return whether a folder is one that runtimes make, or a cache or environment of another image."""
    first = (
        "/tmp",
        "/var/tmp",
        "/run",
        "/var/run",
        "/proc",
        "/dev",
        "/sys",
        "/root/.",
        "/etc/apt",
        "/opt/conda",
        "/opt/venv",
    )
    return path.startswith(first) or path in ("/opt", "/root", "/home", "/usr", "/var", "/etc")


def _chmod(draft: Draft, place: Place, words: Sequence[str], line: int) -> Outcome:
    """Take permissions of folders that the recipe makes; files have those that they have beside it."""
    left = [word for word in words if not word.startswith("-") or _OCTAL.fullmatch(word)]
    permissions, paths = (left[0], left[1:]) if left else ("", [])
    full = [posixpath.normpath(posixpath.join(place.folder, path)) for path in paths]
    if full and _OCTAL.fullmatch(permissions) and all(path in draft.directories for path in full):
        for path in full:
            draft.directories[path] = Item(permissions.rjust(4, "0"), line)
        return Outcome("recipe", f"directories: {', '.join(full)}")
    sources = [installs.below(place, path) for path in paths]
    if place.is_host or (sources and all(source is not None for source in sources)):
        return Outcome("nothing", "a file that may be run beside the recipe may be run in the image")
    if full and all(_is_made_elsewhere(path) for path in full):
        return Outcome("nothing", "an image is read by all and written by none")
    return Outcome("yours", "permissions are of folders that the recipe makes: directories")


def _export(draft: Draft, place: Place, words: Sequence[str], line: int) -> Outcome:
    return Outcome("nothing", "a variable of the commands behind it; one of the image is `env`")


_READERS: Mapping[str, _Reader] = {
    "pip": installs.pip,
    "conda": installs.conda_packages,
    "apt": installs.apt,
    "project": installs.project,
    "setup": installs.setup,
    "clone": installs.clone,
    "checkout": installs.checkout,
    "cd": _cd,
    "mkdir": _mkdir,
    "chmod": _chmod,
    "export": _export,
}
