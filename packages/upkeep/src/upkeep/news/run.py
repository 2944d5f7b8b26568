"""An update from end to end: channels are asked, new torches measured, variants weighed, and each change is tried.

All of it happens in a copy of the checkout. `check` throws that away; else what holds is written at the end, at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from packaging.version import Version

from graphcrate.compat.facts import driver_table, glt, packages
from graphcrate.compat.facts.facts import TorchBuild
from graphcrate.compat.variants import catalog, recipes
from graphcrate.compat.variants.ported import on_platform
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.model.command import command
from graphcrate.model.errors import (
    AuditError,
    BuildError,
    ContractError,
    NewsError,
    RecipeError,
    SmokeError,
    class_of,
)
from graphcrate.model.lock import Lock, decode_lock
from graphcrate.model.platform import DEFAULT, SUPPORTED, Platform, platform_named
from graphcrate.model.recipe import Candidate, Channel, Recipe
from graphcrate.resolve.sources.request_sources import Sources
from upkeep import staged
from upkeep.news import known as known_news
from upkeep.news import listings, recipe_text, torch_builds
from upkeep.news.changes import HeldBack, VariantChange
from upkeep.news.followed import News
from upkeep.news.listings import COMPANIONS, PYG, STACK, TORCH, Answers
from upkeep.news.review import LockChange, Review, lock_change
from upkeep.news.weighing import weigh
from upkeep.releases import ListedRelease
from upkeep.request import UpdateRequest
from upkeep.staged import FailedCommandError, StagedCheckout

#: since when torch.toml has every release
_SINCE = Version("1.13")
_ATTEMPTS = 4  #: for one variant


def run(request: UpdateRequest, ctx: Context) -> Review:
    """Ask, measure, weigh and try. Raises UsageError, NetworkError where no index lists torch, BuildError."""
    ctx.require_checkout("its recipes and facts")
    known = [catalog.find_recipe(ctx, request.recipe)] if request.recipe else catalog.all_recipes(ctx)
    sources = Sources(SourceOptions(mirror=request.mirror), ctx.cache, ctx.environment, ctx.progress.note)
    with ctx.progress.task("asking what is new", len(listings.PROJECTS), "projects") as task:
        answers = listings.ask(known, sources, task)
    with staged.copied(ctx) as stage:
        ported = {recipe.name: _ported_locks(recipe, ctx) for recipe in known}
        measured = _measure(answers.projects[TORCH], ported.values(), stage, request, ctx)
        news = News(
            torch=answers.projects[TORCH],
            builds=_builds(stage),
            ported=_ported_builds(stage),
            pyg=answers.projects[PYG],
            today=settings.today(),
            packages={name: answers.projects[name] for name in STACK},
            companions={name: answers.projects[name] for name in COMPANIONS},
        )
        weighed = [weigh(recipe, news, _locks(recipe, ctx), ported[recipe.name]) for recipe in known]
        review = Review(
            day=str(settings.today()),
            changes=tuple(change for each in weighed for change in each.changes),
            held=tuple(held for each in weighed for held in each.held),
            facts=measured.fresh,
            ported_facts=measured.ported,
            by_hand=(*measured.failures, *_by_hand(answers, news)),
            awaited=tuple(_awaited(answers, news)),
            unanswered=answers.unanswered,
        )
        if not request.check and review.is_news:
            trial = _Trial(request, stage, ctx)
            review = _tried(review, _weighing_again(known, news, ported, ctx), trial)
            stage.take_over()
    known_news.remember(review, known, ctx)
    return review


def raise_if_news(review: Review) -> None:
    """Raises NewsError where an update would write something."""
    if review.is_news:
        names = [change.title for change in review.changes] + [f"torch {build.torch}" for build in review.facts]
        names += [
            f"torch {build.torch} for {platform_named(name).title}"
            for name, builds in review.ported_facts.items()
            for build in builds
        ]
        raise NewsError(f"there is news: {', '.join(names)}", next_step=command("update"))


# --- facts ------------------------------------------------------------------------------------------------------------


class _Measured(NamedTuple):
    """Facts that are new. `ported`: of other platforms, by their names; `failures`: what could not be measured."""

    fresh: tuple[TorchBuild, ...]
    ported: Mapping[str, tuple[TorchBuild, ...]]
    failures: tuple[str, ...]


def _measure(
    torches: Iterable[ListedRelease],
    ported: Iterable[Mapping[str, Mapping[str, Lock]]],
    stage: StagedCheckout,
    request: UpdateRequest,
    ctx: Context,
) -> _Measured:
    """Facts of the package index's torches not measured yet; of another platform those newer than a lock for it.

    To look whether anything is new, libraries of less than 32 MB are read: tens of megabytes of a wheel.
    """
    since = {DEFAULT.name: _SINCE} | _oldest_torches(lock for of_recipe in ported for lock in of_recipe.values())
    before = {name: {build.source for build in _builds_for(stage, name) if build.known == "measured"} for name in since}
    missing = [
        (release, platform_named(name))
        for name, first in since.items()
        for release in torches
        if release.channel is Channel.PYPI and release.number >= first and before[name].isdisjoint(release.files)
        if any(file.endswith(f"{platform_named(name).machine}.whl") for file in release.files)
    ]
    failures = []
    with ctx.progress.task("measuring torch", len(missing), "wheels") as task:
        for release, platform in missing:
            words = [] if platform == DEFAULT else ["--platform", platform.name]
            words += ["--libraries", "small"] if request.check else []
            try:
                stage.tool("tools.measure_wheel", TORCH, release.version, "--update", *words)
            except FailedCommandError as error:
                of = "" if platform == DEFAULT else f" for {platform.title}"
                failures.append(f"torch {release.version}{of} could not be measured: {error.what}")
            task.advance(1)
    versions = {str(release.number) for release, _ in missing}
    fresh = {
        name: tuple(
            build
            for build in _builds_for(stage, name)
            if build.source not in before[name] and build.known == "measured" and build.torch in versions
        )
        for name in since
    }
    return _Measured(
        fresh.pop(DEFAULT.name), {name: builds for name, builds in fresh.items() if builds}, tuple(failures)
    )


def _oldest_torches(locks: Iterable[Mapping[str, Lock]]) -> dict[str, Version]:
    """Platform → the oldest torch of the locks for it."""
    oldest: dict[str, Version] = {}
    for name, lock in ((name, lock) for of_variant in locks for name, lock in of_variant.items()):
        if torch := lock.package(TORCH):
            version = Version(Version(torch.version).public)
            oldest[name] = min(oldest.get(name, version), version)
    return oldest


def _builds_for(stage: StagedCheckout, platform: str) -> tuple[TorchBuild, ...]:
    """List the copy's builds for a platform."""
    return _builds(stage) if platform == DEFAULT.name else _ported_builds(stage).get(platform, ())


def _ported_builds(stage: StagedCheckout) -> dict[str, tuple[TorchBuild, ...]]:
    """Read the copy's torch_ported.toml."""
    path = stage.root / "graphcrate/compat/data/torch_ported.toml"
    return torch_builds.ported_in(path.read_text(encoding="utf-8"))


def _builds(stage: StagedCheckout) -> tuple[TorchBuild, ...]:
    """Read the copy's torch.toml."""
    return torch_builds.builds_in((stage.root / "graphcrate/compat/data/torch.toml").read_text(encoding="utf-8"))


def _by_hand(answers: Answers, news: News) -> Iterator[str]:
    """Yield news that no file written by this program holds."""
    yield from _without_driver(answers, news)
    if (releases := answers.projects[glt.NAME]) and releases[-1].number > Version(glt.releases()[-1].version):
        yield (
            f"{glt.NAME} {releases[-1].version} is on the index, and compat/data/glt.toml ends with "
            f"{glt.releases()[-1].version}: python -m tools.measure_wheel {glt.NAME} {releases[-1].version} --every"
        )
    if (releases := answers.projects[PYG]) and packages.pyg_release(releases[-1].version) is None:
        yield (
            f"torch_geometric {releases[-1].version} has no row in compat/data/pyg.toml: "
            f"python -m tools.measure_wheel torch_geometric {releases[-1].version}"
        )
    if releases := answers.projects["pyg-lib"]:
        yield f"pyg-lib {releases[-1].version} is on the index, which compat/data/pyg_lib.toml takes for not there"


def _newest_torch(answers: Answers) -> list[ListedRelease]:
    """The newest of the package index, if any."""
    return [release for release in answers.projects[TORCH] if release.channel is Channel.PYPI][-1:]


def _without_driver(answers: Answers, news: News) -> Iterator[str]:
    """The CUDA of the newest torch where drivers.toml has no row for it."""
    drivers = driver_table.toolkit_drivers()
    for release in _newest_torch(answers):
        cuda = news.cuda_of(release)
        if cuda not in ("", "cpu", *drivers):
            yield (
                f"torch {release.version} is for CUDA {cuda}, and compat/data/drivers.toml ends with {[*drivers][-1]}: "
                "which driver knows that CUDA is in NVIDIA's release notes, and its PTX needs that one"
            )


def _awaited(answers: Answers, news: News) -> Iterator[str]:
    """A CUDA of NVIDIA's own wheels that drivers.toml has no row for, and no torch is for."""
    drivers, torches = driver_table.toolkit_drivers(), map(news.cuda_of, _newest_torch(answers))
    newest = [release.number for release in answers.projects["nvidia-cuda-runtime"]][-1:]
    known = {*drivers, *torches}
    for cuda in (f"{number.major}.{number.minor}" for number in newest):
        if cuda not in known:
            yield (
                f"CUDA {cuda} is on the index, and no torch is for it: compat/data/drivers.toml, which ends with "
                f"{[*drivers][-1]}, gets a row with the first one"
            )


# --- trying -----------------------------------------------------------------------------------------------------------


#: what is left for a change's variant without releases that were refused
_Again = Callable[[VariantChange, frozenset[str]], VariantChange | None]


def _weighing_again(
    known: Iterable[Recipe], news: News, ported: Mapping[str, Mapping[str, Mapping[str, Lock]]], ctx: Context
) -> _Again:
    recipes_by_name = {recipe.name: recipe for recipe in known}

    def again(change: VariantChange, refused: frozenset[str]) -> VariantChange | None:
        recipe = recipes_by_name[change.recipe]
        left = weigh(recipe, news._replace(refused=refused), _locks(recipe, ctx), ported[recipe.name]).changes
        return next((other for other in left if other.cuda == change.cuda), None)

    return again


def _locks(recipe: Recipe, ctx: Context) -> dict[str, Lock]:
    """CUDA → the lock of the first candidate that has one."""
    locks: dict[str, Lock] = {}
    for variant in recipe.variants:
        for way in variant.candidates:
            if lock := catalog.read_lock(ctx, recipe, variant, way):
                locks.setdefault(variant.cuda, lock)
    return locks


def _ported_locks(recipe: Recipe, ctx: Context) -> dict[str, dict[str, Lock]]:
    """CUDA → other platform → the lock for it of the first candidate that has one."""
    locks: dict[str, dict[str, Lock]] = {}
    for variant in recipe.variants:
        for platform in (row for row in SUPPORTED if row != DEFAULT):
            for way in variant.candidates:
                if lock := catalog.read_lock(ctx, recipe, on_platform(variant, platform), way):
                    locks.setdefault(variant.cuda, {}).setdefault(platform.name, lock)
    return locks


class _Trial(NamedTuple):
    """The place in which changes are tried, and whether by a lock alone."""

    request: UpdateRequest
    stage: StagedCheckout
    ctx: Context


def _tried(review: Review, again: _Again, trial: _Trial) -> Review:
    """The review with what each change came to; what failed is held back, and its variant is as it was."""
    changes, held, locks = list[VariantChange](), list(review.held), dict[str, LockChange]()
    stage, prove = trial.stage, trial.request.prove
    what = "locking and proving" if prove else "locking"
    with trial.ctx.progress.task(f"{what} what changes", len(review.changes), "variants") as task:
        for change in review.changes:
            outcome = _first_that_holds(change, again, trial)
            held += outcome.held
            if outcome.change is not None and outcome.locks:
                changes.append(outcome.change)
                locks |= outcome.locks
            task.advance(1)
    if changes and prove:
        stage.tool("tools.locked_licences", "--new")  # without what was held back
        stage.tool("tools.locked_code")
    if changes:
        stage.build_py("render")
    stage.tool("tools.generate")
    return msgspec.structs.replace(review, changes=tuple(changes), held=tuple(held), locks=locks, tried=True)


class _Outcome(NamedTuple):
    """The outcome of a variant: its locks by their titles. Without any it stays as it is."""

    change: VariantChange | None
    locks: Mapping[str, LockChange]
    held: tuple[HeldBack, ...]


def _first_that_holds(change: VariantChange, again: _Again, trial: _Trial) -> _Outcome:
    """Try a change, and where that fails what is left for its variant without what failed."""
    held: list[HeldBack] = []
    next_change: VariantChange | None = change
    while next_change is not None and len(held) < _ATTEMPTS:
        outcome = _try(next_change, trial)
        if not outcome.held:
            return outcome._replace(held=tuple(held))
        held += outcome.held
        next_change = None if next_change.kind == "renew" else again(change, frozenset(each.release for each in held))
    return _Outcome(None, {}, tuple(held))


class _PortError(FailedCommandError):
    """A lock for another platform than the default one was not made."""

    platform = DEFAULT


def _try(change: VariantChange, trial: _Trial) -> _Outcome:
    """Try a variant: its new locks, or why there are none; neither where they are unchanged.

    A new variant that does not lock for another platform is made without that; one that had it is held back.
    """
    _, stage, ctx = trial
    recipe_file = stage.root / "recipes" / f"{change.recipe}.toml"
    text = recipe_file.read_text(encoding="utf-8")
    reasons: Sequence[str]
    without: VariantChange | None = None
    try:
        write_file(recipe_file, recipe_text.changed(text, change).encode())
        variant = recipes.load(recipe_file).variant(change.cuda)
        assert variant is not None  # the text was read again
        way = next(way for way in variant.candidates if way.name == change.candidate)
        outcomes = {change.title_on(platform): _locked(change, way, platform, trial) for platform in _platforms(change)}
        reasons = [reason for outcome in outcomes.values() for reason in outcome.lost]
        if not reasons:
            if change.kind == "renew" and not any(outcome.moved for outcome in outcomes.values()):
                _put_back(change, stage, ctx)
                return _Outcome(None, {}, ())
            if trial.request.prove:
                _prove(change, trial)
            return _Outcome(change, outcomes, ())
    except _PortError as error:
        reasons, without = (error.what,), change.without_platform(error.platform, error.what)
    except (FailedCommandError, RecipeError) as error:
        reasons = (error.what,)
    write_file(recipe_file, text.encode())
    _put_back(change, stage, ctx)
    if without is not None:
        return _try(without, trial)
    held = HeldBack(recipe=change.recipe, cuda=change.cuda, release=change.brings, reasons=tuple(reasons))
    return _Outcome(None, {}, (held,))


def _platforms(change: VariantChange) -> tuple[Platform, ...]:
    """List the platforms that a change has locks for."""
    return (DEFAULT, *map(platform_named, change.platforms))


def _locked(change: VariantChange, way: Candidate, platform: Platform, trial: _Trial) -> LockChange:
    """Lock a changed variant for a platform in the copy. Raises FailedCommandError, of another platform _PortError."""
    _, stage, ctx = trial
    path = catalog.path_of_lock(stage.root, change.recipe, change.cuda, change.candidate, platform)
    like = catalog.path_of_lock(ctx.root, change.recipe, change.like, change.candidate, platform)
    before = like.read_bytes() if like.is_file() else None
    elsewhere = [] if platform == DEFAULT else ["--platform", platform.name]
    try:
        stage.build_py("lock", change.recipe, "--cuda", change.cuda, "--channel", way.channels[0], *elsewhere)
    except FailedCommandError as error:
        if platform == DEFAULT:
            raise
        failed = _PortError(f"for {platform.title}: {error.what}")
        failed.platform = platform
        raise failed from error
    catalog.proof_path(path).unlink(missing_ok=True)  # of the lock before
    return lock_change(decode_lock(before) if before else None, decode_lock(path.read_bytes()))


#: how `matrix` ends where an image is at fault: it does not compile, its programs do not load, or a suite fails
_OF_THE_IMAGE = tuple(error.exit_code for error in (BuildError, SmokeError, ContractError, AuditError))


def _prove(change: VariantChange, trial: _Trial) -> None:
    """Build, check and test the image of a change, with the licences of its packages.

    Raises FailedCommandError where the image is at fault; else, as where the disk is full, the error that `matrix`
    ended with, which ends the update.
    """
    try:
        trial.stage.tool("tools.locked_licences", "--new")
        trial.stage.prove(change.recipe, change.cuda, change.candidate, trial.request.disk)
    except FailedCommandError as error:
        if error.ended_with not in _OF_THE_IMAGE:
            again = command("update", *filter(None, [trial.request.recipe]), prove=True)
            raise class_of(error.ended_with)(error.what, cause=error.cause, next_step=again) from error
        raise


def _put_back(change: VariantChange, stage: StagedCheckout, ctx: Context) -> None:
    """Put the earlier locks and their proofs into the copy again, or none."""
    for platform in _platforms(change):
        path, original = (
            catalog.path_of_lock(root, change.recipe, change.cuda, change.candidate, platform)
            for root in (stage.root, ctx.root)
        )
        for ours, theirs in ((path, original), (catalog.proof_path(path), catalog.proof_path(original))):
            if theirs.is_file():
                write_file(ours, theirs.read_bytes())
            else:
                ours.unlink(missing_ok=True)
