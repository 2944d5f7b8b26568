"""Bytecode of wheels, made by the image's own Python: a SIF or squashfs is read-only and would compile at each start.

Test suites' modules, a third of all source, have none. `.pyc` files have unchecked hashes (PEP 552) and so no times.
Shards are cut by sizes alone, each compiled by a fresh interpreter, because `marshal` notes which objects happen to be
shared. So the bytes depend on wheel and Python only.
"""

import io
import shutil
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from graphcrate.artifacts.wheel_archive import WheelArchive
from graphcrate.host import process
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.os_errors import limit_in
from graphcrate.host.disk.sealed import kept_bytes
from graphcrate.host.sandbox import sandbox
from graphcrate.host.sandbox.emulation import Emulator
from graphcrate.host.sandbox.steps import Step
from graphcrate.inputs.wheels import compile_program
from graphcrate.inputs.wheels.install import Installation, Placed
from graphcrate.model.command import command
from graphcrate.model.errors import BuildError
from graphcrate.model.plan import site_packages
from graphcrate.model.words import with_mark
from nsbox.box import Bind

#: Raise it whenever the same wheel and base would give other bytecode, or a key says less than decides.
BYTECODE_FORMAT = 2
#: Most bytes of source in a shard: about half a second of compiling.
SHARD = 4_000_000
#: What the compiling process sees, and nothing else. The hash seed fixes the order of sets.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin", "TZ": "UTC"}
PROGRAM = "compile.py"
_TESTS = frozenset(("test", "tests"))
_INSIDE = "/tmp/graphcrate-bytecode"


@dataclass(frozen=True, kw_only=True)
class InsidePython:
    """A Python like the image's, run in an unpacked root file system. `version`: exact, "3.11.2".

    It is the image's own where that one's processor is this machine's, or an emulator has to run it. `base`: what all
    files of that root file system depend on (`inputs.bases.Base.identity`): any of them may decide what it makes.
    """

    rootfs: Path
    python: str  #: path inside, "/usr/bin/python3.11"
    version: str
    base: str
    emulator: Emulator | None = None

    def run(self, folder: Path) -> process.Completed:
        """Run the program `PROGRAM` of this folder, which may write there. Raises HostError without isolation."""
        argv = [self.python, *compile_program.FLAGS, f"{_INSIDE}/{PROGRAM}"]
        binds = [Bind(folder, _INSIDE, read_only=False)]
        order = sandbox.Exec(argv, ENVIRONMENT, binds, step=Step.BUILD, emulator=self.emulator)
        return sandbox.run_in(self.rootfs, order)


Shard = tuple[Placed, ...]  #: sources of one wheel that are compiled together, sorted by path


class BytecodeShard(NamedTuple):
    """A shard of the wheel at `wheel`, and where its bytecode goes."""

    wheel: Path
    shard: Shard
    target: Path

    @property
    def size(self) -> int:
        """Bytes of source."""
        return sum(placed.size for placed in self.shard)


def is_compiled(path: str, python: str) -> bool:
    """Return whether the file at this path gets bytecode: a module below site-packages, not of a test suite."""
    start = f"{site_packages(python)}/"
    return path.endswith(".py") and path.startswith(start) and _TESTS.isdisjoint(path[len(start) :].split("/"))


def shards(installation: Installation, python: str) -> list[Shard]:
    """The wheel's sources that get bytecode, in shards; none when there are none."""
    cut: list[list[Placed]] = []
    size = 0
    for placed in installation.files:
        if placed.member is None or not is_compiled(placed.path, python):
            continue
        if not cut or size + placed.size > SHARD:
            cut.append([])
            size = 0
        cut[-1].append(placed)
        size += placed.size
    return [tuple(shard) for shard in cut]


def bundle_path(cache: Cache, origin: str, interpreter: InsidePython, number: int) -> Path:
    """The path of a shard's bytecode, existing or not. `origin`: the hash of the wheel."""
    by = f"{BYTECODE_FORMAT}-{interpreter.version}-{interpreter.base}"
    return cache.path("bytecode", by, origin, f"{number}.bundle")


def compiled_path(source: str, python: str) -> str:
    """The path of a source's bytecode in the image (PEP 3147). `python`: "3.11"."""
    folder, _, name = source.rpartition("/")
    return f"{folder}/__pycache__/{name.removesuffix('.py')}.cpython-{python.replace('.', '')}.pyc"


def compile_shards(jobs: Sequence[BytecodeShard], interpreter: InsidePython, cache: Cache) -> None:
    """Compile shards, each in an interpreter of its own, to their targets. Raises BuildError where the Python fails."""
    with cache.folder() as folder:
        shutil.copyfile(compile_program.__file__, folder / PROGRAM)
        for number, job in enumerate(jobs):
            path = folder / f"{number}.sources"
            with path.open("wb") as bundle, WheelArchive(job.wheel) as archive:
                for placed in job.shard:
                    if placed.member is not None:  # checked against RECORD
                        content = archive.read(placed.member, placed.identity)
                        compile_program.write_entry(bundle, placed.path, content)
            path.chmod(0o644)
        done = interpreter.run(folder)
        compiled = [folder / f"{number}.bytecode" for number in range(len(jobs))]
        if done.returncode != 0 or not all(path.is_file() for path in compiled):
            cause, step = limit_in(done.lines)
            raise BuildError(
                f"Python {interpreter.version} of the image could not compile packages (exit code {done.returncode})"
                + with_mark(done.lines[-20:]),
                cause=cause or "The base's Python is broken, or the machine ran out of memory or room.",
                next_step=step or f"df -h, free -h; then the same command again, or {command('cache', free='bases')}",
            )
        for path, job in zip(compiled, jobs, strict=True):
            # raises where it is not whole, or is of other sources
            read_bundle(path, [placed.path for placed in job.shard], interpreter.version.rpartition(".")[0])
            cache.keep(job.target, path.read_bytes())


def read_bundle(path: Path, sources: Collection[str], python: str) -> dict[str, bytes]:
    """The `.pyc` files of a bundle by their path in the image; `sources`: those that it may be of.

    Raises BuildError for one that is not whole, and for one with anything else: what made it is not trusted.
    """
    data = kept_bytes(path) or b"?"
    asked = {*sources, *(compiled_path(source, python) for source in sources)}
    try:
        entries = list(compile_program.entries(io.BytesIO(data)))
        names = [name for name, _, _ in entries]
        if others := [name for name, times in Counter(names).items() if name not in asked or times > 1]:
            raise ValueError(f"it has {others[0]!r}, which nobody asked for")
    except (ValueError, UnicodeDecodeError) as error:
        path.unlink(missing_ok=True)
        raise BuildError(
            f"the bytecode at {path} is damaged: {error}", next_step="the same command again makes it once more"
        ) from error
    return {name: data[offset : offset + size] for name, offset, size in entries if name.endswith(".pyc")}
