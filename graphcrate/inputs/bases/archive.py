"""Archives of .debs without apt: signed lists of packages, and what depends on what.

A list counts only if its hash stands in a Release file that holds (`release`). Which mirrors: `mirrors.archives`.
"""

import datetime
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from debroot.lists import Package, PackageLists
from debroot.mirrors import Archives, DebianMirror
from debroot.release import SignedRelease, SuiteSource
from graphcrate.compat.facts import suites
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.inflating import pieces
from graphcrate.host.net import Client, HttpError
from graphcrate.host.parallel import parallel
from graphcrate.inputs.bases.debroot_errors import REGISTRY_INSTEAD, translated
from graphcrate.inputs.bases.mirrors import archives
from graphcrate.inputs.bases.release import fetched
from graphcrate.model.command import LOCK_AGAIN, setting
from graphcrate.model.errors import IntegrityError, NetworkError
from graphcrate.model.limits import LIST, Gauge
from graphcrate.model.lock import DebianPackage, LockedFile
from graphcrate.model.platform import DEFAULT, Platform
from patienthttp.errors import ABSENT, host_of, redacted

_THREADS = 8  #: small files from one server


def locked(package: Package) -> DebianPackage:
    """A listed package as a lock has it."""
    file = LockedFile(name=package.file, size=package.size, sha256=package.sha256)
    return DebianPackage(
        name=package.name, version=package.version, architecture=package.architecture, file=file, path=package.path
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
        self._suite, self._title = suite, suites.titled(suite)
        self._ctx, self._client = ctx, Client(ctx.environment, note=ctx.progress.note)
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
        *usual, fixes = lists
        self.has_security = fixes is not None  #: whether the security archive's list was read
        if self.lacks_security and not self._goes_on:
            raise self._no_fixes()
        texts = (text for suite_lists in filter(None, usual) for text in suite_lists.texts)
        self.lists = PackageLists(self._title, texts, fixes.texts if fixes else ())

    @property
    def lacks_security(self) -> bool:
        """Return whether the security archive's list is missing, of a suite that gets fixes there."""
        its_standing = suites.standing(self._suite, settings.today())
        return not self.has_security and its_standing is not None and its_standing.has_updates

    def available(self, names: Iterable[str]) -> list[DebianPackage]:
        """Every version that the archives have now of these packages."""
        return [locked(package) for package in self.lists.available(names)]

    def fixed(self, package: DebianPackage) -> DebianPackage | None:
        """The newest of a package in the security archive that is newer than this one; None for none."""
        newest = self.lists.fixed(package)
        return locked(newest) if newest else None

    def resolve(self, names: Iterable[str]) -> tuple[DebianPackage, ...]:
        """These packages and the essential ones with all that they depend on, as a lock has them.

        Raises ResolutionError for a name that the suite lacks.
        """
        with translated(self._suite):
            return tuple(map(locked, self.lists.resolve(names, "the recipe")))

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
        release = fetched(source, self._ctx, self._client)
        return _Lists(tuple(self._list(release, component) for component in self._components), release.time)

    def _list(self, release: "SignedRelease", component: str) -> bytes:
        """The list of packages of a component, by its hash in the Release file."""
        with translated(self._suite):
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
