"""The weight of an image that is cut to one GPU, and that it is whole: docs/dev/slim.md has the table of a run.

    .venv/bin/python -m bench.slim [--stack torch] [--cuda 11.8 12.6 13.0] [--gpus v100 a100 h100]

Builds each variant whole, then cut to each of the GPUs (SLIM=all), and makes a SIF of each; for every cut image: all
libraries are loaded with RTLD_NOW inside of it, and cuobjdump counts the programs for that GPU's capability in all
libraries, of the whole image and of the cut one. Sizes in MB. Needs some 10 GB of disk for each variant.
"""

import argparse
import functools
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.page import ROOT, Section, machine, today
from graphcrate.artifacts.locate import find_image
from graphcrate.compat.facts import facts, gpu_table
from graphcrate.host.context import Context
from graphcrate.model.report import BuildReport

BUILD = (sys.executable, str(ROOT / "build.py"))
SECTION = Section("slim", "bench/slim.py")
PAGE = ROOT / "docs" / "dev" / "slim.md"
LOAD = """
import ctypes, os, pathlib, torch
bad = []
libraries = [path for path in pathlib.Path(torch.__file__).parents[1].rglob("*.so*") if path.stat().st_size > 1 << 20]
for path in libraries:
    try:
        ctypes.CDLL(str(path), mode=os.RTLD_NOW)
    except OSError as error:
        bad.append(path.name)
print(len(libraries) - len(bad), "of", len(libraries), *bad and ["but", *bad])
"""
#: library → number of programs; what cuobjdump cannot read is left out: it stops at PTX of that architecture in zeros
LIST = """
import json, pathlib, subprocess, sys, torch
counts = {}
for path in pathlib.Path(torch.__file__).parents[1].rglob("*.so*"):
    if path.stat().st_size > 1 << 20:
        command = [sys.argv[1], "-lelf", "-arch", sys.argv[2], str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if " fatal " not in done.stderr:
            counts[path.name] = sum(line.startswith("ELF file") for line in done.stdout.splitlines())
print(json.dumps(counts))
"""


class Row(NamedTuple):
    """One image."""

    what: str
    packed: int
    zeros: int
    sif: int
    loaded: str = ""
    programs: str = ""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--stack", default="torch")
    options.add_argument("--cuda", nargs="+", default=["11.8", "12.6", "13.0"])
    options.add_argument("--gpus", nargs="+", default=["v100", "a100", "h100"])
    given = options.parse_args()
    rows = [row for cuda in given.cuda for row in variant(given.stack, cuda, given.gpus)]
    text = table(rows)
    PAGE.write_text(SECTION.put(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    sys.stdout.write(text)


def variant(stack: str, cuda: str, gpus: Sequence[str]) -> Iterator[Row]:
    """The whole image, then those for GPUs that its torch has code for."""
    whole = built(stack, cuda)
    yield Row(f"{whole.name} {whole.torch}, CUDA {cuda}", whole.bytes, 0, sif_of(whole), load(whole))
    for gpu in gpus:
        capability = gpu_table.compute_capability(gpu)
        if not facts.torch_runs_on(whole.torch, whole.torch_cuda, capability):
            continue
        cut = built(stack, cuda, "--gpu", gpu, "--slim", "all")
        zeros = sum(one.bytes for layer in cut.layers for one in layer.cut)
        told = alike(programs(whole, capability), programs(cut, capability))
        yield Row(f"for {gpu.upper()}", cut.bytes, zeros, sif_of(cut), load(cut), told)


def load(report: BuildReport) -> str:
    """Count the libraries that load inside of an image."""
    return run(report, "python", "-c", LOAD).strip()


def built(stack: str, cuda: str, *options: str) -> BuildReport:
    """Build an image without its suites, which a whole build runs."""
    reference = call(*BUILD, "image", stack, "--cuda", cuda, "--no-smoke", *options).strip()
    return find_image(reference.partition("@")[0], Path("dist"))[1]


def sif_of(report: BuildReport) -> int:
    """Bytes of its SIF."""
    path = Path(call(*BUILD, "convert", report.image, "--to", "sif", "--force").strip())
    size = path.stat().st_size
    path.unlink()
    return size


def run(report: BuildReport, *command: str) -> str:
    """stdout of a command inside of the image."""
    return call(*BUILD, "run", report.image, "--", *command)


def call(*command: str) -> str:
    """stdout of a program that has to end well."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def programs(report: BuildReport, capability: str) -> dict[str, int]:
    """Count programs of exactly this capability that cuobjdump lists in each library of an image that it can read."""
    architecture = f"sm_{capability.replace('.', '')}"
    listed: dict[str, int] = json.loads(run(report, "python", "-c", LIST, f"/work/{cuobjdump()}", architecture))
    return listed


def alike(whole: Mapping[str, int], cut: Mapping[str, int]) -> str:
    """Compare the listings of both."""
    same = [name for name, count in whole.items() if count and cut.get(name) == count]
    other = [name for name, count in whole.items() if name in cut and cut[name] != count]
    unread = sum(count > 0 and name not in cut for name, count in whole.items())
    if not any(whole.values()):
        return "this cuobjdump lists none for it"
    text = f"{sum(whole[name] for name in same)} in {len(same)} libraries, as in the whole image"
    return text + (f"; {unread} cannot be read" if unread else "") + (f"; **other in {other}**" if other else "")


@functools.cache
def cuobjdump() -> str:
    """NVIDIA's program, from its wheel, below the working folder: the image sees that as /work.

    One that is there as `cuobjdump/cuobjdump` is taken: newer ones know no Volta.
    """
    if (own := Path("cuobjdump", "cuobjdump")).is_file():
        return str(own)
    call(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", "cuobjdump", "nvidia-cuda-cuobjdump")
    (wheel,) = Path("cuobjdump").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("bin/cuobjdump"))
        archive.extract(name, "cuobjdump")
    program = Path("cuobjdump") / name
    program.chmod(0o755)
    return str(program)


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown, with the machine and the date."""
    head = (
        "image",
        "packed MB",
        "of the whole",
        "zeros MB",
        "SIF MB",
        "built in s",
        "loaded with RTLD_NOW",
        "programs",
    )
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    whole = 0
    for row in rows:
        whole = row.packed if not row.zeros else whole
        lines.append(
            f"| {row.what} | {row.packed / 1e6:.0f} | {100 * row.packed / whole:.0f} % | {row.zeros / 1e6:.0f} "
            f"| {row.sif / 1e6:.0f} | {row.loaded} | {row.programs} |"
        )
    return "\n".join([*lines, "", f"{today()}, {machine(Context.here(), on_gpu=False)}.", ""])


if __name__ == "__main__":
    main()
