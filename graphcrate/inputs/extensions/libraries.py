"""Libraries that packages are linked to, as orders for the program in the sandbox: what is made, and who takes it."""

from collections.abc import Iterable

from graphcrate.compat.facts.libraries import Library, linked
from graphcrate.model.lock import Compilation, DebianSource, LockedPackage
from graphcrate.model.plan import BUILD


def folder(library: Library) -> str:
    """The folder in which a library is made; what links to it finds `lib<name>.a` there."""
    return f"{BUILD}/{library.name}"


def used(packages: Iterable[LockedPackage], compilation: Compilation) -> dict[str, tuple[Library, DebianSource]]:
    """Map libraries that these packages are linked to, by name."""
    return {made[0].name: made for package in packages for made in linked(package.name, compilation)}


def library_order(library: Library, source: DebianSource) -> dict[str, object]:
    """Return the order by which the program in the sandbox makes a library."""
    return {
        "name": library.name,
        "archive": f"{BUILD}/{source.file.name}",
        "top": library.folder,
        "folder": folder(library),
        "log": f"{BUILD}/logs/{library.name}",
        "edits": library.edits,
        "texts": {library.notice_name: library.notice},
        "files": library.files,
        "without": library.without,
        "options": library.options.split(),
        "include": library.include,
        "seconds": library.seconds,
    }


def package_order(package: str, compilation: Compilation) -> dict[str, object]:
    """Return what a package's order has besides, where it is linked to libraries; else nothing."""
    mine = [library for library, _ in linked(package, compilation)]
    if not mine:
        return {}
    return {
        "libraries": [library.name for library in mine],
        "variables": {name: value for library in mine for name, value in library.variables.items()},
        "include_dirs": [f"{folder(library)}/{path}" for library in mine for path in library.include],
        "library_dirs": [folder(library) for library in mine],
        "texts": {
            name: f"{folder(library)}/{path}"
            for library in mine
            for name, path in ((library.text_name, library.text), (library.notice_name, library.notice_name))
        },
    }
