"""Tell for each sentence about an image by which command and when it was shown, in the words of `compat.proofs`.

What was never shown is told too: no GPU of its kind, no such runtime.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from graphcrate.compat.proofs import WORDS, Word, proof_of
from graphcrate.host.context import Context
from graphcrate.host.disk import documents
from graphcrate.model.answer import Answer, AnswerLine, Section
from graphcrate.model.command import IMAGE_AGAIN, Command, command
from graphcrate.model.errors import RecipeError
from graphcrate.model.report import BuildReport, Pass, SmokeReport
from graphcrate.model.runtime import RUNTIMES
from graphcrate.model.words import either, listed
from graphcrate.smoke import emulated, memory

_WITNESSES = "hash of "  #: how the lock's notes on witnesses begin


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence, what it rests on, and the command that shows it, or did. `when`: empty where it is unknown."""

    word: Word
    what: str
    by: str
    when: str = ""


def shown(report: BuildReport, folder: Path, ctx: Context) -> list[Shown]:
    """Return the sentences on an image, with those on what nothing showed. `folder`: of its report."""
    results = list(_results(report, folder))
    sentences = [
        *_suites(report, results),
        *_lock(report, ctx),
        *_expected(report),
        *_never(report, [suite for suite, _ in results]),
    ]
    return sorted(sentences, key=lambda sentence: [*WORDS].index(sentence.word))


def answer(report: BuildReport, sentences: Sequence[Shown]) -> Answer:
    """Put the sentences below their words, each of which says what it means."""
    sections = (
        Section(
            tuple(
                AnswerLine("", sentence.what, (f"by {sentence.by}" + (f", {sentence.when}" if sentence.when else ""),))
                for sentence in sentences
                if sentence.word == word
            ),
            f"{word}: {meaning}",
        )
        for word, meaning in WORDS.items()
    )
    return Answer(tuple(section for section in sections if section.entries), (f"{report.image}@{report.digest}",))


def _results(report: BuildReport, folder: Path) -> Iterator[tuple[SmokeReport, str]]:
    """Yield what passed in this very image, and when, as far as a pass beside it says so."""
    noted = set[tuple[str, str]]()
    for path in sorted((folder / memory.FOLDER).glob("*.json")):
        with contextlib.suppress(RecipeError):
            kept = documents.read(path, Pass, "a result beside an image", IMAGE_AGAIN)
            if kept and report.artifact.digest in (kept.claim.image, kept.report.layout) and memory.is_consistent(kept):
                noted.add((kept.claim.suite, kept.claim.device))
                device, runtime, version = kept.claim.device, kept.claim.runtime, kept.claim.runtime_version
                known = {"device": device, "runtime": runtime, "runtime_version": version}
                yield msgspec.structs.replace(kept.report, driver=kept.claim.driver, **known), kept.when[:10]
    for suite in report.suites:
        if suite.status == "passed" and (suite.suite, suite.device) not in noted:
            yield suite, suite.remembered[:10]


def _suites(report: BuildReport, results: Sequence[tuple[SmokeReport, str]]) -> Iterator[Shown]:
    for suite, when in results:
        runtime = f" by {suite.runtime} {suite.runtime_version}".rstrip() if suite.runtime else ""
        driver = f", driver {suite.driver}" if suite.driver else ""
        what = f"{suite.suite} passed on {suite.device}{driver}{runtime}"
        word: Word = "emulated" if suite.suite == emulated.NAME else "tested"
        if report.is_from_below(suite) and suite.layout != report.digest:
            word, what = "expected", f"{what} in the image below, {suite.image}, whose layers this one has"
        yield Shown(word=word, what=what, by=str(command("test", report.image, suite=suite.suite)), when=when)


def _lock(report: BuildReport, ctx: Context) -> Iterator[Shown]:
    standing = proof_of(report, ctx)
    if standing is not None:
        proof, by = standing.proof, command("matrix", report.name, cuda=report.cuda)
        same = "this image" if proof and proof.digest == report.digest else "another image"
        what = f"its proof, of commit {proof.commit[:12]}, is of {same}: {proof.digest}" if proof else "it has no proof"
        when = proof.date[:10] if proof else ""
        yield Shown(word=standing.word, what=f"its lock is committed, and {what}", by=str(by), when=when)
    for note in report.notes:
        if note.startswith(_WITNESSES):
            yield Shown(word="witnessed", what=note, by=str(command("lock", report.name, cuda=report.cuda)))


def _expected(report: BuildReport) -> Iterator[Shown]:
    if report.audit and (runs := [gpu for gpu, how in report.audit.gpus.items() if how in ("native", "jit")]):
        kinds = listed([f"sm_{capability.replace('.', '')}" for capability in runs])
        yield Shown(word="expected", what=f"it runs on GPUs of {kinds}", by=str(command("audit", report.image)))
    broken = {name for finding in report.contracts if finding.status == "fail" for name in finding.runtimes}
    if report.contracts and (fine := [row.title for name, row in RUNTIMES.items() if name not in broken]):
        what = f"{listed(fine)} can run it: no contract is broken"
        yield Shown(word="expected", what=what, by=str(command("check", report.image)))


def _never(report: BuildReport, results: Sequence[SmokeReport]) -> Iterator[Shown]:
    """Yield what no result is of: a GPU, and runtimes."""
    test: Command = command("test", report.image)
    if report.cuda != "cpu" and not any(suite.driver for suite in results):
        yield Shown(word="not shown", what="that it runs on a GPU", by=f"{test} on a node with one")
    ran = {suite.runtime for suite in results}
    never = [row.title for name, row in RUNTIMES.items() if not ran.intersection((name, *row.also_called))]
    if never:
        yield Shown(word="not shown", what=f"that it starts in {either(never)}", by=f"{test} where there is one")
