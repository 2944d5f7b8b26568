"""Effects of new releases on a recipe's variants: another torch, a new variant, or held back, with reasons. Pure.

A variant keeps its CUDA: where newer torches leave it, it keeps the last one. One with a day (`exclude_newer`) is a
stack of its time, which gets patches of its torch alone. A CUDA that the recipe does not have gets a new variant, where
its torch is newer than all of the recipe: those up to that were there when the recipe was written.
"""

import calendar
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from graphcrate.compat.facts import driver_table, facts, glt, gpu_table, packages, pairs, suites, toolkits
from graphcrate.compat.facts.facts import TorchBuild, numbers
from graphcrate.compat.facts.gpu_table import models_named
from graphcrate.compat.variants.ported import on_platform
from graphcrate.model.lock import Lock
from graphcrate.model.platform import DEFAULT, Platform, platform_named
from graphcrate.model.recipe import Candidate, Channel, Recipe, Variant
from graphcrate.model.words import listed
from graphcrate.resolve.sources.target import WheelTarget, target_of
from upkeep.releases import ListedRelease

#: channels whose torch an update follows; a folder has what its owner puts there
FOLLOWED = (Channel.PYPI, Channel.PYTORCH)


class VariantChange(msgspec.Struct, frozen=True, kw_only=True):
    """A variant that gets another torch or PyG, or is new. `like`: CUDA of the variant that its text is made of."""

    recipe: str
    cuda: str
    kind: Literal["replace", "new", "renew"]  #: renew: locked again, for newer packages of the stack
    like: str
    candidate: str
    torch: str
    torch_before: str
    pyg: str = ""
    pyg_before: str = ""
    exclude_newer: str = ""  #: day; empty: none
    platforms: tuple[str, ...] = ()  #: other ones whose locks are made again too, as OCI names them: "linux/arm64"
    gained: tuple[str, ...] = ()  #: GPU models that it runs on, and the one before, or that it is like, does not
    lost: tuple[str, ...] = ()
    driver: str = ""  #: the oldest
    driver_before: str = ""
    without: tuple[str, ...] = ()  #: requirements that a new variant lacks, as no release of them goes with its torch
    why: tuple[str, ...] = ()  #: what a reviewer has to know, in sentences

    @property
    def title(self) -> str:
        """ "pyg CUDA 13.0"."""
        return f"{self.recipe} CUDA {self.cuda}"

    def title_on(self, platform: Platform) -> str:
        """ "torch CUDA 13.0, arm64"; the title alone for the default platform."""
        return self.title if platform == DEFAULT else f"{self.title}, {platform.title}"

    def without_platform(self, platform: Platform, why: str) -> "VariantChange | None":
        """A new variant without another platform; None of one that is there, whose images for that stay."""
        if self.kind != "new":
            return None
        platforms = tuple(name for name in self.platforms if name != platform.name)
        return msgspec.structs.replace(self, platforms=platforms, why=(*self.why, f"it is not locked {why}"))

    @property
    def brings(self) -> str:
        """Name what it brings, where it has to be taken back: PyG before torch, which was looked at more closely."""
        if self.pyg != self.pyg_before:
            return f"torch_geometric {self.pyg}"
        return f"torch {self.torch}" if self.torch != self.torch_before else "newer packages"


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """A release that a variant does not get, and why."""

    recipe: str
    cuda: str
    release: str  #: "torch 2.99.0"
    reasons: tuple[str, ...]


class Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to a recipe's variants. What is in neither stays as it is."""

    changes: tuple[VariantChange, ...] = ()
    held: tuple[HeldBack, ...] = ()


class News(NamedTuple):
    """News of channels, with measurements. `today` decides which packages are of their time."""

    torch: Sequence[ListedRelease]
    builds: Sequence[TorchBuild]
    pyg: Sequence[ListedRelease]
    today: datetime.date
    packages: Mapping[str, Sequence[ListedRelease]] = {}  #: of the stack beside these, by normalised name
    companions: Mapping[str, Sequence[ListedRelease]] = {}  #: torchvision and torchaudio, where an index has them
    refused: frozenset[str] = frozenset()  #: "torch 2.99.0": what was tried and did not do
    ported: Mapping[str, Sequence[TorchBuild]] = {}  #: other platform, as OCI names it → torch's wheels for it

    def build(self, torch: str, cuda: str, platform: Platform = DEFAULT) -> TorchBuild | None:
        """Look up a torch ("2.12.1+cu130") for a CUDA."""
        version = Version(torch).public
        builds = self.builds if platform == DEFAULT else self.ported.get(platform.name, ())
        return next((build for build in builds if (build.torch, build.cuda) == (version, cuda)), None)

    def cuda_of(self, release: ListedRelease) -> str:
        """Return a torch's CUDA: what its channel is for, or what its wheel says. Empty: not measured."""
        if release.cuda:
            return release.cuda
        measured = (build for build in self.builds if build.known == "measured" and build.source in release.files)
        return next((build.cuda for build in measured if build.torch == str(release.number)), "")


class _Line(NamedTuple):
    """A variant with the candidate that an update follows."""

    recipe: Recipe
    variant: Variant
    way: Candidate
    ported: Mapping[str, Lock] = {}  #: other platform, as OCI names it → the variant's lock for it

    def target(self, platform: Platform = DEFAULT) -> WheelTarget:
        """Return the target that wheels of it have to fit."""
        variant = on_platform(self.variant, platform)
        return target_of(variant.base, variant.python)

    def held(self, cuda: str, release: str, reasons: Iterable[str]) -> HeldBack:
        return HeldBack(recipe=self.recipe.name, cuda=cuda, release=release, reasons=tuple(reasons))

    def hold(self, held: list[HeldBack], cuda: str, release: ListedRelease, reasons: tuple[str, ...]) -> None:
        """Add a torch that is held back, but not an older one for the reasons of a newer one."""
        if all(other.reasons != reasons for other in held):
            held.append(self.held(cuda, f"torch {release.version}", reasons))


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


def _lines(recipe: Recipe) -> Iterator[_Line]:
    """Variants with their first candidate that has the variant's own CUDA, an exact torch and nothing in its place."""
    for variant in recipe.variants:
        for way in variant.candidates:
            is_own = way.torch_cuda == variant.cuda and way.torch != "*" and not way.overrides
            if is_own and way.channels[0] in FOLLOWED:
                yield _Line(recipe, variant, way)
                break


def _newer(line: _Line, cuda: str, news: News) -> Iterator[ListedRelease]:
    """Releases of a line's channel for a CUDA that a variant like it may get, the newest first."""
    own = Version(Version(line.way.torch).public)
    horizon = own if cuda == line.variant.cuda else _newest_torch(line.recipe)
    for release in sorted(news.torch, key=lambda release: release.number, reverse=True):
        is_listed = release.channel is line.way.channels[0] and news.cuda_of(release) == cuda
        is_patch = release.number.release[:2] == own.release[:2]
        is_refused = f"torch {release.version}" in news.refused
        if is_listed and not is_refused and release.number > horizon and (is_patch or not line.variant.exclude_newer):
            yield release


def _replaced(line: _Line, news: News) -> tuple[VariantChange | None, list[HeldBack]]:
    """Weigh a variant: the newest torch for its CUDA that nothing speaks against, and the newest PyG."""
    variant, way = line.variant, line.way
    held: list[HeldBack] = []
    before = news.build(way.torch, way.torch_cuda)
    chosen = None
    for release in _newer(line, variant.cuda, news):
        if reasons := tuple(_obstacles(line, variant.cuda, release, news, before)):
            line.hold(held, variant.cuda, release, reasons)
            continue
        chosen = release
        break
    pyg, more = _pyg(line, news)
    held += more
    if chosen is None and not pyg:
        return None, held
    return _change(line, variant.cuda, chosen, pyg, news), held


def _added(line: _Line, cuda: str, news: News) -> tuple[VariantChange | None, list[HeldBack]]:
    """The variant for a CUDA that a recipe does not have, like the nearest that it has."""
    held: list[HeldBack] = []
    for release in _newer(line, cuda, news):
        if reasons := tuple(_obstacles(line, cuda, release, news, None)):
            line.hold(held, cuda, release, reasons)
            continue
        pyg, _ = _pyg(line, news)
        return _change(line, cuda, release, pyg, news), held
    return None, held


def _renewed(line: _Line, news: News, lock: Lock | None) -> VariantChange | None:
    """A variant that is locked with older packages of its own stack, or for another platform with an older torch."""
    why = [*_newer_packages(line, news, lock), *_left_behind(line, news)]
    if not why:
        return None
    change = _change(line, line.variant.cuda, None, None, news)
    return msgspec.structs.replace(change, kind="renew", why=(*why, *change.why))


def _newer_packages(line: _Line, news: News, lock: Lock | None) -> Iterator[str]:
    """Yield newer packages that a variant whose packages are of today could be locked with."""
    if lock is None or line.variant.exclude_newer:
        return
    for name, releases in news.packages.items():
        package = lock.package(name)
        fitting = [release for release in releases if release.fits(line.target())]
        if package is not None and fitting and fitting[-1].number > Version(Version(package.version).public):
            yield f"{name} {fitting[-1].version} is newer than the locked {package.version}"


def _left_behind(line: _Line, news: News) -> Iterator[str]:
    """Locks for other platforms whose torch is not the recipe's, where there is a build of that."""
    own = Version(Version(line.way.torch).public)
    release = next((release for release in news.torch if release.number == own), None)
    for name, lock in line.ported.items():
        platform, torch = platform_named(name), lock.package("torch")
        is_behind = torch is not None and Version(Version(torch.version).public) != own
        if torch and is_behind and release and not _against_port(line, line.variant.cuda, release, news, platform):
            yield f"the lock for {platform.title} has torch {torch.version}, and the recipe {line.way.torch}"


def _new_cudas(recipe: Recipe, lines: Sequence[_Line], news: News) -> list[str]:
    """CUDA versions of torches that are news and that the recipe has no variant for, the oldest first."""
    known = {variant.cuda for variant in recipe.variants}
    followed = {line.way.channels[0] for line in lines if line.variant.cuda != "cpu"}
    cudas = {
        news.cuda_of(release)
        for release in news.torch
        if release.channel in followed and release.number > _newest_torch(recipe)
    }
    return sorted(cudas - known - {"", "cpu"}, key=numbers)


def _nearest(lines: Iterable[_Line], cuda: str) -> _Line:
    """The line with the newest CUDA before this one, else with the oldest after it."""
    with_cuda = (line for line in lines if line.variant.cuda != "cpu")
    of_cuda = sorted(with_cuda, key=lambda line: numbers(line.variant.cuda))
    older = [line for line in of_cuda if numbers(line.variant.cuda) < numbers(cuda)]
    return older[-1] if older else of_cuda[0]


# --- what speaks against a release ------------------------------------------------------------------------------------


def _obstacles(line: _Line, cuda: str, release: ListedRelease, news: News, before: TorchBuild | None) -> Iterator[str]:
    """The reasons why a variant does not get a torch. `before`: what is known of the torch that it would replace."""
    variant, target = line.variant, line.target()
    if not release.fits(target):
        yield f"it has no wheel for Python {variant.python} and glibc {target.glibc}"
    if cuda == variant.cuda:
        for platform in map(platform_named, line.ported):
            yield from _against_port(line, cuda, release, news, platform)
    if cuda == "cpu":
        return
    if not driver_table.oldest_driver(cuda):
        yield f"which driver CUDA {cuda} needs is not known: compat/data/drivers.toml has no row for it"
    build = news.build(release.version, cuda)
    if build is None:
        yield "its wheel was not measured"
        return
    if build.glibc and facts.is_older(target.glibc, build.glibc):
        yield f"it needs glibc {build.glibc}, and {suites.of_base(variant.base) or 'the base'} has {target.glibc}"
    if line.variant.extensions and not toolkits.options(cuda):
        yield f"no toolkit is known that compiles extensions for CUDA {cuda}: compat/data/toolkits.toml"
    if cuda == variant.cuda:
        yield from _unaccompanied(line, release, news, DEFAULT).values()
    if before is not None:
        if lost := _without(before, build):
            yield f"it has no code for {models_named(lost)}, which torch {before.torch} runs on"
        newest = numbers(build.compile_python)
        if newest and newest < numbers(variant.python) <= numbers(before.compile_python):
            yield f"its torch.compile takes no Python after {build.compile_python}, and this is {variant.python}"
    yield from _graphlearn(line, str(release.number), cuda)


def _against_port(line: _Line, cuda: str, release: ListedRelease, news: News, platform: Platform) -> tuple[str, ...]:
    """The reasons why a variant's image for another platform cannot have a torch."""
    target, build = line.target(platform), news.build(release.version, cuda, platform)
    if not release.fits(target):
        return (f"it has no wheel for {platform.title}, Python {target.python} and glibc {target.glibc}",)
    if build is None:
        others = [other.cuda for other in news.ported.get(platform.name, ()) if other.torch == str(release.number)]
        return (f"its wheel for {platform.title} " + (f"has CUDA {others[0]}" if others else "was not measured"),)
    reasons = []
    if build.glibc and facts.is_older(target.glibc, build.glibc):
        reasons.append(f"its wheel for {platform.title} needs glibc {build.glibc}, and the base has {target.glibc}")
    absent = _unaccompanied(line, release, news, platform) if cuda == line.variant.cuda else {}
    reasons += [f"for {platform.title}: {reason}" for reason in absent.values()]
    lock = line.ported[platform.name]
    torch = lock.package("torch")
    before = news.build(torch.version, lock.torch_cuda, platform) if torch else None
    lost = [model for model in _without(before, build) if gpu_table.host_platform(model) == platform] if before else []
    if before and lost:
        reasons.append(
            f"its wheel for {platform.title} has no code for {models_named(lost)}, which that of "
            f"torch {before.torch} runs on"
        )
    return tuple(reasons)


def _unaccompanied(line: _Line, release: ListedRelease, news: News, platform: Platform) -> dict[str, str]:
    """Requirements of a variant, torchvision and torchaudio, that have no release for a torch, each with why."""
    target = line.target(platform)
    allowed = {(asked := Requirement(text)).name: asked for text in pairs.constraints(release.version)}
    absent = {}
    for text in line.variant.requirements:
        name = str(canonicalize_name(Requirement(text).name))
        offered = news.companions.get(name, ())
        if name not in allowed or not offered:
            continue
        if not any(allowed[name].specifier.contains(str(other.number)) and other.fits(target) for other in offered):
            newest = offered[-1].version
            absent[text] = f"{allowed[name]} goes with torch {release.version}, and the index ends with {newest}"
    return absent


def _graphlearn(line: _Line, torch: str, cuda: str) -> Iterator[str]:
    """The reasons why the graphlearn-torch of a recipe does not work with a torch."""
    variant = line.variant
    written = map(Requirement, (*line.recipe.requirements, *variant.requirements))
    asked = next((each for each in written if canonicalize_name(each.name) == glt.NAME), None)
    if asked is None:
        return
    fitting = [
        release.version
        for release in glt.releases()
        if asked.specifier.contains(release.version)
        and not glt.judge(release.version, torch, cuda, variant.python, ("torch-sparse", "torch-scatter")).reasons
    ]
    if not fitting:
        known = listed(release.version for release in glt.releases() if asked.specifier.contains(release.version))
        yield f"graphlearn-torch {known or str(asked.specifier)} does not work with it: compat/data/glt.toml"


def _runs(build: TorchBuild, capability: str) -> bool:
    """Return whether a torch has code for a GPU, or PTX that a driver compiles for it."""
    by_ptx = any(facts.compiles_for(ptx, capability) for ptx in build.ptx or ())
    return facts.has_code(build.sm, capability) or by_ptx


def _without(first: TorchBuild, other: TorchBuild) -> tuple[str, ...]:
    """GPU models of lists that the first runs on and the other does not."""
    return tuple(
        model
        for model, capability in gpu_table.gpus().items()
        if _runs(first, capability) and not _runs(other, capability)
    )


# --- what a change says -----------------------------------------------------------------------------------------------


def _pyg(line: _Line, news: News) -> tuple[ListedRelease | None, list[HeldBack]]:
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
    line: _Line, cuda: str, torch: ListedRelease | None, pyg: ListedRelease | None, news: News
) -> VariantChange:
    """The change of a line to these releases, or to a new variant of this CUDA."""
    variant, way = line.variant, line.way
    before = news.build(way.torch, way.torch_cuda)
    after = news.build(torch.version, cuda) if torch else before
    both = before is not None and after is not None
    day, unknown = _day(line, torch, pyg, news)
    is_new = cuda != variant.cuda
    absent = _unaccompanied(line, torch, news, DEFAULT) if torch and is_new else {}
    not_ported = {
        name: _against_port(line, cuda, torch, news, platform_named(name)) if torch and is_new else ()
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
        gained=_without(after, before) if both and after and before else (),
        lost=_without(before, after) if both and after and before else (),
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


def _why(line: _Line, cuda: str, torch: ListedRelease | None, news: News, unknown: str) -> Iterator[str]:
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


def _day(line: _Line, torch: ListedRelease | None, pyg: ListedRelease | None, news: News) -> tuple[str, str]:
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
