"""pylock.toml (PEP 751): what of a lock each of several machines gets."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from packaging.pylock import Package, Pylock, PylockSelectError, PylockValidationError
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from projectfiles.errors import ProjectFileError, unknown
from projectfiles.parts import expect_python, git_of, hash_options, index_lines
from projectfiles.toml_text import package_places, read_toml
from projectfiles.values import Environment, Line, Needs, Note, Release
from projectfiles.words import printable

if TYPE_CHECKING:
    from packaging import markers

_NAMES = ("extras", "dependency_groups")


class Selected(NamedTuple):
    """A package of a lock, and a marker of the machines that get it; empty: each."""

    package: Package
    marker: str


class LockSelection(NamedTuple):
    """A selection from a lock, and what is left out of it."""

    lock: Pylock
    selected: tuple[Selected, ...]
    notes: tuple[Note, ...]


def read(text: str, name: str, asked: tuple[str, ...], environments: Sequence[Environment]) -> Needs:
    """Return what machines get of a pylock.toml, with its default groups and these extras and groups.

    It does not say which of its packages were asked for: all are. Raises ProjectFileError.
    """
    made, at = Needs(), package_places(text, name)
    lock, selected, notes = select(read_toml(text, name, dict[str, Any]), name, asked, environments)
    made.notes += notes
    for package, marker in selected:
        where, ends = at(package.name), f" ; {marker}" if marker else ""
        files = [file for file in (package.sdist, *(package.wheels or ())) if file]
        if package.directory is not None:
            folder = "/".join(filter(None, (package.directory.path, package.directory.subdirectory)))
            made.lines.append(Line(where, f"./{folder}"))
        elif package.vcs is not None:
            vcs = package.vcs
            made.lines.append(Line(where, git_of(f"{vcs.url or vcs.path}#{vcs.commit_id}", vcs.subdirectory or "")))
        elif package.archive is not None or package.version is None:
            made.notes.append(Note("address", where, (package.name,)))
        else:
            sha256s = (sha256 for file in files if (sha256 := file.hashes.get("sha256")))
            release = Release(where, package.name, str(package.version), tuple(sha256s), marker)
            text_of = f"{package.name}=={package.version}{ends}{hash_options(release.hashes)}"
            made.lines.append(Line(where, text_of, release=release))
    made.lines += index_lines([(at(package.name), package.index) for package, _ in selected if package.index])
    expect_python(made, str(lock.requires_python or ""), name)
    return made


def select(
    value: Mapping[str, Any], name: str, asked: Sequence[str], environments: Sequence[Environment]
) -> LockSelection:
    """Return what machines get of a lock, with its default groups and the extras and groups that are asked for.

    Raises ProjectFileError for what is no lock, for an extra or group that it lacks, and where it is for none of them.
    """
    try:
        lock = Pylock.from_dict(value)
    except PylockValidationError as error:
        raise ProjectFileError(
            f"{name} is not a lock of PEP 751: {printable(str(error)[:300])}",
            kind="form",
            where=name,
            next_step="write it again with what made it, or give requirements.txt",
        ) from error
    extras, groups = _asked(lock, name, asked)
    got = _got(lock, name, extras, groups, environments)
    selected = [
        Selected(package, _marker(entry.get("marker", ""), getting, len(got)))
        for package, entry in zip(lock.packages, value["packages"], strict=True)
        if (getting := [environment for environment, packages in got if id(package) in packages])
    ]
    taken = {id(package) for package, _ in selected}
    return LockSelection(lock, tuple(selected), tuple(_left_out(lock, name, taken)))


def _asked(lock: Pylock, name: str, asked: Sequence[str]) -> tuple[list[str], list[str]]:
    known_extras, known_groups = lock.extras or (), lock.dependency_groups or ()
    for word in asked:
        if word not in (*known_extras, *known_groups, *(lock.default_groups or ())):
            raise unknown("extra or group", word, name, {*known_extras, *known_groups})
    groups = [word for word in asked if word not in known_extras]
    return [word for word in asked if word in known_extras], [*(lock.default_groups or ()), *groups]


def _got(
    lock: Pylock, name: str, extras: Sequence[str], groups: Sequence[str], environments: Sequence[Environment]
) -> list[tuple[Environment, frozenset[int]]]:
    """Return what each machine gets, by the packages' ids. A machine that the lock is not for is left out."""
    tags = [*_tags(lock)]
    chosen, refused = list[tuple[Environment, frozenset[int]]](), ""
    for environment in environments:
        # the last release of each Python: locks may ask for one within it (>=3.11.4)
        last = dict(environment) | {"python_full_version": f"{environment['python_version']}.99"}
        try:
            selected = lock.select(
                environment=cast("markers.Environment", last), tags=tags, extras=extras, dependency_groups=groups
            )
            chosen.append((environment, frozenset(id(package) for package, _ in selected)))
        except PylockSelectError as error:
            refused = str(error)
    if not chosen:
        raise ProjectFileError(
            f"{name} is for none of the machines: {printable(refused[:300])}",
            kind="machines",
            where=name,
            text=refused,
            next_step="lock it for one of them",
        )
    return chosen


def _tags(lock: Pylock) -> Iterable[Tag]:
    """Every tag that a wheel of the lock has: which file is taken is not decided here."""
    for wheel in itertools.chain.from_iterable(package.wheels or () for package in lock.packages):
        yield from parse_wheel_filename(wheel.filename)[-1]


def _marker(written: str, getting: Sequence[Environment], count: int) -> str:
    """Return a marker without extras and groups, which are decided; as it is written where it names none."""
    if not any(name in written for name in _NAMES):
        return written
    if len(getting) == count:
        return ""
    machines = sorted({(environment["python_version"], environment["platform_machine"]) for environment in getting})
    return " or ".join(
        f"python_version == '{python}' and platform_machine == '{machine}'" for python, machine in machines
    )


def _left_out(lock: Pylock, name: str, taken: set[int]) -> Iterable[Note]:
    left = [package for package in lock.packages if id(package) not in taken]
    for_others = [package.name for package in left if not any(word in str(package.marker) for word in _NAMES)]
    of_extras = [package.name for package in left if package.name not in for_others]
    if for_others:
        yield Note("systems", name, tuple(dict.fromkeys(for_others)))
    if of_extras:
        known = sorted({*(lock.extras or ()), *(lock.dependency_groups or ())} - {*(lock.default_groups or ())})
        yield Note("extras", name, tuple(dict.fromkeys(of_extras)), tuple(known))
