"""The cost of a container: one program, from the same files, in containers and outside of any, in turn on one machine.

    python bench/container_cost.py pyg:<tag> --epochs 10 --rounds 5

Outside is a virtual environment of this machine's own Python whose packages are the image's very files. Each round runs
the program in every place, in turning order, so that what else the machine does meets all alike; a ratio compares two
runs of one round. What a run pays once, to start a container and to read libraries and data, is told apart from what
it pays in every epoch: a run's figure is the median of its epochs but the first. Writes its section of
docs/performance.md.
"""

import argparse
import contextlib
import itertools
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.page import Section, machine, say, spread, today  # noqa: E402
from graphcrate.engines import table  # noqa: E402
from graphcrate.engines.embedded import run as embedded  # noqa: E402
from graphcrate.engines.trials import artifact as subject  # noqa: E402
from graphcrate.host import process, settings  # noqa: E402
from graphcrate.host.arguments import line  # noqa: E402
from graphcrate.host.context import Context  # noqa: E402
from graphcrate.host.sandbox.sandbox import Exec  # noqa: E402
from graphcrate.model.errors import GraphcrateError  # noqa: E402
from graphcrate.model.plan import VENV  # noqa: E402
from graphcrate.model.suite import FOLDER  # noqa: E402
from graphcrate.oci.layout import read_layout  # noqa: E402
from graphcrate.smoke import suites  # noqa: E402

SECTION = Section("container", "bench/container_cost.py")
OUTSIDE = "outside"
#: program → its arguments besides --epochs, --device and --seed
PROGRAMS: Mapping[str, tuple[str, ...]] = {"dna": ("--every", "1")}
EPOCH = "Epoch: "
#: Runs a command and says what it took of the processors, with its children: engines run it out of our sight.
TIMED = ["/bin/sh", "-c", '"$@"; code=$?; times; exit $code', "sh"]


class Figure(NamedTuple):
    """Of one run: wall seconds of an epoch and of all before the first one's end; processor seconds of the whole."""

    epoch: float
    start: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", help="NAME:TAG below dist/")
    parser.add_argument("--program", choices=PROGRAMS, default="dna")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runners", default="embedded,apptainer,docker", help="those that do not answer are left out")
    parser.add_argument("--python", help="this machine's Python of the image's version; else /usr/bin/pythonX.Y")
    parser.add_argument("--output", type=Path, default=Path("dist"))
    given = parser.parse_args()
    ctx = Context.here()
    on_gpu = suites.runs_on_gpu("auto")
    arguments = [*PROGRAMS[given.program], "--epochs", str(given.epochs), "--device", "cuda" if on_gpu else "cpu"]
    with contextlib.ExitStack() as stack:
        runs = places(given, ctx, on_gpu, stack)
        figures: dict[str, list[Figure]] = {name: [] for name in runs}
        for number in range(given.rounds + 1):
            for name in list(runs)[:: -1 if number % 2 else 1]:
                found = measured(runs[name], given.program, arguments)
                say(f"round {number}: {name}: {found.epoch:.3f} s an epoch, {found.start:.1f} s before the second")
                if number:  # the first warms the disk's cache
                    figures[name].append(found)
        text = section(figures, facts(given, on_gpu, ctx))
    SECTION.write(text)


def places(
    given: argparse.Namespace, ctx: Context, on_gpu: bool, stack: contextlib.ExitStack
) -> dict[str, Callable[..., Any]]:
    """The places in which the program runs, by name: each takes a command and a function for its lines."""
    layout = read_layout(given.output / given.image.replace(":", "/") / "oci")
    unpacked = stack.enter_context(embedded.unpacked(layout, cache=ctx.cache, progress=ctx.progress))
    python = stack.enter_context(environment(unpacked.rootfs, given.python, ctx))
    variables = suites.variables(on_gpu)

    def outside(argv: Sequence[str], on_line: Callable[[str], None]) -> Any:  # noqa: ANN401
        program = str(unpacked.rootfs / argv[1].lstrip("/"))
        command = line(*TIMED, str(python), program, *argv[2:])
        return process.run(command, environment=settings.child_environment() | variables, on_line=on_line)

    found: dict[str, Callable[..., Any]] = {OUTSIDE: outside}
    for name in given.runners.split(","):
        try:
            artifact = subject.find(given.image, name, ("torch",), ctx, given.output).artifact
            runner = table.runner(artifact.engine)
            told = runner.runtime(ctx.environment)
            inside = stack.enter_context(runner.opened(artifact, cache=ctx.cache, progress=ctx.progress))
        except GraphcrateError as error:
            say(f"without {name}: {error.what}")
            continue

        def run(argv: Sequence[str], on_line: Callable[[str], None], inside: Any = inside) -> Any:  # noqa: ANN401
            return inside.run(Exec([*TIMED, *argv], variables, on_line=on_line, gpu=on_gpu))

        found[f"{told.name} {told.version}"] = run
    return found


@contextlib.contextmanager
def environment(rootfs: Path, given: str | None, ctx: Context) -> Iterator[Path]:
    """A virtual environment of this machine's Python with the image's packages, for a while; its Python."""
    (packages,) = (rootfs / VENV.lstrip("/") / "lib").glob("python3.*/site-packages")
    version = packages.parent.name
    python = given or next(
        (path for path in (f"/usr/bin/{version}", shutil.which(version)) if path and Path(path).exists()), ""
    )
    if not python:
        sys.exit(f"there is no {version} on this machine, which the image has: --python PATH")
    with ctx.cache.folder() as folder:
        subprocess.run([python, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        (own,) = (folder / "venv" / "lib").glob("python3.*/site-packages")
        (own / "image.pth").write_text(f"{packages}\n")
        yield folder / "venv" / "bin" / "python"


def measured(run: Callable[..., Any], program: str, arguments: Sequence[str]) -> Figure:
    """Run it once; ends the bench where the program ends before its second epoch."""
    ended, lines = list[float](), list[str]()

    def hear(line: str) -> None:
        if line.startswith(EPOCH):
            ended.append(time.perf_counter())
        lines.append(line)

    begun = time.perf_counter()
    # too few epochs for the band: the verdict says so, and is not what is looked at
    run([f"{VENV}/bin/python", f"{FOLDER}/{program}.py", *arguments], hear)
    if len(ended) < 2 or not re.match(r"\d+m", lines[-1]):
        sys.exit("\n".join(lines[-20:]))
    epochs = [after - before for before, after in itertools.pairwise(ended)]
    return Figure(statistics.median(epochs), ended[0] - begun, sum(map(seconds, lines[-1].split())))


def seconds(told: str) -> float:
    """Of what a shell's `times` says: "1m2.50s"."""
    minutes, rest = told.rstrip("s").split("m")
    return 60 * int(minutes) + float(rest)


def facts(given: argparse.Namespace, on_gpu: bool, ctx: Context) -> str:
    """Machine, device, versions and date in a sentence."""
    return (
        f"{today()}, `{given.program}.py`, {given.epochs} epochs, {given.rounds} rounds, image `{given.image}`, "
        f"{machine(ctx, on_gpu=on_gpu)}"
    )


def section(figures: Mapping[str, Sequence[Figure]], where: str) -> str:
    """The section's text."""
    outside = figures[OUTSIDE]
    rows = []
    for name, found in figures.items():
        epoch, start, cpu = (statistics.median(one) for one in zip(*found, strict=True))
        ratio = spread([one.epoch / other.epoch for one, other in zip(found, outside, strict=True)])
        rows.append(f"| {name} | {epoch:.3f} | {'' if name == OUTSIDE else ratio} | {start:.1f} | {cpu:.1f} |")
    head = "| where | s/epoch | to outside: median (least … most) | s to the first epoch's end | processor s |\n"
    return f"{where}.\n\n{head}|---|---|---|---|---|\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
