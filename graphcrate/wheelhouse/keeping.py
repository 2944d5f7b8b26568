"""A compiled wheel gets into the cache: packed anew, judged by its bytes, imported in the image's base."""

import shutil
import zipfile
from pathlib import Path

from graphcrate.errors import BuildError, HostError
from graphcrate.host import sandbox
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import VENV
from graphcrate.wheelhouse.job import Job
from graphcrate.wheelhouse.shelf import folder as shelf
from graphcrate.wheelhouse.trial import __file__ as trial_file
from graphcrate.wheels.sdist import repack
from graphcrate.wheels.wheel import check_tags, open_wheel

_INSIDE = "/tmp/graphcrate-trial"
TIMEOUT = 900.0


def keep(job: Job, package: LockedPackage, made: Path, venv: Path, work: Path) -> Path:
    """Check the wheel that setuptools made and put it into the cache; its place there.

    `venv`: the folder that was /opt/venv; `work`: a folder to make. Raises BuildError for a wheel that cannot work.
    """
    from graphcrate.wheelhouse.check import check_wheel

    (done := work / "done").mkdir(parents=True)
    with open_wheel(made) as wheel:
        repack(wheel, done / made.name)
    check_tags(made.name, job.step.python, job.base.glibc)
    findings = check_wheel(done / made.name, step=job.step, site=venv, rootfs=job.base.rootfs)
    findings = findings or try_import(job, package, done / made.name, venv, work / "trial")
    if findings:
        raise BuildError(
            f"{package.name} {package.version} compiled, and would not work in the image: {findings[0]}"
            + "".join(f"\n    {finding}" for finding in findings[1:]),
            cause="It was compiled against something else than the image has, or not for what was asked.",
            next_step="./build.py lock …    (locks compiler, toolkit and torch anew, so that they fit)",
        )
    target = shelf(package, job.step, job.cache)
    job.cache.adopt(done, target)
    return target / made.name


def try_import(job: Job, package: LockedPackage, wheel: Path, venv: Path, folder: Path) -> tuple[str, ...]:
    """What happens when the image's Python loads the wheel's libraries, every symbol at once, and its modules."""
    folder.mkdir(mode=0o755)
    shutil.copyfile(trial_file, folder / "trial.py")
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
        raise HostError(f"{package.name} could not be tried out in the image (exit code {done.returncode})")
    return done.lines[-10:]
