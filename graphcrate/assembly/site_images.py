"""Images that a site has: taken from its shared cache whole, instead of built, and given to it (docs/cache.md)."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphcrate.assembly.output import ImageFolders
from graphcrate.checks.broken import AUDIT
from graphcrate.host import trace
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.inputs import making
from graphcrate.inputs.making import Making
from graphcrate.inputs.shared.entry import IMAGE, MOST_FILES, CacheEntry
from graphcrate.inputs.shared.places import CachePlace
from graphcrate.inputs.shared.site_cache import SiteCache
from graphcrate.model import codec
from graphcrate.model.errors import UNREADABLE, LayoutError
from graphcrate.model.lock import encode
from graphcrate.model.plan import Plan
from graphcrate.model.report import BuildReport
from graphcrate.oci.image import Image
from graphcrate.oci.index import decode_document, read_config
from graphcrate.oci.layout import read_layout, write_layout
from graphcrate.smoke import memory
from ocilayout import spec
from ocilayout.image import Documents

#: Names of an entry's files: the image's own documents, what its tests said, and blobs by their hash.
REPORT, LOCK, PASS = "report.json", "lock.json", "pass-"
_GROWTH = 4  #: from bytes that are fetched to those on the disk, with all that is unpacked for the tests
_MOST_DOCUMENT = 64 << 20  #: bytes


class _SharedImage(NamedTuple):
    """An image of a shared cache whose files are all here."""

    report: BuildReport
    image: Image


@trace.span("look for the image in a shared cache")
def take(shared: SiteCache, key: str, plan: Plan, images: ImageFolders, ctx: Context) -> BuildReport | None:
    """Write the image of this key as if it had been built here; None where no shared cache has it.

    Layers that are here are not fetched. What its tests said counts for it as a past pass does.
    """
    title, cache = f"{plan.name}:{plan.tag}", ctx.cache
    for place, known in shared.entries(IMAGE, key, title, _objection):
        with cache.folder() as folder:
            blobs = {file.name: cache.blob(file.name) for file in known.files if file.name == file.sha256}
            absent = [file for file in known.files if file.name not in blobs or not file.is_at(blobs[file.name])]
            targets = {file.name: folder / file.name for file in absent}
            needed = sum(file.size for file in absent) * _GROWTH
            if not shared.bring(place, known, targets, title, needed):
                continue
            why: object
            try:
                there = _read(folder, known, key, plan, {**blobs, **targets})
            except (LayoutError, *UNREADABLE) as error:
                there, why = None, error
            else:
                why = "it is not an image of this plan"
            if there is None:
                shared.parts.pop()
                ctx.progress.note(f"{place.name}: {title} is not taken: {why}")
                continue
            for name in blobs.keys() & targets.keys():
                cache.adopt(targets[name], blobs[name])
            return _written(there, folder, plan, images, shared, ctx)
    return None


def find(shared: SiteCache, key: str, plan: Plan) -> tuple[CachePlace, CacheEntry] | None:
    """Return the first entry of an image of this key that counts, and its place; None where no shared cache has one."""
    return next(shared.entries(IMAGE, key, f"{plan.name}:{plan.tag}", _objection), None)


def _objection(known: CacheEntry) -> str:
    """Say why an entry is no image; empty where it may be."""
    documents = [file for file in known.files if file.name != file.sha256]
    if not {REPORT, LOCK, AUDIT} <= {file.name for file in documents}:
        return "it is not an image"
    return "its documents are too large" if sum(file.size for file in documents) > _MOST_DOCUMENT else ""


def _read(folder: Path, known: CacheEntry, key: str, plan: Plan, files: dict[str, Path]) -> _SharedImage | None:
    """Read an image's documents; None where they are not of this plan. Raises LayoutError and what msgspec raises."""
    report = codec.decode((folder / REPORT).read_bytes(), BuildReport)

    def document(digest: str) -> bytes:
        name = digest.removeprefix("sha256:")
        if name not in files:
            raise LayoutError(f"its blob {digest} is missing")
        return files[name].read_bytes()

    manifest = decode_document(data := document(report.digest), spec.Manifest, report.digest)
    config = read_config(manifest, lambda descriptor: document(descriptor.digest))
    layers = [(layer.digest, layer.size) for layer in manifest.layers]
    sizes = {f"sha256:{file.name}": file.size for file in known.files}
    is_of_plan = (report.build_key, report.name, report.tag) == (key, plan.name, plan.tag)
    is_whole = layers == [(layer.digest, sizes.get(layer.digest)) for layer in report.layers]
    is_ours = report.artifact.kind == "layout" and report.artifact.digest == report.digest and report.passed
    if not (is_of_plan and is_whole and is_ours and plan.platform.fits(config.os, config.architecture)):
        return None
    documents = Documents(config=document(manifest.config.digest), manifest=data)
    return _SharedImage(report, Image(documents=documents, layers=report.layers, platform=plan.platform))


def _written(
    there: _SharedImage, folder: Path, plan: Plan, images: ImageFolders, shared: SiteCache, ctx: Context
) -> BuildReport:
    """Put an image where one that is built here would be; its report last, by which it is there."""
    home = images.folder(plan)
    layout = write_layout(home / "oci", there.image, ctx.cache.blob, plan.tag)
    for path in folder.iterdir():
        if path.name in (LOCK, AUDIT):
            write_file(home / path.name, path.read_bytes())
        elif path.name.startswith(PASS) and (kept := memory.read(path)) is not None:
            name = path.name.removeprefix(PASS)
            write_file(images.passes(plan) / memory.SHARED / name, encode(kept))
    artifact = msgspec.structs.replace(there.report.artifact, reference=str(layout.path), log="")
    report = msgspec.structs.replace(
        there.report, layout=str(layout.path), artifact=artifact, shared=tuple(shared.parts)
    )
    write_file(home / REPORT, encode(report))
    ctx.progress.note(f"from a shared cache, signed by a key that you trust: {plan.name}:{plan.tag}")
    return report


def give(shared: SiteCache, report: BuildReport, images: ImageFolders, ctx: Context) -> None:
    """Put an image that passed its tests into the shared cache that is written to, where it lacks it."""
    if not (report.layout and report.passed and shared.writes_to):
        return
    home = images.folder(report)
    layout = read_layout(Path(report.layout))
    sources = {name: home / name for name in (REPORT, LOCK, AUDIT)}
    sources |= {f"{PASS}{path.name}": path for path in _passes(report, images)}
    digests = [report.digest, layout.manifest.config.digest, *(layer.digest for layer in layout.layers)]
    sources |= {digest.removeprefix("sha256:"): layout.blob(digest) for digest in digests}
    title = f"{report.name}:{report.tag}"
    is_whole = len(sources) <= MOST_FILES and all(path.is_file() for path in sources.values())
    if is_whole and shared.offer(IMAGE, report.build_key, sources, title, _making(report, title)):
        ctx.progress.note(f"to the shared cache {shared.writes_to}: {title}")


def _making(report: BuildReport, title: str) -> Making:
    """Return who made an image: of one that came from a shared cache, its maker."""
    taken = next((part for part in report.shared if part.title == title), None)
    if taken is None:
        return making.here(report.seconds)
    maker, _, made = taken.maker.rpartition(" on ")
    return Making(maker=maker, made=made, seconds=report.seconds)


def _passes(report: BuildReport, images: ImageFolders) -> Iterator[Path]:
    for path in sorted(images.passes(report).glob("*.json")):
        kept = memory.read(path)
        if kept is not None and kept.claim.image == report.artifact.digest:
            yield path
