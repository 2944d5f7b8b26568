"""A copy of the checkout in which an update is tried, by this program's own commands; what holds is taken over at last.

Commands are started as new processes there, so that they read the facts and recipes that the update wrote.
"""

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from graphcrate.compat.variants import catalog
from graphcrate.host import arguments, process
from graphcrate.host.context import Context
from graphcrate.host.disk import checkout
from graphcrate.host.disk.atomic import temporary_folder, write_file
from graphcrate.host.disk.os_errors import explaining
from graphcrate.model.errors import BuildError
from graphcrate.model.lock import encode
from graphcrate.model.lock_proof import decode_proof
from graphcrate.model.words import printable

#: of a checkout, what no command reads
_LEFT_OUT = (
    *(".git", ".venv", "dist", "build", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"),
    *("*.sif", "*.sqsh"),
)
#: what an error of this program, or of its tools, begins with
_PREFIXES = ("graphcrate: ", "measure_wheel: ", "locked_licences: ", "locked_code: ")
#: what an update may write
WRITTEN = ("recipes", "images", "graphcrate/compat/data", "docs", "doctor", "tests/unit")


class FailedCommandError(BuildError):
    """A command of this program that failed in the copy; `what` is its own error, in a line.

    `ended_with`: its exit code.
    """

    ended_with = 0


class StagedCheckout:
    """The copy. `root` is its folder."""

    def __init__(self, root: Path, ctx: Context) -> None:
        self.root, self._ctx = root, ctx

    def build_py(self, *words: str) -> None:
        """Run a command as `./build.py` does. Raises FailedCommandError."""
        self._run(["build.py", *words])

    def tool(self, *words: str) -> None:
        """Run a program of tools/. Raises FailedCommandError."""
        self._run(["-m", *words])

    def take_over(self) -> list[str]:
        """Write what differs into the checkout, all of it or nothing. Returns the paths, below the root."""
        root, before = self._ctx.root, dict[Path, bytes | None]()
        changed = sorted(self._changed())
        try:
            for path in changed:
                target = root / path
                before[target] = target.read_bytes() if target.exists() else None
                if (self.root / path).exists():
                    write_file(target, (self.root / path).read_bytes())
                else:
                    target.unlink()
        except BaseException:
            for target, content in before.items():
                if content is not None:
                    write_file(target, content)
                else:
                    target.unlink(missing_ok=True)
            raise
        return [path.as_posix() for path in changed]

    def _changed(self) -> Iterator[Path]:
        """Files that differ, are new, or are gone."""
        for folder in WRITTEN:
            both = {
                path.relative_to(root)
                for root in (self.root, self._ctx.root)
                for path in (root / folder).rglob("*")
                if path.is_file() and "__pycache__" not in path.parts
            }
            yield from (path for path in both if _content(self.root / path) != _content(self._ctx.root / path))

    def prove(self, name: str, cuda: str, candidate: str, disk: str) -> None:
        """Build, check and test an image, and write the proof of its lock, by `matrix`.

        The image and its reports are put where the checkout has them. Raises FailedCommandError.
        """
        room = ["--disk", disk] if disk else []
        words = ["matrix", name, "--cuda", cuda, "--candidate", candidate, *room]
        self._run(["build.py", *words, "--output", str(self._ctx.root / "dist")], self._ctx.progress.note)
        path = catalog.proof_path(catalog.path_of_lock(self.root, name, cuda, candidate))
        proof = decode_proof(path.read_bytes())
        # git knows the checkout alone, and the copy always has more than its commit
        commit = checkout.commit(self._ctx.root, self._ctx.environment)
        write_file(path, encode(msgspec.structs.replace(proof, commit=f"{commit.rstrip('+')}+")))

    def _run(self, words: list[str], on_line: Callable[[str], None] | None = None) -> None:
        isolated = ["-E"] if words[0] == "build.py" else []
        argv = arguments.line(sys.executable, *isolated, "-s", *words)
        environment = {**self._ctx.environment, "PYTHONDONTWRITEBYTECODE": "1"}
        completed = process.run(argv, cwd=self.root, environment=environment, on_line=on_line)
        if completed.returncode:
            failed = FailedCommandError(
                _own_words(completed.lines) or f"{words[0]} ended with {completed.returncode}",
                cause="\n".join(completed.lines[-20:]),
            )
            failed.ended_with = completed.returncode
            raise failed


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _own_words(lines: tuple[str, ...]) -> str:
    """The error that a command ended with, in a line: its first line, and those of candidates that did not do."""
    starts = [number for number, line in enumerate(lines) if line.startswith(_PREFIXES)]
    if not starts:
        return printable(lines[-1].strip()) if lines else ""
    rest = lines[starts[-1] :]
    end = next((number for number, line in enumerate(rest) if line.startswith(("cause: ", "next:  "))), len(rest))
    return printable(" ".join(line.strip() for line in rest[:end]).partition(": ")[2].rstrip("."))


@contextlib.contextmanager
def copied(ctx: Context) -> Iterator[StagedCheckout]:
    """A copy of the checkout, removed at the end. Raises DiskFullError and HostError."""
    with temporary_folder("graphcrate-update-") as folder:
        root = folder / "checkout"
        with explaining(root):
            shutil.copytree(ctx.root, root, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
            (root / ".venv").symlink_to(sys.prefix)  # its environment is there
        yield StagedCheckout(root, ctx)
