"""From a lock to files in the cache: wheels and sdists, side by side, each checked, from whichever source has it.

A lock names files, not addresses: `resolve.sources.search` says where each is looked for. Unfinished downloads are
resumed."""

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from graphcrate.compat.facts.crates import Crate
from graphcrate.host import trace
from graphcrate.host.arrivals import Arrivals
from graphcrate.host.disk.cache import Cache
from graphcrate.host.parallel import Advance, StoppedError, parallel
from graphcrate.model.command import ETC, LOCK_AGAIN, Command, command, setting
from graphcrate.model.errors import GraphcrateError, IntegrityError, LockedError, NetworkError
from graphcrate.model.lock import Lock, LockedCrate, LockedPackage
from graphcrate.model.recipe import Channel
from graphcrate.model.words import number_of
from graphcrate.resolve.sources.failures import OtherBytesError, UngivenError
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.search import FileSearch
from graphcrate.resolve.sources.storing import UnreadableFileError, is_stored, store
from graphcrate.resolve.sources.wheel_mirrors import MIRRORS

if TYPE_CHECKING:
    from graphcrate.compat.variants.request import SourceOptions
    from graphcrate.host.context import Context

_Locked = TypeVar("_Locked", bound=LockedPackage | LockedCrate)
THREADS = 6
#: left free on the disk beside the downloads
MARGIN = 200 << 20
_LOCK = f"lock again: {LOCK_AGAIN}"


def fetch(
    lock: Lock,
    request: "SourceOptions",
    ctx: "Context",
    *,
    compilation: bool = False,
    without: Collection[str] = (),
    arrivals: Arrivals | None = None,
) -> Mapping[str, Path]:
    """Bring all that is installed into the cache: wheels, pure sdists and their build wheels; sha256 → path.

    `compilation`: instead, what only a compile needs, without Debian's packages. `without`: packages (sha256s of their
    files) that nothing is made of. `arrivals` hear of each file. What has arrived stays.
    Raises IntegrityError when every source has other bytes, NetworkError, HostError for a local file that may not be
    read, DiskFullError, and LockedError for a request of locked files alone when sources answer and none has one.
    """
    cache = ctx.cache
    packages: list[LockedPackage | LockedCrate] = []
    arrivals = arrivals or Arrivals()
    packages += (*lock.for_compilation(), *lock.crates()) if compilation else installed(lock, without)
    absent = _absent(packages, cache)
    for sha256 in {package.file.sha256 for package in packages} - {package.file.sha256 for package in absent}:
        arrivals.arrived(sha256)
    if absent:
        total = sum(package.file.size for package in absent)
        cache.require(total + MARGIN, "the download")
        offers = Offers.of_lock(Sources(request, cache, ctx.environment, ctx.progress.note, ctx.progress), lock)
        title = f"fetching {number_of(len(absent), 'file')}" + (" to compile with" if compilation else "")
        with ctx.progress.task(title, total) as task:

            def bring(package: LockedPackage | LockedCrate, advance: Advance) -> None:
                fetch_one(package, offers, advance)
                arrivals.arrived(package.file.sha256)

            def advance(count: int) -> None:
                arrivals.go_on()
                task.advance(count)

            parallel(
                bring,
                absent,
                threads=THREADS,
                advance=advance,
                size=lambda package: package.file.size,
            )
        offers.sources.failures.sum_up()
    return paths(packages, cache)


def installed(lock: Lock, without: Collection[str] = ()) -> list[LockedPackage]:
    """Return what `fetch` brings of the packages that are installed as they are."""
    left = tuple(package for package in lock.packages if package.file.sha256 not in without)
    return msgspec.structs.replace(lock, packages=left).installed()


def paths(packages: Iterable[LockedPackage | LockedCrate], cache: Cache) -> Mapping[str, Path]:
    """Return where the cache has, or will have, the files of packages: sha256 → path."""
    return {package.file.sha256: cache.file(package.file.sha256, package.file.name) for package in packages}


def missing_packages(lock: Lock, cache: Cache, built: Collection[str] = ()) -> list[LockedPackage]:
    """The packages whose files the cache lacks, with build wheels, and what compiles those not `built` (sha256s).

    Not crates of Rust: no channel has them.
    """
    return _absent([*lock.installed(), *(lock.for_compilation() if lock.compiles(built) else ())], cache)


def bytes_to_fetch(lock: Lock, cache: Cache, built: Collection[str] = ()) -> int:
    """Count the lock's bytes that are not in the cache yet, Debian's packages included. `built` as above."""
    return sum(file.size for file in lock.files(built).values() if not is_stored(file, cache))


def _absent(packages: Sequence[_Locked], cache: Cache) -> list[_Locked]:
    unique = {package.file.sha256: package for package in packages}
    return [package for package in unique.values() if not is_stored(package.file, cache)]


def fetch_one(package: LockedPackage | LockedCrate, offers: Offers, advance: Advance = lambda _: None) -> None:
    """Fetch one package's file from the first source that gives its very bytes. Raises as `fetch`."""
    sources, reported = offers.sources, 0
    if isinstance(package, LockedPackage) and package.commit:
        from graphcrate.resolve.sources import pyg_lib

        pyg_lib.bring(package, offers.torch_cuda, sources)
        advance(package.file.size)
        return

    def counted(amount: int) -> None:
        nonlocal reported
        advance(amount)
        reported += amount

    if isinstance(package, LockedCrate):
        from graphcrate.resolve.sources.crates import fetch_crate

        def get(url: str, tries: int) -> None:
            counted(-reported)
            store(package.file, url, sources.client, sources.cache, counted, tries)

        fetch_crate(Crate(package.name, package.version, package.file.sha256), sources, get)
        return
    search = FileSearch(package, offers, lambda: advance(0), quiet=False)
    for link, tries in search.links():
        try:
            with trace.span(f"fetch {package.file.name}") as span:
                store(package.file, link.url, sources.client, sources.cache, counted, tries)
                span.bytes = package.file.size
            return
        except (IntegrityError, NetworkError, UnreadableFileError) as error:
            search.failed(link, error)
        with contextlib.suppress(StoppedError):
            counted(-reported)
    raise _nowhere(search, offers)


def _nowhere(search: FileSearch, offers: Offers) -> GraphcrateError:
    """The error for a file that no source gave."""
    package, file = search.package, search.package.file
    where = f"the {package.channel} channel" + (" and no public mirror" if offers.last_resort(package.channel) else "")
    tried = (
        "".join(f"\n    {failure}" for failure in dict.fromkeys(search.failures)) or "\n    there is no source to ask"
    )
    if search.only_other_bytes:
        other = OtherBytesError(
            f"{file.name}: no source of {where} has the bytes that the lock names{tried}",
            cause=f"The lock says sha256 {file.sha256}. The file was replaced after locking, or is damaged on its way.",
            next_step=f"try another source: {_another_mirror(offers)}{_other_channel(package)}, or {_LOCK}",
        )
        other.file = file.name
        return other
    if search.unreadable is not None:
        return search.unreadable
    if offers.sources.request.locked and search.answered:
        return LockedError(
            f"{file.name} is locked, and no source of {where} gives it{tried}",
            cause=f"The lock says sha256 {file.sha256}; {setting(locked=True).both()} takes no other file.",
            next_step=f"try another source: {_another_mirror(offers)}, or {_LOCK}",
        )
    ungiven = UngivenError(
        f"{file.name} ({file.size / 1e6:.1f} MB): no source of {where} gives it{tried}",
        next_step=_next_step(search, offers),
    )
    ungiven.file = file.name
    return ungiven


def _another_mirror(offers: Offers) -> Command:
    return command("image", ETC, mirror=next(name for name in MIRRORS if name != offers.sources.request.mirror))


def _other_channel(package: LockedPackage | LockedCrate) -> str:
    """Name the channel that has another build of what PyTorch's own has, whose pages may themselves be wrong."""
    is_pytorch = isinstance(package, LockedPackage) and package.channel is Channel.PYTORCH
    return f", or another channel: {command('image', ETC, channel='pypi')}" if is_pytorch else ""


def _next_step(search: FileSearch, offers: Offers) -> str:
    again = "run the same command again (it goes on where it stopped)"
    if search.package.channel == Channel.LOCAL:
        return f"{command('image', '…', wheels='/path')}    (a folder that has it)"
    if offers.may_have_mirror(search.package.channel):
        return f"{again}, or name a mirror: {_another_mirror(offers)}"
    return f"{again}, or {_LOCK}" if search.answered else f"check the network of this machine, then {again}"
