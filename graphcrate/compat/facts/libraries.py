"""Libraries that compiled packages are linked to, made of Debian's sources (`data/compiled_extensions.toml`). Pure."""

import hashlib
from collections.abc import Collection, Mapping

import msgspec

from graphcrate.compat.facts.facts import table_reader
from graphcrate.model.command import LOCK_AGAIN
from graphcrate.model.errors import LockedError
from graphcrate.model.lock import Compilation, DebianSource, LockedFile, LockedPackage


class Library(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The making of a library of its sources, and linking it; the data's own comments have each field."""

    name: str
    title: str
    packages: tuple[str, ...]
    source: str
    version: str
    suite: str
    listed: str
    path: str
    size: int
    sha256: str
    folder: str
    edits: tuple[tuple[str, str, str], ...]
    files: tuple[str, ...]
    without: tuple[str, ...]
    options: str
    include: tuple[str, ...]
    seconds: float
    variables: Mapping[str, str]
    text: str
    licence: str
    notice: str

    @property
    def locked(self) -> DebianSource:
        """Return its entry in a lock."""
        file = LockedFile(name=self.path.rpartition("/")[2], size=self.size, sha256=self.sha256)
        return DebianSource(
            name=self.source,
            version=self.version,
            architecture="source",
            file=file,
            path=self.path,
            suite=self.suite,
            listed=self.listed,
        )

    @property
    def text_name(self) -> str:
        """The name of its licence beside a package's own; setuptools takes such files into the wheel."""
        return f"LICENSE.{self.name.upper()}.txt"

    @property
    def notice_name(self) -> str:
        """The name of its notice there."""
        return f"NOTICE.{self.name.upper()}.txt"

    @property
    def key(self) -> str:
        """Hash what of this changes the packages that are linked to it."""
        made = (self.name, self.folder, self.edits, self.files, self.without, self.options, self.include)
        parts = (*made, self.variables, self.text, self.notice)
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


_libraries = table_reader("compiled_extensions", tuple[Library, ...], "library")


def of_packages(names: Collection[str]) -> tuple[Library, ...]:
    """The libraries that any of these packages (normalised names) is linked to."""
    return tuple(library for library in _libraries() if not set(library.packages).isdisjoint(names))


def with_libraries(compilation: Compilation, names: Collection[str]) -> Compilation:
    """The compilation with the sources of what these packages are linked to, beside those that it has."""
    there = {source.name: source for source in compilation.linked}
    there |= {library.source: library.locked for library in of_packages(names) if library.source not in there}
    libraries = tuple(there[name] for name in sorted(there))
    return msgspec.structs.replace(compilation, libraries=libraries or msgspec.UNSET)


def without_others(compilation: Compilation, names: Collection[str]) -> Compilation:
    """The compilation with those libraries alone that one of these packages is linked to."""
    linked = tuple(source for source in compilation.linked if not set(library_of(source).packages).isdisjoint(names))
    return msgspec.structs.replace(compilation, libraries=linked or msgspec.UNSET)


def library_of(source: DebianSource) -> Library:
    """The library that these sources make. Raises LockedError for a lock's unknown ones."""
    for library in _libraries():
        if library.source == source.name:
            return library
    raise LockedError(
        f"the lock links packages to {source.name}, and this graphcrate does not know how that is made",
        cause="A newer graphcrate made the lock, or somebody changed it.",
        next_step=f"take the graphcrate that made it, or make it again: {LOCK_AGAIN}",
    )


def titled(package: LockedPackage, compilation: Compilation) -> str:
    """A compiled package with what it is linked to: "torch-sparse 0.6.18 (with METIS 5.1.0)"."""
    titles = [library.title for library, _ in linked(package.name, compilation)]
    return f"{package.name} {package.version}" + (f" (with {', '.join(titles)})" if titles else "")


def linked(package: str, compilation: Compilation) -> tuple[tuple[Library, DebianSource], ...]:
    """List the libraries that a package is linked to in this compilation."""
    known = ((library_of(source), source) for source in compilation.linked)
    return tuple((library, source) for library, source in known if package in library.packages)
