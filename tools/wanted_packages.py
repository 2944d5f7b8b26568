"""Try the packages that people use beside PyG, for real, and show the results: `make packages`.

    python -m tools.wanted_packages [NAME …] [--plan] [--again] [--disk 40GB] [--output FOLDER]

The packages, their users, what is typed and what has to run: tools/wanted_packages.toml. Each is added to the
stack's image as a person would, built, audited and imported; then its `use` runs inside. Where a message names what to
type (`APT=`, `WITH=`, `CUDA=`), that is typed. What came of it is noted in tools/wanted_packages.json after each, so
the same command goes on where it stopped; what passed is tried again with `--again` alone. The tables of
docs/packages.md are made of both files. Ends with 1 where a package fails that passed before, or too many fail.
"""

import argparse
import collections
import functools
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.artifacts.reports import read_report
from graphcrate.cli.options import bytes_of
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk import cleaning
from graphcrate.host.disk.atomic import write_file
from graphcrate.host.disk.trees import remove_tree
from graphcrate.model.errors import DiskFullError, GraphcrateError
from graphcrate.model.lock import decode_lock
from graphcrate.model.lock_proof import decode_proof
from graphcrate.model.report import BuildReport
from graphcrate.model.words import size
from tools.tables import filled
from tools.typed import Message, Typed, advised

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tools" / "wanted_packages.toml"
LEDGER = ROOT / "tools" / "wanted_packages.json"
PAGE = ROOT / "docs" / "packages.md"
STACK, WANTED, AT_LEAST = "pyg", 40, 36
#: bytes that a trial may take: wheels, layers, and the whole tree unpacked where Debian packages change what is lowest
NEEDED = 7_000_000_000
FOLLOWED = 2  #: messages of which we type what they say, for a package
SHOWN = 300  #: characters of a message
LIMIT, LATE = 2400, 124  #: seconds of a command, and its exit code where they were not enough


class Project(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Packages that a public project names in one of its files."""

    repository: str
    file: str
    commit: str
    names: str


class Package(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package, and how it is tried; `untried`: why it is not, and what to do."""

    name: str
    use: str
    why: str = ""
    untried: str = ""
    tries: tuple[Typed, ...] = (Typed(),)


class Listed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of the list."""

    there: str
    project: tuple[Project, ...]
    package: tuple[Package, ...]


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A package's result: `typed` last, after these messages. `digest` empty: it failed."""

    package: str
    typed: Typed
    messages: tuple[Message, ...] = ()
    tag: str = ""
    digest: str = ""
    version: str = ""
    added: int = 0  #: bytes of layers, compressed, beside those of the stack's image
    seconds: float = 0  #: from the request to the tested image, the stack's image being there
    date: str = ""

    @property
    def passed(self) -> bool:
        return bool(self.digest)


def read_list() -> Listed:
    """The list. Raises what msgspec raises for one that is malformed."""
    return msgspec.toml.decode(LIST.read_bytes(), type=Listed)


def read_ledger() -> dict[str, Result]:
    """Read each package's result so far, by name."""
    known = msgspec.json.decode(LEDGER.read_bytes(), type=tuple[Result, ...]) if LEDGER.is_file() else ()
    return {one.package: one for one in known}


def counts(listed: Listed) -> dict[str, int]:
    """Count the projects that name a package that is not in every image, most often named first."""
    there, own = listed.there.split(), listed.project[0].names.split()
    found = collections.Counter(
        name for project in listed.project for name in set(project.names.split()) if name not in there
    )
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0] not in own, one[0])))


def wanted(listed: Listed) -> list[str]:
    """The names that most projects have."""
    return list(counts(listed))[:WANTED]


# --- trying -----------------------------------------------------------------------------------------------------------


def message(typed: Typed, code: int, told: str) -> Message:
    """Read the error at the end of what a command printed."""
    told = re.sub(r" --output \S+", "", told.strip())  # ours, of no use to others
    _, named, error = f"\n{told}".rpartition("\ngraphcrate: ")
    what, _, step = error.partition("\nnext: ")
    lines = what.splitlines() if named else what.splitlines()[-1:]
    text = "; ".join(line.removeprefix("cause: ").strip().rstrip(".") for line in lines)
    return Message(typed=typed, exit_code=code, what=text, next_step=" ".join(step.split()))


def tried(package: Package, attempt: Callable[[Typed], Result | Message]) -> Result:
    """Try what the list says of a package, and what messages say, until it passes."""
    left, said = [typed_for(package, one) for one in package.tries], list[Message]()
    done, followed = list[Typed](), 0
    while left:
        typed = left.pop(0)
        if typed in done:
            continue
        done.append(typed)
        outcome = attempt(typed)
        if isinstance(outcome, Result):
            return msgspec.structs.replace(outcome, messages=tuple(said))
        said.append(outcome)
        if followed < FOLLOWED and (advice := advised(outcome, STACK)) not in done and not advice.stack:
            left.insert(0, advice)
            followed += 1
    return Result(package=package.name, typed=done[-1], messages=tuple(said), date=settings.now_utc())


class Trials:
    """Builds and tries packages in turn, with one folder for the images."""

    def __init__(self, output: Path, disk: int | None) -> None:
        self.output, self.disk, self.ctx = output, disk, Context.here()
        self.stacks: dict[str, BuildReport] = {}

    def call(self, words: Sequence[str], cwd: Path = ROOT) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a command of ours."""
        command = [sys.executable, "-E", "-s", str(ROOT / "build.py"), *words]
        with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                out, told = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                process.terminate()  # it ends what it has started
                out, told = process.communicate()
                return LATE, out, f"graphcrate: not done within {LIMIT // 60} minutes"
        return process.returncode, out, told

    def plan(self, package: Package) -> str:
        """Return the line of the first try's plan: what is added, or why not."""
        typed = typed_for(package, package.tries[0])
        code, out, told = self.call(["image", STACK, *typed.words(), "--plan"])
        added = [line.strip() for line in out.splitlines() if re.match(r"  (added|already) ", line)]
        return "; ".join(added) if not code else f"fails: {message(typed, code, told).what}"

    def attempt(self, package: Package, typed: Typed) -> Result | Message:
        """Build, audit and import a package as it is typed, and use it; the image is removed afterwards."""
        self.make_room()
        stack, start = self.stack(typed.cuda), settings.now()
        if isinstance(stack, Message):
            return stack
        code, out, told = self.call(["image", STACK, *typed.words(), "--output", str(self.output)])
        seconds = round(settings.now() - start, 1)
        if code:
            self.forget()
            return message(typed, code, told)
        name, _, digest = out.strip().rpartition("@")
        report = read_report(self.output / name.replace(":", "/") / "report.json")
        assert report is not None, f"{name} is built, and has no report"
        try:
            with tempfile.TemporaryDirectory() as empty:  # what is here is /work inside, and comes first for Python
                use = ["run", name, "--output", str(self.output), "--", "python", "-c", package.use]
                code, _, told = self.call(use, Path(empty))
        finally:
            self.forget()
        if code:
            ending = told.strip().rpartition("\n")[2]
            return Message(typed=typed, exit_code=code, what=f"imported, but cannot be used: {ending}", next_step="")
        return Result(
            package=package.name,
            typed=typed,
            tag=report.tag,
            digest=digest,
            version=version_of(package, typed, {one.name: one.version for one in report.packages}),
            added=max(0, report.bytes - stack.bytes),
            seconds=seconds,
            date=settings.now_utc(),
        )

    def stack(self, cuda: str) -> BuildReport | Message:
        """The stack's own image, which is built and tested once; what it said where that fails."""
        if cuda not in self.stacks:
            typed = Typed(cuda=cuda)
            code, out, told = self.call(["image", STACK, *typed.words(), "--output", str(self.output)])
            if code:
                return message(typed, code, told)
            folder = self.output / out.strip().partition("@")[0].replace(":", "/")
            report = read_report(folder / "report.json")
            assert report is not None, f"{folder} has no report"
            self.stacks[cuda] = report
        return self.stacks[cuda]

    def forget(self) -> None:
        """Remove the images that are not a stack's own, and the names that led to them."""
        keep = {report.tag for report in self.stacks.values()}  # what is in the stack already makes no other image
        keep |= {decode_proof(path.read_bytes()).tag for path in (ROOT / "images" / STACK).glob("*/*.proof.json")}
        for folder in self.output.glob("*/*"):
            known = None if folder.is_symlink() else read_report(folder / "report.json")
            if known is not None and known.own.imports and known.tag not in keep:
                remove_tree(folder)
        for name in self.output.glob("*/*"):
            if name.is_symlink() and not name.exists():
                name.unlink()

    def make_room(self) -> None:
        """Free what is cheap to get again, where a trial might not fit. Raises DiskFullError."""
        cache = self.ctx.cache
        locks = (decode_lock(path.read_bytes()) for path in sorted((ROOT / "images" / STACK).glob("*/*.lock.json")))
        keep = {sha256 for lock in locks for sha256 in lock.files()}
        # The stack's unpacked tree is shared by the images above it, so it goes last.
        for step in (lambda: cleaning.keep_files(cache, keep), lambda: cleaning.release(cache, ["rootfs"])):
            if self.free() >= NEEDED:
                return
            step()
        if (free := self.free()) < NEEDED:
            raise DiskFullError(
                f"a trial takes up to {size(NEEDED)}, and {size(max(0, free))} are free for it",
                next_step="make packages DISK=60GB    (more room), or GRAPHCRATE_CACHE=/path of another disk",
            )

    def free(self) -> int:
        """Bytes that may still be taken."""
        free = self.ctx.cache.free_bytes()
        if self.disk is None:
            return free
        taken = sum(cleaning.measure(self.ctx.cache).values()) + cleaning.bytes_below(self.output)
        return min(free, self.disk - taken)


def typed_for(package: Package, one: Typed) -> Typed:
    """Return what is typed in a try: its own words, else the package's name."""
    return one if one.with_ else msgspec.structs.replace(one, with_=package.name)


def version_of(package: Package, typed: Typed, versions: Mapping[str, str]) -> str:
    """The version of a package in an image; of what was typed for it, where it goes by another name."""
    names = [package.name, *(re.split(r"[\[<>=!~ ]", word)[0] for word in typed.with_.split())]
    return next((versions[name] for name in names if name in versions), "")


# --- the page ---------------------------------------------------------------------------------------------------------


def tables() -> dict[str, str]:
    """The tables of docs/packages.md."""
    listed, known = read_list(), read_ledger()
    first, number = wanted(listed), counts(listed)
    rows = [(name, str(number[name])) for name in first]
    others = [(one.name, one.why) for one in listed.package if one.name not in first]
    untried = {one.name: one.untried for one in listed.package}
    passed = sum(known[name].passed for name in first if name in known)
    dates = sorted(one.date[:10] for one in known.values())
    over = f"Of these {len(first)} packages {passed} build, pass and run"
    span = f", as last tried between {dates[0]} and {dates[-1]}." if dates and dates[0] != dates[-1] else ""
    span = span or (f", as last tried on {dates[0]}." if dates else ".")
    projects = [f"[{one.repository}]({address(one)})" for one in listed.project]
    return {
        "wanted packages": f"{over}{span}\n\n{_table(rows, 'named by', known, untried)}",
        "other packages": _table(others, "asked for by", known, untried),
        "projects": ", ".join(projects) + ".",
    }


def address(project: Project) -> str:
    """The address of a project's file, of the commit that was read."""
    return f"https://github.com/{project.repository}/blob/{project.commit}/{project.file}"


def _table(rows: Sequence[tuple[str, str]], by: str, known: Mapping[str, Result], untried: Mapping[str, str]) -> str:
    head = ("package", by, "CUDA", "type this", "version", "adds")
    lines = [
        head,
        ("---",) * len(head),
        *((name, who, *_cells(known.get(name), untried.get(name, ""))) for name, who in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(result: Result | None, untried: str) -> tuple[str, ...]:
    if result is None or untried:
        return "", f"not tried: {untried}" if untried else "not tried yet", "", ""
    if result.passed:
        typed = f"`{result.typed.shown()}`"
        return result.typed.cuda, typed, result.version, size(result.added)
    said = result.messages[-1]
    text = "; ".join(filter(None, (said.what, said.next_step)))
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return said.typed.cuda, f"**no**: {text.replace('|', chr(92) + '|')}", "", ""


# --- the command ------------------------------------------------------------------------------------------------------


def note(results: Mapping[str, Result], listed: Listed) -> None:
    """Write the ledger in the list's order, and the page."""
    order = [one.name for one in listed.package if one.name in results]
    text = msgspec.json.format(msgspec.json.encode([results[name] for name in order]), indent=1)
    write_file(LEDGER, text + b"\n")
    write_file(PAGE, filled(PAGE.read_text(encoding="utf-8"), tables()).encode())


def main(arguments: Sequence[str]) -> int:
    """Try the packages that are named, else all; see the module. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.wanted_packages")
    parser.add_argument("names", nargs="*", metavar="NAME", help="packages of the list; else all")
    parser.add_argument("--plan", action="store_true", help="plan each, and build and note nothing")
    parser.add_argument("--again", action="store_true", help="also those that passed")
    parser.add_argument("--disk", default="", help="what cache and images may take together, such as 40GB; else all")
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "packages", help="folder of the images")
    asked = parser.parse_args(arguments)
    listed, results = read_list(), read_ledger()
    known = {one.name: one for one in listed.package}
    if unknown := [name for name in asked.names if name not in known]:
        parser.error(f"{unknown[0]} is not in {LIST.relative_to(ROOT)}")
    trials, worse = Trials(asked.output, bytes_of(asked.disk)), list[str]()
    for package in (known[name] for name in asked.names or known):
        before = results.get(package.name)
        if asked.plan:
            _say(f"{package.name}: {trials.plan(package)}")
        elif not package.untried and (asked.again or before is None or not before.passed):
            attempt = functools.partial(trials.attempt, package)
            result = results[package.name] = tried(package, attempt)
            note(results, listed)
            ending = "passes" if result.passed else f"fails: {result.messages[-1].what}"
            _say(f"{package.name}: CUDA {result.typed.cuda} {result.typed.shown()}: {ending}")
            worse += [package.name] if before is not None and before.passed and not result.passed else []
    if worse:
        _say(f"passed before, and fails: {', '.join(worse)}")
    passed = sum(results[name].passed for name in wanted(listed) if name in results)
    tried_all = all(name in results for name in wanted(listed))
    return 1 if worse or (tried_all and not asked.names and not asked.plan and passed < AT_LEAST) else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except GraphcrateError as error:
        sys.stderr.write(f"wanted_packages: {error}\n")
        sys.exit(error.exit_code)
