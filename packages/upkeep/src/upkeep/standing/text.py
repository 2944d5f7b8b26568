"""The text of `lock --check`: a table of locks, the details of each, and what did not answer."""

from collections.abc import Iterator, Sequence

from debroot import release
from graphcrate.compat.facts import suites
from graphcrate.model.answer import Answer, AnswerLine, Section
from graphcrate.model.words import joined, listed
from upkeep.standing.values import Doubt, FileStanding, LocksStanding, LockStanding, SuiteLists, Update

_COLUMNS = (
    *("lock", "files", "on mirrors", "elsewhere", "nowhere", "not known", "one place"),
    *("updates", "security", "yanked"),
)
_LAST_RESORTS = {
    "here": ", on this machine,",
    "copy": ", a public mirror,",
    "archive": ", the archive of retired suites,",
    "snapshot": ", which keeps all that Debian had,",
}


def answer(standings: LocksStanding) -> Answer:
    """Tabulate the standing of locks: a line for each, then details; locks that share a detail are named together."""
    by_hash = {file.sha256: file for file in standings.files}
    unread = {(suite.suite, suite.platform) for suite in standings.suites if suite.error}
    rows: list[tuple[str, ...]] = [_COLUMNS]
    titles_of: dict[tuple[AnswerLine, ...], list[str]] = {}
    for lock in standings.locks:
        counts, security = lock.counts, sum(update.is_security for update in lock.updates)
        numbers = (counts.files, counts.usual, counts.elsewhere, counts.nowhere, counts.unknown, counts.single)
        updates = (
            ("?", "?")
            if unread & {(suite, lock.platform) for suite in lock.suites}
            else (str(len(lock.updates)), str(security))
        )
        rows.append((lock.title, *map(str, numbers), *updates, str(counts.yanked)))
        entries = tuple(_entries(lock, [by_hash[sha256] for sha256 in lock.files]))
        titles_of.setdefault(entries, []).append(lock.title)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    opening = (
        f"{row[0]:{widths[0]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    )
    sections = (Section(entries, ", ".join(titles)) for entries, titles in titles_of.items())
    return Answer(tuple(sections), tuple(opening), (*map(_suite, standings.suites), *_reached(standings)))


def _entries(lock: LockStanding, files: Sequence[FileStanding]) -> Iterator[AnswerLine]:
    """Yield the details of a lock's standing."""
    for file in files:
        if file.state == "nowhere":
            yield AnswerLine("nowhere", f"{file.name} ({file.package} {file.version})", _reasons([file]), "red")
    if unknown := [file for file in files if file.state == "unknown"]:
        names = joined(standing.name for standing in unknown)
        yield AnswerLine("not known", f"{len(unknown)}, as not all places answer: {names}", _reasons(unknown), "yellow")
    for label, group, style in (
        ("elsewhere", [file for file in files if file.is_elsewhere], "yellow"),
        ("one place", [file for file in files if file.is_single and not file.is_elsewhere], ""),
    ):
        at: dict[str, list[str]] = {}
        for file in group:
            place = file.places[0]
            alone = " alone" if file.is_single else ""
            at.setdefault(f"at {place.host}{_LAST_RESORTS.get(place.kind, '')}{alone}", []).append(file.name)
        yield from (
            AnswerLine(label, f"{len(names)} {where}: {joined(names)}", (), style) for where, names in at.items()
        )
    yield from (_doubt(doubt) for doubt in lock.doubts)
    for label, is_security in (("security", True), ("updates", False)):
        if updates := [_update(update) for update in lock.updates if update.is_security is is_security]:
            yield AnswerLine(label, f"{len(updates)}: {', '.join(updates)}")
    for file in files:
        if file.is_yanked:
            yield AnswerLine("yanked", f"{file.name}: {file.yanked_for or 'no reason is given'}", (), "yellow")
    if own := [file.name for file in files if file.state == "own"]:
        yield AnswerLine("own", f"{len(own)} of your own folders, which are not looked at: {joined(own)}")
    yield from (AnswerLine("image", f"{image} of a registry, which is not asked") for image in lock.images)


#: what is wrong with the lists that a base was locked from
_DOUBTS = {
    "unfixed": "it was locked without the list of security updates",
    "late": "it lacks security updates that were out when it was locked: {}",
    "ahead": "it has packages that are newer than any of the suite: {}",
    "older": "today's lists are older than those that it was locked from ({}): the mirror lags, or hides what is new",
}


def _doubt(doubt: Doubt) -> AnswerLine:
    what = _DOUBTS[doubt.kind].format(joined(doubt.names))
    return AnswerLine("lists", f"{suites.titled(doubt.suite)}, {doubt.of}: {what}", (), "red")


def _reasons(files: Sequence[FileStanding]) -> tuple[str, ...]:
    """List the answers of sources that do not have these files, each once."""
    reasons = (
        f"{sighting.place.host}: {sighting.why}"
        for file in files
        for sighting in file.sightings
        if sighting.has is False
    )
    return tuple(dict.fromkeys(reasons))


def _update(update: Update) -> str:
    where = " (compiler)" if update.of == "compiler" else ""
    return f"{update.name} {update.locked} → {update.newest}{where}"


def _reached(standings: LocksStanding) -> Iterator[str]:
    """Yield a line of the places that did not answer, and one if a single place of Debian's packages did."""
    debs = (file for file in standings.files if file.name.endswith(".deb"))
    answering = {seen.place.host for deb in debs for seen in deb.sightings if seen.has is not None}
    if len(answering) == 1:
        yield f"of the places of Debian's packages {answering.pop()} alone answers: what others have is not known"
    by_reason: dict[str, list[str]] = {}
    for silent in standings.silent:
        by_reason.setdefault(silent.why, []).append(silent.host)
    if by_reason:
        yield "not reached: " + "; ".join(f"{listed(hosts)} ({why})" for why, hosts in by_reason.items())


def _suite(lists: SuiteLists) -> str:
    """Describe the state of a suite's lists."""
    platform = f" for {lists.platform}" if lists.platform else ""
    name = suites.titled(lists.suite) + platform + (f" ({lists.kept})" if lists.kept else "")
    if lists.error:
        return f"{name}: nothing is known of updates, as {lists.error}"
    missing = "" if lists.has_security else ", without the security archive's, which no mirror has"
    return f"{name}: updates by lists of {release.day(lists.listed)}{missing}"
