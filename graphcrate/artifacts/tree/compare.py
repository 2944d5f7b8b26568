"""Compare two artifacts, judge which differences are allowed, and word them as lines. Pure.

What may differ between the embedded build, `docker build` and `apptainer build` of one lock is in `allowances.toml`,
each with its reason; all else is a difference. Each was seen between real artifacts;
docs/decisions/equality.md tells how. Installers word some files each in their own way; what those say must agree.
"""

import json
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from graphcrate.artifacts.tree.reader import OpenedTree, whole_file
from graphcrate.model.contract import Settings
from graphcrate.model.tree import Entry, Form
from graphcrate.model.words import number_of, printable

#: What of an entry differs. `setting`: of the image's configuration, not of a file.
Aspect = Literal["only in the first", "only in the second", "kind", "mode", "owner", "content", "link", "setting"]
#: In which form two contents are compared where their bytes may differ; `set-id`: modes but for these bits.
Sameness = Literal["any", "bytecode", "launcher", "set-id"]


class Difference(msgspec.Struct, frozen=True):
    """One aspect in which two trees differ. `first` and `second` say for people what each has, empty for nothing."""

    path: str  #: or the name of the setting
    aspect: Aspect
    first: str = ""
    second: str = ""


class AllowedDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A difference that is allowed between artifacts of one lock, with the reason."""

    reason: str
    #: paths: `*` any characters but a slash, a final `/**` everything below (not the folder itself); or settings
    patterns: tuple[str, ...]
    aspects: tuple[Aspect, ...]
    same: Sameness = "any"  #: how contents are compared all the same (modes: `set-id`); concerns no other aspect
    #: one of the two is such an artifact (or a folder, a squashfs); empty: for any
    forms: tuple[Form, ...] = ()


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result: what differs and should not, and what differs and may."""

    first: str
    second: str
    entries: tuple[int, int]  #: how many paths each has
    compared: tuple[str, ...]  #: what beside paths, kinds, modes, contents and links: "owners", "settings"
    unexpected: tuple[Difference, ...]
    allowed: tuple[tuple[AllowedDifference, tuple[Difference, ...]], ...]  #: those that occurred, in the list's order


_ONLY: tuple[Aspect, ...] = ("only in the first", "only in the second")
ALLOWANCES = msgspec.toml.decode(
    Path(__file__).with_name("allowances.toml").read_bytes(),
    type=dict[Literal["allowance"], tuple[AllowedDifference, ...]],
)["allowance"]
#: A larger file is compared by its bytes alone, so that no image fills our memory.
LARGEST = 1 << 24
_LAUNCHER_LIMIT = 1 << 12
_SET_ID = stat.S_ISUID | stat.S_ISGID
_PYC_HEADER = 16  #: magic number, flags (PEP 552), and hash, or time and size, of the source
#: Lines of launchers that say nothing about what is started. `installer`, uv and pip's distlib have different ones for
#: their own name, which matters on Windows alone.
_IDLE = r"""
import re
import sys
# -*- coding: utf-8 -*-
if __name__ == "__main__":
    sys.argv[0] = re.sub(r"(-script\.pyw|\.exe)?$", "", sys.argv[0])
    if sys.argv[0].endswith("-script.pyw"):
        sys.argv[0] = sys.argv[0][:-11]
    elif sys.argv[0].endswith(".exe"):
        sys.argv[0] = sys.argv[0][:-4]
    sys.argv[0] = sys.argv[0].removesuffix(".exe")
"""
_LAUNCHER = re.compile(r"#!(\S+)\nfrom ([\w.]+) import (\w+)\n    sys\.exit\(([\w.]+)\(\)\)")


def is_kept(path: str, size: int) -> bool:
    """Return whether a reader has to keep this file's content, since its bytes alone may not decide the comparison."""
    if path.endswith(".pyc"):
        return size <= LARGEST
    return "/bin/" in path and size <= _LAUNCHER_LIMIT


def distil(path: str, size: int, content: Iterable[bytes] | Path) -> bytes:
    """Keep of bytecode the header, and that something follows it; all of other files."""
    return whole_file(path, size, content)[: _PYC_HEADER + 1 if path.endswith(".pyc") else None]


def _launcher(content: bytes) -> tuple[str, ...] | None:
    """(interpreter, module, name, what is called) of a script that an installer made for an entry point."""
    lines = content.decode("utf-8", "replace").replace("'", '"').split("\n")
    match = _LAUNCHER.fullmatch("\n".join(line for line in lines if line not in _IDLE.split("\n")))
    return match.groups() if match else None


def differences(first: OpenedTree, second: OpenedTree) -> Iterator[Difference]:
    """Every aspect in which the trees differ, by path, then the settings where both have them.

    Owners count only where both trees know them. Files below a folder that one tree lacks are listed too.
    """
    paths = first.entries.keys() | second.entries.keys()
    for path in sorted(paths, key=lambda path: path.replace("/", "\0")):  # what a folder holds right behind it
        left, right = first.entries.get(path), second.entries.get(path)
        if left is None or right is None:
            alone = [_described(entry) if entry else "" for entry in (left, right)]
            yield Difference(path, _ONLY[left is None], *alone)
        elif left != right:
            yield from _between(path, left, right, first.owners and second.owners)
    if first.settings is not None and second.settings is not None:
        named, others = _named(first.settings), _named(second.settings)
        for name in sorted(named.keys() | others.keys()):
            values = named.get(name), others.get(name)
            if values[0] != values[1]:
                yield Difference(name, "setting", *("" if value is None else repr(value) for value in values))


def _named(settings: Settings) -> dict[str, str]:
    """Settings by name; of those that every image has without what is empty."""
    named = {f"environment {name}": value for name, value in settings.variables.items()}
    named |= {f"label {name}": value for name, value in settings.labels.items()}
    others = {
        "entrypoint": json.dumps(settings.entrypoint) if settings.entrypoint else "",
        "command": json.dumps(settings.command) if settings.command else "",
        "working folder": settings.working_folder if settings.working_folder != "/" else "",
        "user": settings.user,
        "volumes": " ".join(settings.volumes),
        "platform": settings.platform,
    }
    return named | {name: value for name, value in others.items() if value}


def judge_differences(first: OpenedTree, second: OpenedTree, allowances: Sequence[AllowedDifference]) -> Comparison:
    """Compare, and sort the differences by whether an allowance covers them; the first that does counts."""
    usable = [
        (allowance, compiled(allowance.patterns))
        for allowance in allowances
        # A folder or a squashfs may come from any engine.
        if not allowance.forms or {first.form, second.form} & {*allowance.forms, "folder", "squashfs"}
    ]
    unexpected: list[Difference] = []
    allowed: dict[AllowedDifference, list[Difference]] = {allowance: [] for allowance, _ in usable}
    for difference in differences(first, second):
        for allowance, patterns in usable:
            if (
                difference.aspect in allowance.aspects
                and patterns.fullmatch(difference.path)
                and (
                    difference.aspect not in ("content", "mode")
                    or _same(allowance.same, difference.path, first, second)
                )
            ):
                allowed[allowance].append(_encodable(difference))
                break
        else:
            unexpected.append(_encodable(difference))
    compared = ["owners"] * (first.owners and second.owners)
    compared += ["settings"] * (first.settings is not None and second.settings is not None)
    return Comparison(
        first=first.name,
        second=second.name,
        entries=(len(first.entries), len(second.entries)),
        compared=tuple(compared),
        unexpected=tuple(unexpected),
        allowed=tuple((allowance, tuple(permitted)) for allowance, permitted in allowed.items() if permitted),
    )


def compiled(patterns: Iterable[str]) -> re.Pattern[str]:
    """Compile patterns of paths to one regular expression, for whole paths."""
    return re.compile("|".join(map(_expression, patterns)), re.DOTALL)


def _expression(pattern: str) -> str:
    stem = pattern.removesuffix("/**")
    known = {"**/": "(?:.*/)?", "*": "[^/]*"}
    parts = (known.get(part) or re.escape(part) for part in re.split(r"((?<=/)\*\*/|\*)", stem))
    return f"(?:{''.join(parts)}{'/.+' if stem != pattern else ''})"


def _same(form: Sameness, path: str, first: OpenedTree, second: OpenedTree) -> bool:
    """Return whether two contents (or modes) are the same in this form. False where either is not of that form."""
    if form == "any":
        return True
    if form == "set-id":
        left, right = first.entries[path], second.entries[path]
        is_folder = "folder" in (first.form, second.form)
        return is_folder and left.kind == right.kind == "file" and left.mode & ~_SET_ID == right.mode & ~_SET_ID
    if any(not is_kept(path, opened.entries[path].size) for opened in (first, second)):
        return False
    content, others = first.read(path), second.read(path)
    if form == "bytecode":
        return len(content) > _PYC_HEADER < len(others) and content[:_PYC_HEADER] == others[:_PYC_HEADER]
    return None is not _launcher(content) == _launcher(others)


def _between(path: str, left: Entry, right: Entry, owners: bool) -> Iterator[Difference]:
    if left.kind != right.kind:
        yield Difference(path, "kind", _described(left), _described(right))
        return
    if left.mode != right.mode:
        yield Difference(path, "mode", f"{left.mode:04o}", f"{right.mode:04o}")
    if owners and (left.uid, left.gid) != (right.uid, right.gid):
        yield Difference(path, "owner", f"{left.uid}:{left.gid}", f"{right.uid}:{right.gid}")
    if (left.size, left.sha256) != (right.size, right.sha256):
        yield Difference(path, "content", _content(left), _content(right))
    if left.link != right.link:
        yield Difference(path, "link", left.link, right.link)


def _described(entry: Entry) -> str:
    if entry.kind == "file":
        return f"file, {_content(entry)}"
    return f"{entry.kind} {entry.link}".rstrip() if entry.kind != "symlink" else f"symlink to {entry.link}"


def _content(entry: Entry) -> str:
    return f"{entry.size} bytes, sha256 {entry.sha256[:12]}"


def _encodable(difference: Difference) -> Difference:
    """With names that are no UTF-8 written in backslashes, so that it can be printed."""
    texts = (difference.path, difference.first, difference.second)
    path, first, second = (
        text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") for text in texts
    )
    return Difference(path, difference.aspect, first, second)


def lines(comparison: Comparison, *, everything: bool = False) -> Iterator[str]:
    """A comparison for people: what differs, then what may, by reason; `everything`: each path of the latter too."""
    yield f"first   {comparison.first}, {comparison.entries[0]} paths"
    yield f"second  {comparison.second}, {comparison.entries[1]} paths"
    compared = "".join(f", {what}" for what in comparison.compared)
    yield f"compared: paths, kinds, modes, contents, links{compared}"
    yield ""
    if not comparison.unexpected and not comparison.allowed:
        yield "identical"
        return
    yield from _listed(comparison.unexpected)
    if not comparison.unexpected:
        yield "equal but for what may differ:"
    elif comparison.allowed:
        yield ""
        yield "what may differ:"
    for allowance, permitted in comparison.allowed:
        yield f"{len(permitted):6} {allowance.reason}"
        if everything:
            yield from (f"       {line}" for line in _listed(permitted))


def summary(comparison: Comparison) -> str:
    """`3 differences: 2 mode, 1 content`."""
    number = len(comparison.unexpected)
    counts = Counter(difference.aspect for difference in comparison.unexpected)
    parts = ", ".join(f"{count} {aspect}" for aspect, count in counts.items())
    return f"{number_of(number, 'difference')}: {parts}"


def _listed(listed: Iterable[Difference]) -> Iterator[str]:
    """A line each; files below a folder that one tree lacks are counted in the folder's line."""
    below: list[tuple[Difference, int]] = []
    for difference in listed:
        if below and _is_below(difference, below[-1][0]):
            below[-1] = below[-1][0], below[-1][1] + 1
        else:
            below.append((difference, 0))
    for difference, count in below:
        path, first, second = map(printable, (difference.path, difference.first, difference.second))
        if difference.aspect in _ONLY:
            more = f" and {count} below it" if count else ""
            yield f"{difference.aspect}: {path} ({first or second}{more})"
        else:
            yield f"{difference.aspect}: {path}: {first or 'none'} | {second or 'none'}"


def _is_below(difference: Difference, other: Difference) -> bool:
    folder = "folder" in (other.first, other.second)
    same_side = other.aspect in _ONLY and difference.aspect == other.aspect
    return folder and same_side and difference.path.startswith(f"{other.path.rstrip('/')}/")
