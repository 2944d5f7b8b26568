"""Results of upstream's suites in the images of committed locks: tools/upstream_suites.json, and the table of it."""

import collections
import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from graphcrate.compat.facts.addresses import cuda_label
from graphcrate.host.disk.atomic import write_file
from graphcrate.model.lock import decode_lock
from graphcrate.model.report import UpstreamSuite
from tools.upstream_junit import Verdict
from tools.upstream_list import ROOT, Suite, read_list

LEDGER = ROOT / "tools" / "upstream_suites.json"
#: kinds of expected failures, as the page has them
MEANINGS = {
    "network": "asks for the internet",
    "upstream": "upstream's own fault",
    "machine": "hardware or rounding",
    "versions": "versions that do not go together",
    "image": "left out of images until asked for",
}


class SuiteResult(msgspec.Struct, frozen=True, kw_only=True):
    """A suite's result. `commit`: of the tests."""

    suite: str
    version: str
    commit: str
    passed: int
    failed: int  #: not on the list
    expected: Mapping[str, int]  #: kind of an expected failure → how many
    skipped: int
    seconds: int
    date: str

    @classmethod
    def of(cls, suite: Suite, verdict: Verdict, **known: str | int) -> "SuiteResult":
        """Count what was found; `known`: version, commit, seconds, date."""
        kinds = collections.Counter(str(failure.kind) for failure in verdict.expected)
        counts = {"passed": verdict.passed, "failed": len(verdict.failed), "skipped": verdict.skipped}
        return msgspec.convert({"suite": suite.name, "expected": dict(kinds), **counts, **known}, cls)

    @property
    def ran(self) -> int:
        """Tests that passed or failed."""
        return self.passed + self.failed + sum(self.expected.values())


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The image of a lock. `added`: packages above it that are tested, with versions."""

    stack: str
    cuda: str
    candidate: str
    added: tuple[str, ...] = ()
    lock_sha256: str
    digest: str  #: of the stack's image
    device: str
    suites: tuple[SuiteResult, ...]

    @property
    def key(self) -> tuple[str, str, str, tuple[str, ...]]:
        return self.stack, self.cuda, self.candidate, self.added


def read_ledger(path: Path = LEDGER) -> dict[tuple[str, str, str, tuple[str, ...]], Entry]:
    """Read what is known of each image. Raises what msgspec raises for one that is malformed."""
    entries = msgspec.json.decode(path.read_bytes(), type=tuple[Entry, ...]) if path.is_file() else ()
    return {entry.key: entry for entry in entries}


def merged(before: Entry | None, entry: Entry) -> Entry:
    """Add an entry to the one before: suites that did not run again stay, where the image is the same."""
    if before is None or (before.digest, before.device) != (entry.digest, entry.device):
        return entry
    suites = {result.suite: result for result in (*before.suites, *entry.suites)}
    return msgspec.structs.replace(entry, suites=tuple(suites.values()))


def add(entry: Entry, path: Path = LEDGER) -> None:
    """Note what came of an image."""
    known = read_ledger(path)
    known[entry.key] = merged(known.get(entry.key), entry)
    order = sorted(known, key=lambda key: (key[0], [int(part) for part in key[1].split(".") if part.isdigit()], key))
    text = msgspec.json.format(msgspec.json.encode([known[key] for key in order]), indent=1)
    write_file(path, text + b"\n")


def lock_of(stack: str, cuda: str, candidate: str) -> str:
    """The hash of a committed lock; empty where there is none."""
    path = ROOT / "images" / stack / cuda_label(cuda) / f"{candidate}.lock.json"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def shown(suite: Suite, result: SuiteResult) -> UpstreamSuite:
    """Return the form that the image's report has of it."""
    return UpstreamSuite(
        title=suite.title, version=result.version, passed=result.passed, ran=result.ran, what=suite.what
    )


def beyond_lock(stack: str, cuda: str, candidate: str, versions: Mapping[str, str]) -> set[str]:
    """Packages that an image has beyond a committed lock; all of them where it differs from the lock otherwise."""
    path = ROOT / "images" / stack / cuda_label(cuda) / f"{candidate}.lock.json"
    lock = decode_lock(path.read_bytes()) if path.is_file() else None
    locked = {package.name: package.version for package in lock.packages} if lock else {}
    return set(versions) - set(locked) if locked.items() <= versions.items() else set(versions)


def sentence(suite: Suite, result: SuiteResult) -> str:
    """Say how much passed: "PyG 2.3.1: 3,649 of 3,665 of its own tests"."""
    return shown(suite, result).sentence


def table() -> str:
    """One row per image that was tried, in Markdown."""
    suites = {suite.name: suite for suite in read_list().suite}
    head = ("STACK", "CUDA", "passed", "failed", "on")
    rows: list[tuple[str, ...]] = [head, ("---",) * len(head)]
    for entry in read_ledger().values():
        name = " with ".join([f"`{entry.stack}`", *([", ".join(entry.added)] if entry.added else [])])
        known = [(suites[result.suite], result) for result in entry.suites if result.suite in suites]
        passed = "; ".join(sentence(suite, result) for suite, result in known)
        rows.append((name, entry.cuda, passed, _others(entry), _when(entry)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _others(entry: Entry) -> str:
    """The reasons why the others fail."""
    kinds = collections.Counter[str]()
    for result in entry.suites:
        kinds.update(result.expected)
    named = [f"{number} {MEANINGS[kind]}" for kind, number in kinds.most_common()]
    unknown = sum(result.failed for result in entry.suites)
    return "; ".join([*named, *([f"**{unknown} not explained**"] if unknown else [])])


def _when(entry: Entry) -> str:
    """The day, the machine, and whether the lock has changed since."""
    day = max((result.date[:10] for result in entry.suites), default="")
    is_stale = lock_of(entry.stack, entry.cuda, entry.candidate) != entry.lock_sha256
    kind = "CPU" if entry.device.startswith("cpu") else entry.device
    return f"{day}, {kind}{', of an earlier lock' if is_stale else ''}"
