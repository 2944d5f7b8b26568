"""A comparison as lines for people. Pure."""

from collections.abc import Iterable, Iterator

from graphcrate.model.tree import Comparison, Difference
from graphcrate.model.words import printable

_ONLY = ("only in the first", "only in the second")


def lines(comparison: Comparison, *, everything: bool = False) -> Iterator[str]:
    """What differs, then what may, by reason; `everything`: each path of the latter too."""
    first, second = comparison.first, comparison.second
    yield f"first   {first}, {comparison.entries[0]} paths"
    yield f"second  {second}, {comparison.entries[1]} paths"
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
    for allowance, differences in comparison.allowed:
        yield f"{len(differences):6} {allowance.reason}"
        if everything:
            yield from (f"       {line}" for line in _listed(differences))


def summary(comparison: Comparison) -> str:
    """`3 differences: 2 mode, 1 content`."""
    counts: dict[str, int] = {}
    for difference in comparison.unexpected:
        counts[difference.aspect] = counts.get(difference.aspect, 0) + 1
    number = len(comparison.unexpected)
    told = ", ".join(f"{count} {aspect}" for aspect, count in counts.items())
    return f"{number} difference{'s' if number != 1 else ''}: {told}"


def _listed(differences: Iterable[Difference]) -> Iterator[str]:
    """A line each; what lies below a folder that one of them lacks is counted in the folder's line."""
    waiting: Difference | None = None
    below = 0
    for difference in differences:
        if waiting is not None and _is_below(difference, waiting):
            below += 1
            continue
        if waiting is not None:
            yield _line(waiting, below)
        waiting, below = difference, 0
    if waiting is not None:
        yield _line(waiting, below)


def _is_below(difference: Difference, other: Difference) -> bool:
    folder = "folder" in (other.first, other.second)
    same = other.aspect in _ONLY and difference.aspect == other.aspect
    return folder and same and difference.path.startswith(f"{other.path.rstrip('/')}/")


def _line(difference: Difference, below: int) -> str:
    path, first, second = map(printable, (difference.path, difference.first, difference.second))
    if difference.aspect in _ONLY:
        more = f" and {below} below it" if below else ""
        return f"{difference.aspect}: {path} ({first or second}{more})"
    return f"{difference.aspect}: {path}: {first or 'none'} | {second or 'none'}"
