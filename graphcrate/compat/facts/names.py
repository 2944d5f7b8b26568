"""Names of packages that are traps, and packages that bring one folder twice: `data/names.toml`, judged purely."""

from collections.abc import Collection
from typing import Literal

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphcrate.compat.facts.facts import table_reader
from graphcrate.model.words import listed


class Trap(msgspec.Struct, frozen=True, kw_only=True):
    """A name that means something else. `name` is normalised; `next` stands where no package is meant instead."""

    name: str
    kind: Literal["import", "placeholder", "other", "elsewhere", "works"]
    instead: str = ""
    next: str = ""
    known: str

    def why(self, name: str) -> str:
        """Say what is wrong with the name, as it was given: a sentence without its full stop."""
        match self.kind:
            case "import":
                return f"{name} is what one imports: the package is {self.instead}"
            case "placeholder":
                return f"{name} is a name that is kept free, with nothing in it: the package is {self.instead}"
            case "other":
                return f"{name} of the package index is another project than the one that is mostly meant"
            case "works":
                return f"{name} has nothing in it and brings {self.instead}: name that"
        return f"no package index has {name}"


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder to import that each of these packages (normalised names) brings."""

    name: str
    packages: tuple[str, ...]
    known: str


#: all traps
traps = table_reader("names", tuple[Trap, ...], "trap")
#: all folders that several packages bring
folders = table_reader("names", tuple[Folder, ...], "folder")


def trap(name: str) -> Trap | None:
    """Look up a trap of this name, in any spelling; None for most."""
    return next((trap for trap in traps() if trap.name == canonicalize_name(name)), None)


def refused(requirement: Requirement) -> Trap | None:
    """The trap that this requirement is in; None where it means what it says."""
    entry = trap(requirement.name)
    is_exact = any(part.operator in ("==", "===") for part in requirement.specifier)
    return None if entry is None or entry.kind == "works" or (entry.kind == "other" and is_exact) else entry


def package_of(module: str) -> str:
    """The package that has a module by this name, where it is called otherwise: cv2 → opencv-python-headless."""
    entry = trap(module.partition(".")[0])
    return entry.instead if entry else ""


def twice(packages: Collection[str]) -> str:
    """Name those of these packages (normalised names) that bring one folder, as a clause; empty where none do."""
    for folder in folders():
        if len(both := sorted(set(folder.packages) & set(packages))) > 1:
            return f"{listed(both)} each bring the folder {folder.name}"
    return ""
