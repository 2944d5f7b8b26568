"""Bytecode of wheels, made by the image's own Python: a SIF or squashfs is read-only and would compile at each start.

Unchecked-hash `.pyc` files (PEP 552) carry no times. A wheel's sources are cut into shards by their sizes alone; each
shard is compiled by a fresh interpreter, because `marshal` writes a reference flag where an object happens to be
shared, which depends on what the process did before. So the bytes depend on wheel and Python only, whatever runs at
the same time.
"""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from graphcrate.errors import BuildError
from graphcrate.host import process, sandbox
from graphcrate.host.cache import Cache
from graphcrate.wheels import compile_program
from graphcrate.wheels.archive import Member
from graphcrate.wheels.install import Installation, Site
from graphcrate.wheels.wheel import Wheel

#: Raise it whenever the same wheel and Python would give other bytecode.
BYTECODE_FORMAT = 1
#: Most bytes of source in a shard: about half a second of compiling.
SHARD = 4_000_000
#: What the compiling process sees, and nothing else. The hash seed fixes the order of sets.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin", "TZ": "UTC"}
PROGRAM = "compile.py"
_INSIDE = "/tmp/graphcrate-bytecode"


class Interpreter(Protocol):
    """The image's Python."""

    @property
    def version(self) -> str:
        """Exact version, "3.11.2"."""

    def run(self, folder: Path) -> process.Completed:
        """Run the program `PROGRAM` of this folder, which may write there, with FLAGS and ENVIRONMENT."""


@dataclass(frozen=True, kw_only=True)
class InsidePython:
    """Python of an unpacked root file system, run inside it."""

    rootfs: Path
    python: str  #: path inside, "/usr/bin/python3.11"
    version: str

    def run(self, folder: Path) -> process.Completed:
        """As the protocol says. Raises HostError where the machine allows no isolation."""
        return sandbox.run_in(
            self.rootfs,
            [self.python, *compile_program.FLAGS, f"{_INSIDE}/{PROGRAM}"],
            environment=ENVIRONMENT,
            binds=[sandbox.Bind(folder, _INSIDE, read_only=False)],
        )


@dataclass(frozen=True)
class Shard:
    """Sources of one wheel that are compiled together: (member, absolute path in the image), sorted by path."""

    number: int
    sources: tuple[tuple[Member, str], ...]

    @property
    def size(self) -> int:
        """Bytes of source."""
        return sum(member.size for member, _ in self.sources)


@dataclass(frozen=True)
class Job:
    """A shard to compile and where its archive goes."""

    wheel: Wheel
    shard: Shard
    target: Path


def shards(installation: Installation, site: Site) -> Iterator[Shard]:
    """The wheel's importable sources in shards; none when it has no Python files below site-packages."""
    sources: list[tuple[Member, str]] = []
    number = size = 0
    for placed in installation.files:
        if placed.member is None or not placed.path.endswith(".py") or not placed.path.startswith(f"{site.packages}/"):
            continue
        if sources and size + placed.size > SHARD:
            yield Shard(number, tuple(sources))
            sources, number, size = [], number + 1, 0
        sources.append((placed.member, placed.path))
        size += placed.size
    if sources:
        yield Shard(number, tuple(sources))


def archive_path(cache: Cache, sha256: str, version: str, number: int) -> Path:
    """Where the bytecode of a shard lies (or will lie). `sha256` of the wheel, `version` of the Python."""
    return cache.path("bytecode", f"{BYTECODE_FORMAT}-{version}", sha256, f"{number}.zip")


def compile_shards(jobs: Sequence[Job], interpreter: Interpreter, cache: Cache) -> None:
    """Compile these shards, each in an interpreter of its own, and write their archives to their targets.

    They share the start of the sandbox and nothing else. Raises BuildError when the image's Python does not work.
    """
    with cache.folder() as folder:
        # A sandbox of last resort runs as another user.
        folder.chmod(0o777)
        (folder / PROGRAM).write_bytes(Path(compile_program.__file__).read_bytes())
        for number, job in enumerate(jobs):
            write_sources(folder / f"{number}.sources", job)
        done = interpreter.run(folder)
        compiled = [folder / f"{number}.bytecode" for number in range(len(jobs))]
        if done.returncode != 0 or not all(path.is_file() for path in compiled):
            raise BuildError(
                f"Python {interpreter.version} of the image could not compile packages (exit code {done.returncode})"
                + "".join(f"\n    {line}" for line in done.lines[-20:]),
                cause="The base's Python is broken, or the machine ran out of memory or room.",
            )
        for path, job in zip(compiled, jobs, strict=True):
            cache.adopt(path, job.target)


def write_sources(path: Path, job: Job) -> None:
    """The shard's sources, checked against RECORD, as the archive that the program reads."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for member, place in job.shard.sources:
            archive.writestr(zipfile.ZipInfo(place.removeprefix("/")), job.wheel.read(member))
    path.chmod(0o644)


def skipped(archives: Sequence[Path]) -> Mapping[str, str]:
    """Sources that do not compile (templates, other Pythons' code): path in the image → reason."""
    found: dict[str, str] = {}
    for path in archives:
        with zipfile.ZipFile(path) as archive:
            found |= msgspec.json.decode(archive.read("skipped"), type=dict[str, str])
    return found
