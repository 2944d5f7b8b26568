"""Commands of a shell as parts of a recipe: which reader takes each, or why none does."""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence

from dockerread import shell
from dockerread.installers import plain_words, variables_before
from dockerread.shell import Simple
from graphcrate.compat.adopt import installs
from graphcrate.compat.adopt.draft import (
    BASE_VARIABLES,
    CommandRow,
    Draft,
    Fate,
    Item,
    Place,
    row_of_command,
    row_of_variable,
)
from graphcrate.compat.adopt.installs import Outcome
from graphcrate.compat.facts import build_environment, reserved
from graphcrate.compat.requirements import own_files
from graphcrate.model.words import listed

_Reader = Callable[[Draft, Place, Sequence[str], int], Outcome]
_SHELL_FILES = (".bashrc", ".profile", ".bash_profile", ".zshrc", ".bash_aliases", ".condarc", ".inputrc", ".vimrc")
#: folders of PATH and LD_LIBRARY_PATH for which the image has its own
_OF_IMAGE = re.compile(
    r"\$\{?\w+\}?|.*(conda|mamba|cuda|cudnn|venv|nvidia|nccl|torch|\.local/bin|/env/bin).*|/(usr(/local)?/)?s?bin"
    r"|/(usr/(local/)?)?lib(32|64)?(/\w+-linux-gnu)?"
)
#: where Apptainer has variables that %post sets for later
_ENVIRONMENTS = ("/.singularity.d/env/91-environment.sh", "/.singularity.d/env/90-environment.sh")
#: files of the system that an image has as they should be, and of apt
_SYSTEM_FILES = ("/etc/locale", "/etc/default/locale", "/etc/timezone", "/etc/apt/apt.conf.d/")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OCTAL = re.compile(r"0?1?[0-7]{3}")


def take(draft: Draft, place: Place, parsed: Sequence[Simple]) -> None:
    """Add the commands of a RUN, of a section or of a script to the draft, each with its row."""
    fetched: Outcome | None = None
    for number, command in enumerate(parsed):
        follows = parsed[number + 1] if number + 1 < len(parsed) else None
        fetched = _fetched(command, fetched)
        outcome = fetched or _outcome(draft, place, command, follows)
        draft.add(command.line, command.end, command.text, *outcome)


def _fetched(command: Simple, before: Outcome | None) -> Outcome | None:
    """Return the outcome of a fetch that an image does without, and of the programs that get it by a pipe."""
    if command.before == "|":
        return before
    words = plain_words(command.words)
    row = row_of_command(words)
    is_fetch = words[:1] in (("curl",), ("wget",)) and row is not None and row.fate in ("nothing", "stack")
    return Outcome(row.fate, row.why) if row and is_fetch else None


def variable(draft: Draft, name: str, value: str, line: int) -> Outcome:
    """Take a variable of the image."""
    if not _VARIABLE.fullmatch(name):
        return Outcome("yours", f"{name} is not a name of a variable")
    own = list[str]()  #: folders of it that the image has nothing for
    if name in ("PATH", "LD_LIBRARY_PATH"):
        parts = list(dict.fromkeys(part for part in value.split(":") if part))
        own = [part for part in parts if not _OF_IMAGE.fullmatch(part)]
        if own and name == "PATH":
            return _path(draft, own, [part for part in parts if part not in own], line)
    if name == "PYTHONPATH":  # an empty part would be the folder that a program starts in
        value = value.strip(":")
    row = row_of_variable(name)
    if row and not own:
        return Outcome(row.fate, row.why)
    if any(not char.isprintable() for char in value):
        return Outcome("yours", f"{name} is not one line of text")
    if faults := list(reserved.of_environment({name: value})):
        return Outcome("yours", faults[0])
    draft.env[name] = Item(value, line)
    return Outcome("recipe", f"env: {name}")


def _path(draft: Draft, own: Sequence[str], others: Sequence[str], line: int) -> Outcome:
    """Take the project's own folders of PATH; `others`: those for which the image has its own."""
    value = ":".join([*own, "$PATH"])
    if faults := list(reserved.of_environment({"PATH": value})):
        return Outcome("yours", faults[0])
    draft.env["PATH"] = Item(value, line)
    passed = [part for part in others if part[:1] != "$"]
    return Outcome("recipe", "env: PATH" + (f", without {listed(passed)}" if passed else ""))


def _outcome(draft: Draft, place: Place, command: Simple, follows: Simple | None) -> Outcome:
    """Find what becomes of a command; `follows` is the one behind it."""
    words = plain_words(command.words)
    if not words and not command.unknown:
        return Outcome("nothing", "it runs nothing" if command.words else "a variable of the lines behind it")
    row = row_of_command(words)
    if command.unknown and not _is_nothing(row):
        return Outcome("yours", command.unknown)
    if (outcome := _between(command, follows, row)) is not None:
        return outcome
    if command.writes:
        return _written(draft, command)
    if row is None:
        return Outcome("yours", f"{words[0]} is a program of its own, and a recipe runs none")
    return _by_row(draft, place, command, words, row)


def _is_nothing(row: CommandRow | None) -> bool:
    """Return whether an image does without such commands."""
    return row is not None and row.fate == "nothing"


def _between(command: Simple, follows: Simple | None, row: CommandRow | None) -> Outcome | None:
    """Find what becomes of a command that runs by what another one does; None: it stands alone."""
    is_nothing = _is_nothing(row)
    if command.before == "||":
        fate: Fate = "nothing" if is_nothing else "yours"
        return Outcome(fate, "it is for where the command before it fails")
    if follows and follows.before == "||" and not is_nothing:
        instead = row_of_command(plain_words(follows.words))
        if not _is_nothing(instead):
            return Outcome("yours", "another command takes its place where it fails")
    if command.before == "|" and not (row and row.reader):
        if row is not None and is_nothing:
            return Outcome("nothing", row.why)
        return Outcome("yours", "it takes what another command says")
    return None


def _by_row(draft: Draft, place: Place, command: Simple, words: Sequence[str], row: CommandRow) -> Outcome:
    """Have the row's reader take the command; without one, the row says what becomes of it."""
    if not row.reader:
        script = installs.own_script(draft, place, words) if row.fate == "yours" else None
        return script or Outcome(row.fate, row.why)
    if row.reader in _OF_TWO_WORDS:
        words = words[2:]
    elif row.reader not in _OF_ALL_WORDS:
        words = words[1:]
    outcome = _READERS[row.reader](draft, place, words, command.line)
    return _with_variables(draft, command, outcome) if row.reader in _WITH_VARIABLES else outcome


def _with_variables(draft: Draft, command: Simple, outcome: Outcome) -> Outcome:
    """Take the variables before an install as those to compile with; name those that an image does without."""
    if outcome.fate not in ("recipe", "yours"):
        return outcome
    taken, passed, faults = list[str](), list[str](), list[str]()
    for name, value in (*command.assigned, *variables_before(command.words)):
        row = row_of_variable(name)
        if row and row.fate in ("nothing", "stack"):
            passed.append(name)
        elif fault := next(build_environment.faults({name: value}), ""):
            faults.append(fault)
        else:
            draft.build_env[name] = Item(value, command.line)
            taken.append(name)
    what = "".join(
        f"; {title}{listed(names)}" for title, names in (("build_env: ", taken), ("without ", passed)) if names
    )
    return Outcome("yours" if faults else outcome.fate, "; ".join([outcome.what + what, *faults]))


def _written(draft: Draft, command: Simple) -> Outcome:
    files = command.writes
    if all(name in _ENVIRONMENTS for name in files) and command.words[:1] == ("echo",):
        text = " ".join(command.words[1:])
        outcomes = [
            variable(draft, name, value, command.line)
            for step in shell.commands(text, command.line, dict(BASE_VARIABLES))
            for name, value in step.exported.items()
        ]
        return installs.all_of(outcomes) if outcomes else Outcome("nothing", "an image has one environment")
    if all(name.startswith(_SYSTEM_FILES) for name in files):
        return Outcome("nothing", "the image is made with it, or does without")
    if all(name.startswith(("/etc/apt/", "/usr/share/keyrings/", "/etc/ld.so.conf.d/")) for name in files):
        is_nvidias = any(part in command.text for part in ("nvidia", "cuda"))
        why = "the stack has CUDA" if is_nvidias else "an image has Debian's own packages alone"
        return Outcome("stack" if is_nvidias else "yours", why)
    if all(posixpath.basename(name) in _SHELL_FILES for name in files):
        return Outcome("nothing", "an image's environment is set without a shell's own files: variables are `env`")
    if all(name.startswith("/etc/sudoers") for name in files):
        return Outcome("nothing", "in an image of a cluster everybody is who starts it")
    return Outcome("yours", f"it writes {files[0]}: put the finished file beside the recipe, and name it in files")


def _cd(draft: Draft, place: Place, words: Sequence[str], line: int) -> Outcome:
    folder = posixpath.normpath(posixpath.join(place.folder, words[0] if words else "/"))
    place.folder = "/" if folder in place.here else folder
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


#: readers of what follows `pip install`, `apt-get install`; of whole commands; of what follows one word: all others
_OF_TWO_WORDS = ("pip", "conda", "apt", "clone", "checkout")
_OF_ALL_WORDS = ("project", "setup")
#: what these install may be compiled, by the variables before the command
_WITH_VARIABLES = ("pip", "setup", "project")
_READERS: Mapping[str, _Reader] = {
    "pip": installs.pip,
    "synced": installs.synced,
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
