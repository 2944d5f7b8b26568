"""From a resolution to the plan of its image, and what is said of it before anything is built."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphcrate.assembly import extensions, summary, with_engine
from graphcrate.assembly.output import ImageFolders
from graphcrate.compat.facts import gpu_table, slim, suites, torch_compile
from graphcrate.compat.plan import planning
from graphcrate.compat.plan.programs import examples
from graphcrate.compat.requirements import mpi
from graphcrate.compat.requirements.expected import compared
from graphcrate.compat.variants import catalog, fallbacks
from graphcrate.compat.variants.next_steps import NextSteps
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.compat.variants.targets import MachineRequest
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk import cleaning
from graphcrate.inputs.bases import mirrors
from graphcrate.model.command import AGAIN
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.plan import BaseStep, Plan
from graphcrate.model.recipe import CHANNELS, Additions, Recipe, Variant
from graphcrate.model.report import CandidateOutcome
from graphcrate.model.words import joined
from graphcrate.resolve.sources import further as places
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.stack.locks import Resolution
from patienthttp.errors import host_of

if TYPE_CHECKING:
    from graphcrate.assembly.room import Room
    from graphcrate.inputs.shared.site_cache import SiteCache


@dataclass(frozen=True, kw_only=True)
class ImageContents:
    """An image's contents besides its lock."""

    recipe: Recipe
    variant: Variant
    gpu: str  #: "v100,a100", for which it is built; empty: for no GPU in particular
    additions: Additions
    devel: bool  #: with the toolkit and a compiler
    slim: slim.Choice


def make_plan(contents: ImageContents, resolution: Resolution, ctx: Context) -> Plan:
    """Plan the image of a resolution. Raises UsageError for what contradicts it."""
    return planning.make_plan(
        contents.recipe,
        resolution.lock,
        resolution.candidate,
        examples=examples(ctx),
        created=created(ctx.environment.get("SOURCE_DATE_EPOCH", "")),
        devel=contents.devel,
        additions=contents.additions,
        slim=slim.wanted(contents.slim, contents.gpu, resolution.lock),
    )


def created(epoch: str) -> int | None:
    """The image's time, in Unix seconds, if one is asked for. Raises UsageError."""
    if epoch and not re.fullmatch("[0-9]{1,11}", epoch):  # to the year 5138
        raise UsageError(
            f"invalid time: SOURCE_DATE_EPOCH={epoch}",
            cause="It is the image's time, in seconds since 1970.",
            next_step=f"SOURCE_DATE_EPOCH=$(date +%s) {AGAIN}    (or leave it out, for the lock's time)",
        )
    return int(epoch) if epoch else None


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A forecast of an image: what a plan says of it, and the room that it takes."""

    contents: ImageContents
    machine: MachineRequest
    sources: SourceOptions
    images: ImageFolders
    is_tested: bool  #: for which it is unpacked
    is_packed: bool  #: for a SIF
    next_steps: NextSteps
    shared: "SiteCache | None" = None  #: where what is compiled may be

    def lines(self, title: str, resolution: Resolution, ctx: Context, plan: Plan | None = None) -> list[str]:
        """Return a plan's lines: the choice with its reasons, the contents with their sources, and the cost."""
        lock, contents, additions = resolution.lock, self.contents, self.contents.additions
        to_fetch = self._bytes_to_fetch(lock, ctx, plan)
        machine = catalog.find_target(ctx, self.machine)
        upkeep = summary.upkeep_of(lock, contents.recipe, machine, self.next_steps.on, settings.today())
        fallback = fallbacks.fallback(contents.variant, resolution.candidate)
        insisting = self.next_steps.from_channel(fallback.channel if fallback else None)
        room = self._room(plan, lock, to_fetch, ctx) if plan else None
        further = Sources(self.sources, ctx.cache, ctx.environment).further_lines()
        outcomes, blocked = blocked_hosts(resolution.outcomes, lock, verbose=ctx.verbose)
        of_lock = [*compared(additions.expected, lock), *mpi.notes(lock)]
        aside = summary.Aside(
            insist=summary.insistence(fallback, insisting, gpu_table.gpu_models(contents.gpu) if contents.gpu else ()),
            disk=room.line() if room else "",
            compiling=extensions.time_lines(lock, ctx, self.shared, self._layered(plan, ctx)),
            notes=[*blocked, *additions.notes, *of_lock, *further],
            usual=[*compile_notes(lock, plan), *line_notes(lock, ctx)],
            verbose=ctx.verbose,
            origins=places.origins(self.sources.further, lock.packages),
        )
        meaning = resolution.candidate.meaning
        plan_lines = summary.plan_lines(title, lock, outcomes, meaning, to_fetch, plan, upkeep, aside)
        if not lock.additions.packages:
            return plan_lines
        from graphcrate.resolve import foreseen  # reads what is added: not for a stack's own image

        return [*plan_lines, *foreseen.lines(lock, self.sources, additions.allow, self.next_steps.with_apt, ctx)]

    def require_room(self, plan: Plan, lock: Lock, ctx: Context) -> None:
        """Keep the cache within its limit while an image is built: what was used least recently goes before that.

        Raises DiskFullError where a build certainly takes more of the disk than is free then.
        """
        to_fetch = self._bytes_to_fetch(lock, ctx, plan)
        room = self._room(plan, lock, to_fetch, ctx)
        if room is None:
            return
        if cleaning.make_room(ctx.cache, room.needed, ctx.progress):
            room = self._room(plan, lock, to_fetch, ctx) or room
        room.require(f"{plan.name}:{plan.tag}", ctx.cache)

    def _layered(self, plan: Plan | None, ctx: Context) -> Collection[str]:
        """Return the packages (sha256s) whose layers are here."""
        if plan is None or self.images.engine is not with_engine.EMBEDDED:
            return ()
        from graphcrate.engines.embedded import records  # reads layers' records: not for an unchanged image

        return records.layered(plan, ctx.cache)

    def _bytes_to_fetch(self, lock: Lock, ctx: Context, plan: Plan | None) -> int:
        """Bytes that the lock names and that are not here, beside what was compiled before and the plan's layers."""
        return with_engine.size_to_fetch(self.images.engine, lock, ctx, extensions.built(lock, ctx), plan)

    def _room(self, plan: Plan, lock: Lock, to_fetch: int, ctx: Context) -> "Room | None":
        """Count what a build needs of the disk, `to_fetch` bytes of it downloads; None of an engine with a store."""
        if self.images.engine is not with_engine.EMBEDDED:
            return None
        from graphcrate.assembly import room  # reads layers' records: not for an image that is there unchanged

        return room.of_build(
            plan, lock, to_fetch, self.images.output, ctx, tested=self.is_tested, packed=self.is_packed
        )


def blocked_hosts(
    outcomes: Sequence[CandidateOutcome], lock: Lock, *, verbose: bool
) -> tuple[list[CandidateOutcome], list[str]]:
    """Return the outcomes that a plan lists, and its note on hosts by which a candidate or an extension's wheel is out.

    A candidate that is out by such a host is listed in verbose plans alone: the note names the host.
    """
    from graphcrate.resolve.sources import hosts  # reads much: not for an image that is there unchanged

    silent = {channel for package in lock.packages for channel in package.unreachable}
    silent |= {channel for missing in lock.missing for channel in missing.unreachable}
    roots = [f"({host_of(CHANNELS[channel].root)})" for channel in sorted(silent) if channel in CHANNELS]
    note = hosts.blocked([*(outcome.constraint for outcome in outcomes), *roots])
    listed = [outcome for outcome in outcomes if verbose or not hosts.blocked([outcome.constraint])]
    return listed, [note] if note else []


def line_notes(lock: Lock, ctx: Context) -> list[str]:
    """List a plan's lines on mirrors without TLS."""
    suite = lock.base.suite if isinstance(lock.base, DebianBase) else ""
    hosts = mirrors.plain(mirrors.archives(ctx.environment, suite=suite)) if suite else ()
    if not hosts:
        return []
    packages = f"{suites.distribution_of(suite).title}'s packages come over plain http from {joined(hosts)}"
    return [f"{packages}: signatures and hashes hold, and whoever is on the line sees which and may hold back new ones"]


def compile_notes(lock: Lock, plan: Plan | None) -> list[str]:
    """Return a plan's notes on torch.compile. A devel image begins with the base that has a compiler."""
    torch = lock.package("torch")
    base = plan.of(BaseStep)[0].base if plan else lock.base
    debian = [package.name for package in base.packages] if isinstance(base, DebianBase) else None
    note = torch_compile.note(torch.version, lock.python, debian, lock.platform) if torch else ""
    return [note] if note else []
