"""Measures a container's start from nothing in memory until its libraries are read: by form and mount, beside a folder.

    .venv/bin/python -m bench.sif_start REF [--run "import torch"] [--ways zstd gzip] [--also before=FILE]
                                            [--folder DIR] [--runs N]

REF is NAME:TAG below dist/ or the path of a layout. The page cache is dropped before each container. As root, Apptainer
has the kernel mount a SIF; as a plain user (65534), it starts squashfuse. `--also` names SIFs that are there, such as
those of another commit. Needs root, apptainer and squashfuse. Prints a table: the least of all runs, which come in
turns, and of each mount as multiples of the folder's. Processor seconds are those of all processes of the container,
with which squashfuse inflates; the kernel's mount inflates in the program's own.
"""

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.conversion import children_seconds
from bench.main_job import machine
from graphcrate.artifacts import convert
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


class Start(NamedTuple):
    """Of one container: wall and processor seconds."""

    seconds: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ref", help="NAME:TAG below dist/, or the path of a layout")
    parser.add_argument("--run", default="import torch", help="what Python does in the container")
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    parser.add_argument("--also", nargs="*", default=(), metavar="NAME=FILE", help="SIFs that are there")
    parser.add_argument("--folder", type=Path, help="where to work (default: a new folder below TMPDIR)")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    if os.geteuid() or not all(map(shutil.which, ("apptainer", "squashfuse"))):
        sys.exit("needs root, apptainer and squashfuse: as root, .venv/bin/python -m tests.engines.install")
    folder = Path(tempfile.mkdtemp(prefix="graphcrate-bench-", dir=given.folder))
    folder.chmod(0o755)
    try:
        images = {way: made(given.ref, way, folder) for way in (*given.ways, FOLDER)}
        images |= {name: Path(path).absolute() for name, _, path in (each.partition("=") for each in given.also)}
        starts: dict[tuple[str, str], list[Start]] = {pair: [] for pair in itertools.product(images, MOUNTS)}
        for number in range(given.runs):
            for way, mount in list(starts)[:: -1 if number % 2 else 1]:
                starts[way, mount].append(started(images[way], mount, given.run))
        print(f"{given.ref}, `{given.run}`, {given.runs} runs, on {machine(folder)}\n")
        print("\n".join(table(images, starts)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def made(ref: str, way: str, folder: Path) -> Path:
    """The image in this form, written again."""
    if way == FOLDER:
        request = convert.ConvertRequest(ref=ref, to="rootfs", output=folder / "rootfs")
    elif way == "apptainer":
        output = folder / "apptainer.sif"
        layout, _ = find_image(ref, Path("dist"))
        subprocess.run(["apptainer", "--silent", "build", str(output), f"oci:{layout.path}"], check=True)
        return output
    else:
        output = folder / f"{way}.sif"
        request = convert.ConvertRequest(ref=ref, to="sif", output=output, compression=Compression(way))
    return Path(convert.convert(request, Context.here()).path)


def started(image: Path, mount: str, program: str) -> Start:
    """Start a container with nothing in the page cache, and end it."""
    os.sync()
    _DROP.write_text("3")
    begun, cpu = time.monotonic(), children_seconds()
    command = [*MOUNTS[mount], "apptainer", "--silent", "exec", "--cleanenv", "--no-home", str(image)]
    subprocess.run([*command, f"{VENV}/bin/python", "-c", program], check=True, stdout=subprocess.DEVNULL, cwd="/")
    return Start(time.monotonic() - begun, children_seconds() - cpu)


def table(images: dict[str, Path], starts: Mapping[tuple[str, str], Sequence[Start]]) -> list[str]:
    """The table's lines."""
    lines = [
        "| | size | mount | seconds | of the folder's | CPU s | of the folder's |",
        "|---|---|---|---|---|---|---|",
    ]
    least = {pair: Start(*map(min, zip(*found, strict=True))) for pair, found in starts.items()}
    for (way, mount), found in least.items():
        of = least[FOLDER, mount]
        size = "" if way == FOLDER else f"{images[way].stat().st_size / 1e6:.1f} MB"
        times = f"{found.seconds:.2f} | {found.seconds / of.seconds:.2f} | {found.cpu:.2f} | {found.cpu / of.cpu:.2f}"
        lines.append(f"| {way} | {size} | {mount} | {times} |")
    return lines


if __name__ == "__main__":
    main()
