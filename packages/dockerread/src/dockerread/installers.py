"""Words and options of programs that install: pip, uv, conda, apt and their kin."""

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

#: words before a command that change nothing of what it installs
_BEFORE = ("sudo", "exec", "command", "env", "time", "nohup", "yes")
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_PIP = re.compile(r"pip(3(\.\d+)?)?")
_CONDA = ("mamba", "micromamba", "conda", "condacolab")
#: programs that run the command behind them in an environment, or as its first process: what an image does without
_RUNNERS = ("conda", "poetry", "uv", "pixi", "pipenv", "pdm", "hatch")
_FIRST_PROCESSES = ("tini", "dumb-init")
_OF_IMAGES = ("/usr/local/bin/_entrypoint.sh", "/opt/nvidia/nvidia_entrypoint.sh")  #: micromamba's and NVIDIA's own
_OF_RUN = (
    *("-n", "--name", "-p", "--prefix", "-e", "--environment"),
    *("--with", "--extra", "--group", "--python", "--project"),
)
#: options that have a value; what else begins with - has none
WITH_VALUE: Mapping[str, tuple[str, ...]] = {
    "pip": (  # and uv's, poetry's
        *("-r", "--requirement", "--requirements", "-c", "--constraint", "--constraints", "-e", "--editable"),
        *("-f", "--find-links", "-i", "--index-url", "--extra-index-url", "--index", "--default-index", "--pypi-url"),
        *("-t", "--target", "--root", "--prefix", "--python", "-p", "--trusted-host"),
        *("--platform", "--python-version", "--implementation", "--abi", "--no-binary", "--only-binary"),
        *("--timeout", "--retries", "--cache-dir", "--src", "--config-settings", "-C"),
        *("--global-option", "--install-option", "--build-option", "--upgrade-strategy", "--progress-bar", "--proxy"),
        *("--cert", "--client-cert", "--index-strategy", "--torch-backend", "--link-mode"),
        *("--group", "--extra", "-E", "-G"),
    ),
    "conda": (
        *("-n", "--name", "-p", "--prefix", "-c", "--channel", "-f", "--file", "--solver", "--channel-priority"),
        *("-r", "--root-prefix", "--platform", "--subdir"),
    ),
    "project": (  # uv sync, poetry install, pdm install, pixi install
        *("--extra", "--group", "--only-group", "--no-group", "--no-extra", "-E", "--extras", "-G", "--with"),
        *("--without", "--only", "--package", "--python", "-p", "--project", "--directory", "-C", "-L", "--lockfile"),
        *("-e", "--environment", "--manifest-path", "--link-mode", "--no-install-package", "--index-strategy"),
    ),
    "apt": ("-o", "--option", "-t", "--target-release", "-c"),
}
#: options of pip and conda that name a file of packages, and of pip one of bounds
LISTS = ("-r", "--requirement", "--requirements")
CONSTRAINTS = ("-c", "--constraint", "--constraints")
#: options of projects that name extras and groups
EXTRAS = ("--extra", "--extras", "-E", "--group", "-G", "--with")
#: options of pip and uv that name an index or a page
SOURCES = ("-f", "--find-links", "-i", "--index-url", "--extra-index-url", "--index", "--default-index")


class Given(NamedTuple):
    """Options with their values, options without, and the words that are none."""

    values: tuple[tuple[str, str], ...]
    flags: tuple[str, ...]
    words: tuple[str, ...]

    def of(self, *names: str) -> list[str]:
        """Return the values of options."""
        return [value for name, value in self.values if name in names]


def options(words: Sequence[str], with_value: Iterable[str]) -> Given:
    """Sort the words behind a program and its verb."""
    values, flags, others = list[tuple[str, str]](), list[str](), list[str]()
    known, waiting = set(with_value), iter(words)
    for word in waiting:
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            others.append(word)
        elif word in known:
            values.append((word, next(waiting, "")))
        elif word.startswith("--") and equals and name in known:
            values.append((name, value))
        elif len(word) > 2 and word[:2] in known and word[1] != "-":  # -rrequirements.txt
            values.append((word[:2], word[2:]))
        else:
            flags.append(word)
    return Given(tuple(values), tuple(flags), tuple(others))


def plain_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command without what is before it, with one name for each program."""
    left = list(words)
    while left and (left[0] in _BEFORE or _ASSIGNED.fullmatch(left[0])):
        left.pop(0)
        while left and left[0].startswith("-") and left[0] != "-":
            left.pop(0)
    if not left:
        return ()
    left[0] = posixpath.basename(left[0]) if "/bin/" in left[0] else left[0]
    left[0] = "conda" if left[0] in _CONDA else left[0]
    if (run := without_runner(left)) != tuple(left):
        return plain_words(run)
    if _PYTHON.fullmatch(left[0]):
        left[0] = "python"
        while left[1:2] and left[1] in ("-u", "-B", "-I", "-s", "-E"):
            left.pop(1)
        if left[1:2] == ["-m"] and left[2:3] and left[2] in ("pip", "uv", "venv"):
            left = left[2:] if left[2] != "venv" else left
    if left[0] == "uv" and left[1:2] == ["pip"]:
        left = left[1:]
    if _PIP.fullmatch(left[0]):
        left[0] = "pip"
    return tuple(_verb_first(left))


def variables_before(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the variables of `env A=1 B=2 program`, with their values."""
    made = list[tuple[str, str]]()
    for word in words:
        if _ASSIGNED.fullmatch(word):
            name, _, value = word.partition("=")
            made.append((name, value))
        elif word not in _BEFORE and not word.startswith("-"):
            break
    return made


def without_runner(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command without what runs it in an environment (`conda run -n mine`) or as a first process (`tini`)."""
    left = list(words)
    while left:
        program = posixpath.basename(left[0])
        if program in _FIRST_PROCESSES or left[0] in _OF_IMAGES:
            left.pop(0)
            while left and left[0].startswith("-"):
                left.pop(0)
        elif (program in _RUNNERS or program in _CONDA) and left[1:2] == ["run"]:
            left = left[2:]
            while left and left[0].startswith("-"):
                left = left[2:] if left[0] in _OF_RUN else left[1:]
            if program == "uv" and left and left[0].endswith(".py"):
                left.insert(0, "python")
        else:
            break
    return tuple(left)


def _verb_first(words: list[str]) -> list[str]:
    """Put what a command does right behind its program: `apt-get -y install` installs."""
    verbs = ("install", "create", "update", "sync", "add", "upgrade", "clean", "env", "config")
    if words[0] in ("apt-get", "apt", "conda", "pip", "uv", "poetry"):
        at = 1
        while at < len(words) and words[at].startswith("-"):
            at += 1
        if at < len(words) and at > 1 and words[at] in verbs:
            return [words[0], words[at], *words[1:at], *words[at + 1 :]]
    return words
