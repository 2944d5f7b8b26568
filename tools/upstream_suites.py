"""Run upstream's own tests inside an image, and judge what fails by a list: `make test-upstream`.

    python -m tools.upstream_suites [STACK] [--cuda 11.8] [--suite scatter,pyg] [--upstream FOLDER] [--again] …

Which suites, and which of their tests may fail and why: tools/upstream_suites.toml. The image of the stack is built,
and above it one with pytest; tests come from the repository of each package at the tag of the version in the image.
Results stay below the output folder, so the same command goes on where it stopped, and judges by the list as it is
then; `--again` runs all again. What came of an image of a committed lock is noted in tools/upstream_suites.json, of
which docs/images.md is made. Ends with 1 where a test fails that may not, and with the code of the error where the
tests of a package are nowhere.
"""

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from graphcrate.artifacts.reports import UPSTREAM, read_report, read_upstream
from graphcrate.cli.exit import exiting
from graphcrate.host import settings
from graphcrate.host.disk.atomic import write_file
from graphcrate.host.sandbox import gpu
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import encode
from graphcrate.model.report import BuildReport, UpstreamResults
from tools import upstream_ledger
from tools.upstream_ledger import Entry, SuiteResult
from tools.upstream_list import LIST, ROOT, Suite, read_list
from tools.upstream_run import Image, Result, ours, run, say
from tools.upstream_sources import Sources

PYG_LIB = "pyg-lib"  #: in a stack where its sources are reached, and in no committed lock
PLUG_INS = ("pytest", "pytest-timeout", "pytest-xdist")
_SKIPS = 3  #: reasons of skips that are shown


# --- the image --------------------------------------------------------------------------------------------------------


def built(words: Sequence[str], output: Path) -> tuple[str, BuildReport]:
    """Build an image, or take the one that is there; its name and report. Ends as the build does where that fails."""
    process = ours(["image", *words, "--output", str(output)], stdout=subprocess.PIPE)
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(process.returncode)
    name = out.strip().rpartition("\n")[2].rpartition("@")[0]
    report = read_report(output / name.replace(":", "/") / "report.json")
    assert report is not None, f"{name} is built, and has no report"
    return name, report


def image(
    request: Sequence[str], added: Sequence[str], more: Sequence[str], suites: Sequence[Suite], output: Path
) -> Image:
    """Build the stack's image, and the one with pytest above it. `more`: options of the second."""
    _, stack = built(request, output)
    names = {package.name for package in stack.packages} | {named(word) for word in added}
    needed = [word for suite in suites if suite.package in names for word in suite.requirements]
    words = list(dict.fromkeys([*PLUG_INS, *needed, *added]))
    ref, report = built([*request, "--with", " ".join(words), *more], output)
    versions = {package.name: package.version for package in report.packages} | {"python": report.python}
    return Image(ref, report, stack, versions)


def named(word: str) -> str:
    """The package of a requirement or of a wheel's file."""
    word = Path(word).name.partition("-")[0] if word.endswith(".whl") else re.split(r"[\[<>=!~ ;@]", word)[0]
    return str(canonicalize_name(word))


# --- what came of it --------------------------------------------------------------------------------------------------


def table(results: Sequence[Result]) -> list[str]:
    """One row per suite, in Markdown."""
    head = ("suite", "version", "passed", "failed", "of which expected", "skipped, mostly for", "seconds")
    rows: list[tuple[str, ...]] = [head, ("---",) * len(head)]
    for result in results:
        verdict = result.verdict
        if verdict is None:
            assert result.error is not None
            rows.append((result.suite.label, result.version, "", f"not run: {result.error.what}", "", "", ""))
            continue
        failed = len(verdict.failed) + len(verdict.expected)
        why = "; ".join(f"{reason} ({number})" for reason, number in verdict.skips[:_SKIPS])
        skipped = f"{verdict.skipped}: {why}" if verdict.skipped else "0"
        numbers = (f"{verdict.passed}", f"{failed}", f"{len(verdict.expected)}", skipped, f"{result.seconds}")
        rows.append((result.suite.label, result.version, *numbers))
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]


def details(results: Sequence[Result]) -> list[str]:
    """List what failed, with reasons; what has to be looked at comes last."""
    lines = list[str]()
    for title, known in ((result.suite.label, result.verdict) for result in results if result.verdict):
        reasons = dict.fromkeys((failure.kind, failure.reason) for failure in known.expected)
        for kind, reason in reasons:
            number = sum((failure.kind, failure.reason) == (kind, reason) for failure in known.expected)
            lines.append(f"expected  {title}: {number} of {kind}: {reason}")
        lines += [f"passes    {title}: {test}: the list has it as failing" for test in known.better]
        lines += [f"unstable  {title}: {test}: passes with other random numbers" for test in known.unstable]
    for result in results:
        title, verdict = result.suite.label, result.verdict
        lines += [f"not run   {title} {result.version}: {result.error}"] if result.error else []
        if verdict is not None:
            lines += [f"FAILS     {title}: {failure.test}: {failure.message}" for failure in verdict.failed]
            lines += [f"OUTDATED  {title}: {test} passes, and its row is strict" for test in verdict.outdated]
            lines += [f"FAILS     {title}: {verdict.problem}"] if verdict.problem else []
    return lines


def exit_code(results: Sequence[Result]) -> int:
    """1 for a failure that is not on the list, else that of the first suite that could not run."""
    if any(result.verdict is not None and not result.verdict.is_good for result in results):
        return 1
    return next((result.error.exit_code for result in results if result.error), 0)


def counted(results: Sequence[Result]) -> list[tuple[Suite, SuiteResult]]:
    """The figures of suites that came to a result."""
    today = settings.now_utc()
    return [
        (
            result.suite,
            SuiteResult.of(
                result.suite,
                result.verdict,
                version=result.version,
                commit=result.commit,
                seconds=result.seconds,
                date=today,
            ),
        )
        for result in results
        if result.verdict is not None and not result.verdict.problem
    ]


def show(results: Sequence[Result], taken: Image, output: Path, *, above: bool) -> None:
    """Put the figures beside the report of the image, and draw its page again. `above`: more than pytest was added."""
    report = taken.report if above else taken.stack
    folder = output / report.name / report.tag
    before = read_upstream(folder, report)
    suites = {(suite.title, suite.what): suite for suite in before.suites} if before else {}
    shown = [upstream_ledger.shown(suite, figures) for suite, figures in counted(results)]
    suites |= {(suite.title, suite.what): suite for suite in shown}
    found = UpstreamResults(digest=report.digest, device=device(), date=settings.now_utc(), suites=(*suites.values(),))
    write_file(folder / UPSTREAM, encode(found))
    with ours(["report", f"{report.name}:{report.tag}", "--images", str(output)], stdout=subprocess.DEVNULL) as drawing:
        drawing.wait()


def device() -> str:
    """Name the device that tests compute on here."""
    return gpu.device(settings.environment(), on_gpu=gpu.is_here())


def note(results: Sequence[Result], taken: Image, added: Sequence[str], *, plain: bool) -> str:
    """Write what came of an image of a committed lock into the ledger; returns why not, where it is not one."""
    stack = taken.stack
    lock = upstream_ledger.lock_of(stack.name, stack.cuda, stack.candidate)
    versions = {package.name: package.version for package in stack.packages}
    more = upstream_ledger.beyond_lock(stack.name, stack.cuda, stack.candidate, versions)
    if not plain or stack.drift or not lock or (lock != stack.lock_sha256 and more != {PYG_LIB}):
        return "the image is not that of a committed lock, so docs/images.md stays as it is"
    names = dict.fromkeys([*sorted(more), *map(named, added)])
    entry = Entry(
        stack=stack.name,
        cuda=stack.cuda,
        candidate=stack.candidate,
        added=tuple(f"{name} {taken.versions[name]}" for name in names if name in taken.versions),
        lock_sha256=lock,
        digest=stack.digest,
        device=device(),
        suites=tuple(figures for _, figures in counted(results)),
    )
    upstream_ledger.add(entry)
    return ""


# --- the command ------------------------------------------------------------------------------------------------------


#: options of `image` that are handed on; those of the second group make another image than the lock's, those of the
#: third are of the image above the stack's
SOURCES = ("cuda", "channel", "mirror", "wheels", "pyg-lib")
CHANGES = ("gpu", "driver", "target", "extensions", "toolkit", "flavour", "slim")
ABOVE = ("apt", "requirements")


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.upstream_suites", allow_abbrev=False)
    parser.add_argument("stack", nargs="?", default="pyg", metavar="STACK", help="a recipe; pyg if left out")
    for name in (*SOURCES, *CHANGES, *ABOVE):
        parser.add_argument(f"--{name}", default="", help="as `image` takes it")
    parser.add_argument("--with", dest="added", default="", help="packages above the stack, as `image` takes them")
    parser.add_argument("--suite", default="", help="names of the list, with commas between; else all of the image")
    parser.add_argument("--upstream", default="", help="folder of repositories; else they are cloned from GitHub")
    parser.add_argument("--again", action="store_true", help="also suites whose results are there")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="folder of images and of results")
    return parser.parse_args(arguments)


def chosen(names: str, suites: Sequence[Suite]) -> list[Suite]:
    """The suites that are named, else all. Raises UsageError for one that the list does not have."""
    known = {suite.name: suite for suite in suites}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in known]:
        raise UsageError(f"there is no suite {unknown[0]!r}", next_step=f"SUITE=NAME of {', '.join(known)}")
    return [known[name] for name in wanted] or list(suites)


def folder_of(text: str) -> Path | None:
    """The folder of UPSTREAM=. Raises UsageError."""
    if text and not Path(text).is_dir():
        raise UsageError(f"UPSTREAM: {text} is not a folder", next_step="UPSTREAM=folder with a repository per package")
    return Path(text).resolve() if text else None


def main(arguments: Sequence[str]) -> int:
    """Run the suites of an image; see the module. Returns the exit code."""
    asked = parsed(arguments)
    suites = chosen(asked.suite, read_list().suite)
    sources = Sources(folder_of(asked.upstream), asked.output / "upstream" / "sources")
    added = shlex.split(asked.added)
    request = [asked.stack, *_options(asked, (*SOURCES, *CHANGES))]
    taken = image(request, added, _options(asked, ABOVE), suites, asked.output)
    here = [suite for suite in suites if suite.package in taken.versions]
    for suite in suites:
        if suite not in here:
            say(f"{suite.label}: the image has no {suite.package}")
    if not here:
        raise UsageError("the image has no package of these suites", next_step=f"SUITE=…, of {LIST.name}")
    results = list[Result]()
    for suite in here:
        result = run(suite, taken, sources, asked.output, again=asked.again)
        results.append(result)
        say("; ".join(details([result])) or f"{suite.label} {result.version}: all passed")
    lines = [f"{taken.stack.name}:{taken.stack.tag} ({taken.stack.digest[:19]})", *table(results), *details(results)]
    if counted(results):
        show(results, taken, asked.output, above=bool([*added, *_options(asked, ABOVE)]))
    if counted(results) and asked.stack == taken.stack.name:
        why = note(results, taken, added, plain=not any(getattr(asked, name) for name in (*CHANGES, *ABOVE)))
        lines += [f"note      {why}"] if why else []
    sys.stdout.write("\n".join(lines) + "\n")
    return exit_code(results)


def _options(asked: argparse.Namespace, names: Sequence[str]) -> list[str]:
    """Options of `image` that were given."""
    given = vars(asked)
    return [word for name in names if (text := given[name.replace("-", "_")]) for word in (f"--{name}", text)]


if __name__ == "__main__":
    with exiting():
        sys.exit(main(sys.argv[1:]))
