"""Measures the main job on this machine and writes docs/performance.md: `make bench`. six minutes, 20 GB of disk.

Everything runs through the command line, in copies of the project with caches of their own: the person's are left
alone. Times are medians of several runs where a run can be repeated. Memory is the largest sum over all processes of
their proportional set size (shared pages counted once), sampled while the command runs.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
STACK, CUDA = "pyg", "11.7"  #: the torch 2.0.1 variant whose every file PyPI has
EXTENSIONS = "none"  #: what compiling takes has a bench of its own
NEWER = ("2.4.0", "2.5.3", "2.6.1")  #: torch_geometric: each replaces that of the variant in turn
KEPT_FOR_LAYERS = ("files", "bases", "built")  #: of a cache: downloads, the base, wheels made from sdists
SAMPLE_SECONDS = 0.1
#: ext4 gives no inode again for a minute after it was freed, and whoever makes files meanwhile passes over all of those
#: (fs/ext4/ialloc.c, RECENTCY_MIN): a tenth of a build's processor seconds after another one's folder was removed
_SETTLED = 61


@dataclass(frozen=True)
class Run:
    """A command that ended well."""

    out: str
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Figure:
    """One row of the table."""

    what: str
    value: str
    goal: str
    runs: int


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--folder", type=Path, help="where to work (default: a new folder below TMPDIR)")
    options.add_argument("--runs", type=int, default=3, help="how often what can be repeated is repeated")
    given = options.parse_args()
    with working_folder(given.folder) as folder:
        figures = measure(folder, given.runs)
        text = page(figures, machine(folder))
    PAGE.write_text(text + others_sections(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(text)


def others_sections(page: str) -> str:
    """Return what other benches have written into the page: all from its first heading below the title on."""
    _, heading, rest = page.partition("\n## ")
    return f"{heading}{rest}"


def measure(folder: Path, runs: int) -> list[Figure]:
    """All figures, in the order of the table."""
    say("clean clone to tested image, everything downloaded")
    project, cache = folder / "project", folder / "cache"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(project)], check=True)
    make = ["make", "image", f"STACK={STACK}", f"CUDA={CUDA}", f"EXTENSIONS={EXTENSIONS}"]
    clean = timed(make, project, cache, home=folder)
    report = json.loads(image(project, cache, "--json").out)
    lock = json.loads((project / report["layout"]).with_name("lock.json").read_text())

    say("unchanged rebuild")
    again = [timed(make, project, cache, home=folder) for _ in range(7)]

    say("layers from cached wheels")
    fresh = [layers(project, cache, folder / f"layers-{number}", report["digest"]) for number in range(runs)]

    say("a newer torch_geometric alone")
    newer = [newer_torch_geometric(project, cache, version) for version in NEWER[:runs]]

    wheels = sum(package["file"]["size"] for package in lock["packages"])
    python = sum(layer["size"] for layer in report["layers"] if not owned_by(layer, "debian"))
    seconds = statistics.median(run.seconds for run in fresh)
    return [
        Figure("clean clone → tested image, everything downloaded", f"{clean.seconds:.0f} s", "120 s", 1),
        Figure("layers and layout from cached wheels, bytecode included", f"{seconds:.1f} s", "20 s", len(fresh)),
        Figure("unchanged rebuild", f"{statistics.median(run.seconds for run in again):.2f} s", "0.5 s", len(again)),
        Figure("a newer torch_geometric alone", f"{statistics.median(newer):.1f} s", "5 s", len(newer)),
        Figure(
            "peak memory while layers are made",
            f"{max(r.peak_bytes for r in fresh) / 1e6:.0f} MB",
            "512 MB",
            len(fresh),
        ),
        Figure("compressed layers on the base / wheels", f"{python / wheels:.4f}", "1.02", 1),
        Figure("wheels", f"{wheels / 1e9:.2f} GB in {len(lock['packages'])} files", "", 1),
    ]


def layers(project: Path, cache: Path, fresh: Path, digest: str) -> Run:
    """Build with a cache that lacks the layers and the bytecode. The image must come out the same."""
    for name in KEPT_FOR_LAYERS:
        link_tree(cache / name, fresh / name)
    for record in (cache / "bases").glob("*/*/layer.json"):
        blob = "blobs/sha256/" + json.loads(record.read_text().splitlines()[0])["digest"].removeprefix("sha256:")
        (fresh / blob).parent.mkdir(parents=True, exist_ok=True)
        os.link(cache / blob, fresh / blob)
    run = image(project, fresh, "--no-smoke", "--json", "--output", str(fresh / "dist"))
    if json.loads(run.out)["digest"] != digest:
        sys.exit("the image from a fresh layer cache has another digest")
    shutil.rmtree(fresh)
    return run


def newer_torch_geometric(project: Path, cache: Path, version: str) -> float:
    """Seconds to build the image again when torch_geometric alone has changed; its wheel is not in the cache yet."""
    recipe = project / "recipes" / f"{STACK}.toml"
    text = recipe.read_text()
    start = text.index(f'\ncuda = "{CUDA}"')
    end = text.index("[[variant]]", start)
    old = next(line for line in text[start:end].splitlines() if line.startswith("torch_geometric = "))
    recipe.write_text(text[:start] + text[start:end].replace(old, f'torch_geometric = "{version}"') + text[end:])
    graphcrate(project, cache, "lock", STACK, "--cuda", CUDA)
    return image(project, cache, "--no-smoke").seconds


def owned_by(layer: dict, name: str) -> bool:  # type: ignore[type-arg]
    return any(owner["name"] == name for owner in layer["owners"])


# --- running and sampling ------------------------------------------------------------------------------------------


def graphcrate(project: Path, cache: Path, *arguments: str) -> Run:
    """The command line of the copy, in the copy's own environment."""
    return timed([str(project / ".venv" / "bin" / "python"), "-E", "-s", "build.py", *arguments], project, cache)


def image(project: Path, cache: Path, *arguments: str) -> Run:
    """Build the image that is measured."""
    return graphcrate(project, cache, "image", STACK, "--cuda", CUDA, "--extensions", EXTENSIONS, *arguments)


def timed(command: Sequence[str], project: Path, cache: Path, home: Path | None = None) -> Run:
    """Run a command in the copy; ends the bench where it fails."""
    environment = {**os.environ, "GRAPHCRATE_CACHE": str(cache)}
    for variable in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):  # of the make that runs this program
        environment.pop(variable, None)
    if home is not None:
        environment |= {"HOME": str(home), "PIP_NO_CACHE_DIR": "1"}
    os.sync()  # what the run before left to be written is not this one's
    start = time.monotonic()
    process = subprocess.Popen(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, encoding="utf-8", start_new_session=True
    )
    with peak_memory(process.pid) as peak:
        out, _ = process.communicate()
        seconds = time.monotonic() - start
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return Run(out, seconds, peak())


@contextlib.contextmanager
def peak_memory(ancestor: int) -> Iterator[Callable[[], int]]:
    """Sample the memory of a process with all that it started; after the block the largest sum can be asked for."""
    largest, stop = [0], threading.Event()

    def sample() -> None:
        while not stop.wait(SAMPLE_SECONDS):
            largest[0] = max(largest[0], sum(proportional_bytes(process) for process in family(ancestor)))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield lambda: largest[0]
    finally:
        stop.set()
        thread.join()


def family(ancestor: int) -> set[int]:
    """A process and all that it started, in whichever session they are."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            # after the name in parentheses: state, parent
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    found, fresh = {ancestor}, [ancestor]
    while fresh:
        fresh = [child for process in fresh for child in children.get(process, [])]
        found.update(fresh)
    return found


def proportional_bytes(process: int) -> int:
    """Memory of one process, shared pages divided by how many share them. A mapped file's clean pages count too."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024
    return 0


# --- the machine and the page --------------------------------------------------------------------------------------


@contextlib.contextmanager
def working_folder(given: Path | None) -> Iterator[Path]:
    """A new folder, removed at the end: what is measured next does not pay for that."""
    folder = Path(tempfile.mkdtemp(prefix="graphcrate-bench-", dir=given))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.sync()
        time.sleep(_SETTLED)


def link_tree(source: Path, target: Path) -> None:
    """Hard links to all files of a tree."""
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, copy_function=os.link)


def machine(folder: Path) -> str:
    """Processor, cores, memory, disk and versions of this machine in a sentence."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    memory = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    return (
        f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores, {memory / 1e9:.0f} GB of memory, "
        f"disk that writes {write_rate(folder) / 1e6:.0f} MB/s, Linux {platform.release()}, "
        f"Python {platform.python_version()}, commit {commit()}"
    )


def write_rate(folder: Path) -> float:
    """Bytes per second that a file of 1 GB is written and synced with."""
    block, path = os.urandom(1 << 20), folder / "probe"
    start = time.monotonic()
    with path.open("wb") as stream:
        for _ in range(1000):
            stream.write(block)
        stream.flush()
        os.fsync(stream.fileno())
    seconds = time.monotonic() - start
    path.unlink()
    return 1000 * len(block) / seconds


def commit() -> str:
    return subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], encoding="utf-8").strip()


def page(figures: Sequence[Figure], where: str) -> str:
    """docs/performance.md."""
    rows = "\n".join(f"| {f.what} | {f.value} | {f.goal} | {f.runs} |" for f in figures)
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return f"""# How fast it is
![seconds for an OCI layout and for a SIF, beside other tools](pictures/speed.svg)

Each figure has its script, machine, day and commit ([list](../bench/figures.toml)); *old* ones will be measured again.

Written by `make bench` ([bench/main_job.py](../bench/main_job.py)) on {today}:
`STACK={STACK} CUDA={CUDA} EXTENSIONS={EXTENSIONS}` (torch 2.0.1). The machine: {where}.

| what | measured | goal | runs |
|---|---|---|---|
{rows}

Times are wall-clock medians over the runs, from the command's start to its end. *Layers* starts with the downloads,
the base and wheels made from sdists in the cache, and ends with the OCI layout on disk, without the smoke test.
Memory is the largest sum over all processes of their proportional set size, mapped libraries included. A newer
torch_geometric is resolved first.
"""


def say(message: str) -> None:
    sys.stderr.write(f"bench: {message}\n")


if __name__ == "__main__":
    main()
