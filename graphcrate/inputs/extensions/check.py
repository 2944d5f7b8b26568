"""Compiled wheels get into the cache: repacked, judged by their bytes, imported in the image's base."""

import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphcrate.artifacts.formats import elf, fatbin
from graphcrate.artifacts.formats.fatbin import Code
from graphcrate.artifacts.wheel import Wheel, check_tags, open_wheel
from graphcrate.artifacts.wheel_archive import Member
from graphcrate.compat.facts import ordered
from graphcrate.host import sandbox
from graphcrate.inputs.extensions import Job, import_check
from graphcrate.inputs.extensions import folder as cache_folder
from graphcrate.inputs.wheels.sdist import repack
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import VENV, CompileStep
from graphcrate.model.words import joined

_LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")
_TORCH = re.compile(r"lib(c10|torch)[a-z_]*\.so")
_INSIDE = "/tmp/graphcrate-trial"
TIMEOUT = 900.0


def check_wheel(wheel: Path, step: CompileStep) -> tuple[str, ...]:
    """List, as sentences, what keeps the wheel from working (loading is `import_check`'s). Raises IntegrityError.

    A library has just the GPU code that was asked for, and the wheel has some.
    """
    asked = asked_code(step.compilation.architectures)
    findings: list[str] = []
    libraries, any_code, for_torch = 0, False, False
    with open_wheel(wheel) as opened:
        for member in opened.members:
            if not _LIBRARY.search(member.name):
                continue
            libraries += 1
            needed, code = _read(opened, member)
            if code not in (Code(), asked):
                findings.append(f"{member.name} has GPU code for {_in_words(code)}; asked for was {_in_words(asked)}.")
            any_code = any_code or code != Code()
            for_torch = for_torch or any(map(_TORCH.match, needed))
    if not libraries:
        findings.append(f"{wheel.name} has no extension module: nothing was compiled.")
    if step.compilation.architectures and for_torch and not any_code:
        findings.append(
            f"no library has GPU code; asked for was {_in_words(asked)}. It was compiled for the CPU alone."
        )
    return tuple(findings)


def _read(wheel: Wheel, member: Member) -> tuple[Sequence[str], Code]:
    """What a library needs, and its GPU code."""
    # Deflate streams cannot be read at random: unpacked to a nameless file, checked on the way.
    with tempfile.TemporaryFile() as stream:
        for chunk in wheel.archive.chunks(member, wheel.records.get(member.name, "")):
            stream.write(chunk)
        library = elf.read_stream(stream, member.name)
        codes = fatbin.read(stream, library.fat_binaries, member.name) if library.fat_binaries else ()
    return library.needed, fatbin.union(codes)


def asked_code(architectures: Sequence[str]) -> Code:
    """What nvcc makes of TORCH_CUDA_ARCH_LIST: machine code for each entry, and PTX of it where "+PTX" says so."""
    ptx = frozenset(entry.removesuffix("+PTX") for entry in architectures if entry.endswith("+PTX"))
    return Code(sass=frozenset(entry.removesuffix("+PTX") for entry in architectures), ptx=ptx)


def _in_words(code: Code) -> str:
    parts = [*ordered(code.sass), *(f"{name} (PTX)" for name in ordered(code.ptx))]
    return joined(parts, most=len(parts)) if parts else "no GPU"


def keep(job: Job, made: Mapping[LockedPackage, Path], venv: Path, work: Path) -> dict[str, Path]:
    """Check the wheels that setuptools made and put them into the cache; sdist's sha256 → their place there.

    `venv`: the folder that was /opt/venv; `work`: a folder to make. Raises BuildError for a wheel that cannot work.
    """
    ready: dict[LockedPackage, Path] = {}
    findings: dict[LockedPackage, tuple[str, ...]] = {}
    for package, wheel in made.items():
        done = work / package.name / wheel.name
        done.parent.mkdir(parents=True)
        with open_wheel(wheel) as opened:
            repack(opened, done)
        check_tags(wheel.name, job.step.python, job.base.glibc)
        findings[package] = check_wheel(done, job.step)
        ready[package] = done
    # Importing torch takes longest: all at once, and one by one only to tell whose fault it is.
    if not any(findings.values()) and (len(ready) < 2 or try_import(job, tuple(ready.values()), venv, work / "trial")):
        for package, done in ready.items():
            findings[package] += try_import(job, (done,), venv, work / "trial")
    for package, (first, *others) in {package: found for package, found in findings.items() if found}.items():
        raise BuildError(
            f"{package.name} {package.version} compiled, and would not work in the image: {first}"
            + "".join(f"\n    {finding}" for finding in others),
            cause="It was compiled against something else than the image has, or not for what was asked.",
            next_step="./build.py lock …    (locks compiler, toolkit and torch again, so that they fit)",
        )
    kept = {}
    for package, done in ready.items():
        target = cache_folder(package, job.step, job.cache)
        job.cache.adopt(done.parent, target)
        kept[package.file.sha256] = target / done.name
    return kept


def try_import(job: Job, wheels: Sequence[Path], venv: Path, folder: Path) -> tuple[str, ...]:
    """What happens when the image's Python loads the wheels' libraries, every symbol at once, and their modules."""
    folder.mkdir(mode=0o755)
    shutil.copyfile(import_check.__file__, folder / "trial.py")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:  # opened and checked by now
            archive.extractall(folder / "site")
    try:
        command = sandbox.Exec(
            [f"{VENV}/bin/python", "-s", f"{_INSIDE}/trial.py", f"{_INSIDE}/site"],
            {"PATH": f"{VENV}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
            [sandbox.Bind(venv, VENV), sandbox.Bind(folder, _INSIDE)],
            timeout=TIMEOUT,
        )
        done = sandbox.run_in(job.base.rootfs, command)
    finally:
        shutil.rmtree(folder)
    if done.returncode == 0:
        return ()
    if done.returncode > 128:
        return (f"Importing it in the image ended by signal {done.returncode - 128}.", *done.lines[-5:])
    if not done.lines:
        names = ", ".join(wheel.name for wheel in wheels)
        raise HostError(
            f"{names} could not be tried out in the image (exit code {done.returncode})",
            next_step="unshare -Ur true    says whether user namespaces work here",
        )
    return done.lines[-10:]
