"""Find the Debian package with a library, by the name that programs ask for, or with a file that a build lacks: in
Debian's own index of all files, which `debroot.contents` reads.

The index (11 MB, 150 inflated) counts only by its hash in a Release file that Debian signed. What is kept of it
is which packages have which library. Security updates have no index of their own, and bring no new names.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeVar

import msgspec

from debroot import contents
from debroot.release import Listed, SignedRelease
from graphcrate.compat.facts import suites
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.inflating import pieces
from graphcrate.host.disk.sealed import kept
from graphcrate.host.net import Client
from graphcrate.inputs.bases.archive import SuiteArchive, mains
from graphcrate.inputs.bases.debroot_errors import translated
from graphcrate.inputs.bases.mirrors import archives
from graphcrate.inputs.bases.release import fetched
from graphcrate.model.errors import IntegrityError, NetworkError
from graphcrate.model.limits import INDEX, Gauge
from graphcrate.model.lock import encode
from graphcrate.model.platform import DEFAULT, Platform
from patienthttp.errors import host_of, redacted

_Made = TypeVar("_Made")
FRESH = 30 * 86_400.0  #: seconds that an index counts without asking again: suites hardly change once they are out
_TRIES = 1  #: more of one request, while another mirror may answer
_CONNECTING = 3.0  #: seconds: this is advice, not worth a long wait


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
    """Packages of a suite with a header, library or program (`kind`) of this name, as `debroot.contents.bringing`.

    The index is read for it, and nothing is kept. Empty where no package has it, or no server answers.
    """

    def of(release: SignedRelease, client: Client) -> list[contents.Listed]:
        listed = _listed(release, suite, platform)
        return _inflated(release, listed, suite, ctx, client.download, lambda them: contents.matching(kind, name, them))

    with contextlib.suppress(NetworkError, IntegrityError):
        return contents.bringing(kind, _first(suite, ctx, of))
    return ()


def linked_by(package: str, suite: str, ctx: Context, platform: Platform = DEFAULT) -> tuple[str, ...]:
    """The libraries that a package to compile with (libcairo2-dev) is for; see `SuiteArchive.linked_by`.

    Empty where no server answers.
    """
    with contextlib.suppress(NetworkError, IntegrityError):
        return SuiteArchive(suite, ctx, platform=platform, without_security=True).lists.linked_by(package)
    return ()


def _today(suite: str, ctx: Context, stored: ContentsIndex | None, platform: Platform) -> ContentsIndex:
    """Read the index from the first mirror that has it. Raises the error of the last one."""

    def of(release: SignedRelease, client: Client) -> ContentsIndex:
        listed = _listed(release, suite, platform)
        if stored is not None and stored.sha256 == listed.sha256:
            return msgspec.structs.replace(stored, read=settings.now())
        packages = _inflated(
            release, listed, suite, ctx, client.download, lambda them: contents.libraries(them, platform.triplet)
        )
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
            return of(fetched(source, ctx, client, tries=_TRIES), client)
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
    with translated(suite):
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
        with packed.open("rb") as stream, translated(suite):
            return read(pieces(what, listed.packing, stream, Gauge(INDEX, what, packed=listed.size)))
