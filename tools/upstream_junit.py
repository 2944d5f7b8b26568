"""A run of pytest: its JUnit XML, written by tests of others, judged by the list's expected failures."""

import collections
import re
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from xml.parsers import expat

import msgspec

from graphcrate.model.errors import IntegrityError
from tools.upstream_list import Kind, Suite

MOST = 64 << 20  #: bytes of a file that is read; PyG's are 2 MB
_SHOWN = 200  #: characters of a message
#: worst last: a test that passes and then fails in its tear-down has failed
_OUTCOMES = ("passed", "skipped", "failed")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A test that ran. `test`: its id, as in "test/test_x.py::test_y[1]"; `message`: of a failure or a skip."""

    test: str
    outcome: str
    message: str = ""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A test that failed; where that was expected: why."""

    test: str
    message: str
    kind: Kind | None = None
    reason: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A suite's verdict."""

    passed: int
    expected: tuple[Failure, ...] = ()
    failed: tuple[Failure, ...] = ()  #: not on the list
    unstable: tuple[str, ...] = ()  #: of those that passed: failed first, and pass with other random numbers
    better: tuple[str, ...] = ()  #: pass, and the list has them as failing
    outdated: tuple[str, ...] = ()  #: of `better`, those of rows that are strict
    skipped: int = 0
    skips: tuple[tuple[str, int], ...] = ()  #: reasons, the most frequent first
    problem: str = ""  #: why there is no result to trust

    @property
    def is_good(self) -> bool:
        """Return whether nothing fails but what may."""
        return not (self.failed or self.outdated or self.problem)


def read_cases(path: Path) -> list[Case]:
    """Read the results of a run, each test once. Raises IntegrityError for a file that pytest did not write."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST + 1)
    except OSError as error:
        raise IntegrityError(f"{path.name} is not there: {error.strerror}") from error
    if len(data) > MOST:
        raise IntegrityError(f"{path.name} is larger than {MOST} bytes")
    reader = _Reader()
    try:
        reader.parser.Parse(data, True)
    except (expat.ExpatError, ValueError) as error:
        raise IntegrityError(f"{path.name} is not what pytest writes: {error}") from error
    if reader.announced != reader.seen or not reader.seen:
        raise IntegrityError(f"{path.name} announces {reader.announced} results and has {reader.seen}")
    return reader.cases()


class _Reader:
    """Handlers of an XML parser: elements come one by one, and entities are refused."""

    def __init__(self) -> None:
        self.parser = expat.ParserCreate()
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.StartElementHandler = self._start
        self.announced = self.seen = 0
        self.worst: dict[str, Case] = {}
        self.current = ""

    def cases(self) -> list[Case]:
        return list(self.worst.values())

    def _refuse(self, *_: object) -> None:
        raise ValueError("it declares a document type")

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "testsuite":
            self.announced += int(attributes.get("tests", "0"))
        elif name == "testcase":
            self.seen += 1
            self.current = _id(attributes)
            self._note("passed", "")
        elif name in ("failure", "error", "skipped"):
            self._note("skipped" if name == "skipped" else "failed", attributes.get("message", ""))

    def _note(self, outcome: str, message: str) -> None:
        before = self.worst.get(self.current)
        if before is None or _OUTCOMES.index(outcome) > _OUTCOMES.index(before.outcome):
            self.worst[self.current] = Case(test=self.current, outcome=outcome, message=message)


def _id(attributes: Mapping[str, str]) -> str:
    """The id of a test as pytest prints it; of a file that cannot be collected, its module."""
    file, name, dotted = (attributes.get(key, "") for key in ("file", "name", "classname"))
    if not file:
        return ".".join(part for part in (dotted, name) if part)
    module = file.removesuffix(".py").replace("/", ".")
    inner = dotted.removeprefix(module).strip(".").split(".") if dotted.startswith(module) else []
    return "::".join(part for part in (file, *inner, name) if part)


def judge(
    suite: Suite, cases: Iterable[Case], versions: Mapping[str, str], unstable: Set[str] = frozenset()
) -> Verdict:
    """Compare what failed with what may fail in an image with these packages. `unstable`: pass when tried again."""
    rows = [row for row in suite.expected if row.applies(versions)]
    expected, failed, better, outdated = list[Failure](), list[Failure](), list[str](), list[str]()
    skips, unsteady, passed = collections.Counter[str](), list[str](), 0
    for case in cases:
        row = next((row for row in rows if row.matches(case.test, case.message)), None)
        if case.outcome == "skipped":
            skips[_short(case.message)] += 1
        elif case.outcome == "passed" or (not row and case.test in unstable):
            passed += 1
            unsteady += [] if case.outcome == "passed" else [case.test]
            better += [case.test] if row else []
            outdated += [case.test] if row and row.strict else []
        elif row:
            message = _short(case.message)
            expected.append(Failure(test=case.test, message=message, kind=row.kind, reason=row.reason))
        else:
            failed.append(Failure(test=case.test, message=_short(case.message)))
    few = f"{passed} passed, and at least {suite.least} have to" if passed < suite.least else ""
    return Verdict(
        passed=passed,
        expected=tuple(expected),
        failed=tuple(failed),
        unstable=tuple(unsteady),
        better=tuple(better),
        outdated=tuple(outdated),
        skipped=skips.total(),
        skips=tuple(skips.most_common()),
        problem=few,
    )


def _short(message: str) -> str:
    """A message in one line, without what is another thing in each run."""
    line = re.sub(r"0x[0-9a-f]+", "0x…", " ".join(message.split()))
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
