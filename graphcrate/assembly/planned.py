"""From a resolution to the plan of its image, and what is said of it before anything is built."""

import re
from typing import TYPE_CHECKING

from graphcrate.assembly import extensions, summary, with_engine
from graphcrate.assembly.job import BuildJob
from graphcrate.compat import explain, planning, rules, slim
from graphcrate.compat.expected import compared
from graphcrate.compat.programs import examples
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.model.command import IMAGE_AGAIN
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import Lock
from graphcrate.model.plan import Plan
from graphcrate.resolve import foreseen
from graphcrate.resolve.locks import Resolution
from graphcrate.resolve.offers import Sources

if TYPE_CHECKING:
    from graphcrate.assembly.room import Room


def make_plan(job: BuildJob, resolution: Resolution, ctx: Context) -> Plan:
    """Plan the image of a resolution. Raises UsageError for what contradicts it."""
    request = job.request
    return planning.make_plan(
        job.choice.recipe,
        resolution.lock,
        resolution.candidate,
        examples=examples(ctx),
        created=created(ctx.environment.get("SOURCE_DATE_EPOCH", "")),
        devel=request.sources.devel,
        additions=request.additions,
        slim=slim.wanted(request.slim, job.choice.gpu, resolution.lock),
    )


def created(epoch: str) -> int | None:
    """The image's time, in Unix seconds, if one is asked for. Raises UsageError."""
    if epoch and not re.fullmatch("[0-9]{1,11}", epoch):  # to the year 5138
        raise UsageError(
            f"invalid time: SOURCE_DATE_EPOCH={epoch}",
            cause="It is the image's time, in seconds since 1970.",
            next_step=f"SOURCE_DATE_EPOCH=$(date +%s) {IMAGE_AGAIN}    (or leave it out, for the lock's time)",
        )
    return int(epoch) if epoch else None


def lines(job: BuildJob, title: str, resolution: Resolution, ctx: Context, plan: Plan | None = None) -> list[str]:
    """What a plan says: what was chosen and why, what is in the image, from where, and what it takes."""
    lock, request, choice = resolution.lock, job.request, job.choice
    to_fetch = size_to_fetch(job, lock, ctx)
    machine = explain.find_target(ctx, request.machine)
    again = lambda cuda: request.on(cuda).command()  # noqa: E731
    upkeep = summary.upkeep_of(lock, choice.recipe, machine, again, settings.today())
    fallback = rules.fallback(choice.variant, resolution.candidate)
    insisting = request.from_channel(fallback.channel if fallback else None)
    needed = needed_room(job, plan, lock, to_fetch, ctx) if plan else None
    sources = Sources(request.own_sources, ctx.cache, ctx.environment)
    asked = [*request.additions.notes, *compared(request.additions.expected, lock), *sources.further_lines()]
    aside = summary.Aside(
        insist=summary.insistence(fallback, insisting.command()),
        disk=needed.line() if needed else "",
        compiling=extensions.time_lines(lock, ctx),
        notes=asked,
    )
    outcomes, meaning = resolution.outcomes, resolution.candidate.meaning
    plan_lines = summary.plan_lines(title, lock, outcomes, meaning, to_fetch, plan, upkeep, aside)
    if not lock.additions.packages:
        return plan_lines
    allow, with_apt = request.additions.allow, request.command_with_apt
    return [*plan_lines, *foreseen.lines(lock, request.own_sources, allow, with_apt, ctx)]


def size_to_fetch(job: BuildJob, lock: Lock, ctx: Context) -> int:
    """Bytes that the lock names and that are not here, beside what was compiled before."""
    return with_engine.size_to_fetch(job.engine, lock, ctx, extensions.built(lock, ctx))


def needed_room(job: BuildJob, plan: Plan, lock: Lock, to_fetch: int, ctx: Context) -> "Room | None":
    """Count what a build needs of the disk, `to_fetch` bytes of it downloads; None of an engine with a store."""
    if job.engine is not with_engine.EMBEDDED:
        return None
    from graphcrate.assembly import room  # reads layers' records: not for an image that is there unchanged

    return room.of_build(plan, lock, to_fetch, job.images.output, ctx, tested=job.request.suites.run)
