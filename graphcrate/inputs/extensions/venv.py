"""What is compiled against, unpacked: torch with all that its import needs, and the tools, as the image's `/opt/venv`.

Five gigabytes for torch with CUDA, of use while something is compiled and for no longer: a temporary folder, filled by
as many processes as there are cores.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphcrate.artifacts.wheel import open_wheel
from graphcrate.host.progress import Progress
from graphcrate.host.workers import Advance, Pool
from graphcrate.inputs.wheels.install import Site, place
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import LAYER_MTIME, VENV

#: Unpacked over packed size: 1.94 was measured for torch 2.0.1 with its CUDA libraries.
GROWTH = 2.2
#: what neither a compile nor an import reads; but for static libraries
_UNREAD = "/site-packages/torch/test/"


def room(packages: Sequence[LockedPackage]) -> int:
    """Bytes that these wheels take unpacked, roughly."""
    return int(sum(package.file.size for package in packages) * GROWTH)


def make(
    folder: Path,
    packages: Sequence[LockedPackage],
    files: Mapping[str, Path],
    python: str,
    *,
    jobs: int,
    progress: Progress,
) -> None:
    """Make the virtual environment of `python` (path inside the image) with these wheels in `folder`.

    `files`: sha256 → wheel. Raises IntegrityError for a broken wheel.
    """
    version = Path(python).name.removeprefix("python")
    site = Site(python=version, glibc="", mtime=LAYER_MTIME)
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(python)
    (folder / "pyvenv.cfg").write_text(f"home = {Path(python).parent}\ninclude-system-site-packages = false\n")
    total = sum(package.file.size for package in packages)
    with progress.task("unpacking torch to compile against", total) as task, Pool(jobs, task.advance) as pool:
        for package in packages:
            pool.submit(package.file.size, unpack, files[package.file.sha256], folder, site)
        for _ in pool.results():
            pass


def unpack(advance: Advance, wheel: Path, folder: Path, site: Site) -> None:
    """Put a wheel's files below `folder`, which stands for `/opt/venv`. Content is checked while it is written."""
    with open_wheel(wheel) as opened:
        for placed in place(opened, site).files:
            path = placed.path
            if placed.member is not None:
                advance(placed.member.packed)
            if path.endswith(".a") or _UNREAD in path:
                continue
            target = folder / path.removeprefix(f"{VENV}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as stream:
                if placed.member is None:
                    stream.write(placed.content)
                else:
                    for chunk in opened.archive.chunks(placed.member, placed.identity):
                        stream.write(chunk)
                os.fchmod(stream.fileno(), placed.mode)
