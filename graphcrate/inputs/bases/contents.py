"""Find the Debian package with a library, by the name that programs ask for, or with a file that a build lacks: in
Debian's own index of all files, or in dpkg's lists where the package is installed.

The index (11 MB, 150 inflated) counts only by its hash in a Release file that Debian signed. What is kept of it
is which packages have which library where the loader looks (ld.so(8)). How a package for a library is named is Debian's
policy, 8.1. Security updates have no index of their own, and bring no new names.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from graphcrate.compat.facts import sonames, suites
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.cache import kept
from graphcrate.host.disk.inflating import pieces
from graphcrate.host.net import Client
from graphcrate.inputs.bases.archive import SuiteArchive, mains
from graphcrate.inputs.bases.mirrors import archives
from graphcrate.inputs.bases.release import Listed, SignedRelease
from graphcrate.model.errors import IntegrityError, NetworkError
from graphcrate.model.limits import INDEX, Gauge
from graphcrate.model.lock import encode
from graphcrate.model.platform import DEFAULT, Platform
from patienthttp.errors import host_of, redacted

_Made = TypeVar("_Made")
FRESH = 30 * 86_400.0  #: seconds that an index counts without asking again: suites hardly change once they are out
_TRIES = 1  #: more of one request, while another mirror may answer
_CONNECTING = 3.0  #: seconds: this is advice, not worth a long wait
_LONGEST = 1 << 16  #: bytes of a line of the index
_LINE = r"^(?:usr/)?lib(?:64)?/(?:{triplet}/)?(?:([^/\s]+)/)?([^/\s]+\.so(?:\.[^/\s]+)?)[ \t]+(\S+)$"  #: of the index
#: packages for compiling or debugging: nothing that runs should depend on one
_NOT_TO_RUN = re.compile(r"(?:[^,]*/)?(?:debug|libdevel)/|.*-(?:dev|dbg|dbgsym|cross)$")
#: what a build lacks → its files in the index, by which programs find it; `{name}` in any case of letters
_OF_BUILDS = {
    "header": r"usr/include/(?:\S*/)?{name}",
    "library": r"usr/(?:lib|share)/(?:\S*/)?(?:pkgconfig/(?:lib)?{name}\.pc|lib{name}\.so|{name}-?config\.cmake)",
    "program": r"usr/s?bin/{name}",
}
_DEVELOPMENT = re.compile(r"(?:[^,]*/)?libdevel/|.*-dev$")


class ContentsIndex(msgspec.Struct, frozen=True, kw_only=True):
    """Of a suite: name of a library ("libX11.so.6") → packages that have it where the loader looks, sorted."""

    suite: str
    sha256: str  #: of the file that it was made of
    read: float  #: when Debian's Release file last had that hash, in Unix seconds
    packages: Mapping[str, tuple[str, ...]]
    format: Literal[1] = 1


def index(suite: str, ctx: Context, platform: Platform = DEFAULT, *, ask: bool = True) -> ContentsIndex | None:
    """The index of a suite: as it was read lately, else as Debian has it now, else as it was read once.

    `ask` False: nothing is fetched. None where neither is known. Raises NetworkError, IntegrityError where one was
    asked for and nothing was read before.
    """
    record = ctx.cache.path("bases", "contents", f"{suite}{'' if platform == DEFAULT else f'-{platform.debian}'}.json")
    stored = kept(record, ContentsIndex)
    if not ask or (stored is not None and 0 <= settings.now() - stored.read < FRESH):
        return stored
    try:
        latest = _today(suite, ctx, stored, platform)
    except (NetworkError, IntegrityError):
        if stored is None:
            raise
        return stored
    ctx.cache.keep(record, encode(latest))
    return latest


def bringing(kind: str, name: str, suite: str, ctx: Context, platform: Platform = DEFAULT) -> tuple[str, ...]:
    """Packages of a suite with a header, library or program (`kind`) of this name, any of which will do.

    Those with the file nearest to where compilers look, and to compile with rather than to run. The index is read
    for it, and nothing is kept. Empty where no package has it, or no server answers.
    """
    pattern = _OF_BUILDS[kind].format(name=re.escape(name.removeprefix("lib") if kind == "library" else name))
    line = re.compile(rf"^({pattern})[ \t]+(\S+)$".encode(), re.MULTILINE | re.IGNORECASE)

    def read(pieces: Iterable[bytes]) -> list[tuple[str, str]]:
        matches = (match for block in _whole_lines(pieces) for match in line.findall(block))
        return [(path.decode("utf-8", "replace"), names.decode("utf-8", "replace")) for path, names in matches]

    def of(release: SignedRelease, client: Client) -> list[tuple[str, str]]:
        return _inflated(release, _listed(release, suite, platform), suite, ctx, client.download, read)

    with contextlib.suppress(NetworkError, IntegrityError):
        places = [(path, location) for path, names in _first(suite, ctx, of) for location in names.split(",")]
        develops = [entry for entry in places if _DEVELOPMENT.match(entry[1])]
        chosen = places if kind == "program" else develops or places
        nearest = min((path.count("/") for path, _ in chosen), default=0)
        packages = {location.rpartition("/")[2] for path, location in chosen if path.count("/") == nearest}
        return _one_of(sorted(packages, key=lambda package: (len(package), package)))
    return ()


def linked_by(package: str, suite: str, ctx: Context, platform: Platform = DEFAULT) -> tuple[str, ...]:
    """The libraries that a package to compile with (libcairo2-dev) is for; see `SuiteArchive.linked_by`.

    Empty where no server answers.
    """
    with contextlib.suppress(NetworkError, IntegrityError):
        return SuiteArchive(suite, ctx, platform=platform, without_security=True).linked_by(package)
    return ()


def choice(name: str, packages: Iterable[str]) -> tuple[str, ...]:
    """Of packages that have a library of this name the one to install; several where each is another thing.

    The one that is named after the library, as Debian's policy has it; else the one whose name all others go on from
    (libqt5gui5, and libqt5gui5-gles).
    """
    names, usual = sorted(packages, key=len), sonames.debian_package(name)
    named = [package for package in names if package in (usual, f"{usual}t64")]
    return tuple(named[:1]) if named else _one_of(names)


def _one_of(packages: list[str]) -> tuple[str, ...]:
    """The first where the others go on from its name; else all, sorted. `packages`: the shortest first."""
    is_first = all(package.startswith(packages[0].removesuffix("-dev")) for package in packages)
    return tuple(packages[:1] if is_first else sorted(packages))


def installed(library: str, rootfs: Path) -> tuple[str, ...]:
    """The packages to name for a library ("libsnappy.so.1") that dpkg has installed there, as `choice` has them.

    Empty where none has it.
    """
    there, owners = set[str](), set[str]()
    for path in (rootfs / "var/lib/dpkg/info").glob("*.list"):
        package = path.name.removesuffix(".list").partition(":")[0]
        if not _NOT_TO_RUN.match(package):
            there.add(package)
            if f"/{library}\n" in path.read_text(encoding="utf-8", errors="replace"):
                owners.add(package)
    usual = sonames.debian_package(library)  # it may be empty, and depend on any of those that have the library
    return choice(library, owners | ({usual} & there)) if owners else ()


def libraries(pieces: Iterable[bytes], platform: Platform = DEFAULT) -> dict[str, tuple[str, ...]]:
    """Read an index, which comes in pieces. Raises IntegrityError for a damaged one."""
    usual: dict[str, set[str]] = {}
    inner: dict[str, set[str]] = {}
    line = re.compile(_LINE.format(triplet=re.escape(platform.triplet)).encode(), re.MULTILINE)
    for block in _whole_lines(pieces):
        for folder, name, names in line.findall(block):
            library = name.decode("utf-8", "replace")
            for location in names.decode("utf-8", "replace").split(","):
                package = location.rpartition("/")[2]
                if _NOT_TO_RUN.match(location):
                    continue
                if not folder:
                    usual.setdefault(library, set()).add(package)
                elif (package + "-").startswith(sonames.debian_package(library) + "-"):
                    # What `update-alternatives` puts before the loader: libblas3's is in a folder of its own.
                    inner.setdefault(library, set()).add(package)
    return {name: tuple(sorted(packages)) for name, packages in sorted({**inner, **usual}.items())}


def _whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        lines, newline, last = piece.rpartition(b"\n")
        if newline:
            yield rest + lines
            rest = last
        else:
            rest += last
        if len(rest) > _LONGEST:
            raise IntegrityError(f"an index of Debian's files has a line of more than {_LONGEST >> 10} kB")
    yield rest


def _today(suite: str, ctx: Context, stored: ContentsIndex | None, platform: Platform) -> ContentsIndex:
    """Read the index from the first mirror that has it. Raises the error of the last one."""

    def of(release: SignedRelease, client: Client) -> ContentsIndex:
        listed = _listed(release, suite, platform)
        if stored is not None and stored.sha256 == listed.sha256:
            return msgspec.structs.replace(stored, read=settings.now())
        packages = _inflated(release, listed, suite, ctx, client.download, lambda them: libraries(them, platform))
        return ContentsIndex(suite=suite, sha256=listed.sha256, read=settings.now(), packages=packages)

    return _first(suite, ctx, of)


def _first(suite: str, ctx: Context, of: Callable[[SignedRelease, Client], _Made]) -> _Made:
    """Make the result from the first mirror's release that has it. Raises the error of the last one."""
    client = Client(ctx.environment, note=ctx.progress.note)
    failures: list[NetworkError | IntegrityError] = []
    for source in mains(suite, archives(ctx.environment, suite=suite)):
        if not client.reaches(source.url, _CONNECTING):
            failures.append(_unreached(f"{host_of(source.url)} takes no connection", suite))
            continue
        try:
            return of(SignedRelease.of(source, ctx, client, tries=_TRIES), client)
        except (NetworkError, IntegrityError) as error:
            failures.append(error)
    reasons = "; ".join(dict.fromkeys(error.what for error in failures)) or "no mirror is named"
    raise _unreached(f"{suites.titled(suite)}'s index of files cannot be fetched: {reasons}", suite)


def _unreached(what: str, suite: str) -> NetworkError:
    return NetworkError(
        what,
        cause="No network, a proxy that no variable names, or mirrors without this suite.",
        next_step=suites.distribution_of(suite).another_mirror,
    )


def _listed(release: SignedRelease, suite: str, platform: Platform) -> Listed:
    """The index that a release names. Raises NetworkError where it names none."""
    listed = release.file(suites.distribution_of(suite).contents.format(architecture=platform.debian))
    if listed is None:
        raise _unreached(f"{redacted(release.url)} has no index of its files", suite)
    return listed


def _inflated(
    release: SignedRelease,
    listed: Listed,
    suite: str,
    ctx: Context,
    download: Callable[..., str],
    read: Callable[[Iterable[bytes]], _Made],
) -> _Made:
    """Apply `read` to an index, fetched now, in pieces."""
    what = f"the index {listed.name} of {host_of(release.url)}"
    with (
        ctx.cache.folder() as folder,
        ctx.progress.task(f"{suites.titled(suite)}: index of files", listed.size) as task,
    ):
        packed = folder / "index"
        download(listed.address, packed, size=listed.size, sha256=listed.sha256, advance=task.advance)
        with packed.open("rb") as stream:
            return read(pieces(what, listed.packing, stream, Gauge(INDEX, what, packed=listed.size)))
