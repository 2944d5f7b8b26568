"""Archives of .debs without apt: signed lists of packages, and what depends on what.

A list counts only if its hash stands in a Release file that holds (`release`). Which mirrors: `mirrors.archives`.
"""

import datetime
import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from graphcrate.compat.facts import suites
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.inflating import pieces
from graphcrate.host.net import Client, HttpError
from graphcrate.host.parallel import parallel
from graphcrate.inputs.bases.mirrors import Archives, DebianMirror, archives
from graphcrate.inputs.bases.release import SignedRelease, SuiteSource
from graphcrate.model.command import LOCK_AGAIN, setting
from graphcrate.model.errors import IntegrityError, NetworkError, ResolutionError
from graphcrate.model.limits import LIST, Gauge
from graphcrate.model.lock import DebianPackage, LockedFile
from graphcrate.model.platform import DEFAULT, Platform
from patienthttp.errors import ABSENT, host_of, redacted

REGISTRY_INSTEAD = 'or take a base from a registry: base.provider = "registry" in the recipe'
_PRIORITIES = {"required": 0, "important": 1, "standard": 2, "optional": 3}  #: all others come after these
_MOST_LINKED = 3  #: libraries to name for a package to compile with: what is linked to one of more says to which
_NEEDED = tuple(f"\n{name}:" for name in ("Package", "Version", "Architecture", "Filename", "Size", "SHA256"))
_THREADS = 8  #: small files from one server


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
    def package(self) -> DebianPackage:
        """As a lock has it."""
        path = self.field("Filename")
        file = LockedFile(
            name=PurePosixPath(path).name, size=int(self.field("Size")), sha256=self.field("SHA256").lower()
        )
        return DebianPackage(
            name=self.name, version=self.version, architecture=self.field("Architecture"), file=file, path=path
        )


class SuiteArchive:
    """A suite's packages now, with its updates and its security archive."""

    def __init__(
        self,
        suite: str,
        ctx: Context,
        components: Sequence[str] = (),
        platform: Platform = DEFAULT,
        *,
        without_security: bool | None = None,
    ) -> None:
        """Fetch the lists of main and these components. Raises NetworkError, IntegrityError for what is not signed.

        The suite comes from the first mirror that has it, its updates and its security archive from the first that have
        those; a suite that has left the mirrors from the archive of retired suites.

        `without_security`: go on where no server has the fixes of a suite that gets some; None: as the context has it.
        True alone where nothing is locked, and what is missing is said from `has_security`.
        """
        self._goes_on = ctx.without_security if without_security is None else without_security
        self._suite, self._ctx, self._client = suite, ctx, Client(ctx.environment, note=ctx.progress.note)
        self._distribution, self._platform = suites.distribution_of(suite), platform
        self._components = (*self._distribution.components, *components)
        servers = archives(ctx.environment, suite=suite)
        securities = [
            SuiteSource(mirror.security, f"{suite}-security") for mirror in servers.listing if mirror.security
        ]
        self._mains = mains(suite, servers)
        retired = _of_retired(suite, servers)
        of_retired = [SuiteSource(retired.security, f"{suite}-security", is_retired=True)] if retired.security else []
        updates = [source._replace(suite=f"{suite}-updates") for source in self._mains]
        lists = parallel(
            lambda sources, _: self._first(sources),
            [self._mains, updates, [*securities, *of_retired]],
            threads=_THREADS,
        )
        #: when the newest of the lists was made, as the snapshot service writes it
        self.listed = max(suite_lists.time for suite_lists in lists if suite_lists is not None)
        self.has_security = lists[-1] is not None  #: whether the security archive's list was read
        if self.lacks_security and not self._goes_on:
            raise self._no_fixes()
        self._by_name: dict[str, list[Stanza]] = {}
        self._providers: dict[str, list[tuple[Stanza, str]]] = {}
        for suite_lists in filter(None, lists):
            for text in suite_lists.texts:
                for stanza in parse(text, is_fix=suite_lists is lists[-1]):
                    self._by_name.setdefault(stanza.name, []).append(stanza)
        for stanzas in self._by_name.values():
            if len(stanzas) > 1:
                stanzas.sort(key=lambda stanza: version_key(stanza.version), reverse=True)
            provided = stanzas[0].field("Provides")
            for name, constraint in _alternatives(provided.replace(",", "|")) if provided else ():
                version = constraint.removeprefix("=").strip()
                self._providers.setdefault(name, []).append((stanzas[0], version))

    @property
    def lacks_security(self) -> bool:
        """Return whether the security archive's list is missing, of a suite that gets fixes there."""
        its_standing = suites.standing(self._suite, settings.today())
        return not self.has_security and its_standing is not None and its_standing.has_updates

    @property
    def _title(self) -> str:
        return suites.titled(self._suite)

    def paths(self) -> dict[str, str]:
        """The path in the archives of each file that they list: sha256 → path."""
        listed = (stanza.package for stanzas in self._by_name.values() for stanza in stanzas)
        return {package.file.sha256: package.path for package in listed}

    def available(self, names: Iterable[str]) -> list[DebianPackage]:
        """Every version that the archives have now of these packages."""
        return [stanza.package for name in names for stanza in self._by_name.get(name, ())]

    def newer(self, package: DebianPackage) -> tuple[str, bool] | None:
        """The newest version of a package that is newer than this one, and whether the security archive has such a one.

        None where nothing newer is listed.
        """
        have = version_key(package.version)
        newer = [stanza for stanza in self._by_name.get(package.name, ()) if version_key(stanza.version) > have]
        of_security = any(stanza.is_fix for stanza in newer)
        return (newer[0].version, of_security) if newer else None

    def fixed(self, package: DebianPackage) -> DebianPackage | None:
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

    def resolve(self, names: Sequence[str]) -> tuple[DebianPackage, ...]:
        """These packages and the essential ones with all that they depend on, in the newest versions, sorted by name.

        Recommendations are left out. Of alternatives the first counts that is chosen anyway, else the first that is
        there; of what provides a name the one of the highest priority; what contradicts another is dpkg's to say.
        Raises ResolutionError for a name that the suite lacks.
        """
        chosen: dict[str, Stanza] = {}
        newest = {name: stanzas[0] for name, stanzas in sorted(self._by_name.items())}
        essential = [name for name, stanza in newest.items() if stanza.field("Essential") == "yes"]
        clauses = [("the recipe", name) for name in (*essential, *names)]
        while clauses:
            asking, clause = clauses.pop(0)
            stanza = self._choose(asking, clause, chosen)
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
            raise ResolutionError(
                f"{self._title} cannot give a base: {asking} needs {clause.strip()}, which is not in it",
                next_step="correct the name" + (f"; near it: {', '.join(near)}" if near else ""),
            )
        return candidates[0]

    def _first(self, sources: Sequence["SuiteSource"]) -> "_Lists | None":
        """Return the first of these sources with the suite's lists; None where none has it, and it is not the main one.

        Raises IntegrityError where no source has it and one has what Debian did not sign, or no longer; NetworkError
        where it is not certain that no source has it: a lock without an archive of fixes is for suites without one.
        """
        failures: list[NetworkError | IntegrityError] = []
        for source in sources:
            try:
                return self._lists(source)
            except (NetworkError, IntegrityError) as error:
                failures.append(error)
                if source is not sources[-1]:
                    self._ctx.progress.note(f"{error.what}; asking the next mirror")
        if unsigned := next((failure for failure in failures if isinstance(failure, IntegrityError)), None):
            raise unsigned
        is_certain = all(isinstance(failure, HttpError) and failure.failure.status in ABSENT for failure in failures)
        if sources == self._mains or not is_certain:
            raise self._no_lists(failures)
        if sources:
            kind = sources[0].suite.partition("-")[2]
            end = "" if kind == "security" and not self._goes_on else "; going on without it"
            self._ctx.progress.note(f"{self._title}: no mirror has its {kind} list{end}")
        return None

    def _no_lists(self, failures: Sequence[NetworkError | IntegrityError]) -> NetworkError:
        reasons = "; ".join(dict.fromkeys(error.what for error in failures)) or "no mirror is named"
        return NetworkError(
            f"{self._title}'s package lists cannot be fetched: {reasons}",
            cause="No network, a proxy that no variable names, or mirrors without this suite.",
            next_step=f"{self._distribution.another_mirror}    ({REGISTRY_INSTEAD})",
        )

    def _no_fixes(self) -> NetworkError:
        mirror = self._distribution.variable("SECURITY_MIRROR")
        return NetworkError(
            f"{self._title} gets security updates, and no mirror gives their list",
            cause="The mirror that is named has no security archive; or somebody on the way hides it.",
            next_step=f"{mirror}=http://a-mirror/{self._distribution.security} {LOCK_AGAIN}, "
            f"or {setting(without_security=True).both()}, which the image then says",
        )

    def _lists(self, source: "SuiteSource") -> "_Lists":
        """The lists of packages of a suite of one source. Raises HttpError, IntegrityError, NetworkError."""
        release = SignedRelease.of(source, self._ctx, self._client)
        return _Lists(tuple(self._list(release, component) for component in self._components), release.time)

    def _list(self, release: "SignedRelease", component: str) -> bytes:
        """The list of packages of a component, by its hash in the Release file."""
        listed = release.file(f"{component}/binary-{self._platform.debian}/Packages")
        if listed is None:
            raise NetworkError(
                f"{redacted(release.url)} has no list of packages of {component}",
                next_step=self._distribution.another_mirror,
            )
        cache = self._ctx.cache
        target = cache.path("bases", "lists", listed.sha256)
        if not target.is_file():
            with cache.folder() as folder:
                partial, ignored = folder / "list", lambda _: None
                try:
                    self._client.download(
                        listed.address, partial, size=listed.size, sha256=listed.sha256, advance=ignored
                    )
                except IntegrityError as error:
                    error.next_step = self._distribution.another_mirror
                    raise
                cache.adopt(partial, target)
        what, size = f"the list of packages {listed.name} of {host_of(release.url)}", target.stat().st_size
        with target.open("rb") as packed:
            return b"".join(pieces(what, listed.packing, packed, Gauge(LIST, what, packed=size)))


def mains(suite: str, servers: Archives) -> list[SuiteSource]:
    """The main archives that may have a suite: mirrors, and the archive of retired ones where it may have left them."""
    retired = _of_retired(suite, servers).main
    sources = [SuiteSource(mirror.main, suite) for mirror in servers.listing if mirror.main]
    return [*sources, *([SuiteSource(retired, suite, is_retired=True)] if retired else [])]


def _of_retired(suite: str, servers: Archives) -> DebianMirror:
    today = datetime.datetime.fromtimestamp(settings.now(), datetime.UTC).date()
    return DebianMirror("") if suites.retired(suite, today) == "no" else servers.retired


class _Lists(NamedTuple):
    texts: tuple[bytes, ...]
    time: str  #: when they were signed, as the snapshot service writes it


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


def fits(version: str, constraint: str) -> bool:
    """Return whether a version is one of a constraint such as ">= 1:2.3-4" (Debian Policy 7.1).

    Any is of an empty one.
    """
    if not constraint:
        return True
    relation, _, bound = constraint.strip().partition(" ")
    left, right = version_key(version), version_key(bound.strip())
    relations = {"<<": left < right, "<=": left <= right, "=": left == right, ">=": left >= right, ">>": left > right}
    return relations[relation]


@functools.cache
def version_key(version: str) -> tuple[object, ...]:
    """Return the sort key of versions (deb-version(7)): epoch, upstream's version, revision."""
    epoch, _, rest = version.partition(":")
    if not epoch.isdecimal() or not rest:
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return _number(epoch), _parts(upstream if dash else rest), _parts(revision if dash else "0")


def _parts(text: str) -> tuple[object, ...]:
    """Split a part of a version into pairs of what is no digit and a number, which are compared in turn."""
    end = 0
    pairs = re.findall(r"([^0-9]*)([0-9]*)", text)
    return tuple(((*map(_order, others), end), _number(digits)) for others, digits in pairs)


def _order(character: str) -> int:
    """Place of a character that is no digit: a tilde before the end of the text (0), then letters, then all others."""
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256


def _number(digits: str) -> tuple[int, str]:
    """Return the sort key of numbers of any length: Python makes none of more than 4300 digits."""
    significant = digits.lstrip("0")
    return len(significant), significant
