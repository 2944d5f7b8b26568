"""Compile real packages of every kind that the index has as source, twice each, and show it: `make sources`.

    python -m tools.source_packages [NAME …] [--again]

Which, of which kind, with which options and what has to run: tools/source_packages.toml. Each is locked on top of the
stack for the CPU, or for the CUDA version that the list names, compiled by its own back-end twice in caches of their
own (the second time with one compiler at a time), loaded in the image's base, and used there; no image is made. Where a
message names what to type (`BUILD_APT=`, `WITH=`, `CUDA=`), that is typed. What came of it is noted in
tools/source_packages.json after each, so that the same command goes on where it stopped; what passed is compiled again
with `--again` alone. The table of docs/sources.md is made of both files. Ends with 1 where a package fails that passed
before.
"""

import argparse
import base64
import contextlib
import dataclasses
import hashlib
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from graphcrate.assembly import pipeline, planned, with_engine
from graphcrate.assembly.extension_wheels import Compiling
from graphcrate.assembly.job import BuildJob
from graphcrate.cli.requests import build_request
from graphcrate.compat.failures import importing
from graphcrate.compat.plan.compile_steps import ADDED_SOURCES
from graphcrate.compat.variants.choice import select_variant
from graphcrate.compat.variants.targets import MachineRequest
from graphcrate.host import settings
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import write_file
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.host.sandbox import sandbox
from graphcrate.host.sandbox.steps import Step
from graphcrate.inputs.extensions import CompileJob
from graphcrate.inputs.extensions.compile import make_venv, provide, unpack_wheel
from graphcrate.model.command import setting
from graphcrate.model.errors import BuildError, GraphcrateError
from graphcrate.model.lock import Lock, LockedFile, LockedPackage
from graphcrate.model.plan import VENV, CompileStep
from graphcrate.model.recipe import Channel
from graphcrate.resolve.stack import base as bases
from nsbox.box import Bind
from tools.tables import filled
from tools.typed import Message, Typed, advised

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tools" / "source_packages.toml"
LEDGER = ROOT / "tools" / "source_packages.json"
PAGE = ROOT / "docs" / "sources.md"
LOGS = ROOT / "dist" / "sources"
STACK = "torch"
EMPTY_TORCH = {
    "torch/__init__.py": "",
    "torch-0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 0\n",
    "torch-0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
FOLLOWED = 4  #: messages of which we type what they name, for a package
USE_SECONDS = 600.0
SHOWN = 300  #: characters of a message


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package of the index: of which kind, with what, and a line of Python that uses it."""

    name: str
    kind: str
    use: str
    version: str = ""  #: a release without a wheel for the stack's Python, where newer ones have one
    stack: str = ""  #: that it is added to; else `STACK`
    cuda: str = "cpu"  #: of the stack that it is added to
    gpu: str = ""  #: a model that its code is for, of what is compiled with CUDA
    apt: str = ""
    build_apt: str = ""
    torch: bool = False  #: compiled against torch; others see an empty package of that name, for it takes a minute

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}" if self.version else self.name


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A package's result: `typed` last, after these messages. `version` empty: it failed."""

    package: str
    typed: Typed
    messages: tuple[Message, ...] = ()
    version: str = ""
    seconds: float = 0  #: of one compile, with torch unpacked and what was compiled loaded
    differing: tuple[str, ...] = ()  #: files of the wheel that the second compile made otherwise
    date: str = ""

    @property
    def passed(self) -> bool:
        return bool(self.version)


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A package that was compiled twice and used."""

    version: str
    seconds: float
    differing: tuple[str, ...]


def read_list() -> tuple[Source, ...]:
    """The packages, in order. Raises what msgspec raises for a list that is malformed."""
    return msgspec.toml.decode(LIST.read_bytes(), type=dict[str, tuple[Source, ...]])["package"]


def read_ledger() -> dict[str, Result]:
    """Read each package's result so far, by name."""
    known = msgspec.json.decode(LEDGER.read_bytes(), type=tuple[Result, ...]) if LEDGER.is_file() else ()
    return {result.package: result for result in known}


# --- compiling --------------------------------------------------------------------------------------------------------


def tried(source: Source, attempt: Callable[[Typed], Compiled]) -> Result:
    """Compile a package as the list has it, then as messages say, until it passes."""
    typed = Typed(
        stack=source.stack,
        cuda=source.cuda,
        gpu=source.gpu,
        with_=source.requirement,
        apt=source.apt,
        build_apt=source.build_apt,
    )
    said: list[Message] = []
    while True:
        try:
            made = attempt(typed)
        except GraphcrateError as error:
            said.append(_message(typed, error))
        else:
            about = msgspec.structs.asdict(made)
            return Result(package=source.name, typed=typed, messages=tuple(said), date=settings.now_utc(), **about)
        advice = advised(said[-1], STACK)
        if advice == typed or len(said) > FOLLOWED:
            return Result(package=source.name, typed=typed, messages=tuple(said), date=settings.now_utc())
        typed = advice


def _message(typed: Typed, error: GraphcrateError) -> Message:
    about = {"what": error.what, "cause": error.cause, "next_step": error.next_step}
    return Message(typed=typed, exit_code=error.exit_code, **about)


def compile_twice(source: Source, typed: Typed, ctx: Context) -> Compiled:
    """Lock a package as it is typed, compile it twice, and use it. Raises GraphcrateError."""
    request = build_request(
        "image",
        typed.stack or STACK,
        typed.cuda,
        machine=MachineRequest(gpu=typed.gpu),
        packages=[typed.with_],
        apt=typed.apt.split(),
        build_apt=typed.build_apt.split(),
    )
    job = BuildJob(typed=request, choice=select_variant(request, ctx), engine=with_engine.EMBEDDED)
    resolution = pipeline.lock_all(job, ctx)
    lock, plan = resolution.lock, planned.make_plan(job.contents, resolution, ctx)
    compiling = Compiling(plan, lock, request.own_sources, ctx)
    step = next((step for step in plan.of(CompileStep) if step.title == ADDED_SOURCES), None)
    if step is None:
        raise BuildError(f"{typed.with_} has a wheel", next_step="take a release that has none, in the list")
    made = compiling.job(step, bases.prepare_base(ctx, lock.base), LOGS)
    with ctx.cache.folder() as work:
        if not source.torch:
            made = without_torch(made, work)
        start = settings.now()
        with _store(work / "first") as cache:
            first = provide(dataclasses.replace(made, cache=cache))
            seconds = round(settings.now() - start, 1)
            _use(source, typed, made, lock, [*first.values()], work)
            with _store(work / "second") as other:
                second = provide(dataclasses.replace(made, cache=other, jobs=1))
                differing = [name for sha256 in first for name in differences(first[sha256], second[sha256])]
    version = next(package.version for package in lock.packages if package.name == source.name)
    return Compiled(version=version, seconds=seconds, differing=tuple(differing))


def without_torch(job: CompileJob, folder: Path) -> CompileJob:
    """The job for what does not know torch, against an empty package of that name."""
    wheel = folder / "torch-0-py3-none-any.whl"
    rows = [f"{name},sha256={_record_hash(text.encode())},{len(text)}\n" for name, text in EMPTY_TORCH.items()]
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {**EMPTY_TORCH, "torch-0.dist-info/RECORD": "".join(rows)}.items():
            archive.writestr(name, text)
    sha256 = sha256_of(wheel)
    file = LockedFile(name=wheel.name, sha256=sha256, size=wheel.stat().st_size)
    torch = LockedPackage(name="torch", version="0", channel=Channel.PYPI, file=file)
    step = msgspec.structs.replace(job.step, against=(torch,))
    return dataclasses.replace(job, step=step, files={**job.files, sha256: wheel})


def _record_hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@contextlib.contextmanager
def _store(folder: Path) -> Iterator[Cache]:
    with contextlib.closing(Cache(folder)) as cache:
        yield cache


def differences(first: Path, second: Path) -> list[str]:
    """Files of two wheels that are not the same in both; their archives' own bytes where that is all."""
    if first.read_bytes() == second.read_bytes():
        return []
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        contents = [{name: wheel.read(name) for name in wheel.namelist()} for wheel in (one, other)]
    names = dict.fromkeys((*contents[0], *contents[1]))
    found = [name for name in names if contents[0].get(name) != contents[1].get(name) and not name.endswith("/RECORD")]
    return found or ["the archive"]


def _use(source: Source, typed: Typed, job: CompileJob, lock: Lock, wheels: Sequence[Path], work: Path) -> None:
    """Run the package's line of Python in the image's base, with all that is locked. Raises BuildError."""
    venv, there = work / "venv", [package for package in lock.packages if not package.is_sdist]
    if not source.torch:
        there = [package for package in there if package.name != "torch" and not package.name.startswith("nvidia-")]
    make_venv(dataclasses.replace(job, build_base=job.base), venv, there)
    for wheel in wheels:
        unpack_wheel(lambda _: None, wheel, venv, lock.python)
    argv = [f"{VENV}/bin/python", "-s", "-c", source.use]
    variables = {
        "PATH": f"{VENV}/bin:/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "HOME": "/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    binds = [Bind(venv, VENV)]
    done = sandbox.run_in(
        job.base.rootfs, sandbox.Exec(argv, variables, binds, cwd="/tmp", timeout=USE_SECONDS, step=Step.SMOKE)
    )
    if done.returncode:
        ending = " ".join(done.lines[-1:]) or f"exit code {done.returncode}"
        raise BuildError(
            f"{source.name} is compiled, and cannot be used: {ending}",
            cause=f"It ran: {source.use}",
            next_step=remedied(source.name, typed, ending, lock.python),
        )


def remedied(name: str, typed: Typed, raised: str, python: str) -> str:
    """Return what to type where a package's import raises this, as the smoke test of an image has it.

    Empty: unknown.
    """
    remedy = importing.remedy(name, raised, python)
    if remedy is None:
        return ""
    option, package = remedy
    return setting(
        with_=f"{typed.with_} {package}" if option == "with_" else "", apt=package if option == "apt" else ""
    ).both()


# --- the page ---------------------------------------------------------------------------------------------------------


def tables() -> dict[str, str]:
    """The table of docs/sources.md."""
    listed, known = read_list(), read_ledger()
    rows = [(source.name, source.kind, *_cells(source, known.get(source.name))) for source in listed]
    head = ("package", "kind", "type this", "version", "seconds", "twice the same")
    lines = [f"| {' | '.join(line)} |" for line in (head, ("---",) * len(head), *rows)]
    results = [known[source.name] for source in listed if source.name in known]
    passed = [result for result in results if result.passed]
    same = sum(not result.differing for result in passed)
    kinds = len({source.kind for source in listed})
    over = f"Of these {len(listed)} packages of {kinds} kinds {len(passed)} build and run, {same} of them to the same"
    dates = sorted(result.date[:10] for result in results)
    on = f", as last tried on {dates[-1]}" if dates else ""
    return {"sources": "\n".join((f"{over} bytes twice{on}.", "", *lines))}


def _cells(source: Source, result: Result | None) -> tuple[str, ...]:
    if result is None:
        return "not tried yet", "", "", ""
    typed = f"`{result.typed.shown()}`"
    if not result.passed:
        said = result.messages[-1]
        text = " ".join(". ".join(filter(None, (said.what.split("\n")[0].rstrip("."), said.cause))).split())
        return typed, f"**no**: {text[:SHOWN].replace('|', chr(92) + '|')}", "", ""
    differing = f"no: {', '.join(f'`{Path(name).name}`' for name in result.differing[:3])}"
    return typed, result.version, f"{result.seconds:.0f}", differing if result.differing else "yes"


# --- the command ------------------------------------------------------------------------------------------------------


def note(results: Mapping[str, Result], listed: Sequence[Source]) -> None:
    """Write the ledger in the list's order, and the page."""
    order = [source.name for source in listed if source.name in results]
    text = msgspec.json.format(msgspec.json.encode([results[name] for name in order]), indent=1)
    write_file(LEDGER, text + b"\n")
    write_file(PAGE, filled(PAGE.read_text(encoding="utf-8"), tables()).encode())


def main(arguments: Sequence[str]) -> int:
    """Compile the packages that are named, else all; see the module. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.source_packages")
    parser.add_argument("names", nargs="*", metavar="NAME", help="packages of the list; else all")
    parser.add_argument("--again", action="store_true", help="also those that passed")
    asked = parser.parse_args(arguments)
    listed, results, ctx = read_list(), read_ledger(), Context.here()
    known = {source.name: source for source in listed}
    if unknown := [name for name in asked.names if name not in known]:
        parser.error(f"{unknown[0]} is not in {LIST.relative_to(ROOT)}")
    worse: list[str] = []
    for source in (known[name] for name in asked.names or known):
        before = results.get(source.name)
        if before is not None and before.passed and not asked.again:
            continue
        result = tried(source, partial(compile_twice, source, ctx=ctx))
        results[source.name] = result
        note(results, listed)
        ending = "differs" if result.differing else "the same twice"
        _say(f"{source.name}: {result.typed.shown()}: {ending if result.passed else result.messages[-1].what}")
        worse += [source.name] if before is not None and before.passed and not result.passed else []
    if worse:
        _say(f"passed before, and fails: {', '.join(worse)}")
    return 1 if worse else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except GraphcrateError as error:
        sys.stderr.write(f"source_packages: {error}\n")
        sys.exit(error.exit_code)
