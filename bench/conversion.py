"""A layout to a SIF: `convert` against `apptainer build` from the same layout, one after the other on one machine.

    .venv/bin/python -m bench.conversion REF [--folder DIR] [--only gzip zstd apptainer] [--runs N]

REF is NAME:TAG below dist/ or the path of a layout. Prints a table: seconds, CPU seconds of all processes (which other
work on the machine changes less), size, the most that lay on the disk beside the layout, the most memory. zstd and gzip
begin with an empty cache; "again" makes the same file from the layers that are compressed by then, as for an image that
shares them. Apptainer works with an empty cache and unpacks into the same folder; it needs room for twice the image.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.main_job import machine, peak_memory
from graphcrate.artifacts.locate import find_image

ROOT = Path(__file__).resolve().parent.parent
WAYS = ("zstd", "zstd again", "gzip", "gzip again", "apptainer")
SAMPLE_SECONDS = 0.5


@dataclass(frozen=True)
class Figure:
    """The cost of one way; bytes and seconds."""

    way: str
    seconds: float
    cpu: float
    size: int
    disk: int
    memory: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ref", help="NAME:TAG below dist/, or the path of a layout")
    parser.add_argument("--folder", type=Path, help="where to work (default: a new folder below TMPDIR)")
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--runs", type=int, default=1, help="the fastest of so many counts")
    given = parser.parse_args()
    layout, _ = find_image(given.ref, Path("dist"))
    if "apptainer" in given.only and shutil.which("apptainer") is None:
        sys.exit("apptainer is not installed: as root, .venv/bin/python -m tests.engines.install, or --only zstd gzip")
    folder = Path(tempfile.mkdtemp(prefix="graphcrate-bench-", dir=given.folder))
    try:
        figures = []
        for way in given.only:
            found = [measured(way, layout.path.absolute(), folder) for _ in range(given.runs)]
            figures.append(min(found, key=lambda figure: figure.seconds))
        if len(given.only) == len(WAYS):
            compare(folder)
        print(f"{given.ref}, layers of {layout.size / 1e6:.0f} MB, on {machine(folder)}")
        print("\n".join(table(figures)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measured(way: str, layout: Path, folder: Path) -> Figure:
    """Make the SIF in this way, once."""
    kind, _, again = way.partition(" ")
    output, work, cache = folder / f"{kind}.sif", folder / "work", folder / "cache"
    work.mkdir()
    output.unlink(missing_ok=True)
    if not again:
        shutil.rmtree(cache, ignore_errors=True)
    if way == "apptainer":
        command = ["apptainer", "--silent", "build", str(output), f"oci:{layout}"]
    else:
        command = [sys.executable, "-E", "-s", str(ROOT / "build.py"), "convert", str(layout), "--to", "sif"]
        command += ["--compression", kind, "--output", str(output)]
    folders = {name: str(work) for name in ("APPTAINER_TMPDIR", "APPTAINER_CACHEDIR", "TMPDIR")}
    folders["GRAPHCRATE_CACHE"] = str(cache)
    os.sync()
    before, start, cpu = used(folder), time.monotonic(), children_seconds()
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **folders}, stdout=subprocess.DEVNULL)
    with peak_memory(process.pid) as memory, peak_disk(folder) as disk:
        code = process.wait()
        seconds = time.monotonic() - start
    if code:
        sys.exit(f"{' '.join(command)} ended with {code}")
    shutil.rmtree(work)
    most = max(disk(), used(folder)) - before
    return Figure(way, seconds, children_seconds() - cpu, output.stat().st_size, most, memory())


def children_seconds() -> float:
    """CPU seconds of all processes that were started here and have ended."""
    times = os.times()
    return times.children_user + times.children_system


@contextmanager
def peak_disk(folder: Path) -> Iterator[Callable[[], int]]:
    """Sample the size of a folder; after the block the most can be asked for."""
    largest, stop = [0], threading.Event()

    def sample() -> None:
        pause = SAMPLE_SECONDS
        while not stop.wait(pause):
            start = time.monotonic()
            largest[0] = max(largest[0], used(folder))
            # looking at many files must not be what is measured
            pause = max(SAMPLE_SECONDS, 30 * (time.monotonic() - start))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield lambda: largest[0]
    finally:
        stop.set()
        thread.join()


def used(folder: Path) -> int:
    """Bytes that files below a folder take on the disk, each once. Those that go while this looks do not count."""
    sizes: dict[tuple[int, int], int] = {}
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        status = entry.stat(follow_symlinks=False)
                        sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
        except OSError:
            continue
    return sum(sizes.values())


def compare(folder: Path) -> None:
    """End the bench where the files are not the same: then the times would say nothing."""
    for way in ("zstd", "gzip"):
        command = [sys.executable, "-E", "-s", str(ROOT / "build.py"), "diff"]
        command += [str(folder / "apptainer.sif"), str(folder / f"{way}.sif")]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8", check=False)
        if done.returncode:
            sys.exit(f"{way} and apptainer made different files:\n{done.stdout}")


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Markdown."""
    yield "| | seconds | CPU s | size | most on disk | most memory | times as fast |"
    yield "|---|---|---|---|---|---|---|"
    slow = next((figure for figure in figures if figure.way == "apptainer"), None)
    for figure in figures:
        times = f"{slow.seconds / figure.seconds:.1f} (CPU {slow.cpu / figure.cpu:.1f})" if slow else ""
        yield (
            f"| {figure.way} | {figure.seconds:.0f} | {figure.cpu:.0f} | {figure.size / 1e6:.1f} MB | "
            f"{figure.disk / figure.size:.2f} of size | {figure.memory / 1e6:.0f} MB | {times} |"
        )


if __name__ == "__main__":
    main()
