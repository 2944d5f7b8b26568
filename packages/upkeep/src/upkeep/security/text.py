"""The text of `update --security`, in Markdown: which locks change and by what, what stays, what is not known. Pure."""

from collections.abc import Iterable, Iterator

from graphcrate.model.words import joined, printable
from upkeep.security.fixes import LockFixes, PackageFix, SecurityReview

_SHOWN = 12  #: packages of which nothing is known; --json has all
_SHOWN_IDS = 8  #: of a package of Debian's


def text(review: SecurityReview) -> str:
    """The whole text."""
    return "\n".join(line for part in _parts(review) for line in (*part, "")).rstrip() + "\n"


def _parts(review: SecurityReview) -> Iterator[list[str]]:
    yield [f"# Security fixes of {review.day}", "", _opening(review)]
    if packages := [*_rows(review.changed)]:
        yield [
            "## Packages",
            "",
            "| package | before | after | why | locks |",
            "|---|---|---|---|---|",
            *packages,
        ]
    if bases := [*_bases(review.changed)]:
        yield ["## Bases", "", *bases]
    if unfixed := [*_unfixed(review.locks)]:
        yield ["## Not fixed", "", *unfixed]
    if review.unknown:
        yield [
            "## Not known",
            "",
            *(f"- {joined(map(printable, each.packages), _SHOWN)}: {printable(each.why)}." for each in review.unknown),
        ]


def _opening(review: SecurityReview) -> str:
    count, left = len(review.changed), sum(len(each.packages) for each in review.unknown)
    known = f" {review.judged} of {review.judged + left} releases and suites could be judged." if left else ""
    if not count:
        more = ", and some cannot be fixed" if any(lock.unfixed for lock in review.locks) else ""
        return f"No lock has a known vulnerability that a release fixes and its stack allows{more}.{known}"
    written = "" if review.written else " Nothing was written."
    along = (
        ", what has to move with them," if any(fix.along for lock in review.changed for fix in lock.packages) else ""
    )
    return (
        f"{count} lock{'s change' if count > 1 else ' changes'}: vulnerable packages{along} and bases, "
        f"nothing else.{written}{known}"
    )


def _rows(locks: Iterable[LockFixes]) -> Iterator[str]:
    """A row for each package and what it becomes, with all locks of which that is so."""
    titles: dict[PackageFix, list[str]] = {}
    for lock in locks:
        for fix in lock.packages:
            titles.setdefault(fix, []).append(lock.title)
    for fix, named in titles.items():
        ids = ", ".join(fix.ids) + (f" (no release fixes {', '.join(fix.left)} yet)" if fix.left else "")
        why = "; ".join(filter(None, [ids, f"it has to move: {fix.along}" if fix.along else ""]))
        yield f"| {fix.name} | {fix.before or 'new'} | {fix.after} | {printable(why)} | {'; '.join(named)} |"


def _bases(locks: Iterable[LockFixes]) -> Iterator[str]:
    """A list for each set of fixes, with all locks that get it; the image's base before that with the compiler."""
    titles: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for lock in locks:
        for of in ("base", "compiler"):
            if fixes := tuple(_debian(fix) for fix in lock.base if fix.of == of):
                titles.setdefault((of, fixes), []).append(lock.title)
    for (of, fixes), named in titles.items():
        beside = " (the base with the compiler)" if of == "compiler" else ""
        yield f"- {'; '.join(named)}{beside}:"
        yield from (f"  - {fix}" for fix in fixes)


def _debian(fix: PackageFix) -> str:
    ids = f" ({printable(joined(fix.ids, _SHOWN_IDS))})" if fix.ids else ""
    return f"{fix.name} {fix.before} → {fix.after}{ids}"


def _unfixed(locks: Iterable[LockFixes]) -> Iterator[str]:
    titles: dict[tuple[str, str], list[str]] = {}
    for lock in locks:
        for each in lock.unfixed:
            ids = f" ({printable(', '.join(each.ids))})" if each.ids else ""
            titles.setdefault((f"{each.name} {each.version}{ids}", each.reason), []).append(lock.title)
    for (package, reason), named in titles.items():
        yield f"- {package}: {reason} ({'; '.join(named)})."
