"""Parts of images that a site has, for images that it lacks: bases and layers of wheels, each kind a row.

An entry has the blob under its hash, and the records by which a build finds it: with these nothing that the layer is
made of is fetched. Other images have the same blobs, so an entry more takes hardly a byte.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from graphcrate.compat.facts import suites
from graphcrate.engines.embedded import records
from graphcrate.host import trace
from graphcrate.host.context import Context
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.sealed import kept, kept_bytes
from graphcrate.inputs import making
from graphcrate.inputs.bases import debian
from graphcrate.inputs.shared.entry import BASE, LAYER, MOST_FILES, CacheEntry, SharedFile, tag
from graphcrate.inputs.shared.site_cache import SiteCache, Taken
from graphcrate.model.lock import DebianBase
from graphcrate.model.plan import Plan
from graphcrate.model.report import BuildReport, LayerRecord

_RECORD = "layer.json"  #: name of a layer's own record in an entry; others have the names of their files


class ImagePart(NamedTuple):
    """A layer of an image with its records (name in an entry → path in the cache)."""

    kind: str
    key: str
    title: str
    records: Mapping[str, Path]
    makers: Path  #: folder of the record of who made it, of one that came from elsewhere

    @property
    def tag(self) -> str:
        """The name of its entry in a place."""
        return tag(self.kind, self.key)

    def layer(self, cache: Cache) -> LayerRecord | None:
        """Return its record where all of it is in the cache, and else None."""
        record = kept(self.records[_RECORD], LayerRecord)
        if record is None or any(kept_bytes(path) is None for path in self.records.values()):
            return None
        blob = cache.blob(record.digest)
        return record if blob.is_file() and blob.stat().st_size == record.size else None


def _base(plan: Plan, cache: Cache) -> Iterator[ImagePart]:
    base = plan.base.base
    if isinstance(base, DebianBase):
        key, title = debian.key(base), suites.titled(base.suite)
        yield ImagePart(BASE, key, title, {_RECORD: debian.record_path(base, cache)}, debian.makers(base, cache))


def _layers(plan: Plan, cache: Cache) -> Iterator[ImagePart]:
    for layer in records.layers(plan, cache):
        paths = {path.name: path for path in layer.installation_paths()}
        paths[_RECORD] = cache.path("layers", f"{layer.key}.json")
        yield ImagePart(LAYER, layer.key, layer.step.title, paths, cache.path("makers", LAYER, layer.key))


KINDS: tuple[Callable[[Plan, Cache], Iterator[ImagePart]], ...] = (_base, _layers)


def parts(plan: Plan, cache: Cache) -> list[ImagePart]:
    """List the parts of a plan that an entry can hold."""
    return [part for kind in KINDS for part in kind(plan, cache) if len(part.records) < MOST_FILES]


@trace.span("look for layers in a shared cache")
def take(shared: SiteCache, plan: Plan, ctx: Context) -> Taken:
    """Bring the parts of a plan that are not here and that a shared cache has; return those to make here too."""
    taken = Taken()
    absent = [part for part in parts(plan, ctx.cache) if part.layer(ctx.cache) is None]
    titles = [part.title for part in absent if _take(shared, part, taken, ctx)]
    if titles:
        ctx.progress.note(f"from a shared cache, signed by a key that you trust: layers {', '.join(titles)}")
    return taken


def compare(shared: SiteCache, taken: Taken, plan: Plan, ctx: Context) -> None:
    """Compare parts that were made here with entries. Raises IntegrityError for another one."""
    for part in parts(plan, ctx.cache) if taken.compared else ():
        record = part.layer(ctx.cache)
        if record is not None and part.key in taken.compared:
            place, known = taken.compared[part.key]
            made = record.digest.removeprefix("sha256:")
            shared.compare_file(place, known, _blob(known), f"the layer {part.title}, made here,", made)


def _blob(known: CacheEntry) -> SharedFile:
    (blob,) = (file for file in known.files if file.name == file.sha256)
    return blob


def _take(shared: SiteCache, part: ImagePart, taken: Taken, ctx: Context) -> bool:
    cache = ctx.cache

    def objection(known: CacheEntry) -> str:
        names = {file.name for file in known.files}
        blobs = [file for file in known.files if file.name == file.sha256]
        return "" if len(blobs) == 1 and names == {*part.records, blobs[0].name} else "it is another layer"

    for place, known in shared.entries(part.kind, part.key, part.title, objection):
        if shared.is_picked():
            taken.compared[part.key] = place, known
            return False
        blob = _blob(known)
        is_here = blob.is_at(cache.blob(blob.name))
        with cache.folder() as folder:
            names = [file.name for file in known.files if file is not blob or not is_here]
            if not shared.bring(place, known, {name: folder / name for name in names}, part.title, known.size):
                continue
            record = kept(folder / _RECORD, LayerRecord)
            if record is None or record.digest != f"sha256:{blob.sha256}" or record.size != blob.size:
                shared.parts.pop()
                ctx.progress.note(f"{place.name}: {part.title} is not taken: its record is of another layer")
                continue
            # First that it came from elsewhere, last the record that says it is here; what is ours stays.
            making.keep(part.makers, known.making, cache)
            for name in sorted(names, key=lambda name: name == _RECORD):
                target = cache.blob(name) if name == blob.name else part.records[name]
                if name in (_RECORD, blob.name) or kept_bytes(target) is None:
                    cache.adopt(folder / name, target)
        return True
    return False


def give(shared: SiteCache, plan: Plan, report: BuildReport | None, ctx: Context) -> list[ImagePart]:
    """Put the parts of an image into the shared cache that is written to, where it lacks them; those that are here.

    Making one took its share of the time of the image, if `report` says that.
    """
    there = []
    for part in parts(plan, ctx.cache) if shared.writes_to else ():
        record = part.layer(ctx.cache)
        if record is not None:
            share = report.seconds * record.size / max(1, report.bytes) if report else 0.0
            of = making.read(part.makers, otherwise=making.here(round(share, 1)))
            sources = {record.digest.removeprefix("sha256:"): ctx.cache.blob(record.digest), **part.records}
            shared.offer(part.kind, part.key, sources, part.title, of)
            there.append(part)
    return there
