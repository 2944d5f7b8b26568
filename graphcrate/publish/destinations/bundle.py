"""A bundle: one archive with an image, its SIF, and graphcrate itself with the Python packages that it runs on.

Where it is unpacked nothing comes from a network: `tools/prepare` takes the wheels beside it.
"""

import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from packaging.requirements import Requirement

from graphcrate.artifacts.conversion.job import created_of
from graphcrate.artifacts.formats import docker_archive
from graphcrate.host import arguments, process, settings
from graphcrate.host.context import Context
from graphcrate.host.disk import trees
from graphcrate.host.disk.atomic import synced, temporary_folder
from graphcrate.host.disk.space import require_room
from graphcrate.model.errors import HostError, NetworkError, UsageError
from graphcrate.model.platform import Platform
from graphcrate.publish.policy import ImageEvidence
from ocilayout.tar import EntryType, header, padding

SUFFIX = ".bundle.tar"
FOLDER = "graphcrate"  #: in the archive: as a clone has it, without git's history and the tests
WHEELS = "tools/wheels"  #: where tools/prepare looks for them
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_GLIBC = 28  #: minor version: RHEL 8's and Debian 10's, the oldest that have such a Python
_PROGRAM = (
    *("LICENSE", "Makefile", "README.md", "build.py", "requirements.txt", "tools/prepare", "tools/prepare.py"),
    *("docs", "doctor", "examples", "graphcrate", "images", "packages", "recipes", "suites", "targets"),
)
_CHUNK = 4 << 20


def require_program(ctx: Context) -> None:
    """Raise UsageError in an installed package, which has no folder that could be carried."""
    if not ctx.is_checkout:
        raise UsageError(
            "a bundle carries graphcrate's folder, and an installed package has none",
            next_step="publish it from a clone of the project; or carry the image alone: --as oci-archive",
        )


def write(target: Path, image: ImageEvidence, sif: Path, ctx: Context) -> None:
    """Write the archive; an error may leave a part of it.

    Raises NetworkError for packages that are not fetched, LayoutError, DiskFullError.
    """
    require_room(target.absolute().parent, image.layout.size + sif.stat().st_size, target)
    with temporary_folder("graphcrate-wheels-") as wheels:
        _fetch(ctx, image.layout.platform, wheels)
        files = {
            **_program(ctx.root),
            **{f"{WHEELS}/{path.name}": path for path in sorted(wheels.glob("*.whl"))},
            **_beside(image, sif),
        }
        size = image.layout.size + sum(path.stat().st_size for path in files.values())
        created = created_of(image.layout)
        with (
            synced(target) as stream,
            ctx.progress.task("writing the bundle", size) as task,
        ):
            for name, path in files.items():
                task.advance(_file(stream, f"{FOLDER}/{name}", path, created))
            docker_archive.write_oci(stream, image.layout, created, task.advance, f"{FOLDER}/{_place(image)}/oci/")


def for_python(requirements: str, python: str, machine: str) -> Iterator[str]:
    """Yield the lines of a pinned list that such a Linux takes, without the condition that says so."""
    version = {"python_version": python, "python_full_version": f"{python}.0"}
    about = {"implementation_name": "cpython", "platform_python_implementation": "CPython", "sys_platform": "linux"}
    for line in re.sub(r"\\\n", " ", requirements).splitlines():
        pinned, *hashes = line.partition("#")[0].split(" --hash=")
        if not pinned.strip():
            continue
        requirement = Requirement(pinned.strip())
        if requirement.marker is None or requirement.marker.evaluate({**version, **about, "platform_machine": machine}):
            yield " ".join(
                (f"{requirement.name}{requirement.specifier}", *(f"--hash={digest.strip()}" for digest in hashes))
            )


def _fetch(ctx: Context, platform: Platform, folder: Path) -> None:
    """Fetch the wheels for each Python, by the pip that we run on and the user's own settings of it."""
    pinned, asked = (ctx.root / "requirements.txt").read_text(encoding="utf-8"), folder / "asked.txt"
    tags = [tag for minor in range(_GLIBC, platform.oldest_glibc - 1, -1) for tag in platform.manylinux(minor)]
    with ctx.progress.task("fetching graphcrate's own packages", len(PYTHONS), "Pythons") as task:
        for python in PYTHONS:
            asked.write_text("\n".join(for_python(pinned, python, platform.machine)), encoding="utf-8")
            pip = (
                sys.executable,
                "-I",
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-input",
            )
            chosen = ("--no-deps", "--require-hashes", "--only-binary=:all:", "--implementation=cp")
            places = (f"--python-version={python}", f"--dest={folder}", f"--requirement={asked}")
            line = arguments.line(*pip, *chosen, *(f"--platform={tag}" for tag in tags), *places)
            done = process.run(line, environment=settings.select_for_child(ctx.environment), timeout=900)
            if done.returncode:
                _refuse_unfetched(python, done.lines)
            task.advance(1)


def _refuse_unfetched(python: str, lines: Sequence[str]) -> None:
    errors = [line for line in lines if line.startswith("ERROR")] or list(lines)
    raise NetworkError(
        f"pip fetches no packages of graphcrate's own for Python {python}",
        cause="; ".join(errors[-2:]) or "pip says nothing",
        next_step="the same command where its index is reached (PIP_INDEX_URL names yours); "
        "or carry the image alone: --as oci-archive",
    )


def _program(root: Path) -> Mapping[str, Path]:
    """Return graphcrate's own files by their names below its folder, without what Python and others keep there."""
    files = {}
    for top in _PROGRAM:
        path = root / top
        for file in [path] if path.is_file() else sorted(trees.files(path)):
            name = file.relative_to(root)
            if file == path or not (file.is_symlink() or any(part.startswith((".", "__py")) for part in name.parts)):
                files[str(name)] = file
    return files


def _beside(image: ImageEvidence, sif: Path) -> Mapping[str, Path]:
    """Return what the image's folder has of its build and its tests, and its SIF where `convert` looks for it."""
    folder, place = image.layout.path.parent, _place(image)
    beside = sorted([*folder.glob("*.json"), *folder.glob("report.html"), *folder.glob("passes/*.json")])
    return {**{f"{place}/{path.relative_to(folder)}": path for path in beside}, f"{place}/{sif.name}": sif}


def _place(image: ImageEvidence) -> str:
    return f"dist/{image.report.name}/{image.report.tag}"


def _file(stream: IO[bytes], name: str, path: Path, created: int) -> int:
    """Write one file and return its size. Raises HostError for one that becomes shorter meanwhile."""
    with path.open("rb") as reading:
        status = os.fstat(reading.fileno())
        mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        stream.write(header(name, EntryType.FILE, mode=mode, mtime=created, size=status.st_size))
        left = status.st_size
        while left and (chunk := reading.read(min(_CHUNK, left))):
            stream.write(chunk)
            left -= len(chunk)
    if left:
        raise HostError(f"{path} became shorter while it was read", next_step="the same command once more")
    stream.write(padding(status.st_size))
    return status.st_size
