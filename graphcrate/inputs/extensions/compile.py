"""Compile what the cache lacks, in one temporary folder that is always removed, and keep what can be loaded.

For which GPUs the code is, and whether the image has what a library needs, is the question of the image's audit.
"""

import contextlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphcrate.artifacts.formats.translated import integrity_errors
from graphcrate.artifacts.wheel import check_tags, open_wheel
from graphcrate.compat.facts.compilers import CROSS, SECONDS, STAND_INS, folder_for, variables
from graphcrate.compat.failures import compiling
from graphcrate.compat.failures.failure import CompileFailure
from graphcrate.compat.failures.first_error import first_error
from graphcrate.host import settings
from graphcrate.host.disk import trees
from graphcrate.host.disk.trees import remove_tree
from graphcrate.host.memory import free_memory
from graphcrate.host.process import SilenceError
from graphcrate.host.sandbox import beneath, sandbox
from graphcrate.host.sandbox.steps import Step
from graphcrate.host.workers import Advance, Pool
from graphcrate.inputs import making
from graphcrate.inputs.extensions import (
    SILENCE,
    CompileError,
    CompileJob,
    back_end,
    ground,
    import_check,
    worker,
)
from graphcrate.inputs.extensions.ground import Ground
from graphcrate.inputs.extensions.libraries import library_order, package_order, used
from graphcrate.inputs.extensions.output import Watcher
from graphcrate.inputs.wheels.install import place
from graphcrate.inputs.wheels.sdist_archive import check_sdist
from graphcrate.inputs.wheels.wheel_build import repack
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.lock import Compilation, LockedPackage
from graphcrate.model.plan import BUILD, CUDA_HOME, LAYER_MTIME, VENV
from graphcrate.model.words import in_lines, visible
from nsbox.box import Bind
from treeaudit import elf

#: Most that compiling one file with torch's headers takes: 2.6 GB was measured for nvcc's cicc, 1.5 for cc1plus.
MEMORY_PER_JOB = 3_000_000_000
#: what sources, objects and wheels of one package take at most
_ROOM_PER_PACKAGE = 500_000_000
#: Unpacked over packed size: 1.94 was measured for torch 2.0.1 with its CUDA libraries.
_GROWTH = 2.2
#: what neither a compile nor an import reads; but for static libraries
_UNREAD = "/site-packages/torch/test/"
_PROGRAM, _ORDERS, _HEADERS = "worker.py", "orders.json", "headers"
_LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")
_TRIAL = "/tmp/graphcrate-trial"  #: the wheels are here while they are loaded
_TRIAL_SECONDS = 900.0
_SLOWER = 3  #: an emulator imports torch in a minute of a processor of its own


def provide(job: CompileJob) -> dict[str, Path]:
    """The wheels of the step's sdists by the sdists' sha256, from the cache or compiled now.

    Raises BuildError (finished wheels stay in the cache), DiskFullError, HostError.
    """
    with job.cache.exclusively("wheelhouse"):
        wheels = job.made  # another process may have made them meanwhile
        if absent := [package for package in job.step.packages if package.file.sha256 not in wheels]:
            wheels |= _make(job, absent)
    return wheels


def _make(job: CompileJob, absent: Sequence[LockedPackage]) -> dict[str, Path]:
    # The tools are of the versions that compiling needs, not of the image's.
    beside = {package.name: package for package in (*job.step.against, *job.step.compilation.tools)}
    # Of layers that are unpacked, files have a second name, which takes nothing.
    new = job.step.compilation.tools if job.unpacked() else beside.values()
    room = int(sum(package.file.size for package in new) * _GROWTH)
    job.cache.require(room + _ROOM_PER_PACKAGE * len(absent), "compiling extensions")
    with job.cache.folder() as work:
        venv, build = work / "venv", work / "build"
        make_venv(job, venv, [*beside.values()])
        for path, lines in STAND_INS.items():
            header = build / _HEADERS / path
            header.parent.mkdir(parents=True, exist_ok=True)
            header.write_text(in_lines(lines))
        side_by_side = [package for package in absent if not package.back_end]
        made = {}
        if side_by_side:
            place = ground.prepare(job.step.compilation, job.base, job.build_base, job.files, work / "headers")
            watcher, begin = Watcher([package.name for package in side_by_side], job.progress), settings.now()
            compiled = _compile(job, side_by_side, build, venv, place, watcher)
            made = keep(job, compiled, venv, build)
            _note(job, side_by_side, settings.now() - begin, watcher.weights)
        for package in absent:
            if package.back_end:
                alone, requirements = work / package.name / "build", None
                if package.isolated:
                    requirements = work / package.name / "requirements"
                    requirements.mkdir(parents=True)  # that it asks for nothing is no fault
                    for item in package.build:
                        unpack_wheel(lambda _: None, job.files[item.file.sha256], requirements, job.step.python)
                begin = settings.now()
                wheel = back_end.build(job, package, alone, venv, environment(job, job.jobs), requirements)
                made |= keep(job, {package: wheel}, venv, alone)
                _note(job, [package], settings.now() - begin, {})
                remove_tree(job.shelves[package.file.sha256].objects)
        return made


def _note(job: CompileJob, packages: Sequence[LockedPackage], seconds: float, weights: Mapping[str, float]) -> None:
    """Note who made the wheels of packages that were compiled side by side: each has its share of the time."""
    total = sum(weights.get(package.name, 1.0) for package in packages) or 1.0
    for package in packages:
        if (wheel := job.shelves[package.file.sha256].made) is not None:
            share = seconds * weights.get(package.name, 1.0) / total
            making.keep(wheel.parent, making.here(round(share, 1)), job.cache)


def make_venv(job: CompileJob, venv: Path, packages: Sequence[LockedPackage]) -> None:
    """Make what is compiled against in `venv`, the image's `/opt/venv`: torch with what its import needs, the tools.

    Five gigabytes for torch with CUDA, where its layers are not unpacked. Raises IntegrityError for a broken wheel.
    """
    python = job.base.python
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(python)
    (venv / "pyvenv.cfg").write_text(f"home = {Path(python).parent}\ninclude-system-site-packages = false\n")
    total = sum(package.file.size for package in packages)
    with job.progress.task("unpacking torch to compile against", total) as task, Pool(job.jobs, task.advance) as pool:
        for package in packages:
            there = job.unpacked() if package in job.step.against else ()
            wheel = job.files[package.file.sha256]
            pool.submit(package.file.size, unpack_wheel, wheel, venv, job.step.python, there)
        for _ in pool.results():
            pass


def unpack_wheel(advance: Advance, wheel: Path, venv: Path, python: str, there: Sequence[Path] = ()) -> None:
    """Put a wheel's files below `venv`, which stands for `/opt/venv`. Content is checked while it is written.

    `there`: layers that are unpacked; a file that this wheel has in one gets a second name, and is not to be changed.
    """
    with open_wheel(wheel) as opened:
        installation = place(opened, python)
        record_path = installation.record_path.removeprefix("/")
        layer = next((layer for layer in there if (layer / record_path).is_file()), None)
        for placed in installation.files:
            advance(placed.member.packed if placed.member else 0)
            if placed.path.endswith(".a") or _UNREAD in placed.path:
                continue
            target = venv / placed.path.removeprefix(f"{VENV}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            member, content = placed.member, placed.content
            if layer is not None and _linked(layer / placed.path.removeprefix("/"), target):
                continue
            # Another wheel's file of this name may be one of a layer: it is replaced, never written to.
            part = target.with_name(f".{target.name}.{os.getpid()}")
            with part.open("wb") as stream:
                stream.writelines(opened.archive.chunks(member, placed.identity) if member else [content])
                os.fchmod(stream.fileno(), placed.mode)
            part.replace(target)
        # cmake's program finds itself by it
        record = venv / installation.record_path.removeprefix(f"{VENV}/")
        record.write_bytes(installation.record((), python, {}))


def _linked(source: Path, target: Path) -> bool:
    """Give a file a second name, unless that is taken; False where there is no such file."""
    try:
        target.hardlink_to(source)
    except FileExistsError:
        return True
    except OSError:  # it is not there, or the disk has no more links of it
        return False
    return True


def environment(job: CompileJob, jobs: int) -> dict[str, str]:
    """Return the environment of compilers: nothing of this machine's."""
    beside = f":{CROSS}/usr/bin" if job.step.compilation.crossed else ""
    return {
        **variables(job.step.compilation),
        "PATH": f"{VENV}/bin:{CUDA_HOME}/bin:/usr/local/bin:/usr/bin:/bin{beside}",
        "MAX_JOBS": str(jobs),  # for a package that starts ninja itself
        "TMPDIR": f"{BUILD}/tmp",  # not /tmp, which is in memory
        # Pages of 2 MB, where the kernel gives them to who asks and glibc is 2.35 or newer: nvcc's programs take
        # gigabytes, and 6 % less processor time so (docs/decisions/wheelhouse.md).
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "SOURCE_DATE_EPOCH": str(LAYER_MTIME),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }


def _compile(
    job: CompileJob,
    packages: Sequence[LockedPackage],
    build: Path,
    venv: Path,
    place: Ground,
    watcher: Watcher | None = None,
) -> dict[LockedPackage, Path]:
    """Package → wheel as setuptools made it. Raises BuildError after the finished ones are in the cache."""
    memory = free_memory()
    jobs = max(1, min(job.jobs, memory // MEMORY_PER_JOB))
    compilation = job.step.compilation
    gpus = f" for {', '.join(compilation.architectures)}" if compilation.architectures else ""
    names = ", ".join(package.name for package in packages)
    job.progress.note(f"compiling {names}{gpus} with {compilation.compiler}: {jobs} files at a time")
    if jobs < job.jobs:
        job.progress.note(
            f"compiling: {memory / 1e9:.1f} GB of memory are free, enough for {jobs} compilers and not for {job.jobs}"
        )
    _lay_out(job, packages, build, jobs)
    binds = [*place.binds, Bind(venv, VENV), Bind(build, BUILD, read_only=False)]
    if job.toolkit is not None:
        binds.append(Bind(job.toolkit, CUDA_HOME))
    watcher = watcher or Watcher([package.name for package in packages], job.progress)
    argv = [f"{VENV}/bin/python", "-s", f"{BUILD}/{_PROGRAM}", f"{BUILD}/{_ORDERS}"]
    read, given = watcher.read, environment(job, jobs)
    command = sandbox.Exec(
        argv, given, binds, cwd=BUILD, silence=SILENCE, on_line=read, step=Step.BUILD, emulator=place.emulator
    )
    hangs: SilenceError | None = None
    try:
        returncode = sandbox.run_in(place.rootfs, command).returncode
    except SilenceError as error:
        returncode, hangs = 1, error
    made = {package: (build / "wheels" / package.name).glob("*.whl") for package in packages}
    wheels = {
        package: wheel
        for package in packages
        if package.name in watcher.built
        for wheel in made[package]
        if beneath.is_plain(wheel, build)
    }
    if returncode != 0 or len(wheels) < len(packages):
        if wheels:
            # What made them worthless would hide why the other one failed.
            with contextlib.suppress(BuildError):
                keep(job, wheels, venv, build)
        if hangs:
            every = tuple(package.name for package in packages)
            raise CompileError(CompileFailure(kind="silent", names=every, seconds=SILENCE), job.step) from hangs
        unfinished = [package for package in packages if package not in wheels] or packages
        blamed = {watcher.failed, *_linked_to(watcher.failed, packages, compilation)}
        failed = next((package for package in packages if package.name in blamed), unfinished[0])
        raise CompileError(_failure(job, failed, build, watcher, returncode), job.step)
    return wheels


def _linked_to(library: str, packages: Sequence[LockedPackage], compilation: Compilation) -> list[str]:
    """Names of the packages that are linked to a library of this name."""
    return [package.name for package in packages if library in used([package], compilation)]


def _lay_out(job: CompileJob, packages: Sequence[LockedPackage], build: Path, jobs: int) -> None:
    """Put the sources, the program that compiles them and its orders into the folder that it works in."""
    for name in ("logs", "tmp", "wheels"):
        (build / name).mkdir()
    compilation = job.step.compilation
    orders: list[dict[str, object]] = [
        {
            "headers": f"{BUILD}/{_HEADERS}" if folder_for(package.name) else "",
            "seconds": SECONDS,
            "name": package.name,
            "sdist": f"{BUILD}/{package.file.name}",
            "folder": f"{BUILD}/{package.name}-{package.version}",
            "log": f"{BUILD}/logs/{package.name}",
            "wheels": f"{BUILD}/wheels/{package.name}",
            **package_order(package.name, compilation),
        }
        for package in packages
    ]
    libraries = used(packages, compilation).values()
    for file in (*(package.file for package in packages), *(source.file for _, source in libraries)):
        check_sdist(job.files[file.sha256], file.name)
        shutil.copyfile(job.files[file.sha256], build / file.name)
    made = [library_order(*library) for library in libraries]
    seeds = compilation.crossed is not None
    written = {"jobs": jobs, "seeds": seeds, "libraries": made, "packages": orders}
    (build / _ORDERS).write_text(json.dumps(written))
    shutil.copyfile(worker.__file__, build / _PROGRAM)


def _failure(job: CompileJob, package: LockedPackage, build: Path, watcher: Watcher, returncode: int) -> CompileFailure:
    """The failure of a package, with all output in one file.

    First what is in no log, then the log of the file that failed, the package's own (setup.py, the linker), others'.
    """
    if returncode < 0 and not watcher.failed:
        return CompileFailure(kind="interrupted", names=(package.name,), signal=-returncode)
    logs = build / "logs"
    order = [logs / f"{package.name}.log", *sorted(logs.glob(f"{package.name}.*log"))]
    if watcher.log:  # named as the program in the sandbox sees it
        order.insert(0, build / watcher.log.removeprefix(f"{BUILD}/"))
    texts = [in_lines(watcher.strays)]
    texts += [
        f"\n=== {log.name}\n{log.read_text(encoding='utf-8', errors='replace')}"
        for log in dict.fromkeys(order)
        if beneath.is_plain(log, build)
    ]
    job.log_folder.mkdir(parents=True, exist_ok=True)
    kept = job.log_folder / f"compile-{package.name}.log"
    variables = "".join(f"{name}={value}\n" for name, value in sorted(environment(job, job.jobs).items()))
    kept.write_text(visible(variables + "".join(texts)), encoding="utf-8")
    killed = "\nKilled\n" if returncode > 128 and not watcher.failed else ""
    line = first_error("".join(texts[:2]) + killed)
    return CompileFailure(kind="compiler", names=(package.name,), lines=(line,), source=watcher.source, log=str(kept))


def keep(job: CompileJob, made: Mapping[LockedPackage, Path], venv: Path, build: Path) -> dict[str, Path]:
    """Check the wheels that setuptools made and put them into the cache; sdist's sha256 → their path there.

    `venv`: the folder that was /opt/venv; `build`: with the sources. Raises CompileError for a wheel that cannot work.
    """
    checked = build.with_name("checked")  # not where what was compiled may write
    site = checked / "trial" / "site"
    ready: dict[LockedPackage, Path] = {}
    alone: list[str] = []
    for package, wheel in made.items():
        check_tags(wheel.name, job.step.python, job.base.glibc, job.base.platform)
        ready[package] = checked / package.name / wheel.name
        ready[package].parent.mkdir(parents=True)
        with open_wheel(wheel) as opened:
            repack(opened, ready[package])
        with zipfile.ZipFile(ready[package]) as archive:
            archive.extractall(site)
            libraries = [site / name for name in archive.namelist() if _LIBRARY.search(name)]
        # The one fault that neither an import nor the audit can see: a setup.py that looks for a GPU finds none here.
        kernels = any(path.suffix == ".cu" for path in trees.files(build / f"{package.name}-{package.version}"))
        if job.step.compilation.architectures and kernels and not any(map(_has_gpu_code, libraries)):
            if package.isolated and not any(map(_links_to_torch, libraries)):  # its build asks for CUDA by an option
                job.progress.warn(compiling.cpu_alone(package.name))
            else:
                alone.append(package.name)
    names = tuple(package.name for package in made)
    if alone:
        raise CompileError(CompileFailure(kind="no GPU code", names=names, lines=tuple(alone)), job.step)
    if complaints := _load(job, venv, site.parent):
        folders = _cuda_folders(venv)
        raise CompileError(
            CompileFailure(kind="loading", names=names, lines=tuple(complaints), folders=folders), job.step
        )
    kept = {}
    for package, wheel in ready.items():
        target = job.shelves[package.file.sha256].wheel
        job.cache.adopt(wheel.parent, target)
        kept[package.file.sha256] = target / wheel.name
    return kept


def _cuda_folders(venv: Path) -> dict[str, list[str]]:
    """Map CUDA's libraries in packages of the image to their folders there. `venv`: the folder that was /opt/venv."""
    folders: dict[str, list[str]] = {}
    for path in venv.glob("lib/python*/site-packages/nvidia/*/lib/*.so*"):
        folders.setdefault(path.name, []).append(f"{VENV}/{path.parent.relative_to(venv)}")
    return folders


def _has_gpu_code(library: Path) -> bool:
    with integrity_errors(), library.open("rb") as stream:
        return elf.read_stream(stream, library.name).fat_binaries is not None


def _links_to_torch(library: Path) -> bool:
    with integrity_errors(), library.open("rb") as stream:
        return any(
            name.startswith(("libtorch", "libc10")) for name in elf.read_stream(stream, library.name).binary.needed
        )


def _load(job: CompileJob, venv: Path, trial: Path) -> list[str]:
    """Load the libraries in `trial` by the image's Python, every symbol at once, and their modules; list failures."""
    shutil.copyfile(import_check.__file__, trial / "trial.py")
    command = sandbox.Exec(
        [f"{VENV}/bin/python", "-s", f"{_TRIAL}/trial.py", f"{_TRIAL}/site"],
        {"PATH": f"{VENV}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},
        [Bind(venv, VENV), Bind(trial, _TRIAL)],
        timeout=_TRIAL_SECONDS * (_SLOWER if job.base.emulator else 1),
        emulator=job.base.emulator,
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
