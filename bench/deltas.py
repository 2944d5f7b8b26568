"""Measures what images over one SIF save: bytes beside whole SIFs, equal files, and the bytes that a start reads.

    .venv/bin/python -m bench.deltas BASE PACKAGES … [--whole N] [--folder DIR] [-- options of `image`]

BASE is NAME:TAG below dist/; each of PACKAGES is what `--with` takes, quoted where it is several. Each image is made
twice, as a delta over BASE and as a whole SIF, and `diff` has to find nothing between them but names of images. With
`--whole 5` the first five alone: the SIFs of others, gigabytes each, count as base and delta together. Then
the SIF of BASE and the deltas leave the page cache, and each delta is started by Apptainer with its last package
imported: what that brings into memory of both files is what it read from the disk, on a busy machine too.
Prints a table. Needs apptainer; as a plain user, squashfuse reads, as root the kernel.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from graphcrate.model.plan import VENV
from graphcrate.model.words import size

#: what differs between an image and the same one as its difference: the record of what it is to, and its mark
OURS = ("/.singularity.d",)
IMPORT = """\
import contextlib, importlib, importlib.metadata, sys, torch
imported = 0
for module, names in importlib.metadata.packages_distributions().items():
    if sys.argv[1].lower() in [name.lower().replace("_", "-") for name in names] and module.isidentifier():
        with contextlib.suppress(ImportError):  # lmdb names an extension that is in its package
            importlib.import_module(module)
            imported += 1
sys.exit(not imported)
"""


class Row(NamedTuple):
    """One set of packages, in bytes. `differing`: paths, where both were made.

    `read`: of the base and of the delta, at a start.
    """

    packages: str
    file: Path
    whole: int
    delta: int
    differing: int | None
    read: tuple[int, int] = (0, 0)


def main() -> None:
    own = sys.argv[1:]
    own, more = (own[: own.index("--")], own[own.index("--") + 1 :]) if "--" in own else (own, [])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="NAME:TAG below dist/")
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--folder", type=Path, help="where to work (default: a new folder below TMPDIR)")
    parser.add_argument("--whole", type=int, metavar="N", help="make whole SIFs of the first N only (default: of all)")
    given = parser.parse_args(own)
    if not shutil.which("apptainer"):
        sys.exit("needs apptainer: as root, .venv/bin/python -m tests.engines.install")
    folder = Path(tempfile.mkdtemp(prefix="graphcrate-bench-", dir=given.folder))
    folder.chmod(0o755)
    try:
        base = folder / "base.sif"
        build("convert", given.base, "--to", "sif", "--output", str(base))
        whole = len(given.packages) if given.whole is None else given.whole
        tried = [
            made(base, given.base, packages, folder / f"{number}", more, is_compared=number < whole)
            for number, packages in enumerate(given.packages)
        ]
        rows = [row for row in tried if row]
        for file in folder.glob("*.s*"):
            forget(file)
        rows = [row._replace(read=started(base, row)) for row in rows]
        print("\n".join(table(base.stat().st_size, rows)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build(*words: str) -> str:
    """Return stdout of a command of ours. Raises CalledProcessError; the code of `diff` tells of differences."""
    done = subprocess.run([sys.executable, "-m", "graphcrate.cli.main", *words], stdout=subprocess.PIPE, check=False)
    if not (words[0] == "diff" and done.stdout):
        done.check_returncode()
    return done.stdout.decode()


def made(sif: Path, base: str, packages: str, stem: Path, more: Sequence[str], *, is_compared: bool) -> Row | None:
    """Make an image with these packages as a delta, which stays, and compare it with the whole SIF.

    `sif`: of `base`. None: it does not build.
    """
    request = ("image", base.partition(":")[0], *more, "--with", packages, "--no-smoke", "--engine", "embedded")
    try:
        image = build(*request).strip()
    except subprocess.CalledProcessError:
        sys.stderr.write(f"left out: {packages}\n")
        return None
    delta = stem.with_suffix(".delta.sqsh")
    build("convert", image, "--to", "delta", "--over", base, "--output", str(delta))
    if is_compared:
        whole, differing = compared(image, delta, stem.with_suffix(".whole.sif"))
    else:
        whole, differing = sif.stat().st_size + delta.stat().st_size, None
    row = Row(packages, delta, whole, delta.stat().st_size, differing)
    sys.stderr.write(f"{row}\n")
    return row


def compared(image: str, delta: Path, whole: Path) -> tuple[int, int]:
    """Return the size of the image's whole SIF, made at `whole` for now, and how many paths differ in the delta."""
    build("convert", image, "--to", "sif", "--output", str(whole))
    length = whole.stat().st_size
    found = json.loads(build("diff", str(whole), str(delta), "--strict", "--json"))
    whole.unlink()
    return length, sum(not change["path"].startswith(OURS) for change in found["unexpected"])


def started(base: Path, row: Row) -> tuple[int, int]:
    """Start a delta over the base; return the bytes of each that came into the page cache meanwhile."""
    before = in_memory(base), in_memory(row.file)
    command = ("apptainer", "--silent", "exec", "--cleanenv", "--no-home", "--overlay", f"{row.file}:ro", str(base))
    name = row.packages.split()[-1].partition("[")[0]
    program = [*command, f"{VENV}/bin/python", "-c", IMPORT, name]
    if subprocess.run(program, check=False, stdout=subprocess.DEVNULL, cwd="/").returncode:
        sys.stderr.write(f"not imported: {name}\n")
    # Another program's need of memory may have driven out more.
    return max(in_memory(base) - before[0], 0), max(in_memory(row.file) - before[1], 0)


def in_memory(file: Path) -> int:
    """Return the bytes of a file that are in the page cache."""
    told = subprocess.run(["fincore", "--bytes", "--json", str(file)], check=True, capture_output=True).stdout
    return int(json.loads(told)["fincore"][0]["res"])


def forget(file: Path) -> None:
    """Drop a file from the page cache."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def table(base: int, rows: Sequence[Row]) -> list[str]:
    """The table's lines, with the sums and the part that all deltas are of all whole SIFs."""
    lines = [
        "| packages | whole SIF | delta | paths that differ | read of the base | read of the delta |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.packages} | {size(row.whole)} | {size(row.delta)} | {_differing(row)} | {size(row.read[0])} | "
        f"{size(row.read[1])} |"
        for row in rows
    ]
    whole, delta = sum(row.whole for row in rows), sum(row.delta for row in rows)
    part = f"{delta / whole:.1%} of {size(whole)}, beside a base of {size(base)}"
    return [*lines, f"\n{len(rows)} deltas: {size(delta)}, {part}"]


def _differing(row: Row) -> str:
    return "not compared" if row.differing is None else str(row.differing)


if __name__ == "__main__":
    main()
