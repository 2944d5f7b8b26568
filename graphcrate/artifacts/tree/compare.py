"""Two trees to their differences, and differences to what is allowed and what is not. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from graphcrate.model.tree import Allowance, Comparison, Difference, Entry, Sameness, Tree

#: Whether the file at this path is the same in both trees when it is compared in this form.
Same = Callable[[Sameness, str], bool]
#: An artifact of these forms may come from any engine.
_ANY_ENGINE = ("folder", "squashfs")


def differences(first: Tree, second: Tree) -> Iterator[Difference]:
    """Every aspect in which the trees differ, by path, then the settings where both have them.

    Owners count only where both trees know them. What lies below a folder that one tree lacks is listed too.
    """
    owners = first.owners and second.owners
    for path in sorted(first.entries.keys() | second.entries.keys(), key=_tree_order):
        one, other = first.entries.get(path), second.entries.get(path)
        if one is None or other is None:
            yield _alone(path, one, other)
        elif one != other:
            yield from _between(path, one, other, owners)
    if first.settings is not None and second.settings is not None:
        for name in sorted(first.settings.keys() | second.settings.keys()):
            values = first.settings.get(name), second.settings.get(name)
            if values[0] != values[1]:
                yield Difference(name, "setting", *("" if value is None else repr(value) for value in values))


def judge(first: Tree, second: Tree, allowances: Sequence[Allowance], same: Same) -> Comparison:
    """Compare, and sort the differences by whether an allowance covers them; the first that does counts."""
    usable = [
        (allowance, compiled(allowance.patterns)) for allowance in allowances if _concerns(allowance, first, second)
    ]
    unexpected: list[Difference] = []
    allowed: dict[str, tuple[Allowance, list[Difference]]] = {}
    for difference in differences(first, second):
        for allowance, patterns in usable:
            if _covers(allowance, patterns, difference, same):
                allowed.setdefault(allowance.reason, (allowance, []))[1].append(difference)
                break
        else:
            unexpected.append(difference)
    compared = ["owners"] * (first.owners and second.owners)
    compared += ["settings"] * (first.settings is not None and second.settings is not None)
    return Comparison(
        first=first.name,
        second=second.name,
        entries=(len(first.entries), len(second.entries)),
        compared=tuple(compared),
        unexpected=tuple(map(_encodable, unexpected)),
        allowed=tuple(
            (allowance, tuple(map(_encodable, allowed[allowance.reason][1])))
            for allowance in allowances
            if allowance.reason in allowed
        ),
    )


def compiled(patterns: Iterable[str]) -> re.Pattern[str]:
    """Compile patterns of paths to one regular expression, for whole paths."""
    return re.compile("|".join(map(_expression, patterns)), re.DOTALL)


def _expression(pattern: str) -> str:
    stem = pattern.removesuffix("/**")
    parts = ("(?:.*/)?" if part == "**/" else "[^/]*" if part == "*" else re.escape(part) for part in _split(stem))
    return f"(?:{''.join(parts)}{'/.+' if stem != pattern else ''})"


def _split(pattern: str) -> list[str]:
    return [part for part in re.split(r"((?<=/)\*\*/|\*)", pattern) if part]


def _concerns(allowance: Allowance, first: Tree, second: Tree) -> bool:
    return not allowance.forms or any(tree.form in (*allowance.forms, *_ANY_ENGINE) for tree in (first, second))


def _covers(allowance: Allowance, patterns: re.Pattern[str], difference: Difference, same: Same) -> bool:
    if difference.aspect not in allowance.aspects or not patterns.fullmatch(difference.path):
        return False
    if difference.aspect != "content" or allowance.same == "any":
        return True
    return same(allowance.same, difference.path)


def _tree_order(path: str) -> str:
    """Sorts what lies in a folder right behind it."""
    return path.replace("/", "\0")


def _alone(path: str, one: Entry | None, other: Entry | None) -> Difference:
    if one is not None:
        return Difference(path, "only in the first", first=_described(one))
    assert other is not None
    return Difference(path, "only in the second", second=_described(other))


def _between(path: str, one: Entry, other: Entry, owners: bool) -> Iterator[Difference]:
    if one.kind != other.kind:
        yield Difference(path, "kind", _described(one), _described(other))
        return
    if one.mode != other.mode:
        yield Difference(path, "mode", f"{one.mode:04o}", f"{other.mode:04o}")
    if owners and (one.uid, one.gid) != (other.uid, other.gid):
        yield Difference(path, "owner", f"{one.uid}:{one.gid}", f"{other.uid}:{other.gid}")
    if (one.size, one.sha256) != (other.size, other.sha256):
        yield Difference(path, "content", _content(one), _content(other))
    if one.link != other.link:
        yield Difference(path, "link", one.link, other.link)


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
