"""pylock.toml (PEP 751): what of a lock an image gets, for each Python and processor that images have. Pure."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from packaging.pylock import Package, Pylock, PylockSelectError, PylockValidationError
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from graphcrate.compat.facts.packages import PYTHONS, markers
from graphcrate.model.command import command, setting
from graphcrate.model.errors import UsageError
from graphcrate.model.platform import SUPPORTED
from graphcrate.model.words import listed, number_of, printable

if TYPE_CHECKING:
    from packaging.markers import Environment

_NAMES = ("extras", "dependency_groups")


class Selected(NamedTuple):
    """A package of a lock, and a marker of the images that get it; empty: each."""

    package: Package
    marker: str


class LockSelection(NamedTuple):
    """A selection from a lock, and what is left out of it, for people."""

    lock: Pylock
    selected: tuple[Selected, ...]
    notes: tuple[str, ...]


def select(value: Mapping[str, Any], name: str, asked: Sequence[str] = ()) -> LockSelection:
    """Return what a lock has for images, with its default groups and the extras and groups that are asked for.

    Raise UsageError, which names the file, for what is no lock, for an extra or group that it lacks, and where it is
    for no image.
    """
    try:
        lock = Pylock.from_dict(value)
    except PylockValidationError as error:
        raise UsageError(
            f"{name} is not a lock of PEP 751: {printable(str(error)[:300])}",
            next_step="write it again with what made it, or give requirements.txt",
        ) from error
    extras, groups = _asked(lock, name, asked)
    images = _images(lock, name, extras, groups)
    selected = [
        Selected(package, _marker(entry.get("marker", ""), getting, images))
        for package, entry in zip(lock.packages, value["packages"], strict=True)
        if (getting := {image for image, packages in images.items() if id(package) in packages})
    ]
    taken = {id(package) for package, _ in selected}
    return LockSelection(lock, tuple(selected), tuple(_left_out(lock, name, taken)))


def _asked(lock: Pylock, name: str, asked: Sequence[str]) -> tuple[list[str], list[str]]:
    known_extras, known_groups = lock.extras or (), lock.dependency_groups or ()
    for word in asked:
        if word not in (*known_extras, *known_groups, *(lock.default_groups or ())):
            has = listed(sorted({*known_extras, *known_groups}))
            raise UsageError(
                f"{name} has no extra or group {printable(word)!r}" + (f"; it has {has}" if has else ""),
                next_step=f"{setting(requirements=name)}    (without it)",
            )
    groups = [word for word in asked if word not in known_extras]
    return [word for word in asked if word in known_extras], [*(lock.default_groups or ()), *groups]


_Image = tuple[str, str]  #: Python and processor


def _images(lock: Pylock, name: str, extras: Sequence[str], groups: Sequence[str]) -> dict[_Image, frozenset[int]]:
    """Return what each image gets, by the packages' ids. An image that the lock is not for is left out."""
    tags = [*_tags(lock)]
    chosen, refused = dict[_Image, frozenset[int]](), ""
    for python, platform in itertools.product(PYTHONS, SUPPORTED):
        # the last release of each Python: locks may ask for one within it (>=3.11.4)
        environment = cast("Environment", markers(python, platform) | {"python_full_version": f"{python}.99"})
        try:
            selected = lock.select(environment=environment, tags=tags, extras=extras, dependency_groups=groups)
            chosen[python, platform.machine] = frozenset(id(package) for package, _ in selected)
        except PylockSelectError as error:
            refused = str(error)
    if not chosen:
        raise UsageError(
            f"{name} is for no image: {printable(refused[:300])}",
            next_step=f"{command('list')}    has the Pythons of images; lock it for one of them, on Linux",
        )
    return chosen


def _tags(lock: Pylock) -> Iterable[Tag]:
    """Every tag that a wheel of the lock has: which file an image takes is seen when it is locked."""
    for wheel in itertools.chain.from_iterable(package.wheels or () for package in lock.packages):
        yield from parse_wheel_filename(wheel.filename)[-1]


def _marker(written: str, getting: set[_Image], images: Collection[_Image]) -> str:
    """Return a marker without extras and groups, which are decided; as it is written where it names none."""
    if not any(name in written for name in _NAMES):
        return written
    if len(getting) == len(images):
        return ""
    return " or ".join(
        f"python_version == '{python}' and platform_machine == '{machine}'" for python, machine in sorted(getting)
    )


def _left_out(lock: Pylock, name: str, taken: set[int]) -> Iterable[str]:
    left = [package for package in lock.packages if id(package) not in taken]
    for_others = [package.name for package in left if not any(word in str(package.marker) for word in _NAMES)]
    of_extras = [package.name for package in left if package.name not in for_others]
    if for_others:
        yield f"{name}: for other systems, and left out: {listed(dict.fromkeys(for_others))}"
    if of_extras:
        known = listed(sorted({*(lock.extras or ()), *(lock.dependency_groups or ())} - {*(lock.default_groups or ())}))
        by = f"{setting(requirements=f'{name}[…]')} takes an extra or a group" + (f": {known}" if known else "")
        count = number_of(len(set(of_extras)), "package")
        yield f"{name}: {count} of extras and groups that were not asked for: {listed(dict.fromkeys(of_extras))}; {by}"
