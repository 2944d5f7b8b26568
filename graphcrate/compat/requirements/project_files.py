"""Files that projectfiles reads, as lines of pip's: conda's packages by their names on the index, what is not taken.

A lock's versions become constraints with hashes, but for what is the stack's: its versions are compared.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from graphcrate.compat.facts.packages import PYTHONS, markers
from graphcrate.compat.requirements.conda import sorted_out
from graphcrate.compat.requirements.refusals import refusing
from graphcrate.compat.requirements.translated import Lines, Translated, is_stacks
from graphcrate.model.command import setting
from graphcrate.model.platform import SUPPORTED
from graphcrate.model.recipe import Expected
from graphcrate.model.words import listed, number_of, printable
from projectfiles import files, pyproject
from projectfiles.parts import hash_options
from projectfiles.values import Line, Needs, Note, Release

#: all machines that images are for
_IMAGES = [markers(python, platform) for python, platform in itertools.product(PYTHONS, SUPPORTED)]


def read(path: Path, text: str, asked: tuple[str, ...], text_of: Callable[[Path], str]) -> Translated:
    """Translate a file, with these extras, groups or features. Raises UsageError, of a format that is not read too."""
    with refusing():
        needs = files.needs(path, text, asked, text_of, _IMAGES)
    return _translated(needs, str(path))


def extras(text: str, name: str, asked: tuple[str, ...]) -> Lines:
    """Translate what these extras or groups of a project need besides. Raises UsageError."""
    with refusing():
        return [(line.where, line.text) for line in pyproject.extras(text, name, asked, _IMAGES)]


def _translated(needs: Needs, name: str) -> Translated:
    made = Translated()
    pythons = [Expected(name="python", where=line.where, specifier=line.text) for line in needs.pythons]
    is_lock = needs.locked or any(line.release for line in needs.lines)
    of_lock = [python for python in pythons if is_lock and python.where == name]  # its versions go before it
    made.expected += [python for python in pythons if python not in of_lock]
    for of, lines in itertools.groupby(needs.lines, lambda line: line.of):
        if of == "conda":
            packages = sorted_out([(line.where, line.text) for line in lines], name, needs.channels)
            made.lines += packages.lines
            made.expected += packages.expected
            made.notes += packages.notes
        else:
            _take(made, lines)
    if needs.channels and not any(line.of == "conda" for line in needs.lines):
        made.notes += sorted_out([], name, needs.channels).notes
    made.notes += map(_sentence, needs.notes)
    _constrain(made, needs.locked)
    made.expected += of_lock
    return made


def _take(made: Translated, lines: Iterable[Line]) -> None:
    for line in lines:
        if line.release and is_stacks(line.release.name):
            made.expected.append(_pinned(line.release))
        else:
            made.lines.append((line.where, line.text))


def _constrain(made: Translated, locked: Sequence[Release]) -> None:
    """Add the versions of a lock as constraints, those of a package with several by their markers.

    None of one whose versions have no markers, and of one of the stack's: those are compared without Python and system.
    """
    of: dict[str, list[Release]] = {}
    for release in locked:
        of.setdefault(release.name, []).append(release)
    for name, releases in of.items():
        is_forked = len(releases) > 1
        if is_forked and (is_stacks(name) or not all(release.marker for release in releases)):
            several = listed(printable(release.version) for release in releases)
            made.notes.append(
                f"{releases[0].where}: {printable(name)} is locked at {several}, which bounds nothing here"
            )
            continue
        for release in releases:
            if not release.version:
                continue
            if is_stacks(name):
                made.expected.append(_pinned(release))
                continue
            ends = f" ; {release.marker}" if is_forked else ""
            text = f"{name}=={release.version}{ends}{hash_options(release.hashes)}"
            made.constraints.append((release.where, text))


def _pinned(release: Release) -> Expected:
    public, _, build = release.version.partition("+")
    name = str(canonicalize_name(release.name.strip()))
    return Expected(name=name, where=release.where, specifier=f"=={public}", build=build)


def _sentence(note: Note) -> str:
    """Say what is not taken, and what takes it."""
    names, file = listed(map(printable, note.names)), note.where.rpartition("/")[2]
    if note.kind == "extras":
        by = f"{setting(requirements=f'{note.where}[…]')} takes an extra or a group"
        by += f": {listed(note.more)}" if note.more else ""
        count = number_of(len(note.names), "package")
        return f"{note.where}: {count} of extras and groups that were not asked for: {listed(note.names)}; {by}"
    if note.kind == "features":
        takes = setting(requirements=f"{file}[{note.names[0]}]")
        return f"{note.where}: features of pixi's are not taken by themselves: {listed(note.names)}; {takes} takes one"
    return (
        f"{note.where}: "
        + {
            "variables": "its `variables` are not taken: env of a recipe has them (docs/customize.md)",
            "key": f"`{names}` is passed over",
            "build": f"what builds the project is not taken: {names}",
            "itself": f"{names}, the project itself, is not taken: {setting(with_='./')} is",
            "systems": f"for other systems, and left out: {listed(note.names)}",
            "address": f"{listed(note.names)} is passed over: an address, or without a version",
        }[note.kind]
    )
