"""One of upstream's suites in an image: its tests, pytest in the sandbox, its results kept and judged.

What fails is tried again with other random numbers: what passes then each time is a matter of rounding, and unstable.
"""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from graphcrate.cli.retyped import TYPED
from graphcrate.host import settings
from graphcrate.host.disk.atomic import write_file
from graphcrate.host.disk.trees import remove_tree
from graphcrate.host.memory import free_memory
from graphcrate.model.errors import GraphcrateError, SmokeError
from graphcrate.model.report import BuildReport
from tools.upstream_junit import Verdict, judge, read_cases
from tools.upstream_list import ROOT, Suite
from tools.upstream_sources import Sources

SEED = ROOT / "tools" / "upstream_seed.py"
XML, LOG, RUN = "junit.xml", "log.txt", "run.json"
AGAIN = "again.json"  #: what came of tests that failed, with other random numbers
SEEDS = ("1", "2", "3")  #: of these
MOST_AGAIN = 10  #: tests that are tried again; where more fail, rounding is not why
LATE = 124  #: exit code of a run that was ended
#: exit codes of pytest after which there are results: all passed, some failed
_ENDED = (0, 1)
_MEMORY = 3_000_000_000  #: bytes that a worker may take
_MOST_WORKERS = 8
_EVERY = 30  #: seconds between lines on progress
_FORMAT = 1  #: of what is kept of a run


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a result: another one of these makes another result."""

    digest: str  #: of the image with pytest
    suite: str
    version: str
    commit: str
    command: tuple[str, ...]
    environment: dict[str, str]
    ours: str  #: hash of the files of this project beside the tests
    format: int = _FORMAT


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ended, and its figures."""

    run: Run
    seconds: int
    date: str


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """Tests that were tried again, and whether each passed with all of the other random numbers."""

    run: Run
    passed: dict[str, bool]


@dataclass(frozen=True)
class Image:
    """An image with pytest, above the stack's own. `versions`: of its packages, `python` among them."""

    ref: str
    report: BuildReport
    stack: BuildReport
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Result:
    """A suite's result. `error`: why it did not run."""

    suite: Suite
    version: str
    commit: str = ""
    seconds: int = 0
    verdict: Verdict | None = None
    error: GraphcrateError | None = None


def ours(words: Sequence[str], cwd: Path = ROOT, **more: object) -> subprocess.Popen[str]:
    """Start a command of this project."""
    typed = sys._xoptions.get(TYPED)
    told = ["-X", f"{TYPED}={typed}"] if isinstance(typed, str) else []
    program = [sys.executable, "-E", "-s", *told, str(ROOT / "build.py")]
    return subprocess.Popen([*program, *words], cwd=cwd, text=True, **more)  # type: ignore[call-overload,no-any-return]


def say(line: str) -> None:
    """Say how far it is."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def command(suite: Suite, tests: Sequence[str]) -> tuple[str, ...]:
    """Return the command for tests of a suite, but for the number of workers, which changes no result."""
    return (
        *("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", SEED.stem),
        "--continue-on-collection-errors",
        *("-o", "addopts=", "-o", "junit_family=xunit1", f"--junitxml={XML}"),
        *("--dist", "loadfile", f"--timeout={suite.seconds}", *suite.arguments, *tests),
    )


def workers(suite: Suite) -> int:
    """The number of processes that run tests of a suite at once."""
    room = min(len(os.sched_getaffinity(0)), free_memory() // _MEMORY, _MOST_WORKERS)
    return max(1, min(room, suite.workers or room))


def run(suite: Suite, taken: Image, sources: Sources, output: Path, *, again: bool) -> Result:
    """Run a suite unless its result is there, and judge it."""
    version = taken.versions[suite.package].partition("+")[0]
    folder = output / "upstream" / taken.report.digest.removeprefix("sha256:")[:12] / suite.name
    running = Running(suite, taken, folder)
    remove_tree(running.tests)
    running.tests.mkdir(parents=True, exist_ok=True)
    try:
        wanted = Run(
            digest=taken.report.digest,
            suite=suite.name,
            version=version,
            commit=sources.take(suite, version, running.tests),
            command=command(suite, suite.what_pytest_gets()),
            environment=suite.environment,
            ours=add_ours(suite, running.tests),
        )
        kept = None if again else kept_result(folder, wanted)
        if kept is None:
            kept = running.first(wanted)
        else:
            say(f"{suite.label} {version}: as it ended on {kept.date[:10]}")
        verdict = judge(suite, read_cases(folder / XML), taken.versions)
        verdict = judge(suite, read_cases(folder / XML), taken.versions, running.unstable(wanted, verdict))
    except GraphcrateError as error:
        return Result(suite, version, error=error)
    finally:
        remove_tree(running.tests)
    return Result(suite, version, wanted.commit, kept.seconds, verdict)


def add_ours(suite: Suite, tests: Path) -> str:
    """Put the files of this project beside the tests; returns what tells them from others."""
    folder, parts = ROOT / suite.ours, list[str]()
    files = {path.relative_to(folder): path for path in folder.rglob("*.py")} if suite.ours else {}
    for name, path in sorted({**files, Path(SEED.name): SEED}.items()):
        target, data = tests / name, path.read_bytes()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        parts.append(f"{name} {hashlib.sha256(data).hexdigest()}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def kept_result(folder: Path, wanted: Run) -> Kept | None:
    """The result of just such a run; None where there is none."""
    try:
        kept = msgspec.json.decode((folder / RUN).read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        return None
    return kept if kept.run == wanted and (folder / XML).is_file() else None


@dataclass(frozen=True)
class Running:
    """A suite on its way, in a folder of its own."""

    suite: Suite
    taken: Image
    folder: Path

    @property
    def tests(self) -> Path:
        return self.folder / "work"

    def first(self, wanted: Run) -> Kept:
        """Run the suite and keep its XML. Raises SmokeError where it comes to no result."""
        for name in (RUN, AGAIN):
            (self.folder / name).unlink(missing_ok=True)
        start, log = settings.now(), self.folder / LOG
        say(f"{self.suite.label} {wanted.version}: at most {self.suite.minutes} min, log {shown(log)}")
        code = self.pytest(wanted.command, log)
        if code not in _ENDED or not (self.tests / XML).is_file():
            late = f"not done within {self.suite.minutes} min" if code == LATE else f"pytest ended with {code}"
            raise SmokeError(
                f"{self.suite.label} {wanted.version} came to no result: {late}",
                cause=last_line(log),
                next_step=f"read {shown(log)}",
            )
        write_file(self.folder / XML, (self.tests / XML).read_bytes())
        kept = Kept(run=wanted, seconds=round(settings.now() - start), date=settings.now_utc())
        write_file(self.folder / RUN, msgspec.json.format(msgspec.json.encode(kept), indent=1))
        return kept

    def unstable(self, wanted: Run, verdict: Verdict) -> frozenset[str]:
        """Try again what failed, where that is little; name what passes with each of the other random numbers."""
        failed = [failure.test for failure in verdict.failed if "::" in failure.test]
        if not failed or len(verdict.failed) > MOST_AGAIN:
            return frozenset()
        known = self._known(wanted)
        if left := [test for test in failed if test not in known]:
            known |= self._tried(left)
            write_file(self.folder / AGAIN, msgspec.json.encode(Again(run=wanted, passed=known)))
        return frozenset(test for test in failed if known[test])

    def _known(self, wanted: Run) -> dict[str, bool]:
        try:
            again = msgspec.json.decode((self.folder / AGAIN).read_bytes(), type=Again)
        except (OSError, msgspec.DecodeError):
            return {}
        return again.passed if again.run == wanted else {}

    def _tried(self, tests: Sequence[str]) -> dict[str, bool]:
        passed = dict.fromkeys(tests, True)
        for seed in SEEDS:
            (self.tests / XML).unlink(missing_ok=True)
            say(f"{self.suite.label}: {len(tests)} failed, again with other random numbers ({seed} of {len(SEEDS)})")
            log = self.folder / f"again-{seed}.txt"
            code = self.pytest(command(self.suite, tests), log, UPSTREAM_SEED=seed)
            cases = read_cases(self.tests / XML) if code in _ENDED else ()
            now = {case.test for case in cases if case.outcome == "passed"}
            passed = {test: before and test in now for test, before in passed.items()}
        return passed

    def pytest(self, words: Sequence[str], log: Path, **variables: str) -> int:
        """Run pytest inside the image, without a network; returns its exit code."""
        number = workers(self.suite)
        threads = max(1, len(os.sched_getaffinity(0)) // number)
        # Workers have to collect the same tests, and ids of some come from sets.
        usual = {"OMP_NUM_THREADS": str(threads), "PYTHONHASHSEED": "0"}
        variables = {**usual, **self.suite.environment, **variables}
        inside = ["env", *(f"{name}={text}" for name, text in variables.items()), *words, "-n", str(number)]
        output = self.folder.parents[2].resolve()
        start = settings.now()
        with log.open("w", encoding="utf-8") as file:
            words = ["run", self.taken.ref, "--no-network", "--output", str(output), "--", *inside]
            return self._wait(ours(words, self.tests, stdout=file, stderr=file), log, start)

    def _wait(self, process: subprocess.Popen[str], log: Path, start: float) -> int:
        """Wait for a run and say how far it is; end it where it takes too long, or this command ends."""
        before = ""
        try:
            while True:
                try:
                    return process.wait(timeout=_EVERY)
                except subprocess.TimeoutExpired:
                    minutes = (settings.now() - start) / 60
                if minutes > self.suite.minutes:
                    return LATE
                if (share := share_of(log)) != before:
                    before = share
                    say(f"{self.suite.label}: {share} after {minutes:.0f} min")
        finally:
            if process.poll() is None:
                process.terminate()  # it ends what it has started
                process.wait()


def share_of(log: Path) -> str:
    """The share that pytest says it has done."""
    shares = re.findall(r"\[ *(\d+)%\]", log.read_text(encoding="utf-8", errors="replace"))
    return f"{shares[-1]} %" if shares else "0 %"


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def shown(path: Path) -> str:
    """A path as the user calls it."""
    path = path.resolve()
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)
