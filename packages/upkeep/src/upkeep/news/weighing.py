"""Effects of new releases on a recipe's variants: another torch, a new variant, or held back, with reasons. Pure.

A variant keeps its CUDA: where newer torches leave it, it keeps the last one. One with a day (`exclude_newer`) is a
stack of its time, which gets patches of its torch alone. A CUDA that the recipe does not have gets a new variant, where
its torch is newer than all of the recipe: those up to that were there when the recipe was written.
"""

import calendar
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from packaging.version import Version

from graphcrate.compat.facts import driver_table, packages
from graphcrate.compat.facts.facts import numbers
from graphcrate.model.lock import Lock
from graphcrate.model.platform import DEFAULT, platform_named
from graphcrate.model.recipe import Recipe
from upkeep.news.changes import HeldBack, VariantChange, Weighed
from upkeep.news.followed import FOLLOWED, Followed, News
from upkeep.news.obstacles import against_port, models_without, torch_obstacles, unaccompanied
from upkeep.releases import ListedRelease


def _newest_torch(recipe: Recipe) -> Version:
    """The newest torch of a recipe's candidates."""
    named = (way.torch for variant in recipe.variants for way in variant.candidates if way.torch != "*")
    return max((Version(Version(torch).public) for torch in named), default=Version("0"))


def weigh(
    recipe: Recipe,
    news: News,
    locks: Mapping[str, Lock] | None = None,
    ported: Mapping[str, Mapping[str, Lock]] | None = None,
) -> Weighed:
    """Decide for each variant, and for each CUDA that the recipe has no variant for. `locks`: by CUDA.

    `ported`: the same of other platforms, each by its name.
    """
    changes: list[VariantChange] = []
    held: list[HeldBack] = []
    lines = [line._replace(ported=(ported or {}).get(line.variant.cuda, {})) for line in _lines(recipe)]
    for line in lines:
        change, reasons = _replaced(line, news)
        change = change or _renewed(line, news, (locks or {}).get(line.variant.cuda))
        changes += [change] if change else []
        held += reasons
    of_today = [line for line in lines if not line.variant.exclude_newer]
    for cuda in _new_cudas(recipe, of_today, news):
        like = _nearest(of_today, cuda)
        change, reasons = _added(like, cuda, news)
        changes += [change] if change else []
        held += reasons
    return Weighed(changes=tuple(changes), held=tuple(held))


def _lines(recipe: Recipe) -> Iterator[Followed]:
    """Variants with their first candidate that has the variant's own CUDA, an exact torch and nothing in its place."""
    for variant in recipe.variants:
        for way in variant.candidates:
            is_own = way.torch_cuda == variant.cuda and way.torch != "*" and not way.overrides
            if is_own and way.channels[0] in FOLLOWED:
                yield Followed(recipe, variant, way)
                break


def _newer(line: Followed, cuda: str, news: News) -> Iterator[ListedRelease]:
    """Releases of a line's channel for a CUDA that a variant like it may get, the newest first."""
    own = Version(Version(line.way.torch).public)
    horizon = own if cuda == line.variant.cuda else _newest_torch(line.recipe)
    for release in sorted(news.torch, key=lambda release: release.number, reverse=True):
        is_listed = release.channel is line.way.channels[0] and news.cuda_of(release) == cuda
        is_patch = release.number.release[:2] == own.release[:2]
        is_refused = f"torch {release.version}" in news.refused
        if is_listed and not is_refused and release.number > horizon and (is_patch or not line.variant.exclude_newer):
            yield release


def _replaced(line: Followed, news: News) -> tuple[VariantChange | None, list[HeldBack]]:
    """Weigh a variant: the newest torch for its CUDA that nothing speaks against, and the newest PyG."""
    variant, way = line.variant, line.way
    held: list[HeldBack] = []
    before = news.build(way.torch, way.torch_cuda)
    chosen = None
    for release in _newer(line, variant.cuda, news):
        if reasons := tuple(torch_obstacles(line, variant.cuda, release, news, before)):
            line.hold(held, variant.cuda, release, reasons)
            continue
        chosen = release
        break
    pyg, more = _pyg(line, news)
    held += more
    if chosen is None and not pyg:
        return None, held
    return _change(line, variant.cuda, chosen, pyg, news), held


def _added(line: Followed, cuda: str, news: News) -> tuple[VariantChange | None, list[HeldBack]]:
    """The variant for a CUDA that a recipe does not have, like the nearest that it has."""
    held: list[HeldBack] = []
    for release in _newer(line, cuda, news):
        if reasons := tuple(torch_obstacles(line, cuda, release, news, None)):
            line.hold(held, cuda, release, reasons)
            continue
        pyg, _ = _pyg(line, news)
        return _change(line, cuda, release, pyg, news), held
    return None, held


def _renewed(line: Followed, news: News, lock: Lock | None) -> VariantChange | None:
    """A variant that is locked with older packages of its own stack, or for another platform with an older torch."""
    why = [*_newer_packages(line, news, lock), *_left_behind(line, news)]
    if not why:
        return None
    change = _change(line, line.variant.cuda, None, None, news)
    return msgspec.structs.replace(change, kind="renew", why=(*why, *change.why))


def _newer_packages(line: Followed, news: News, lock: Lock | None) -> Iterator[str]:
    """Yield newer packages that a variant whose packages are of today could be locked with."""
    if lock is None or line.variant.exclude_newer:
        return
    for name, releases in news.packages.items():
        package = lock.package(name)
        fitting = [release for release in releases if release.fits(line.target())]
        if package is not None and fitting and fitting[-1].number > Version(Version(package.version).public):
            yield f"{name} {fitting[-1].version} is newer than the locked {package.version}"


def _left_behind(line: Followed, news: News) -> Iterator[str]:
    """Locks for other platforms whose torch is not the recipe's, where there is a build of that."""
    own = Version(Version(line.way.torch).public)
    release = next((release for release in news.torch if release.number == own), None)
    for name, lock in line.ported.items():
        platform, torch = platform_named(name), lock.package("torch")
        is_behind = torch is not None and Version(Version(torch.version).public) != own
        if torch and is_behind and release and not against_port(line, line.variant.cuda, release, news, platform):
            yield f"the lock for {platform.title} has torch {torch.version}, and the recipe {line.way.torch}"


def _new_cudas(recipe: Recipe, lines: Sequence[Followed], news: News) -> list[str]:
    """CUDA versions of torches that are news and that the recipe has no variant for, the oldest first."""
    known = {variant.cuda for variant in recipe.variants}
    followed = {line.way.channels[0] for line in lines if line.variant.cuda != "cpu"}
    cudas = {
        news.cuda_of(release)
        for release in news.torch
        if release.channel in followed and release.number > _newest_torch(recipe)
    }
    return sorted(cudas - known - {"", "cpu"}, key=numbers)


def _nearest(lines: Iterable[Followed], cuda: str) -> Followed:
    """The line with the newest CUDA before this one, else with the oldest after it."""
    with_cuda = (line for line in lines if line.variant.cuda != "cpu")
    of_cuda = sorted(with_cuda, key=lambda line: numbers(line.variant.cuda))
    older = [line for line in of_cuda if numbers(line.variant.cuda) < numbers(cuda)]
    return older[-1] if older else of_cuda[0]


# --- what speaks against a release ------------------------------------------------------------------------------------


# --- what a change says -----------------------------------------------------------------------------------------------


def _pyg(line: Followed, news: News) -> tuple[ListedRelease | None, list[HeldBack]]:
    """The newest PyG for a variant whose packages are of today; one of its own day keeps its own."""
    variant = line.variant
    if not variant.torch_geometric or variant.exclude_newer:
        return None, []
    target = line.target()
    refused = news.refused
    newer = [
        release
        for release in news.pyg
        if release.number > Version(variant.torch_geometric) and f"torch_geometric {release.version}" not in refused
    ]
    held: list[HeldBack] = []
    for release in sorted(newer, key=lambda release: release.number, reverse=True):
        if release.fits(target):
            return release, held
        reason = f"it has no wheel for Python {variant.python}"
        held.append(line.held(variant.cuda, f"torch_geometric {release.version}", (reason,)))
    return None, held


def _change(
    line: Followed, cuda: str, torch: ListedRelease | None, pyg: ListedRelease | None, news: News
) -> VariantChange:
    """The change of a line to these releases, or to a new variant of this CUDA."""
    variant, way = line.variant, line.way
    before = news.build(way.torch, way.torch_cuda)
    after = news.build(torch.version, cuda) if torch else before
    both = before is not None and after is not None
    day, unknown = _day(line, torch, pyg, news)
    is_new = cuda != variant.cuda
    absent = unaccompanied(line, torch, news, DEFAULT) if torch and is_new else {}
    not_ported = {
        name: against_port(line, cuda, torch, news, platform_named(name)) if torch and is_new else ()
        for name in line.ported
    }
    geometric = pyg.version if pyg else variant.torch_geometric
    return VariantChange(
        recipe=line.recipe.name,
        cuda=cuda,
        kind="new" if is_new else "replace",
        like=variant.cuda,
        candidate=way.name,
        torch=torch.version if torch else way.torch,
        torch_before=way.torch,
        pyg=geometric,
        pyg_before=variant.torch_geometric,
        exclude_newer=day,
        platforms=tuple(name for name, reasons in not_ported.items() if not reasons),
        gained=models_without(after, before) if both and after and before else (),
        lost=models_without(before, after) if both and after and before else (),
        driver=driver_table.oldest_driver(cuda),
        driver_before=driver_table.oldest_driver(variant.cuda),
        without=tuple(absent),
        why=(
            *_why(line, cuda, torch, news, unknown),
            *(f"it is without {text}: {reason}" for text, reason in absent.items()),
            *(
                f"it is not made for {platform_named(name).title}: {'; '.join(reasons)}"
                for name, reasons in not_ported.items()
                if reasons
            ),
        ),
    )


def _why(line: Followed, cuda: str, torch: ListedRelease | None, news: News, unknown: str) -> Iterator[str]:
    newest = max(
        (release for release in news.torch if release.channel is line.way.channels[0]),
        key=lambda release: release.number,
        default=None,
    )
    if torch is not None and cuda == line.variant.cuda:
        patch = torch.number.release[:2] == Version(line.way.torch).release[:2]
        yield f"torch {torch.version} is a new {'patch' if patch else 'minor'} release for CUDA {cuda}"
        if newest is not None and newest.number > torch.number and news.cuda_of(newest) not in ("", cuda):
            yield (
                f"torch {newest.version} is for CUDA {news.cuda_of(newest)} there, "
                f"and {torch.version} the last for {cuda}"
            )
    elif torch is not None:
        own = driver_table.own_driver(cuda)
        yield f"torch {torch.version} is for CUDA {cuda}, which the recipe has no variant for"
        if own and own != driver_table.own_driver(line.variant.cuda):
            other = f"CUDA {line.variant.cuda}: {driver_table.own_driver(line.variant.cuda) or 'not known'}"
            yield f"PTX that CUDA {cuda} makes is compiled by drivers from {own} on ({other})"
    if torch is not None and line.variant.extensions and packages.has_wheels(torch.version, cuda) is None:
        series = ".".join(torch.version.split(".")[:2])
        yield (
            f"whether PyG's pages have wheels for torch {series} and CUDA {cuda} is not known "
            "(coverage in compat/data/pyg.toml): without, extensions are compiled"
        )
    if unknown:
        yield unknown


def _day(line: Followed, torch: ListedRelease | None, pyg: ListedRelease | None, news: News) -> tuple[str, str]:
    """The day of a variant's packages (docs/decisions/dates.md), and what is not known of it."""
    variant = line.variant
    if torch is None and pyg is None:
        return variant.exclude_newer, ""
    of_pyg: Mapping[str, str] = {release.version: release.uploaded for release in news.pyg}
    geometric = pyg.version if pyg else variant.torch_geometric
    sharing = [other.exclude_newer for other in line.recipe.variants if other.torch_geometric == geometric]
    if geometric and not pyg and not all(sharing):
        return "", ""  # variants of one PyG share the latest day
    days = [torch.uploaded] if torch else []
    days += [of_pyg.get(geometric, "")] if geometric else []
    if not all(days):
        return "", "the index does not say when its files were uploaded: its day (exclude_newer) is set by hand"
    return dated(days, news.today), ""


def dated(days: Iterable[str], today: datetime.date) -> str:
    """The end of the third month after the newest of some days; empty while that is to come."""
    newest = datetime.date.fromisoformat(max(days))
    months = newest.year * 12 + newest.month - 1 + 3
    year, month = divmod(months, 12)
    last = datetime.date(year, month + 1, calendar.monthrange(year, month + 1)[1])
    return last.isoformat() if last < today else ""
