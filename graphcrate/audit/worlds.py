"""Which folders of packages a Python process sees together: two environments in one image do not serve each other."""

import re
from collections.abc import Iterable

from graphcrate.model.audit import Contents

_FOLDER = re.compile(r"(?P<prefix>.*)/lib(?:64)?/(?P<python>python[\d.]*)/(?P<kind>site|dist)-packages")
_SYSTEM = ("", "/usr", "/usr/local")


class Worlds:
    """A world: folders of one interpreter or virtual environment, by the name of one of them.

    Sources: the module `site`, PEP 405; Debian's and Fedora's Pythons look below /usr and /usr/local alike.
    """

    def __init__(self, contents: Contents, folders: Iterable[str]) -> None:
        """`folders`: all that have packages."""
        self._environments = contents.environments
        self._laid = self.of(contents.laid) if contents.laid else ""
        self._shared = [self.of(folder) for folder in contents.shared]
        self._all = list(dict.fromkeys(map(self.of, folders)))

    def of(self, folder: str) -> str:
        """The world of a site-packages or dist-packages folder."""
        found = _FOLDER.fullmatch(folder)
        if found is None:
            return folder
        prefix, python, kind = found["prefix"], found["python"], found["kind"]
        if prefix not in _SYSTEM:
            return f"{prefix}/lib/{python}/{kind}-packages"
        return "/usr/lib/python3/dist-packages" if kind == "dist" else f"/usr/lib/{python}/site-packages"

    def seen(self, world: str) -> tuple[str, ...]:
        """The worlds that a process of this one sees, itself first."""
        if world == self._laid:  # whichever of the image's environments they are meant for
            others = self._all
        elif (sees_system := self._environments.get(_prefix(world))) is None:
            # `pip install --user` adds to what an interpreter has, and leans on it.
            others = [
                one for one in self._all if _is_users(one) or (_is_users(world) and not self._is_environment(one))
            ]
        else:
            others = [one for one in self._all if sees_system and not self._is_environment(one)]
        return tuple(dict.fromkeys((world, *self._shared, *others)))

    def _is_environment(self, world: str) -> bool:
        return _prefix(world) in self._environments


def _prefix(world: str) -> str:
    found = _FOLDER.fullmatch(world)
    return found["prefix"] if found else ""


def _is_users(world: str) -> bool:
    return _prefix(world).endswith("/.local")
