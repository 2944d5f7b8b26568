"""Debian's archives without apt: signed lists of packages, what depends on what, and the packages' files.

A list counts only if its hash stands in a Release file that one of Debian's own keys signed (debian-archive-keys.asc:
those of bullseye, bookworm and trixie). Which mirror, in this order: `DEBIAN_MIRROR`, this machine's own sources if it
is a Debian, `MIRROR`. No lock ever holds its name.
"""

import bz2
import difflib
import email.utils
import functools
import gzip
import lzma
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from graphcrate.host import settings
from graphcrate.host.cache import Cache
from graphcrate.host.connections import HttpError, redacted
from graphcrate.host.http import Client
from graphcrate.host.parallel import Advance, parallel
from graphcrate.model.errors import IntegrityError, NetworkError, ResolutionError
from graphcrate.model.lock import DebianPackage, LockedFile

ARCHITECTURE = "amd64"
REGISTRY_INSTEAD = 'or take a base from a registry: base.provider = "registry" in the recipe'
SUITES = ("buster", "bullseye", "bookworm", "trixie", "forky", "sid", "stable", "oldstable", "testing", "unstable")
_KEYS = Path(__file__).with_name("debian-archive-keys.asc")
_UNPACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    ".xz": lzma.decompress,
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    "": bytes,
}
_PRIORITIES = {"required": 0, "important": 1, "standard": 2, "optional": 3}  #: all others come after these
_THREADS = 8  #: small files from one server


class Mirror(msgspec.Struct, frozen=True):
    """URLs of Debian's main archive and of its security archive; `security` empty when there is none."""

    main: str
    security: str = ""


#: For a machine that is not a Debian and names none. A mirror of the Linux kernel's own site.
MIRROR = Mirror("https://mirrors.kernel.org/debian", "https://mirrors.kernel.org/debian-security")


class Stanza(NamedTuple):
    """A package in an archive's list."""

    fields: Mapping[str, str]
    archive: str  #: URL of the archive

    @property
    def name(self) -> str:
        return self.fields["Package"]

    @property
    def version(self) -> str:
        return self.fields["Version"]

    @property
    def url(self) -> str:
        return f"{self.archive}/{self.fields['Filename']}"

    @property
    def package(self) -> DebianPackage:
        """As a lock has it."""
        name = PurePosixPath(self.fields["Filename"]).name
        file = LockedFile(name=name, size=int(self.fields["Size"]), sha256=self.fields["SHA256"].lower())
        return DebianPackage(name=self.name, version=self.version, architecture=self.fields["Architecture"], file=file)


class Archive:
    """What one suite has now, with its updates and its security archive."""

    def __init__(
        self, suite: str, cache: Cache, environment: Mapping[str, str], components: Sequence[str] = ()
    ) -> None:
        """Fetch the lists of main and these components. Raises NetworkError, IntegrityError for what is not signed."""
        self._suite, self._cache, self._client = suite, cache, Client(environment)
        mirror = own_mirror(environment) or MIRROR
        places = [(mirror.main, suite), (mirror.main, f"{suite}-updates")]
        places += [(mirror.security, f"{suite}-security")] if mirror.security else []
        lists = parallel(lambda place, _: list(self._lists(*place, ("main", *components))), places, threads=_THREADS)
        self._by_name: dict[str, list[Stanza]] = {}
        self._providers: dict[str, list[tuple[Stanza, str]]] = {}
        for (archive, _), texts in zip(places, lists, strict=True):
            for text in texts:
                for stanza in parse(text, archive):
                    self._by_name.setdefault(stanza.name, []).append(stanza)
        for stanzas in self._by_name.values():
            stanzas.sort(key=lambda stanza: version_key(stanza.version), reverse=True)
            for name, constraint in _alternatives(stanzas[0].fields.get("Provides", "").replace(",", "|")):
                version = constraint.removeprefix("=").strip()
                self._providers.setdefault(name, []).append((stanzas[0], version))

    def available(self, names: Iterable[str]) -> list[DebianPackage]:
        """Every version that the archives have now of these packages."""
        return [stanza.package for name in names for stanza in self._by_name.get(name, ())]

    def resolve(self, wanted: Sequence[str]) -> tuple[DebianPackage, ...]:
        """These packages and the essential ones with all that they depend on, in the newest versions, sorted by name.

        Recommendations are left out. Of alternatives the first counts that is chosen anyway, else the first that is
        there; of what provides a name the one of the highest priority; what contradicts another is dpkg's to say.
        Raises ResolutionError for a name that the suite lacks.
        """
        chosen: dict[str, Stanza] = {}
        waiting = [name for name, found in sorted(self._by_name.items()) if found[0].fields.get("Essential") == "yes"]
        clauses = [("the recipe", name) for name in (*waiting, *wanted)]
        while clauses:
            asking, clause = clauses.pop(0)
            stanza = self._choose(asking, clause, chosen)
            if stanza.name not in chosen:
                chosen[stanza.name] = stanza
                for field in ("Pre-Depends", "Depends"):
                    clauses += [(stanza.name, text) for text in stanza.fields.get(field, "").split(",") if text.strip()]
        return tuple(chosen[name].package for name in sorted(chosen))

    def _choose(self, asking: str, clause: str, chosen: Mapping[str, Stanza]) -> Stanza:
        found: list[Stanza] = []
        for name, constraint in _alternatives(clause):
            real = [stanza for stanza in self._by_name.get(name, ())[:1] if fits(stanza.version, constraint)]
            virtual = [
                stanza
                for stanza, version in self._providers.get(name, ())
                if not constraint or (version and fits(version, constraint))
            ]
            found += real or sorted(
                virtual, key=lambda one: (_PRIORITIES.get(one.fields.get("Priority", ""), 9), one.name)
            )
        for stanza in found:
            if stanza.name in chosen:
                return stanza
        if not found:
            near = difflib.get_close_matches(clause.strip(), self._by_name, n=3)
            raise ResolutionError(
                f"Debian {self._suite} cannot give a base: {asking} needs {clause.strip()}, which is not in it",
                next_step="correct the name" + (f"; near it: {', '.join(near)}" if near else ""),
            )
        return found[0]

    def download(self, packages: Sequence[DebianPackage], folder: Path, advance: Advance) -> None:
        """Fetch `available` .debs into an empty folder, by their hashes. Raises NetworkError, IntegrityError."""
        urls = {stanza.package: stanza.url for package in packages for stanza in self._by_name[package.name]}

        def fetch(package: DebianPackage, advancing: Advance) -> None:
            file = package.file
            place = folder / file.name
            self._client.download(urls[package], place, size=file.size, sha256=file.sha256, advance=advancing)

        parallel(fetch, packages, threads=_THREADS, advance=advance, size=lambda package: package.file.size)

    def _lists(self, archive: str, suite: str, components: Sequence[str]) -> Iterator[bytes]:
        """The texts of the lists of packages of these components."""
        place = f"{archive}/dists/{suite}"
        release = verified(self._read(f"{place}/InRelease"), place)
        check_valid(release, place, settings.now())
        lines = re.findall(r"^ ([0-9a-f]{64}) +\d+ (\S+)$", release.partition("\nSHA256:")[2], re.MULTILINE)
        by_name = {name: sha256 for sha256, name in lines}
        for component in components:
            stem = f"{component}/binary-{ARCHITECTURE}/Packages"
            kind = next((kind for kind in _UNPACKERS if f"{stem}{kind}" in by_name), None)
            if kind is None:
                raise NetworkError(
                    f"{redacted(place)} has no list of packages of {component}",
                    next_step="DEBIAN_MIRROR=http://another-mirror/debian make image …",
                )
            sha256 = by_name[f"{stem}{kind}"]
            # By its hash where the mirror has that: under its name there may be a newer list by now.
            by_hash = "\nAcquire-By-Hash: yes" in release
            name = f"{stem.rpartition('/')[0]}/by-hash/SHA256/{sha256}" if by_hash else f"{stem}{kind}"
            target = self._cache.path("bases", "lists", sha256)
            if not target.is_file():
                with self._cache.folder() as folder:
                    self._client.download(
                        f"{place}/{name}", folder / "list", size=None, sha256=sha256, advance=lambda _: None
                    )
                    self._cache.adopt(folder / "list", target)
            yield _UNPACKERS[kind](target.read_bytes())

    def _read(self, url: str) -> bytes:
        try:
            return self._client.request("GET", url).body
        except HttpError as error:
            raise NetworkError(
                f"Debian {self._suite}'s package lists cannot be fetched: {error.what}",
                cause="No network, a proxy that no variable names, or a mirror without this suite.",
                next_step=f"DEBIAN_MIRROR=http://a-mirror/debian make image …    ({REGISTRY_INSTEAD})",
            ) from error


def verified(document: bytes, place: str) -> str:
    """The text of an InRelease file, which one of Debian's keys has to have signed. Raises IntegrityError."""
    import pysequoia

    try:
        signed = pysequoia.verify(bytes=document, store=lambda _: pysequoia.Cert.split_file(str(_KEYS)))
    except Exception as error:  # the library raises its own and RuntimeError
        raise IntegrityError(
            f"the Release file of {redacted(place)} is not signed by a key of Debian's that is known here",
            cause=str(error).partition("\n")[0],
            next_step="DEBIAN_MIRROR=http://another-mirror/debian make image …",
        ) from error
    return bytes(signed.bytes or b"").decode()


def check_valid(release: str, place: str, now: float) -> None:
    """Raises IntegrityError for a Release file that was valid until an earlier time. `now`: Unix seconds."""
    until = re.search(r"^Valid-Until: (.+)$", release, re.MULTILINE)
    if until and email.utils.parsedate_to_datetime(until[1]).timestamp() < now:
        raise IntegrityError(
            f"the Release file of {redacted(place)} was valid until {until[1]}",
            cause="The mirror is no longer kept up to date, or this machine's clock is wrong.",
            next_step="check `date`; DEBIAN_MIRROR=http://another-mirror/debian make image …",
        )


def parse(text: bytes, archive: str) -> Iterator[Stanza]:
    """The packages of a list ("Field: value", a blank line between stanzas) of the archive at this URL."""
    for stanza in text.decode("utf-8", "replace").split("\n\n"):
        fields = dict(re.findall(r"^(\S+): *(.*)$", stanza, re.MULTILINE))
        if {"Package", "Version", "Architecture", "Filename", "Size", "SHA256"} <= fields.keys():
            yield Stanza(fields, archive)


def _alternatives(clause: str) -> list[tuple[str, str]]:
    """Names with their constraints, "" or as ">= 1.2", of a dependency ("a:any (>= 1.2) | b")."""
    return re.findall(r"([a-z0-9][a-z0-9+.-]*)(?::\w+)?\s*(?:\(([^)]*)\))?(?=[\s|]|\Z)", clause)


def fits(version: str, constraint: str) -> bool:
    """Whether a version is one of a constraint such as ">= 1:2.3-4" (Debian Policy 7.1); any is of an empty one."""
    if not constraint:
        return True
    relation, _, wanted = constraint.strip().partition(" ")
    one, other = version_key(version), version_key(wanted.strip())
    return {"<<": one < other, "<=": one <= other, "=": one == other, ">=": one >= other, ">>": one > other}[relation]


@functools.cache
def version_key(version: str) -> tuple[object, ...]:
    """What versions are ordered by (deb-version(7)): epoch, upstream's version, revision."""
    epoch, _, rest = version.rpartition(":")
    upstream, dash, revision = rest.rpartition("-")
    return int(epoch or 0), _parts(upstream if dash else rest), _parts(revision if dash else "0")


def _parts(text: str) -> tuple[object, ...]:
    """Letters sort before other characters, and a tilde before the end."""
    return tuple(
        ((*(-1 if c == "~" else ord(c) if c.isalpha() else ord(c) + 256 for c in letters), 0), int(digits or 0))
        for letters, digits in re.findall(r"(\D*)(\d*)", text)
    )


def own_mirror(environment: Mapping[str, str], folder: Path = Path("/etc/apt")) -> Mirror | None:
    """The archives that a variable or this machine's own sources, in `folder`, name; None where none does."""
    if chosen := environment.get("DEBIAN_MIRROR", "").rstrip("/"):
        default = f"{chosen}-security" if chosen.endswith("/debian") else ""
        return Mirror(chosen, environment.get("DEBIAN_SECURITY_MIRROR", default).rstrip("/"))
    main = security = ""
    files = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))]
    for path in files:
        for place, suite in own_sources(path.read_text(errors="replace")) if path.is_file() else ():
            url, (name, _, kind) = place.rstrip("/"), suite.partition("/")[0].partition("-")
            # Other people's archives use these names too ("docker.com/linux/debian bookworm"), never with such a pool.
            if name in SUITES and "debian" in url.rpartition("//")[2] and "/linux/" not in url:
                main = main or ("" if kind else url)
                security = security or (url if kind == "security" else "")
    return Mirror(main, security) if main else None


def own_sources(text: str) -> Iterator[tuple[str, str]]:
    """(URL, suite) of each source in a file of sources.list(5), in the one-line or the deb822 form."""
    yield from re.findall(r"^deb\s+(?:\[[^]]*\]\s*)?(https?://\S+)\s+(\S+)\s", text, re.MULTILINE)
    for stanza in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^(\w[\w-]*): *(.*)$", stanza, re.MULTILINE))
        for url in fields.get("URIs", "").split() if "deb" in fields.get("Types", "").split() else ():
            if url.startswith(("http://", "https://")):
                yield from ((url, suite) for suite in fields.get("Suites", "").split())
