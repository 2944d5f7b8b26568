"""Measures a container's start from nothing in memory until its libraries are read: by form and mount, beside a folder.

    .venv/bin/python -m bench.sif_start REF [--run "import torch"] [--ways zstd gzip] [--also before=FILE]
                                            [--folder DIR] [--runs N] [--disk MB/S:MS] [--ranks 1 8 64]

REF is NAME:TAG below dist/ or the path of a layout. The page cache is dropped before each container. As root, Apptainer
has the kernel mount a SIF; as a plain user (65534), it starts squashfuse. `--also` names SIFs that are there, such as
those of another commit. Needs root, apptainer and squashfuse. Prints a table: the least of all runs, which come in
turns, and of each mount as multiples of the folder's. Processor seconds are those of all processes of the container,
with which squashfuse inflates; the kernel's mount inflates in the program's own. `--disk 200:2` is a disk that gives
200 MB/s, and 500 reads a second, as one that takes 2 ms for each; it needs control groups' blkio throttling. `--ranks`
starts so many containers of one file at once, as a job's ranks on a node do: until the last one has ended, what all of
them took of the processor, and what was read of the file: what is in memory of it then (fincore). How many failed is
said beside that: Apptainer 1.4 gives a squashfuse a while to mount, and then panics.
"""

import argparse
import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.conversion import children_seconds
from bench.main_job import machine
from graphcrate.artifacts.conversion.job import ConvertRequest
from graphcrate.artifacts.conversion.run import convert
from graphcrate.artifacts.locate import find_image
from graphcrate.host.context import Context
from graphcrate.model.plan import VENV
from sifsquash.values import Compression

WAYS = ("gzip", "zstd", "apptainer")
FOLDER = "folder"
_NOBODY = 65534
_AS_NOBODY = ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups")
#: mount → what its command begins with
MOUNTS = {"kernel": (), "squashfuse": _AS_NOBODY}
_DROP = Path("/proc/sys/vm/drop_caches")
#: The controller of block devices: of version 1, which alone counts what a loop device reads for its container.
_THROTTLE = Path("/sys/fs/cgroup/blkio")
Case = tuple[str, str, int]  #: form, mount, containers at once


class Start(NamedTuple):
    """Of all containers that begin at once: wall and processor seconds, bytes read of the image's file, failures."""

    seconds: float
    cpu: float
    read: int
    failed: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ref", help="NAME:TAG below dist/, or the path of a layout")
    parser.add_argument("--run", default="import torch", help="what Python does in the container")
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    parser.add_argument("--also", nargs="*", default=(), metavar="NAME=FILE", help="SIFs that are there")
    parser.add_argument("--folder", type=Path, help="where to work (default: a new folder below TMPDIR)")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--disk", metavar="MB/S:MS", type=_disk, help="read as from a disk this fast: 200:2")
    parser.add_argument("--ranks", nargs="*", type=int, default=(1,), metavar="N", help="containers that begin at once")
    given = parser.parse_args()
    if os.geteuid() or not all(map(shutil.which, ("apptainer", "squashfuse"))):
        sys.exit("needs root, apptainer and squashfuse: as root, .venv/bin/python -m tests.engines.install")
    folder = Path(tempfile.mkdtemp(prefix="graphcrate-bench-", dir=given.folder))
    folder.chmod(0o755)
    try:
        images = {way: made(given.ref, way, folder) for way in (*given.ways, FOLDER)}
        images |= {name: Path(path).absolute() for name, _, path in (each.partition("=") for each in given.also)}
        starts: dict[Case, list[Start]] = {case: [] for case in itertools.product(images, MOUNTS, given.ranks)}
        with throttled(folder, given.disk):
            for number in range(given.runs):
                for way, mount, ranks in list(starts)[:: -1 if number % 2 else 1]:
                    starts[way, mount, ranks].append(started(images[way], mount, given.run, ranks))
        disk = f", its disk held to {given.disk[0]} MB/s and {given.disk[1]} ms a read" if given.disk else ""
        print(f"{given.ref}, `{given.run}`, {given.runs} runs, on {machine(folder)}{disk}\n")
        print("\n".join(table(images, starts)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _disk(text: str) -> tuple[int, float]:
    """Return megabytes a second and milliseconds a read. Raises ValueError for another text."""
    rate, _, wait = text.partition(":")
    return int(rate), float(wait)


@contextlib.contextmanager
def throttled(folder: Path, disk: tuple[int, float] | None) -> Iterator[None]:
    """Hold what this process and its children read of the disk of `folder` to a rate, and to reads a second."""
    if disk is None:
        yield
        return
    device = folder.stat().st_dev
    whole = (Path("/sys/dev/block") / f"{os.major(device)}:{os.minor(device)}").resolve()
    if (whole / "partition").exists():  # a limit is a whole disk's
        whole = whole.parent
    number, group = (whole / "dev").read_text().strip(), _THROTTLE / f"graphcrate-{os.getpid()}"
    group.mkdir()
    try:
        (group / "blkio.throttle.read_bps_device").write_text(f"{number} {disk[0] * 1_000_000}")
        (group / "blkio.throttle.read_iops_device").write_text(f"{number} {round(1000 / disk[1])}")
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (_THROTTLE / "cgroup.procs").write_text(str(os.getpid()))
        for process in (group / "cgroup.procs").read_text().split():
            (_THROTTLE / "cgroup.procs").write_text(process)
        group.rmdir()


def made(ref: str, way: str, folder: Path) -> Path:
    """The image in this form, written again."""
    if way == FOLDER:
        request = ConvertRequest(ref=ref, to="rootfs", output=folder / "rootfs")
    elif way == "apptainer":
        output = folder / "apptainer.sif"
        layout, _ = find_image(ref, Path("dist"))
        subprocess.run(["apptainer", "--silent", "build", str(output), f"oci:{layout.path}"], check=True)
        return output
    else:
        output = folder / f"{way}.sif"
        request = ConvertRequest(ref=ref, to="sif", output=output, compression=Compression(way))
    return Path(convert(request, Context.here()).path)


def started(image: Path, mount: str, program: str, ranks: int) -> Start:
    """Start containers at once with nothing in the page cache, and wait for their end. Raises CalledProcessError where
    none of them starts.
    """
    os.sync()
    _DROP.write_text("3")
    begun, cpu = time.monotonic(), children_seconds()
    command = [*MOUNTS[mount], "apptainer", "--silent", "exec", "--cleanenv", "--no-home", str(image)]
    command += [f"{VENV}/bin/python", "-c", program]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd="/") for _ in range(ranks)]
    codes = [each.wait() for each in processes]
    if all(codes):
        raise subprocess.CalledProcessError(codes[0], command)
    return Start(time.monotonic() - begun, children_seconds() - cpu, in_memory(image), sum(map(bool, codes)))


def in_memory(path: Path) -> int:
    """Return how many bytes of a file the page cache has; 0 for a folder."""
    if path.is_dir():
        return 0
    command = ["fincore", "--bytes", "--noheadings", "--output", "RES", str(path)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def table(images: dict[str, Path], starts: Mapping[Case, Sequence[Start]]) -> list[str]:
    """The table's lines."""
    lines = [
        "| | size | mount | at once | failed | seconds | of the folder's | CPU s | of the folder's | MB read |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    least = {case: Start(*map(min, zip(*found, strict=True))) for case, found in starts.items()}
    for (way, mount, ranks), found in least.items():
        of = least[FOLDER, mount, ranks]
        size, read = "", ""
        if way != FOLDER:
            size, read = f"{images[way].stat().st_size / 1e6:.1f} MB", f"{found.read / 1e6:.0f}"
        times = f"{found.seconds:.2f} | {found.seconds / of.seconds:.2f} | {found.cpu:.2f} | {found.cpu / of.cpu:.2f}"
        lines.append(f"| {way} | {size} | {mount} | {ranks} | {found.failed or ''} | {times} | {read} |")
    return lines


if __name__ == "__main__":
    main()
