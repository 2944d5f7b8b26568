"""The stock of a shared cache: list its entries, read all their files, bring wheels here, remove what is of no use.

The user asks for these, so a place that fails is an error, and not left out as in a build.
"""

from collections.abc import Iterator

import msgspec

from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.trees import remove_tree
from graphcrate.inputs.shared import entry
from graphcrate.inputs.shared.entry import COMPILED, CacheEntry
from graphcrate.inputs.shared.places import CacheFolder, CachePlace, RegistryCache
from graphcrate.inputs.shared.site_cache import OTHER_FILES, SiteCache
from graphcrate.model.command import command
from graphcrate.model.errors import IntegrityError
from graphcrate.model.words import number_of, printable

_DAY = 86400
_LEFT = "no builder has held them for a day"


class StockLine(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as a place has it. `why`: it is not taken, or goes, for this reason; empty where it is taken."""

    place: str
    tag: str = ""  #: empty: files that no entry names
    title: str = ""
    bytes: int = 0
    maker: str = ""
    made: str = ""
    why: str = ""


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a place with what its statement says; None: it has none."""

    tag: str
    known: CacheEntry | None
    why: str

    def line(self, place: CachePlace, why: str = "") -> StockLine:
        why, known = why or self.why, self.known
        if known is None:
            return StockLine(place=place.name, tag=self.tag, why=why)
        return StockLine(
            place=place.name,
            tag=self.tag,
            title=printable(known.title or known.files[0].name),
            bytes=known.size,
            maker=printable(known.maker),
            made=printable(known.made),
            why=why,
        )


def listed(shared: SiteCache) -> list[StockLine]:
    """List all entries. Raises what a place raises."""
    return [held.line(place) for place in shared.places for held in _held(shared, place)]


def counting(shared: SiteCache, place: CachePlace, kind: str) -> Iterator[CacheEntry]:
    """Yield the entries of a kind that would be taken. Raises as `listed`."""
    return (held.known for held in _held(shared, place) if held.known and not held.why and held.known.kind == kind)


def pull(shared: SiteCache, ctx: Context) -> list[StockLine]:
    """Bring compiled wheels that count into this cache, where it lacks them; those that came. Raises as `listed`."""
    came = []
    for place in shared.places:
        for held in _held(shared, place):
            known = held.known
            if held.why or known is None or known.kind != COMPILED:
                continue
            shelf, name = ctx.cache.path(COMPILED, known.key), known.files[0].name
            if len(known.files) > 1 or not name.endswith(".whl") or any(shelf.glob("*.whl")):
                continue
            if shared.bring_wheel(place, known, shelf, name):
                came.append(held.line(place))
    shared.require_no_failure()
    return came


def read(shared: SiteCache, ctx: Context) -> list[StockLine]:
    """Read all files of all entries that count, and say which do not count. Raises as `listed`."""
    lines = []
    for place in shared.places:
        for held in _held(shared, place):
            why = held.why
            if held.known is not None and why in ("", OTHER_FILES):
                with ctx.cache.folder() as folder:
                    targets = {file.name: folder / file.name for file in held.known.files}
                    is_whole = shared.bring(place, held.known, targets, held.known.title or held.tag)
                why = "" if is_whole else OTHER_FILES
                if isinstance(place, CacheFolder):  # a registry compares what it is given
                    shared.note_files(held.known, whole=is_whole)
            lines.append(msgspec.structs.replace(held, why=why).line(place))
    shared.require_no_failure()
    return lines


def raise_if_faulty(lines: list[StockLine]) -> None:
    """Raises IntegrityError where an entry is not what a trusted key has signed."""
    faulty = [line for line in lines if line.why and line.why != entry.UNTRUSTED]
    if faulty:
        raise IntegrityError(
            f"{len(faulty)} of {len(lines)} entries are faulty; first {faulty[0].tag}: {faulty[0].why}",
            cause="No build takes them: each file is compared with what was signed.",
            next_step=f"{command('cache', 'prune', cache=faulty[0].place, cache_trust='cosign.pub')}    "
            "(shows what can be removed); `push` of one that has it whole brings it again",
        )


def prune(shared: SiteCache, days: int, *, remove: bool) -> list[StockLine]:
    """Return what is of no more use, and with `remove` remove it. Raises what a place raises.

    That are damaged entries, those that turned out wrong here, those made before so many days (0: none), leases of
    builders that are gone, and files of a folder that no entry names. Entries of other keys stay: they may be
    taken by others.
    """
    doomed = []
    for place in shared.places:
        there = list(_held(shared, place))
        going = {held.tag: why for held in there if (why := _useless(held, days))}
        doomed += [held.line(place, going[held.tag]) for held in there if held.tag in going]
        for tag in going if remove else ():
            place.remove(tag)
        if isinstance(place, RegistryCache) and (leases := place.left_leases()):
            doomed.append(StockLine(place=place.name, title=number_of(len(leases), "lease"), why=_LEFT))
            for tag in leases if remove else ():
                place.remove(tag)
        if isinstance(place, CacheFolder):
            staying = [held.known for held in there if held.tag not in going and held.known is not None]
            left = place.unnamed({file.sha256 for known in staying for file in known.files})
            size = sum(path.lstat().st_size for path in left)
            if left:
                title = number_of(len(left), "file")
                doomed.append(StockLine(place=place.name, title=title, bytes=size, why="no entry names them"))
            for path in left if remove else ():
                if path.is_dir() and not path.is_symlink():  # of a giver that was killed
                    remove_tree(path)
                else:
                    path.unlink(missing_ok=True)
    return doomed


def _held(shared: SiteCache, place: CachePlace) -> Iterator[_Held]:
    signers = [*shared.trusted, *([shared.signer.public_key()] if shared.signer else [])]
    for tag in place.tags():
        kind, _, key = tag.partition("-")
        try:
            data = place.read(tag)
        except IntegrityError as error:
            yield _Held(tag=tag, known=None, why=error.what)
            continue
        if data is None:  # it was removed meanwhile
            continue
        known = entry.opened(data, kind, key, signers)
        if isinstance(known, str):
            yield _Held(tag=tag, known=entry.claimed(data), why=known)
        else:
            yield _Held(tag=tag, known=known, why=shared.refusal(known))


def _useless(held: _Held, days: int) -> str:
    """Return why an entry is of no more use; empty where it may be."""
    if held.why and held.why != entry.UNTRUSTED:
        return held.why
    is_old = days and held.known and not held.why and held.known.made < settings.now_utc(days * _DAY)
    return f"it was made more than {days} days ago" if is_old else ""
