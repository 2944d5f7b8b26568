"""Compiled wheels get into the cache: packed anew, judged by their bytes, imported in the image's base."""

import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphcrate.artifacts.wheel import check_tags, open_wheel
from graphcrate.host import sandbox
from graphcrate.inputs.extensions.cache import folder as shelf
from graphcrate.inputs.extensions.import_trial import __file__ as trial_file
from graphcrate.inputs.extensions.job import Job
from graphcrate.inputs.wheels.sdist import repack
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import VENV

_INSIDE = "/tmp/graphcrate-trial"
TIMEOUT = 900.0


def keep(job: Job, made: Mapping[LockedPackage, Path], venv: Path, work: Path) -> dict[str, Path]:
    """Check the wheels that setuptools made and put them into the cache; sdist's sha256 → their place there.

    `venv`: the folder that was /opt/venv; `work`: a folder to make. Raises BuildError for a wheel that cannot work.
    """
    from graphcrate.inputs.extensions.check import check_wheel

    ready: dict[LockedPackage, Path] = {}
    for package, wheel in made.items():
        done = work / package.name / wheel.name
        done.parent.mkdir(parents=True)
        with open_wheel(wheel) as opened:
            repack(opened, done)
        check_tags(wheel.name, job.step.python, job.base.glibc)
        _refuse(package, check_wheel(done, job.step))
        ready[package] = done
    # Importing torch takes longest: all at once, and one by one only to tell whose fault it is.
    if len(ready) < 2 or try_import(job, tuple(ready.values()), venv, work / "trial"):
        for package, done in ready.items():
            _refuse(package, try_import(job, (done,), venv, work / "trial"))
    kept = {}
    for package, done in ready.items():
        target = shelf(package, job.step, job.cache)
        job.cache.adopt(done.parent, target)
        kept[package.file.sha256] = target / done.name
    return kept


def _refuse(package: LockedPackage, findings: Sequence[str]) -> None:
    """Raises BuildError where there are findings."""
    if findings:
        raise BuildError(
            f"{package.name} {package.version} compiled, and would not work in the image: {findings[0]}"
            + "".join(f"\n    {finding}" for finding in findings[1:]),
            cause="It was compiled against something else than the image has, or not for what was asked.",
            next_step="./build.py lock …    (locks compiler, toolkit and torch anew, so that they fit)",
        )


def try_import(job: Job, wheels: Sequence[Path], venv: Path, folder: Path) -> tuple[str, ...]:
    """What happens when the image's Python loads the wheels' libraries, every symbol at once, and their modules."""
    folder.mkdir(mode=0o755)
    shutil.copyfile(trial_file, folder / "trial.py")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:  # opened and checked by now
            archive.extractall(folder / "site")
    try:
        done = sandbox.run_in(
            job.base.rootfs,
            [f"{VENV}/bin/python", "-s", f"{_INSIDE}/trial.py", f"{_INSIDE}/site"],
            environment={"PATH": f"{VENV}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
            binds=[sandbox.Bind(venv, VENV), sandbox.Bind(folder, _INSIDE)],
            timeout=TIMEOUT,
        )
    finally:
        shutil.rmtree(folder)
    if done.returncode == 0:
        return ()
    if done.returncode > 128:
        return (f"Importing it in the image ended by signal {done.returncode - 128}.", *done.lines[-5:])
    if not done.lines:
        names = ", ".join(wheel.name for wheel in wheels)
        raise HostError(f"{names} could not be tried out in the image (exit code {done.returncode})")
    return done.lines[-10:]
