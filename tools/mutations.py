"""Break the code on purpose, one fault at a time, and see that the named tests notice: `make mutations`.

    python -m tools.mutations [ID …]          all of tests/mutations.toml, or these

Each row has a line of the code, what it is broken to, and the tests that must fail then. That happens in a copy of the
checkout, which goes at the end. A fault that its tests do not notice is named, and the exit code is 1.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

ROOT = Path(__file__).resolve().parent.parent
ROWS = Path("tests", "mutations.toml")
SECONDS = 120  #: of one test: a fault may keep it waiting

Text = Annotated[str, msgspec.Meta(min_length=1)]


class Mutation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault: in `file` the text `old`, there exactly once, becomes `new`. `what` is then wrong for a user."""

    id: Text
    what: Text
    file: Text
    old: Text
    new: str
    tests: Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]  #: pytest's names of those that must fail


class _Rows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mutation: tuple[Mutation, ...]


def read(path: Path) -> tuple[Mutation, ...]:
    """All rows of a file. Raises what msgspec raises for one that is no list of mutations."""
    return msgspec.toml.decode(path.read_bytes(), type=_Rows).mutation


def fault(row: Mutation, root: Path) -> str:
    """Explain why a row does not fit the code below `root`; empty where it fits."""
    path = root / row.file
    times = path.read_text(encoding="utf-8").count(row.old) if path.is_file() else 0
    if times != 1:
        return (
            f"{row.id}: its old text is {times} times in {row.file}, and has to be there once. "
            "Write it as it is today, or remove the row where the fault cannot be made any more"
        )
    if row.old == row.new:
        return f"{row.id}: its new text is the old one"
    for name in row.tests:
        file, *parts = name.split("::")
        test = root / file
        if not test.is_file() or f"def {parts[-1].partition('[')[0]}(" not in test.read_text(encoding="utf-8"):
            return f"{row.id}: there is no test {name}"
    return ""


def mutated(text: str, row: Mutation) -> str:
    """The file's text with the fault in it."""
    return text.replace(row.old, row.new)


def copy(root: Path, target: Path) -> None:
    """Copy what git has or would take: no caches, whose old bytecode would hide a fault."""
    listed = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, check=True, capture_output=True).stdout.decode().split("\0")
    for name in filter(None, names):
        if (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name, follow_symlinks=False)


def run_tests(root: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests in the copy at `root`, up to the first that fails; pytest's exit code and its last words."""
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", f"--timeout={SECONDS}"]
    done = subprocess.run(
        [*argv, *tests],
        cwd=root,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, "\n".join((done.stdout + done.stderr).splitlines()[-15:])


def judge(row: Mutation, root: Path, run: Callable[[Path, Sequence[str]], tuple[int, str]] = run_tests) -> str:
    """Break the copy at `root`, run each of the row's tests, mend it: what is wrong with the row, empty if nothing."""
    path = root / row.file
    before = path.read_text(encoding="utf-8")
    path.write_text(mutated(before, row), encoding="utf-8")
    try:
        for test in row.tests:
            code, words = run(root, [test])
            if code == 0:
                return f"{row.id} SURVIVES: {test} passes although {row.what} ({row.file})"
            if code != 1:  # 1: tests failed; others: no test was run
                return f"{row.id}: pytest could not run {test} (exit code {code})\n{words}"
    finally:
        path.write_text(before, encoding="utf-8")
    return ""


def main(names: Sequence[str]) -> int:
    """Try the rows of these ids, all if none is given; 1 where one survives or says nothing, 2 for no such id."""
    rows = read(ROOT / ROWS)
    if strange := set(names) - {row.id for row in rows}:
        print(f"{ROWS} has no row {min(strange)}; grep '^id' {ROWS} lists them")
        return 2
    chosen = [row for row in rows if not names or row.id in names]
    troubles = [trouble for row in chosen if (trouble := fault(row, ROOT))]
    chosen = [row for row in chosen if not fault(row, ROOT)]
    with tempfile.TemporaryDirectory(prefix="graphcrate-mutations-") as folder:
        root = Path(folder).resolve()
        copy(ROOT, root)
        code, words = run_tests(root, sorted({test for row in chosen for test in row.tests}))
        if code:
            print(f"the tests do not pass before anything is broken (exit code {code})\n{words}")
            return 1
        for row in chosen:
            start = time.monotonic()
            trouble = judge(row, root)
            troubles += [trouble] if trouble else []
            print(trouble or f"{row.id:4} noticed in {time.monotonic() - start:4.1f} s: {row.what}", flush=True)
    print(f"{len(chosen)} faults tried; " + (f"{len(troubles)} rows need work:" if troubles else "all are noticed"))
    print("".join(f"{trouble}\n" for trouble in troubles), end="")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
