"""Lists of packages (deb822(5)): read, and what depends on what."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

from debroot.errors import MissingPackageError
from debroot.versions import fits, version_key

_PRIORITIES = {"required": 0, "important": 1, "standard": 2, "optional": 3}  #: all others come after these
_MOST_LINKED = 3  #: libraries to name for a package to compile with: what is linked to one of more says to which
_NEEDED = tuple(f"\n{name}:" for name in ("Package", "Version", "Architecture", "Filename", "Size", "SHA256"))


class Package(NamedTuple):
    """A .deb of an archive. `path`: below the archive's root; `size` in bytes."""

    name: str
    version: str
    architecture: str
    path: str
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """The name of its file."""
        return PurePosixPath(self.path).name


class Versioned(Protocol):
    """A package by its name and version."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...


class Stanza(NamedTuple):
    """A package in an archive's list, as its text: a suite lists 60,000, and a few hundred are looked at."""

    name: str
    text: str  #: lines "Field: value", a line feed before each
    is_fix: bool  #: of the security archive's list

    def field(self, name: str) -> str:
        """Return the first line of a field; empty where it is missing. Of two of one name the last counts."""
        return _field(self.text, name)

    @property
    def version(self) -> str:
        return self.field("Version")

    @property
    def package(self) -> Package:
        """As a lock has it."""
        return Package(
            name=self.name,
            version=self.version,
            architecture=self.field("Architecture"),
            path=self.field("Filename"),
            size=int(self.field("Size")),
            sha256=self.field("SHA256").lower(),
        )


class PackageLists:
    """The packages of a suite's lists: which there are, in which versions, and what they need."""

    def __init__(self, title: str, texts: Iterable[bytes], fixes: Iterable[bytes] = ()) -> None:
        """Read lists. `title`: the suite's, for errors; `fixes`: those of the security archive."""
        self._title = title
        self._by_name: dict[str, list[Stanza]] = {}
        self._providers: dict[str, list[tuple[Stanza, str]]] = {}
        for are_fixes, them in ((False, texts), (True, fixes)):
            for text in them:
                for stanza in parse(text, is_fix=are_fixes):
                    self._by_name.setdefault(stanza.name, []).append(stanza)
        for stanzas in self._by_name.values():
            if len(stanzas) > 1:
                stanzas.sort(key=lambda stanza: version_key(stanza.version), reverse=True)
            provided = stanzas[0].field("Provides")
            for name, constraint in _alternatives(provided.replace(",", "|")) if provided else ():
                version = constraint.removeprefix("=").strip()
                self._providers.setdefault(name, []).append((stanzas[0], version))

    def paths(self) -> dict[str, str]:
        """The path in the archives of each file that they list: sha256 → path."""
        listed = (stanza.package for stanzas in self._by_name.values() for stanza in stanzas)
        return {package.sha256: package.path for package in listed}

    def available(self, names: Iterable[str]) -> list[Package]:
        """Every version that the archives have now of these packages."""
        return [stanza.package for name in names for stanza in self._by_name.get(name, ())]

    def newer(self, package: Versioned) -> tuple[str, bool] | None:
        """The newest version of a package that is newer than this one, and whether the security archive has such a one.

        None where nothing newer is listed.
        """
        have = version_key(package.version)
        newer = [stanza for stanza in self._by_name.get(package.name, ()) if version_key(stanza.version) > have]
        of_security = any(stanza.is_fix for stanza in newer)
        return (newer[0].version, of_security) if newer else None

    def fixed(self, package: Versioned) -> Package | None:
        """The newest of a package in the security archive that is newer than this one; None for none."""
        have = version_key(package.version)
        stanzas = (stanza for stanza in self._by_name.get(package.name, ()) if stanza.is_fix)
        return next((stanza.package for stanza in stanzas if version_key(stanza.version) > have), None)

    def linked_by(self, name: str) -> tuple[str, ...]:
        """The packages with the libraries that a package to compile with is for, at most three; empty for others.

        It depends on those of its own version (Debian's policy, 8.4); where one is named as it is, on that alone.
        """
        stanza = next(iter(self._by_name.get(name, ())), None)
        if stanza is None or not name.endswith("-dev"):
            return ()
        base = name.removesuffix("-dev")
        clauses = map(_alternatives, stanza.field("Depends").split(","))
        exact = [
            depended
            for depended, constraint in (clause[0] for clause in clauses if clause)
            if depended.startswith("lib")
            and not depended.endswith(("-dev", "-bin", "-doc"))
            and constraint.removeprefix("=").strip() == stanza.version
        ]
        if base in exact:
            return (base,)
        near = [depended for depended in exact if depended.startswith(base)] or exact
        return tuple(near) if len(near) <= _MOST_LINKED else ()

    def source_of(self, name: str) -> str:
        """The source package that a listed package was built from; its own name where that is not said."""
        stanzas = self._by_name.get(name, ())
        return (stanzas[0].field("Source").split() or [name])[0] if stanzas else name

    def resolve(self, names: Iterable[str], asking: str = "the list of packages") -> tuple[Package, ...]:
        """These packages and the essential ones with all that they depend on, in the newest versions, sorted by name.

        Recommendations are left out. Of alternatives the first counts that is chosen anyway, else the first that is
        there; of what provides a name the one of the highest priority; what contradicts another is dpkg's to say.
        `asking`: who names them, for errors.
        Raises MissingPackageError for a name that the suite lacks.
        """
        chosen: dict[str, Stanza] = {}
        newest = {name: stanzas[0] for name, stanzas in sorted(self._by_name.items())}
        essential = [name for name, stanza in newest.items() if stanza.field("Essential") == "yes"]
        clauses = [(asking, name) for name in (*essential, *names)]
        while clauses:
            by, clause = clauses.pop(0)
            stanza = self._choose(by, clause, chosen)
            if stanza.name not in chosen:
                chosen[stanza.name] = stanza
                for field in ("Pre-Depends", "Depends"):
                    clauses += [(stanza.name, text) for text in stanza.field(field).split(",") if text.strip()]
        return tuple(chosen[name].package for name in sorted(chosen))

    def _choose(self, asking: str, clause: str, chosen: Mapping[str, Stanza]) -> Stanza:
        candidates: list[Stanza] = []
        for name, constraint in _alternatives(clause):
            real = [stanza for stanza in self._by_name.get(name, ())[:1] if fits(stanza.version, constraint)]
            virtual = [
                stanza
                for stanza, version in self._providers.get(name, ())
                if not constraint or (version and fits(version, constraint))
            ]
            candidates += real or sorted(
                virtual, key=lambda provider: (_PRIORITIES.get(provider.field("Priority"), 9), provider.name)
            )
        for stanza in candidates:
            if stanza.name in chosen:
                return stanza
        if not candidates:
            near = difflib.get_close_matches(clause.strip(), self._by_name, n=3)
            raise MissingPackageError(self._title, asking, clause.strip(), near)
        return candidates[0]


def parse(text: bytes, *, is_fix: bool = False) -> Iterator[Stanza]:
    """Yield the packages of a list ("Field: value", a blank line between stanzas)."""
    for lines in text.decode("utf-8", "replace").split("\n\n"):
        fields = f"\n{lines}"
        if all(field in fields for field in _NEEDED):
            yield Stanza(_field(fields, "Package"), fields, is_fix)


def _field(text: str, name: str) -> str:
    before = text.rfind(f"\n{name}:")
    if before < 0:
        return ""
    begin = before + len(name) + 2
    end = text.find("\n", begin)
    return text[begin : end if end >= 0 else None].lstrip(" ")


def _alternatives(clause: str) -> list[tuple[str, str]]:
    """Names with their constraints, "" or as ">= 1.2", of a dependency ("a:any (>= 1.2) | b")."""
    return re.findall(r"([a-z0-9][a-z0-9+.-]*)(?::\w+)?\s*(?:\(([^)]*)\))?(?=[\s|]|\Z)", clause)
