"""Compiled wheels get into the cache: repacked, judged by their bytes, imported in the image's base."""

import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from graphcrate.artifacts.formats import elf, fatbin
from graphcrate.artifacts.formats.elf import MACHINE, Elf, is_driver
from graphcrate.artifacts.formats.fatbin import Code
from graphcrate.artifacts.wheel import Wheel, check_tags, open_wheel
from graphcrate.artifacts.wheel_archive import Member
from graphcrate.compat.facts import ordered
from graphcrate.host import sandbox
from graphcrate.inputs.extensions.cache import Job
from graphcrate.inputs.extensions.cache import folder as cache_folder
from graphcrate.inputs.extensions.import_check import __file__ as program
from graphcrate.inputs.wheels.sdist import repack
from graphcrate.model.errors import BuildError, HostError, IntegrityError
from graphcrate.model.lock import LockedPackage
from graphcrate.model.plan import VENV, CompileStep
from graphcrate.model.words import joined

_LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")
_TORCH = re.compile(r"lib(c10|torch)[a-z_]*\.so")
_FOR_PYTHON = re.compile(r"\.cpython-(\d)(\d+)[^/]*$")


class _Built(msgspec.Struct, frozen=True, kw_only=True):
    """A library in the wheel. `name`: the member's; `codes`: of each of its fat binaries."""

    name: str
    elf: Elf
    codes: tuple[Code, ...]


def check_wheel(wheel: Path, step: CompileStep) -> tuple[str, ...]:
    """List what keeps the wheel from working, as sentences; nothing for a good one.

    Whether its libraries load is what an import shows (`import_check`). Raises IntegrityError where it is no wheel.
    """
    findings: list[str] = []
    built: list[_Built] = []
    with open_wheel(wheel) as opened:
        for member in opened.members:
            if _LIBRARY.search(member.name):
                try:
                    built.append(_read(opened, member))
                except IntegrityError as error:
                    findings.append(f"{error.what}.")
    if not built and not findings:
        findings.append(f"{wheel.name} has no extension module: nothing was compiled.")
    for one in built:
        findings += [*_form(one, step.python), *_driver(one)]
    return (*findings, *_architectures(built, step.compilation.architectures))


def _read(wheel: Wheel, member: Member) -> _Built:
    # Deflate streams cannot be read at random: unpacked to a nameless file, checked on the way.
    with tempfile.TemporaryFile() as stream:
        for chunk in wheel.archive.chunks(member, wheel.records.get(member.name, "")):
            stream.write(chunk)
        found = elf.read_stream(stream, member.name)
        codes = fatbin.read(stream, found.fat_binaries, member.name) if found.fat_binaries else ()
    return _Built(name=member.name, elf=found, codes=codes)


def _form(one: _Built, python: str) -> Iterator[str]:
    """What no loader, or not this Python, takes at all."""
    if (one.elf.machine, one.elf.type) != (MACHINE, "ET_DYN"):
        yield f"{one.name} is not an x86-64 library: {one.elf.machine}, {one.elf.type}."
    named = _FOR_PYTHON.search(one.name)
    if named and f"{named[1]}.{named[2]}" != python:
        yield f"{one.name} is for Python {named[1]}.{named[2]}; the image has {python}."


def _driver(one: _Built) -> Iterator[str]:
    """What could not be imported where there is no GPU. torch opens the driver's libraries itself."""
    for name in one.elf.needed:
        if is_driver(name):
            yield f"{one.name} needs {name}, which only a machine with NVIDIA's driver has."


def asked_code(architectures: Sequence[str]) -> Code:
    """What nvcc makes of TORCH_CUDA_ARCH_LIST: machine code for each entry, and PTX of it where "+PTX" says so."""
    ptx = frozenset(entry.removesuffix("+PTX") for entry in architectures if entry.endswith("+PTX"))
    return Code(sass=frozenset(entry.removesuffix("+PTX") for entry in architectures), ptx=ptx)


def _architectures(built: Sequence[_Built], architectures: Sequence[str]) -> Iterator[str]:
    """A library must have what was asked for, no less (it could not run) and no more (it grows for nothing).

    Its fat binaries, one per source file, must each have all machine code; what nvcc's linker adds never has PTX.
    """
    asked, any_code = asked_code(architectures), False
    for one in built:
        codes = [code for code in one.codes if code != Code()]
        any_code = any_code or bool(codes)
        whole, partial = fatbin.union(codes), [code for code in codes if code.sass != asked.sass]
        if codes and whole != asked:
            yield f"{one.name} has GPU code for {_in_words(whole)}; asked for was {_in_words(asked)}."
        elif partial:
            yield (
                f"{one.name} has GPU code for {_in_words(partial[0])} only in {len(partial)} of its {len(codes)} "
                f"parts; asked for was {_in_words(asked)}."
            )
    to_torch = [one for one in built if any(map(_TORCH.match, one.elf.needed))]
    if architectures and to_torch and not any_code:
        yield f"no library has GPU code; asked for was {_in_words(asked)}. It was compiled for the CPU alone."


def _in_words(code: Code) -> str:
    parts = [*ordered(code.sass), *(f"{name} (PTX)" for name in ordered(code.ptx))]
    return joined(parts, most=len(parts)) if parts else "no GPU"


_INSIDE = "/tmp/graphcrate-trial"
TIMEOUT = 900.0


def keep(job: Job, made: Mapping[LockedPackage, Path], venv: Path, work: Path) -> dict[str, Path]:
    """Check the wheels that setuptools made and put them into the cache; sdist's sha256 → their place there.

    `venv`: the folder that was /opt/venv; `work`: a folder to make. Raises BuildError for a wheel that cannot work.
    """
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
        target = cache_folder(package, job.step, job.cache)
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
            next_step="./build.py lock …    (locks compiler, toolkit and torch again, so that they fit)",
        )


def try_import(job: Job, wheels: Sequence[Path], venv: Path, folder: Path) -> tuple[str, ...]:
    """What happens when the image's Python loads the wheels' libraries, every symbol at once, and their modules."""
    folder.mkdir(mode=0o755)
    shutil.copyfile(program, folder / "trial.py")
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
