"""Compiled wheels get into the cache: repacked, and loaded in the image's base. All else is the image's audit's."""

import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

from graphcrate.artifacts.formats import elf
from graphcrate.artifacts.wheel import check_tags, open_wheel
from graphcrate.host import sandbox
from graphcrate.inputs.extensions import Job, import_check
from graphcrate.inputs.extensions import folder as cache_folder
from graphcrate.inputs.wheels.sdist import repack
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import VENV

_LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")
_INSIDE = "/tmp/graphcrate-trial"
TIMEOUT = 900.0


def keep(job: Job, made: Mapping[LockedPackage, Path], venv: Path, build: Path) -> dict[str, Path]:
    """Check the wheels that setuptools made and put them into the cache; sdist's sha256 → their place there.

    `venv`: the folder that was /opt/venv; `build`: with the sources. Raises BuildError for a wheel that cannot work.
    """
    checked = build / "checked"
    site = checked / "trial" / "site"
    ready: dict[LockedPackage, Path] = {}
    complaints: list[str] = []
    for package, wheel in made.items():
        check_tags(wheel.name, job.step.python, job.base.glibc)
        ready[package] = checked / package.name / wheel.name
        ready[package].parent.mkdir(parents=True)
        with open_wheel(wheel) as opened:
            repack(opened, ready[package])
        with zipfile.ZipFile(ready[package]) as archive:
            archive.extractall(site)
            libraries = [site / name for name in archive.namelist() if _LIBRARY.search(name)]
        # The one fault that neither an import nor the audit can see: a setup.py that looks for a GPU finds none here.
        kernels = any((build / f"{package.name}-{package.version}").rglob("*.cu"))
        if job.step.compilation.architectures and kernels and not any(map(_has_gpu_code, libraries)):
            complaints.append(f"{package.name} has CUDA sources and no GPU code: it was compiled for the CPU alone.")
    if complaints := complaints or _import(job, venv, site.parent):
        names = ", ".join(f"{package.name} {package.version}" for package in made)
        raise BuildError(
            f"{names} compiled, and would not work in the image: " + "\n    ".join(complaints),
            cause="It was compiled against something else than the image has, or not for what was asked.",
            next_step="./build.py lock …    (locks compiler, toolkit and torch again, so that they fit)",
        )
    kept = {}
    for package, wheel in ready.items():
        target = cache_folder(package, job.step, job.cache)
        job.cache.adopt(wheel.parent, target)
        kept[package.file.sha256] = target / wheel.name
    return kept


def _has_gpu_code(library: Path) -> bool:
    with library.open("rb") as stream:
        return elf.read_stream(stream, library.name).fat_binaries is not None


def _import(job: Job, venv: Path, folder: Path) -> list[str]:
    """What happens when the image's Python loads the libraries in `folder`, every symbol at once, and their modules."""
    shutil.copyfile(import_check.__file__, folder / "trial.py")
    command = sandbox.Exec(
        [f"{VENV}/bin/python", "-s", f"{_INSIDE}/trial.py", f"{_INSIDE}/site"],
        {"PATH": f"{VENV}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
        [sandbox.Bind(venv, VENV), sandbox.Bind(folder, _INSIDE)],
        timeout=TIMEOUT,
    )
    done = sandbox.run_in(job.base.rootfs, command)
    if done.returncode == 0:
        return []
    if done.returncode > 128:
        return [f"Importing it in the image ended by signal {done.returncode - 128}.", *done.lines[-5:]]
    if not done.lines:
        raise HostError(
            f"what was compiled could not be tried out in the image (exit code {done.returncode})",
            next_step="unshare -Ur true    says whether user namespaces work here",
        )
    return [*done.lines[-10:]]
