"""Which folders of packages a Python process sees together: two environments in one image do not serve each other."""

import re
from collections.abc import Iterable

from graphcrate.compat.facts import numbers
from graphcrate.model.audit import Contents

_FOLDER = re.compile(r"(?P<prefix>.*)/lib(?:64)?/python(?P<version>[\d.]*)/(?P<kind>site|dist)-packages")
_INTERPRETER = re.compile(r"(?P<prefix>.*)/bin/python(?P<version>[\d.]*)")
_SYSTEM = ("", "/usr", "/usr/local")
_DEBIANS = "/usr/bin/"  #: whose interpreters see python3/dist-packages


class Worlds:
    """A world: folders of one interpreter or virtual environment, by the name of one of them.

    A folder that is neither's (`pip install --target`, a prefix of Spack's) is one too, and is meant for any
    interpreter there is. Sources: the module `site`, PEP 405; Debian's and Fedora's Pythons look below /usr
    and /usr/local alike.
    """

    def __init__(self, contents: Contents, folders: Iterable[str]) -> None:
        """`folders`: all that have packages."""
        self._environments = contents.environments
        self._python = contents.python
        self._interpreters: dict[str, list[str]] = {}
        for path in sorted(contents.binaries):
            if found := _INTERPRETER.fullmatch(path):
                prefix = "/usr" if found["prefix"] in _SYSTEM else found["prefix"]
                self._interpreters.setdefault(prefix, []).append(path)
        self._laid = self.of(contents.laid) if contents.laid else ""
        self._all = list(dict.fromkeys(map(self.of, folders)))

    def of(self, folder: str) -> str:
        """The world of a site-packages or dist-packages folder."""
        found = _FOLDER.fullmatch(folder)
        if found is None:
            return folder
        prefix, version, kind = found["prefix"], found["version"], found["kind"]
        if prefix not in _SYSTEM:
            return f"{prefix}/lib/python{version}/{kind}-packages"
        return "/usr/lib/python3/dist-packages" if kind == "dist" else f"/usr/lib/python{version}/site-packages"

    def seen(self, world: str) -> tuple[str, ...]:
        """The worlds that a process of this one sees, in the order in which it looks: its own, then others."""
        prefix = _prefix(world)
        if world == self._laid:  # whichever of the image's interpreters it is meant for
            others = self._all
        elif prefix in self._environments:
            others = [one for one in self._all if self._environments[prefix] and _prefix(one) not in self._environments]
        else:
            others = [] if prefix in self._interpreters else self._all
        return tuple(dict.fromkeys((world, *others)))

    def interpreters(self, world: str) -> tuple[str, ...]:
        """Paths of a world's own; a virtual environment may borrow one, and other folders have none."""
        return tuple(self._interpreters.get(_prefix(world), ()))

    def pythons(self, folder: str) -> tuple[str, ...]:
        """The Pythons ("3.11") that packages in a folder, or world, are for; empty where nothing tells.

        Its name says so, unless it was laid there; Debian's python3/dist-packages are for each Python in /usr/bin.
        """
        found = _FOLDER.fullmatch(folder)
        version = found["version"] if found and self.of(folder) != self._laid else ""
        if "." in version:
            return (version,)
        if version:
            paths = [path for path in self.interpreters(self.of(folder)) if path.startswith(_DEBIANS)]
            versions = {path.rpartition("/python")[2] for path in paths}
            if debians := sorted((one for one in versions if "." in one), key=numbers):
                return tuple(debians)
        return (self._python,) if self._python else ()


def _prefix(world: str) -> str:
    found = _FOLDER.fullmatch(world)
    return found["prefix"] if found else ""
