"""Start-up code of an image's Python (`data/start_up.toml`), found in files, before anything of it runs. Pure.

A path configuration file (.pth) counts with any lines: a folder that it names may have a `sitecustomize.py`.
"""

import functools
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping

import msgspec

from graphcrate.compat.facts import slim
from graphcrate.compat.facts.facts import table_reader
from graphcrate.model.plan import Slim
from graphcrate.model.report import StartUp
from wheelread.import_names import NAMESPACES


class _Hook(msgspec.Struct, frozen=True, kw_only=True):
    """Files by their path below site-packages, and who runs them when."""

    path: str
    by: str
    source: str


class _Group(msgspec.Struct, frozen=True, kw_only=True):
    """Entry points that `package` loads when it is imported."""

    name: str
    package: str
    by: str
    source: str


class _Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of the environment, and who goes by it."""

    name: str
    by: str
    source: str


class _Known(msgspec.Struct, frozen=True, kw_only=True, rename={"beside": "with"}):
    """Files of that kind that do `why` and nothing else, by their hashes and those of what they import."""

    path: str
    sha256: tuple[str, ...]
    why: str
    source: str
    beside: dict[str, tuple[str, ...]] = {}


_hooks = table_reader("start_up", tuple[_Hook, ...], "hook")
_groups = table_reader("start_up", tuple[_Group, ...], "group")
_variables = table_reader("start_up", tuple[_Variable, ...], "variable")
_known = table_reader("start_up", tuple[_Known, ...], "known")
LABEL = "graphcrate.start-up"  #: of an image that has such code: its paths
LARGEST = 1 << 20  #: bytes of a file that is looked at
_ENTRY_POINTS = re.compile(r"(?P<name>[^/]+)-[^/-]+\.dist-info/entry_points\.txt")
_SITE = re.compile(r"(?P<site>/.*/site-packages)/(?P<rest>.*)", re.DOTALL)
#: of Python itself, beside its own library; Debian's leads to the one in /etc
_OF_PYTHON = re.compile(r"(?P<folder>/.*/python3\.\d+)/(?P<rest>(?:site|user)customize(?:\.[\w-]+)*\.(?:so|pyc?))")
_NAME = r"'(?P<name{}>[\w.]+)'"
#: the one line that setuptools writes for each namespace package (its module `namespaces`, until 80), which makes an
#: empty module of that name and runs nothing of it
_NAMESPACE = re.compile(
    r"import sys, types, os;has_mfs = sys\.version_info > \(3, 5\);"
    r"p = os\.path\.join\(sys\._getframe\(1\)\.f_locals\['sitedir'\], \*\((?:'\w+',? ?)+\)\);"
    r"importlib = has_mfs and __import__\('importlib\.util'\);has_mfs and __import__\('importlib\.machinery'\);"
    rf"m = has_mfs and sys\.modules\.setdefault\({_NAME.format(1)}, importlib\.util\.module_from_spec\("
    rf"importlib\.machinery\.PathFinder\.find_spec\({_NAME.format(2)}, \[os\.path\.dirname\(p\)\]\)\)\);"
    rf"m = m or sys\.modules\.setdefault\({_NAME.format(3)}, types\.ModuleType\({_NAME.format(4)}\)\);"
    r"mp = \(m or \[\]\) and m\.__dict__\.setdefault\('__path__',\[\]\);\(p not in mp\) and mp\.append\(p\)"
    rf"(?:;m and setattr\(sys\.modules\[{_NAME.format(5)}\], '\w+', m\))?"
)


def concerns(path: str) -> bool:
    """Tell whether a file, by its path in an image, is one that `found` has to know of."""
    if _OF_PYTHON.fullmatch(path) or re.fullmatch(r"/etc/python3\.\d+/sitecustomize\.py", path):
        return True
    site = _SITE.fullmatch(path)
    return site is not None and _pattern().fullmatch(site["rest"]) is not None


@functools.cache
def _pattern() -> re.Pattern[str]:
    """One expression for all paths below site-packages: an image has tens of thousands."""
    # with what Python would take in their place
    beside = (rf"{re.escape(path.removesuffix('.py'))}\.[\w.-]+" for known in _known() for path in known.beside)
    points = r"[^/]+\.dist-info/entry_points\.txt"
    return re.compile("|".join((points, *(hook.path for hook in _hooks()), *beside)))


def found(files: Mapping[str, bytes], labels: Mapping[str, str] = {}) -> Iterator[StartUp]:
    """Give what runs by itself, of files that `concerns` names: path in the image → content, empty where it is large.

    `labels`: of the image, which says there whether libraries were cut: such an image has a guard of ours.
    """
    for path, content in sorted(files.items()):
        match = _SITE.fullmatch(path) or _OF_PYTHON.fullmatch(path)
        if match is None:  # in /etc, where Debian's Python has it
            match = re.fullmatch(r"(?P<folder>.*)/(?P<rest>[^/]+)", path)
            assert match is not None, path
        folder, inside = match[1], match["rest"]
        if points := _ENTRY_POINTS.fullmatch(inside):
            yield from _entry_points(path, points["name"], content)
            continue
        hook = next((hook for hook in _hooks() if re.fullmatch(hook.path, inside)), None)
        if hook and not _is_known(folder, inside, content, files) and content != _guard(labels):
            yield StartUp(path=path, by=hook.by)


def of_environment(environment: Mapping[str, str]) -> Iterator[StartUp]:
    """Give the variables of an image that make something run by itself."""
    for variable in _variables():
        if environment.get(variable.name):
            yield StartUp(path=variable.name, by=variable.by)


def is_variable(start: StartUp) -> bool:
    """Tell whether it is a variable of the environment, and no file."""
    return not start.path.startswith("/")


def _entry_points(path: str, distribution: str, content: bytes) -> Iterator[StartUp]:
    text = content.decode("utf-8", "replace")
    for group in _groups():
        named = re.search(rf"^\s*\[\s*{re.escape(group.name)}\s*\]", text, re.MULTILINE)
        if named and distribution.lower().replace("_", "-") != group.package:
            yield StartUp(path=path, by=group.by)


def _is_known(folder: str, inside: str, content: bytes, files: Mapping[str, bytes]) -> bool:
    """Tell whether a file is one that does no harm: by its bytes, and by those of what it imports."""
    if inside.endswith(".pth") and _makes_namespaces(content):
        return True
    return any(
        re.fullmatch(known.path, inside)
        and _sha256(content) in known.sha256
        and all(_is_beside(f"{folder}/{other}", hashes, files) for other, hashes in known.beside.items())
        for known in _known()
    )


def _is_beside(path: str, hashes: Collection[str], files: Mapping[str, bytes]) -> bool:
    """Tell whether a module is there with known bytes, and no extension that goes before it."""
    others = [other for other in files if other != path and other.startswith(path.removesuffix("py"))]
    return not others and _sha256(files.get(path, b"")) in hashes


def _makes_namespaces(content: bytes) -> bool:
    """Tell whether each line makes a module of NAMESPACES, as setuptools writes it, and nothing else is there."""
    lines = [_NAMESPACE.fullmatch(line) for line in content.decode("utf-8", "replace").split("\n") if line]
    names = [name for match in lines if match for name in match.groups() if name]
    return bool(lines) and all(lines) and all(name.replace(".", "/") in NAMESPACES for name in names)


def _guard(labels: Mapping[str, str]) -> bytes | None:
    """The bytes of our own `sitecustomize.py`, of an image whose libraries were cut."""
    if not (capabilities := labels.get(slim.LABEL)):
        return None
    return slim.guard(Slim(capabilities=tuple(capabilities.split(",")), ptx=False, everything=False)).encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
