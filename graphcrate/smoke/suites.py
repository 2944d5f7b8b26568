"""Runs small trainings inside an image and has judged what they say. `docs/smoke.md` tells what each proves.

A suite is a program of `suites/` that streams its curve and ends with one JSON line.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from graphcrate.compat.facts import start_up
from graphcrate.host import settings
from graphcrate.host.sandbox import gpu
from graphcrate.model.errors import BuildError
from graphcrate.model.report import SmokeReport, StartUp
from graphcrate.model.suite import SUITES, Suite
from graphcrate.model.trial import Device
from graphcrate.model.words import visible
from graphcrate.smoke.verdict import failed, judge_output, phase

if TYPE_CHECKING:
    from graphcrate.host.sandbox.sandbox import Inside
    from nsbox.box import Bind

START = "start"  #: name of the program that runs with what the suites run without
APART = " apart"  #: end of a suite's version, where it ran without what runs by itself in the image
OUT = "/out"  #: inside: the folder that a suite may write to
MOST_THREADS = 16  #: the programs' tensors are too small for more
SECONDS_TO_SAY_SO = 30.0  #: beyond a suite's limit, for the program's own account of the phase it hangs in
#: of `judging`, and of the variables that suites get: raise it where another verdict may come of it
JUDGING = 1
#: packages whose operators are examined
EXTENSIONS = ("pyg-lib", "torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv")
#: A CPU run shares its machine, so waiting threads sleep. MKL takes the one code path that all x86 CPUs have: it gives
#: the same figures everywhere and is twice as fast on the tiny matrices of an attention.
CPU_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "MKL_CBWR": "COMPATIBLE"}


class Ran(NamedTuple):
    """A program that ended, or (`late`: the runner's words) was ended after its time."""

    lines: list[str]
    returncode: int
    seconds: float
    late: str = ""


class SuiteProgram(NamedTuple):
    """A program run inside an image, and how it is judged; ended after `limit` seconds. `title` is for people."""

    name: str  #: of a suite, or of the user's own test
    version: str  #: past results of another one do not count
    title: str
    argv: Sequence[str]
    limit: float
    judge: Callable[["SuiteProgram", Ran, bool], SmokeReport]  #: whether it ran on a GPU
    measures: bool = False  #: a past result never counts
    inherits: tuple[str, ...] = ()  #: how variables begin that it gets of this process's environment
    is_whole: bool = False  #: with what runs by itself in the image, which suites run without
    nodes: int = 1  #: of a job of Slurm, on each of which it is started


def suite(name: str, *, on_gpu: bool, packages: Collection[str] = (), nodes: int = 1) -> SuiteProgram:
    """Return a suite's program. `packages`: what the image is said to have; one that it examines must be there."""
    known = SUITES[name]
    limit = known.cuda_limit if on_gpu else known.cpu_limit
    argv = command(known, name, on_gpu=on_gpu, limit=limit, packages=packages)
    argv += ["--per-node"] if nodes > 1 else []
    version = version_of(name, packages)
    return SuiteProgram(
        name,
        f"{version} on {nodes} nodes" if nodes > 1 else version,  # a pass on one node proves nothing of two
        "",
        argv,
        limit + SECONDS_TO_SAY_SO,
        _judge,
        measures=known.measures,
        # a pass that is remembered must not hang on them
        inherits=known.inherits if known.measures or nodes > 1 else (),
        nodes=nodes,
    )


def started(name: str, *, on_gpu: bool, packages: Collection[str] = ()) -> SuiteProgram:
    """Return the program that a suite is once more, with what runs by itself in the image.

    That it still starts and trains is all that its result says: what runs by itself may print any verdict.
    """
    whole = suite(name, on_gpu=on_gpu, packages=packages)

    def judge(program: SuiteProgram, ran: Ran, on_gpu: bool) -> SmokeReport:
        report = whole.judge(whole, ran, on_gpu)
        return msgspec.structs.replace(report, suite=program.name, device="gpu" if on_gpu else "cpu", metrics={})

    version, title = f"{START} {whole.version}", f"{name} with what runs by itself in the image"
    return whole._replace(name=START, version=version, title=title, judge=judge, is_whole=True)


def _judge(program: SuiteProgram, ran: Ran, on_gpu: bool) -> SmokeReport:
    if ran.late:
        reason = f"{ran.late} (while {phase(ran.lines)[0]})"
        return failed(program.name, ran.seconds, reason, layer="machine", on_gpu=on_gpu)
    return judge_output(program.name, ran.lines, ran.returncode, ran.seconds, on_gpu=on_gpu)


def run(
    program: SuiteProgram,
    inside: "Inside",
    folder: Path,
    *,
    say: Callable[[str], None],
    on_gpu: bool,
    starts: Sequence[StartUp] = (),
) -> SmokeReport:
    """Run a program in an image, telling its lines to `say`; a failure is a report, not an exception.

    `starts`: what runs by itself in the image, replaced by an empty file for all but whole programs.

    Writes `smoke-<name>.log` into `folder`, and `smoke-<name>.svg` where it draws. Raises HostError when nothing can be
    run at all.
    """
    # what an unchanged image, which runs nothing, need not load
    from graphcrate.host.disk.atomic import write_file
    from graphcrate.host.sandbox import beneath
    from graphcrate.host.sandbox.sandbox import Exec
    from nsbox.box import Bind

    if program.title:
        say(f"smoke test {program.name}: {program.title}")
    folder.mkdir(parents=True, exist_ok=True)
    curve = folder / f"smoke-{program.name}.svg"
    curve.unlink(missing_ok=True)  # an earlier run's must not pass for this one's
    lines: list[str] = []

    def hear(line: str) -> None:
        lines.append(line)
        if not line.startswith("{"):
            say(f"  | {line}")

    start, late, code = settings.now(), "", 0
    with contextlib.ExitStack() as stack:
        scratch = _scratch(program, folder, stack)
        masks = _masks(() if program.is_whole else starts, folder, stack)
        unset = {start.path: "" for start in starts if start_up.is_variable(start) and not program.is_whole}
        order = Exec(
            program.argv,
            variables(on_gpu, program.inherits) | unset,
            (Bind(scratch, OUT, read_only=False), *masks),
            network=program.nodes > 1,
            gpu=on_gpu,
            nodes=program.nodes,
            timeout=program.limit,
            on_line=hear,
        )
        try:
            code = inside.run(order).returncode
        except BuildError as error:  # the runner's time-out: the program could not even say so itself
            late = error.what
            lines.append(late)
        log = "".join(f"{visible(line)}\n" for line in lines)
        write_file(folder / f"smoke-{program.name}.log", log.encode(errors="replace"))
        if (drawing := beneath.read(scratch, f"{program.name}.svg")) is not None:
            write_file(curve, drawing)
    return program.judge(program, Ran(lines, code, round(settings.now() - start, 2), late), on_gpu)


def _scratch(program: SuiteProgram, folder: Path, stack: contextlib.ExitStack) -> Path:
    """Make the folder that a program may write to, until `stack` ends."""
    from graphcrate.host.disk import trees
    from graphcrate.host.disk.atomic import temporary_folder

    if program.nodes > 1:  # which see this folder, and not each other's temporary files
        return stack.enter_context(trees.folder_in(folder, ".smoke-"))
    return stack.enter_context(temporary_folder("graphcrate-smoke-"))


def _masks(starts: Sequence[StartUp], folder: Path, stack: contextlib.ExitStack) -> "Iterator[Bind]":
    """Give an empty file for the place of each that runs by itself; all nodes see `folder`, and no program does."""
    import tempfile

    from nsbox.box import Bind

    files = [start.path for start in starts if not start_up.is_variable(start)]
    if files:
        empty = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".smoke-", dir=folder)), "empty")
        empty.touch(0o444)
        yield from (Bind(empty, path) for path in files)


def runs_on_gpu(device: Device) -> bool:
    """Return whether a suite runs on a GPU here; `auto` takes one where there is one."""
    return device == "cuda" or (device == "auto" and bool(gpu.detect().devices))


def version_of(name: str, packages: Collection[str] = ()) -> str:
    """Return the key of a suite's past results: versions of judging and of the suite, and what it shall require."""
    suite = SUITES[name]
    return " ".join([f"{name} {JUDGING}.{suite.version}", *_required(suite, packages)])


def command(suite: Suite, name: str, *, on_gpu: bool, limit: int, packages: Collection[str] = ()) -> list[str]:
    """Return the command that is run inside the image."""
    argv = suite.argv(on_gpu=on_gpu, limit=limit)
    if required := _required(suite, packages):
        argv += ["--require", ",".join(required)]
    return [*argv, "--curve", f"{OUT}/{name}.svg"] if suite.draws else argv


def _required(suite: Suite, packages: Collection[str]) -> list[str]:
    return [name.replace("-", "_") for name in EXTENSIONS if name in packages] if suite.requires else []


def variables(on_gpu: bool, inherits: tuple[str, ...] = ()) -> dict[str, str]:
    """Return a suite's variables besides the image's own. `inherits`: as in SuiteProgram."""
    from graphcrate.host.workers import default_jobs

    chosen = {name: value for name, value in settings.environment().items() if inherits and name.startswith(inherits)}
    chosen["OMP_NUM_THREADS"] = str(min(default_jobs(), MOST_THREADS))
    return chosen if on_gpu else {**chosen, **CPU_ENVIRONMENT}
