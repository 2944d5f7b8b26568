"""The text of an update: what a reviewer has to know, in Markdown, the shortest first. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from graphcrate.compat.facts.facts import TorchBuild
from graphcrate.compat.facts.gpu_table import models_named
from graphcrate.model.command import command
from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.platform import DEFAULT, platform_named
from graphcrate.model.words import joined, size
from upkeep.news.changes import HeldBack, VariantChange

_SHOWN = 12  #: packages of a lock that are named


class LockChange(msgspec.Struct, frozen=True, kw_only=True):
    """A new lock's changes from the one before, or from the lock of the variant that it is like."""

    bytes_before: int
    bytes_after: int
    moved: tuple[tuple[str, str, str], ...]  #: name, version before (empty: new), version after (empty: gone)
    lost: tuple[str, ...] = ()  #: what the recipe asks for and this lock does not have, though the one before did


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """An update, whole. `locks`: by the title of a change on its platform; empty where nothing was tried."""

    day: str
    changes: tuple[VariantChange, ...] = ()
    held: tuple[HeldBack, ...] = ()
    facts: tuple[TorchBuild, ...] = ()  #: torches that were measured
    ported_facts: Mapping[str, tuple[TorchBuild, ...]] = {}  #: of other platforms, by their names
    by_hand: tuple[str, ...] = ()  #: what is new and only the user can decide
    awaited: tuple[str, ...] = ()  #: what is new, and of which nothing follows yet
    unanswered: tuple[str, ...] = ()  #: channels that did not say what they have, and why
    locks: Mapping[str, LockChange] = {}
    tried: bool = False  #: whether facts, recipes and locks were written

    @property
    def is_news(self) -> bool:
        """Return whether there is something to write."""
        return bool(self.changes or self.facts or self.ported_facts)


def lock_change(before: Lock | None, after: Lock) -> LockChange:
    """Compare two locks of a stack."""
    versions = {package.name: package.version for package in before.packages} if before else {}
    newer = {package.name: package.version for package in after.packages}
    names = sorted(versions.keys() | newer.keys()) if before else []
    lacking = {missing.name: missing for missing in after.missing}
    return LockChange(
        bytes_before=_bytes(before) if before else 0,
        bytes_after=_bytes(after),
        moved=tuple(
            (name, versions.get(name, ""), newer.get(name, ""))
            for name in names
            if versions.get(name) != newer.get(name)
        ),
        lost=tuple(f"{name}: {lacking[name].reason}" for name in sorted(lacking.keys() & versions.keys())),
    )


def _bytes(lock: Lock) -> int:
    """Sum up the packed bytes of an image's parts."""
    debs = sum(deb.file.size for deb in lock.base.packages) if isinstance(lock.base, DebianBase) else 0
    return debs + sum(package.file.size for package in lock.packages)


def text(review: Review) -> str:
    """The whole text."""
    return "\n".join(line for part in _parts(review) for line in (*part, "")).rstrip() + "\n"


def _parts(review: Review) -> Iterator[list[str]]:
    yield [f"# Update of {review.day}", "", _opening(review)]
    if review.changes:
        yield ["## Images", "", *_table(review)]
        if notes := [*_notes(review.changes)]:
            yield notes
    if tried := [change for change in review.changes if change.title in review.locks]:
        yield ["## Packages", "", *_packages(tried, review.locks)]
    if review.held:
        yield ["## Held back", "", *_held(review.held)]
    if of_all := [*map(_fact, review.facts), *_ported_facts(review)]:
        yield ["## New facts", "", *of_all]
    if review.by_hand:
        yield ["## By hand", "", *(f"- {sentence}." for sentence in review.by_hand)]
    if review.awaited:
        yield ["## Nothing to do yet", "", *(f"- {sentence}." for sentence in review.awaited)]
    if review.unanswered:
        yield ["## No answer", "", *(f"- {sentence}." for sentence in review.unanswered)]


def _opening(review: Review) -> str:
    kinds = Counter(change.kind for change in review.changes)
    counts = (
        (kinds["replace"], "variant changes", "variants change"),
        (kinds["new"], "is new", "are new"),
        (kinds["renew"], "is locked again", "are locked again"),
        (len(review.held), "release is held back", "releases are held back"),
        (len([*_measured(review)]), "torch was measured", "torches were measured"),
    )
    parts = [f"{count} {single if count == 1 else many}" for count, single, many in counts if count]
    if not parts:
        return "Nothing is new."
    written = "" if review.tried or not review.is_news else " Nothing was written."
    return f"{', '.join(parts)}.{written}"


def _measured(review: Review) -> Iterator[TorchBuild]:
    yield from review.facts
    for builds in review.ported_facts.values():
        yield from builds


def _table(review: Review) -> Iterator[str]:
    yield "| image | torch | PyG | GPUs won | GPUs lost | driver from | bytes, packed |"
    yield "|---|---|---|---|---|---|---|"
    for change in review.changes:
        lock = review.locks.get(change.title)
        before = "" if change.kind == "new" else change.torch_before
        cells = (
            f"{change.title}{', new' if change.kind == 'new' else ''}",
            _arrow(before, change.torch),
            _arrow(change.pyg_before, change.pyg) or "-",
            models_named(change.gained) or "-",
            models_named(change.lost) or "-",
            _arrow(change.driver_before, change.driver) or "-",
            _arrow(size(lock.bytes_before) if lock.bytes_before else "", size(lock.bytes_after)) if lock else "-",
        )
        yield f"| {' | '.join(cells)} |"


def _arrow(before: str, after: str) -> str:
    return after if before in ("", after) else f"{before} → {after}"


def _notes(changes: Iterable[VariantChange]) -> Iterator[str]:
    """A line for each sentence, with all variants that it is about."""
    titles: dict[str, list[str]] = {}
    for change in changes:
        for sentence in (*change.why, *_ported(change)):
            titles.setdefault(sentence, []).append(change.title)
    yield from (f"- {', '.join(named)}: {sentence}." for sentence, named in titles.items())


def _ported(change: VariantChange) -> Iterator[str]:
    for name in change.platforms:
        build = command("image", change.recipe, cuda=change.cuda, platform=name)
        yield f"it has a new lock for {platform_named(name).title} too, whose image is not built here: {build}"


def _packages(changes: Iterable[VariantChange], locks: Mapping[str, LockChange]) -> Iterator[str]:
    """A line for each variant: what another lock has in its place."""
    for change in changes:
        beside = f" (beside CUDA {change.like})" if change.kind == "new" else ""
        for platform in (DEFAULT, *map(platform_named, change.platforms)):
            named = [_arrow_of(*moved) for moved in locks[change.title_on(platform)].moved]
            yield f"- {change.title_on(platform)}{beside}: {joined(named, _SHOWN) or 'the same'}."


def _arrow_of(name: str, before: str, after: str) -> str:
    if before and after:
        return f"{name} {before} → {after}"
    return f"{name} {after} new" if after else f"{name} {before} gone"


def _held(held: Iterable[HeldBack]) -> Iterator[str]:
    """A line for each release and reason, with all variants that it is held back of."""
    images: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for each in held:
        images.setdefault((each.release, each.reasons), []).append(f"{each.recipe} CUDA {each.cuda}")
    for (release, reasons), titles in images.items():
        yield f"- {', '.join(titles)}: no {release}: {'; '.join(reasons)}."


def _ported_facts(review: Review) -> Iterator[str]:
    for name, builds in review.ported_facts.items():
        yield from (_fact(build, f" for {platform_named(name).title}") for build in builds)


def _fact(build: TorchBuild, of: str = "") -> str:
    pins: Sequence[str] = [pin.removeprefix("nvidia-").replace("==", " ") for pin in build.pins]
    parts = (
        f"CUDA {build.cuda}",
        f"code for {', '.join(build.sm) or 'no GPU'}",
        f"PTX for {', '.join(build.ptx)}" if build.ptx else "no PTX",
        f"glibc {build.glibc}" if build.glibc else "",
        {True: "new", False: "old"}[build.cxx11_abi] + " C++ ABI" if build.cxx11_abi is not None else "",
        *pins,
        f"Python {build.python}" if build.python else "",
        f"torch.compile up to Python {build.compile_python}" if build.compile_python else "",
        size(build.size),
    )
    return f"- torch {build.torch}{of}: {', '.join(part for part in parts if part)} ({build.by})."
