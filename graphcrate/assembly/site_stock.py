"""Fill a site's shared cache from this machine's, and make a sample of it again."""

import contextlib
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from graphcrate.artifacts.reports import read_report
from graphcrate.assembly import extension_wheels, matrix, site_images, site_parts
from graphcrate.assembly.output import ImageFolders
from graphcrate.assembly.with_engine import EMBEDDED
from graphcrate.compat.plan.compile_steps import compile_steps
from graphcrate.host.context import Context
from graphcrate.inputs import extensions as wheelhouse
from graphcrate.inputs.shared import stock
from graphcrate.inputs.shared.entry import COMPILED, IMAGE, CacheEntry, tag
from graphcrate.inputs.shared.places import CachePlace
from graphcrate.inputs.shared.site_cache import SiteCache, Taken
from graphcrate.inputs.shared.stock import StockLine
from graphcrate.model.command import command
from graphcrate.model.errors import UNREADABLE, GraphcrateError, IntegrityError, UsageError
from graphcrate.model.lock import Lock, decode_lock
from graphcrate.model.plan import CompileStep, Plan
from graphcrate.model.words import number_of


def push(shared: SiteCache, output: Path, ctx: Context) -> list[StockLine]:
    """Give what this cache has compiled, the images in `output` that passed their tests, bases and layers of locks.

    Returns all that is there now. Raises UsageError without a key, NetworkError where the place fails.
    """
    if shared.signer is None:
        raise UsageError(
            "an entry is signed by who gives it, and no key was named",
            next_step=command("cache", "push", cache=shared.places[0].name, cache_key="cosign.key"),
        )
    wheels = sorted(ctx.cache.path(COMPILED, "all").parent.glob("*/*.whl"))
    shared.give(wheels)
    given = {tag(COMPILED, wheel.parent.name) for wheel in wheels}
    for path in sorted(output.glob("*/*/report.json")):
        report = None if path.parent.is_symlink() else read_report(path, ctx.progress.warn)
        if report is not None and EMBEDDED.exists(report, path.parent, ctx.environment):
            site_images.give(shared, report, ImageFolders(EMBEDDED, output), ctx)
            given.add(tag(IMAGE, report.build_key))
    for plan in plans(ctx):
        given |= {part.tag for part in site_parts.give(shared, plan, None, ctx)}
    shared.require_no_failure()
    return [line for line in stock.listed(shared) if line.tag in given]


def pull(shared: SiteCache, ctx: Context) -> list[StockLine]:
    """Bring compiled wheels, and bases and layers of the clone's locks, that this cache lacks; return what came.

    Raises NetworkError where a place fails.
    """
    lines, came, there = stock.pull(shared, ctx), set[str](), stock.listed(shared)
    offered = {line.tag for line in there if not line.why}
    for plan in plans(ctx):
        parts = [part for part in site_parts.parts(plan, ctx.cache) if part.tag in offered]
        absent = {part.tag: part for part in parts if part.layer(ctx.cache) is None}
        if absent:
            site_parts.take(shared, plan, ctx)
            came |= {name for name, part in absent.items() if part.layer(ctx.cache) is not None}
    shared.require_no_failure()
    return [*lines, *(line for line in there if line.tag in came)]


def plans(ctx: Context) -> Iterator[Plan]:
    """Yield the plans of the clone's locks."""
    for row in matrix.rows(ctx, matrix.MatrixRequest()):
        if row.lock is not None:
            yield matrix.plan_of(row, row.lock, ctx)


class _Work(NamedTuple):
    """The inputs of a compiled wheel: a lock, and its step with this package alone."""

    lock: Lock
    step: CompileStep


def make_again(shared: SiteCache, share: float, output: Path, ctx: Context) -> int:
    """Compile so large a share of the compiled wheels again, at least one, and compare; return how many.

    They are chosen at random, among those of committed locks, of images in `output` and of images in the shared cache.
    Raises IntegrityError for one that is another file here, and where none can be made what the first one raised.
    """
    compiled = [(place, known) for place in shared.places for known in stock.counting(shared, place, COMPILED)]
    works = _works({known.key for _, known in compiled}, shared, output, ctx)
    able = [(place, known) for place, known in compiled if known.key in works]
    if len(able) < len(compiled):
        others = number_of(len(compiled) - len(able), "wheel")
        ctx.progress.note(f"{others} of no lock that is here or there: cannot be made again")
    most, made, failures = math.ceil(share * len(able)), 0, list[GraphcrateError]()
    for place, known in random.SystemRandom().sample(able, len(able)):
        if made == most:
            break
        try:
            _compare(shared, place, known, works[known.key], ctx)
        except IntegrityError:
            raise
        except GraphcrateError as error:
            ctx.progress.warn(f"{known.files[0].name} cannot be made again here: {error.what}")
            failures.append(error)
        else:
            made += 1
    if failures and not made:
        raise failures[0]
    return made


def _compare(shared: SiteCache, place: CachePlace, known: CacheEntry, work: _Work, ctx: Context) -> None:
    with ctx.cache.folder() as folder:
        wheels = extension_wheels.make_again(*work, folder, ctx)
        shared.compare(Taken({known.key: (place, known)}), wheels)
    ctx.progress.note(f"made again, the same bytes: {known.files[0].name}")


def _works(keys: set[str], shared: SiteCache, output: Path, ctx: Context) -> dict[str, _Work]:
    """Map keys of compiled wheels to what makes them, as far as a lock is found that names them."""
    works: dict[str, _Work] = {}
    for lock in _locks(shared, output, ctx):
        for step in compile_steps(lock):
            for package in step.packages:
                key = wheelhouse.key(package, step, ctx.cache)
                if key in keys:
                    works.setdefault(key, _Work(lock, msgspec.structs.replace(step, packages=(package,))))
        if len(works) == len(keys):
            break
    return works


def _locks(shared: SiteCache, output: Path, ctx: Context) -> Iterator[Lock]:
    """Yield the locks that are known here, then those of images that a trusted key has signed."""
    for path in [*sorted((ctx.root / "images").glob("**/*.lock.json")), *sorted(output.glob("*/*/lock.json"))]:
        with contextlib.suppress(OSError, *UNREADABLE):
            yield decode_lock(path.read_bytes())
    for place in shared.places:
        for known in stock.counting(shared, place, IMAGE):
            with ctx.cache.folder() as folder, contextlib.suppress(*UNREADABLE):
                target = folder / site_images.LOCK
                if shared.bring(place, known, {site_images.LOCK: target}, known.title) and target.is_file():
                    yield decode_lock(target.read_bytes())
