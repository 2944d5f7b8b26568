"""Measures the GPU code of the wheels in the committed locks, for the test that `explain` and the audit agree.

    python -m tools.locked_code          renews tests/unit/gpu_code_of_locked_wheels.json

Wheels are read from the user's package index by range requests; what the file has of the same bytes is not read
again. A library is kept that has code, or that names one of NVIDIA's: its users decide whether it matters.
"""

import argparse
import sys
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import BinaryIO

import msgspec

from graphcrate.artifacts.tree import binaries
from graphcrate.compat.facts import slim
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.model.errors import GraphcrateError, IntegrityError, ResolutionError
from graphcrate.model.lock import LockedFile, decode_lock
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Link, local_path
from tools.generate import ROOT
from tools.measure_wheel import listed
from tools.ranged_file import RangedFile
from tools.wheel_contents import CHUNK
from treeaudit.values import GpuCode

MEASURED = ROOT / "tests" / "unit" / "gpu_code_of_locked_wheels.json"


class Library(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A library of a wheel: its GPU code, and the libraries of NVIDIA's that it links or names."""

    soname: str = ""
    code: GpuCode = GpuCode()
    names: tuple[str, ...] = ()


class Wheel(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel by its bytes; `libraries` by their paths in it."""

    sha256: str
    libraries: Mapping[str, Library]


def locked() -> dict[str, tuple[str, LockedFile]]:
    """File name → (project, file) of each wheel of a committed lock that is not Python alone."""
    found = {}
    for path in sorted((ROOT / "images").glob("*/*/*.lock.json")):
        for package in decode_lock(path.read_bytes()).packages:
            if package.file.name.endswith(".whl") and not package.file.name.endswith("-any.whl"):
                found[package.file.name] = (package.name, package.file)
    return dict(sorted(found.items()))


def known() -> dict[str, Wheel]:
    """Read what was measured so far, by file name."""
    return msgspec.json.decode(MEASURED.read_bytes(), type=dict[str, Wheel]) if MEASURED.exists() else {}


def libraries(stream: BinaryIO) -> Iterator[tuple[str, Library]]:
    """The libraries of a wheel that matter, as the audit reads them."""
    with zipfile.ZipFile(stream) as archive:
        for info in archive.infolist():
            if not binaries.keeps(f"/{info.filename}", info.file_size):
                continue
            with archive.open(info) as member:
                found = binaries.read_binary(iter(partial(member.read, CHUNK), b""), info.filename)
            if found is None:
                continue
            if found.code_fault:
                raise IntegrityError(f"{info.filename}: {found.code_fault}")
            names = {*found.needed, *found.mentions} - {found.soname, PurePosixPath(info.filename).name}
            theirs = sorted(name for name in names if slim.is_nvidias_library(name))
            if found.code != GpuCode() or theirs:
                yield info.filename, Library(soname=found.soname, code=found.code, names=tuple(theirs))


def link_of(sources: Sources, project: str, file: LockedFile) -> Link:
    """Return the index's link to this file. Raises ResolutionError."""
    for link in listed(sources, project):
        if link.name == file.name and link.sha256 in ("", file.sha256):
            return link
    raise ResolutionError(f"the package index has no {file.name}", next_step="./build.py lock --all")


def opened(sources: Sources, link: Link) -> BinaryIO:
    """A wheel of the index, to be read anywhere."""
    if link.url.startswith("file:"):
        return local_path(link.url).open("rb")
    return RangedFile(sources.client, link.url)  # type: ignore[return-value]


def main() -> None:
    """Measure what is not known yet; what was found so far is kept."""
    argparse.ArgumentParser(prog="locked_code", description=(__doc__ or "").split("\n")[0]).parse_args()
    ctx = Context.here()
    sources = Sources(SourceOptions(), ctx.cache, ctx.environment)
    before, wheels = known(), dict[str, Wheel]()
    for name, (project, file) in locked().items():
        if name in before and before[name].sha256 == file.sha256:
            wheels[name] = before[name]
            continue
        with opened(sources, link_of(sources, project, file)) as stream:
            wheels[name] = Wheel(sha256=file.sha256, libraries=dict(libraries(stream)))
        sys.stderr.write(f"{name}: {len(wheels[name].libraries)} libraries\n")
        MEASURED.write_bytes(written(before | wheels))
    MEASURED.write_bytes(written(wheels))


def written(wheels: Mapping[str, Wheel]) -> bytes:
    """The file's bytes: a line for each library."""
    return msgspec.json.format(msgspec.json.encode(dict(sorted(wheels.items()))), indent=1) + b"\n"


if __name__ == "__main__":
    try:
        main()
    except GraphcrateError as error:
        sys.stderr.write(f"locked_code: {error}\n")
        sys.exit(error.exit_code)
