"""How long a container of a SIF takes until its libraries are read: by compression, beside `apptainer build`.

    .venv/bin/python -m bench.sif_start REF [--run "import torch"] [--ways zstd gzip] [--folder DIR] [--runs N]

REF is NAME:TAG below dist/ or the path of a layout. Each container mounts its file again, so that nothing inflated is
left of the one before; the file itself stays in the page cache. Beside them the same image as a folder, which nothing
inflates. Needs apptainer, and root for the folder. Prints a table: medians of all runs but the first.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.conversion import children_seconds
from bench.main_job import machine
from graphcrate.artifacts import convert
from graphcrate.artifacts.formats.packed import Compression
from graphcrate.artifacts.locate import find_image
from graphcrate.host.context import Context
from graphcrate.model.plan import VENV

WAYS = ("gzip", "zstd", "apptainer")
FOLDER = "folder"


class Start(NamedTuple):
    """Of one container: wall and processor seconds."""

    seconds: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ref", help="NAME:TAG below dist/, or the path of a layout")
    parser.add_argument("--run", default="import torch", help="what Python does in the container")
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument("--folder", type=Path, help="where to work (default: a new folder below TMPDIR)")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    if shutil.which("apptainer") is None:
        sys.exit("apptainer is not installed: as root, .venv/bin/python -m tests.engines.install")
    folder = Path(tempfile.mkdtemp(prefix="graphcrate-bench-", dir=given.folder))
    try:
        images = {way: made(given.ref, way, folder) for way in (*given.ways, FOLDER)}
        starts: dict[str, list[Start]] = {way: [] for way in images}
        for number in range(given.runs + 1):
            for way in list(images)[:: -1 if number % 2 else 1]:
                found = started(images[way], given.run)
                if number:
                    starts[way].append(found)
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


def started(image: Path, program: str) -> Start:
    """Start a container and end it."""
    begun, cpu = time.monotonic(), children_seconds()
    command = ["apptainer", "--silent", "exec", "--cleanenv", str(image), f"{VENV}/bin/python", "-c", program]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return Start(time.monotonic() - begun, children_seconds() - cpu)


def table(images: dict[str, Path], starts: dict[str, Sequence[Start]]) -> list[str]:
    """The table's lines."""
    lines = ["| | size | seconds | CPU s |", "|---|---|---|---|"]
    for way, found in starts.items():
        seconds, cpu = (statistics.median(one) for one in zip(*found, strict=True))
        size = "" if way == FOLDER else f"{images[way].stat().st_size / 1e6:.1f} MB"
        lines.append(f"| {way} | {size} | {seconds:.1f} | {cpu:.1f} |")
    return lines


if __name__ == "__main__":
    main()
