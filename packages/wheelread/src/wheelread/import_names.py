"""Find the file of several that Python imports by one name, and the package whose folder a file is in. Pure.

Sources: Python's reference, "The import system"; FileFinder of importlib.machinery: in one folder a package (x/ with an
__init__) goes before an extension module (x.so), that before x.py, that before x.pyc, and all of them before a folder
without __init__, a namespace package (PEP 420). The loader (ld.so) looks for libraries in folders, by their names.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

#: in the order in which Python looks for them: `importlib.machinery.all_suffixes`
_KINDS = (r"\.cpython-[\w-]+\.so", r"\.abi3\.so", r"\.so", r"\.py", r"\.pyc")
_MODULE = re.compile(rf"(?P<module>(?:[^/]+/)*?[^/.]+)(?P<kind>{'|'.join(_KINDS)})")
_LIBRARY = re.compile(r"(?P<folder>.*)/[^/]+\.so(?:\.\d+)*")
_START = "/__init__"
#: packages of several distributions, which each put a folder of their own there; by what their manuals say
NAMESPACES = frozenset({
    *("google", "google/cloud", "google/api", "google/rpc", "google/type", "google/logging", "google/longrunning"),
    *("nvidia", "nvidia/cu12", "nvidia/cu13", "azure", "azure/core", "backports", "zope", "ruamel", "paste"),
    *("sphinxcontrib", "mpl_toolkits", "hydra_plugins", "jax_plugins", "jaraco", "opentelemetry", "scikits", "logilab"),
    *("snowflake", "flufl", "pyannote", "nvtabular", "rapids", "fs", "repoze", "plone"),
})  # fmt: skip
#: top folders that many wheels bring by mistake, each with its own; they are not imported by these names
_ASIDE = frozenset({"tests", "test", "docs", "doc", "examples", "example", "benchmarks", "scripts", "tools", "utils"})


class Shadow(NamedTuple):
    """A module that two distributions have: Python imports `path`, of `owner`, and never `other_path` of `other`."""

    module: str  #: "torch.part"
    owner: str
    path: str
    other: str
    other_path: str

    @property
    def sentence(self) -> str:
        """Say it as a clause."""
        return f"{self.owner} and {self.other} both own the module {self.module}: {self.path} and {self.other_path}"


class Intrusion(NamedTuple):
    """A file of a distribution in a package of another one, which may load it or be changed by it."""

    owner: str
    path: str
    other: str


class ImportNames:
    """Files below one site-packages, with the distributions that they are of. Paths are relative to it."""

    def __init__(self) -> None:
        self._files: list[tuple[str, str]] = []
        self._modules: dict[str, dict[str, tuple[int, int, str]]] = defaultdict(dict)  #: module → owner → its best file
        self._packages: dict[str, str] = {}  #: folder with an __init__ → who was first to have it
        self._folders: dict[str, set[str]] = defaultdict(set)  #: folder → who has something to import below it
        self._libraries: dict[str, str] = {}  #: folder with libraries → who was first to have one there
        self._tops: dict[str, tuple[str, str]] = {}  #: package in lower case → as it was written first, and by whom

    def add(self, owner: str, path: str) -> None:
        """Note a file of a distribution. Those of lower layers, as the stack's, come first."""
        self._files.append((owner, path))
        if library := _LIBRARY.fullmatch(path):
            self._libraries.setdefault(library["folder"], owner)
        match = _MODULE.fullmatch(path)
        if match is None:
            return
        name, kind = match["module"], _rank(match["kind"])
        is_package = name.endswith(_START)
        module = name.removesuffix(_START)
        top = module.partition("/")[0]
        self._tops.setdefault(top.lower(), (top, owner))
        if is_package:
            self._packages.setdefault(module, owner)
        for folder in _folders(module if is_package else name):
            self._folders[folder].add(owner)
        candidate = (0 if is_package else 1, kind, path)
        known = self._modules[module].get(owner)
        self._modules[module][owner] = candidate if known is None else min(known, candidate)

    def shadows(self) -> Iterator[Shadow]:
        """Give the modules of which Python takes one distribution's file in place of another's."""
        for module, files in self._modules.items():
            if module.partition("/")[0] in _ASIDE:
                continue
            (_, _, path), owner = min((candidate, owner) for owner, candidate in files.items())
            title = module.replace("/", ".")
            for other, (_, _, other_path) in files.items():
                if other_path != path:
                    yield Shadow(title, owner, path, other, other_path)
            if module not in self._packages:  # x.py hides the folder x/ of a namespace
                others = sorted(self._folders.get(module, set()) - {owner})
                yield from (Shadow(title, owner, path, other, f"{module}/") for other in others)

    def intrusions(self) -> Iterator[Intrusion]:
        """Give the files in a package, or beside libraries, of another distribution.

        In packages of NAMESPACES the folders below them count.
        """
        for owner, path in self._files:
            other = self._whose(path)
            if other and other != owner:
                yield Intrusion(owner, path, other)

    def _whose(self, path: str) -> str:
        """Name the distribution whose package a file is in; empty for none.

        On a disk without upper and lower case, Torch/ is torch/.
        """
        top = path.partition("/")[0].partition(".")[0]
        written, first = self._tops.get(top.lower(), (top, ""))
        if written != top:
            return first
        for folder in _folders(path):
            if folder not in NAMESPACES and (owner := self._packages.get(folder)):
                return owner
        library = _LIBRARY.fullmatch(path)
        return self._libraries.get(library["folder"], "") if library else ""


def _rank(suffix: str) -> int:
    return next(number for number, kind in enumerate(_KINDS) if re.fullmatch(kind, suffix))


def _folders(path: str) -> Iterator[str]:
    """Give the folders that a path is in, the outermost first."""
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))
