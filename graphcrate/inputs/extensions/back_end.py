"""Compile one source by its own back-end (PEP 517), in the sandbox: for what chooses its compilers' commands itself.

PyG's four extensions are compiled file by file beside one another (`worker`); all others by what their pyproject.toml
names, which starts CMake, meson, or compilers. Sources are always at the same path, so that paths in
binaries are the same. What the user adds is isolated: its build requirements go before what else is there, and
programs of compilers' names stand before the compilers (`launcher`). pyg_lib knows both by CMake's variables alone.
"""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from graphcrate.compat.facts import back_ends, build_environment
from graphcrate.compat.failures.failure import CompileFailure
from graphcrate.compat.failures.first_error import first_error
from graphcrate.host import settings
from graphcrate.host.memory import free_memory
from graphcrate.host.process import SilenceError
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox import beneath, sandbox
from graphcrate.host.sandbox.steps import Step
from graphcrate.inputs.extensions import SILENCE, CompileError, CompileJob, back_end_program, launcher
from graphcrate.inputs.extensions.output import SECONDS
from graphcrate.inputs.wheels.sdist import read_sdist
from graphcrate.inputs.wheels.sdist_archive import check_sdist
from graphcrate.model.lock import Compilation, LockedPackage
from graphcrate.model.plan import BUILD, BUILD_REQUIREMENTS, CUDA_HOME, VENV, site_packages
from graphcrate.model.words import listed, visible
from nsbox.box import Bind

#: Most that compiling one file takes: 3.4 GB is what cutlass's kernels for one GPU take of nvcc's cicc.
MEMORY_PER_JOB = 4_000_000_000
MEMORY_WITHOUT_CUDA = 1_500_000_000  #: of cc1plus with torch's headers, as measured for `compile.MEMORY_PER_JOB`
_LAUNCHER, _PROGRAM, _ORDERS = "launcher.py", "back_end.py", "orders.json"
_LIBRARIES, _HEADERS = launcher.LIBRARIES, "headers"  #: of CUDA, from the image's packages
_TOOLKIT = "cuda"  #: the toolkit with our nvcc
_CRATES, _CARGO = "crates", "cargo"  #: folders of what was unpacked, and of cargo's configuration
_LEFT_OUT_SIZE = 1 << 20  #: bytes of that list which are read: it is where what is built may write
#: as ninja counts its steps
_STEP = re.compile(r"\[(\d+)/(\d+)\] ")


def build(
    job: CompileJob,
    package: LockedPackage,
    folder: Path,
    venv: Path,
    given: Mapping[str, str],
    requirements: Path | None = None,
) -> Path:
    """The wheel of a source as its back-end made it, below `folder`, which is new.

    `venv`: what is compiled against; `given`: the variables that all compiles see; `requirements`: the build
    requirements of an isolated package. Raises CompileError with the first error of a compiler, IntegrityError for a
    broken archive.
    """
    compilation = job.step.compilation
    memory = MEMORY_PER_JOB if compilation.toolkit or not package.isolated else MEMORY_WITHOUT_CUDA
    jobs = max(1, min(job.jobs, free_memory() // memory))
    gpus = f" for {', '.join(compilation.architectures)}" if compilation.architectures else ""
    job.progress.note(
        f"compiling {package.name} {package.version}{gpus} by its own back-end with {compilation.compiler}: "
        f"{jobs} at a time"
    )
    _lay_out(job, package, folder)
    binds = [Bind(venv, VENV), Bind(folder, BUILD, read_only=False)]
    if job.toolkit is not None:
        binds.append(Bind(job.toolkit, CUDA_HOME))
    argv = [f"{VENV}/bin/python", "-s", f"{BUILD}/{_PROGRAM}", f"{BUILD}/{_ORDERS}"]
    variables = environment(given, compilation.architectures, jobs)
    if requirements is not None:
        binds.append(Bind(requirements, BUILD_REQUIREMENTS))
        finished = job.shelves[package.file.sha256].objects
        finished.mkdir(exist_ok=True)
        binds.append(Bind(finished, f"{BUILD}/{launcher.FINISHED}", read_only=False))
        variables |= isolated(variables, job.step.python, compilation)
        if package.rust:
            variables |= for_cargo(jobs)
        there = site_packages(job.step.python, BUILD_REQUIREMENTS)
        variables = build_environment.of_step(variables, [package], compilation, requirements=there)
    job.log_folder.mkdir(parents=True, exist_ok=True)
    log = job.log_folder / f"compile-{package.name}.log"
    with log.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{name}={value}\n" for name, value in sorted(variables.items()))
        reader = Reader(package.name, stream, job.progress)
        command = sandbox.Exec(argv, variables, binds, cwd=BUILD, silence=SILENCE, on_line=reader.read, step=Step.BUILD)
        try:
            returncode = sandbox.run_in(job.build_base.rootfs, command).returncode
        except SilenceError as error:
            silent = CompileFailure(kind="silent", names=(package.name,), seconds=SILENCE, log=str(log))
            raise CompileError(silent, job.step) from error
    wheels = [path for path in (folder / "wheels").glob("*.whl") if beneath.is_plain(path, folder)]
    if returncode != 0 or len(wheels) != 1:
        raise CompileError(_failure(package, log, returncode), job.step)
    log.unlink()
    if left_out := _left_out(folder):
        job.progress.note(f"{package.name}: compiled without {listed(left_out)}, so that it runs on other processors")
    return wheels[0]


def environment(given: Mapping[str, str], architectures: tuple[str, ...], jobs: int) -> dict[str, str]:
    """Return variables of a back-end besides those of all compiles: CMake's own, for every project that it builds."""
    tools = [
        f"CMAKE_{language}_{kind}_LAUNCHER" for language in ("C", "CXX", "CUDA") for kind in ("COMPILER", "LINKER")
    ]
    libraries = f"{BUILD}/{_LIBRARIES}"
    made = {
        **given,
        "MAX_JOBS": str(jobs),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(jobs),
        "TMPDIR": f"{BUILD}/tmp",  # not /tmp, which is in memory
        # What is looked for and not used is not linked to: libcuda is on machines with a GPU alone.
        "LDFLAGS": f"{given.get('LDFLAGS', '')} -Wl,--as-needed".strip(),
        "CMAKE_LIBRARY_PATH": libraries,
        "LIBRARY_PATH": libraries,  # so that CMake takes it for one of the compiler's own folders, and not into RUNPATH
        **dict.fromkeys(tools, f"{BUILD}/{_LAUNCHER}"),
    }
    if architectures:
        made["CUDAARCHS"] = ";".join(map(_for_cmake, architectures))
    return made


def isolated(given: Mapping[str, str], python: str, compilation: Compilation) -> dict[str, str]:
    """Return what changes where a package has its own build requirements, and compilers are found by their names."""
    compilers = f"{BUILD}/{back_end_program.COMPILERS}"
    made = {
        "PATH": f"{compilers}:{BUILD_REQUIREMENTS}/bin:{given['PATH']}",
        "PYTHONPATH": site_packages(python, BUILD_REQUIREMENTS),
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # CMake 4 refuses projects for an older CMake, unless it is asked
        "SKBUILD_BUILD_DIR": f"{BUILD}/cmake",  # scikit-build-core's would have another name each time
    }
    if "make" not in compilation.besides:  # CMake's own generator is for make, and is kept where that is asked for
        made["CMAKE_GENERATOR"] = "Ninja"
    if compilation.toolkit is None:
        return made
    toolkit, headers = f"{BUILD}/{_TOOLKIT}", f"{BUILD}/{_HEADERS}"  # these after all that a compile names itself
    made |= {"CUDA_HOME": toolkit, "PYTORCH_NVCC": f"{toolkit}/bin/nvcc", "PATH": f"{toolkit}/bin:{made['PATH']}"}
    return made | {"CPATH": headers, "CMAKE_INCLUDE_PATH": headers}


def for_cargo(jobs: int) -> dict[str, str]:
    """Return cargo's environment: crates come from where its configuration says, and bytes are the same each time.

    Without `--locked`: it refuses what many archives have, a Cargo.lock that names crates which they leave out. Where
    cargo writes it again it can only take what was locked.
    """
    return {
        "CARGO_HOME": f"{BUILD}/{_CARGO}",
        "CARGO_NET_OFFLINE": "true",
        "CARGO_BUILD_JOBS": str(jobs),
        "CARGO_INCREMENTAL": "0",
        "CARGO_PROFILE_RELEASE_STRIP": "symbols",  # as the linker does what is C
        "MATURIN_NO_INSTALL_RUST": "1",
        **dict.fromkeys(("RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"), ""),  # a project may have sccache there
    }


def cargo_configuration() -> str:
    """Return the configuration that replaces crates.io by a folder (Source Replacement, in the Cargo book)."""
    return (
        '[source.crates-io]\nreplace-with = "locked"\n'
        f'[source.locked]\ndirectory = "{BUILD}/{_CRATES}"\n[net]\noffline = true\n'
    )


def _left_out(folder: Path) -> list[str]:
    """Options that `launcher` left out, each once, sorted."""
    path = folder / launcher.LEFT_OUT
    if not beneath.is_plain(path, folder):
        return []
    with path.open("rb") as stream:
        words = stream.read(_LEFT_OUT_SIZE).decode(errors="replace").split()
    return sorted({word for word in words if launcher.NATIVE.fullmatch(word)})


def _for_cmake(architecture: str) -> str:
    """ "8.0+PTX" as CMAKE_CUDA_ARCHITECTURES has it: "80"; without PTX "80-real"."""
    number = architecture.replace(".", "")
    return number.removesuffix("+PTX") if number.endswith("+PTX") else f"{number}-real"


def _lay_out(job: CompileJob, package: LockedPackage, folder: Path) -> None:
    """Put the source, the programs and the orders into the folder that it is compiled in."""
    sdist = job.files[package.file.sha256]
    check_sdist(sdist, package.file.name)
    about = read_sdist(sdist, package.file.name)
    (folder / "tmp").mkdir(parents=True)
    shutil.copyfile(sdist, folder / package.file.name)
    shutil.copyfile(back_end_program.__file__, folder / _PROGRAM)
    text = Path(launcher.__file__).read_text(encoding="utf-8")
    (folder / _LAUNCHER).write_text(f"#!{VENV}/bin/python -IS\n{text}", encoding="utf-8")
    (folder / _LAUNCHER).chmod(0o755)
    orders: dict[str, object] = {
        "sdist": f"{BUILD}/{package.file.name}",
        "folder": f"{BUILD}/{package.name}-{package.version}",
        "wheels": f"{BUILD}/wheels",
        "libraries": f"{BUILD}/{_LIBRARIES}",
        "same_number": f"{BUILD}/{launcher.SAME_NUMBER}",
        "back_end": about.back_end,
        "path": about.back_end_path,
    }
    if package.isolated:
        orders["launcher"] = f"{BUILD}/{_LAUNCHER}"
        if job.step.compilation.toolkit is not None:
            orders |= {"headers": f"{BUILD}/{_HEADERS}", "toolkit": CUDA_HOME}
        # meson-python's folder would have another name each time
        by_meson = about.back_end.partition(":")[0] == "mesonpy"
        given: dict[str, object] = {"builddir": f"{BUILD}/meson"} if by_meson else {}
        options = back_ends.of_setup(package, job.step.compilation)
        orders["settings"] = given | ({"--global-option": options} if options else {})
    if package.rust:
        orders["crates"] = _lay_out_crates(job, package, folder)
    (folder / _ORDERS).write_text(json.dumps(orders), encoding="utf-8")


def _lay_out_crates(job: CompileJob, package: LockedPackage, folder: Path) -> dict[str, object]:
    """Put the crates, packed, and cargo's configuration into the folder; what to unpack them by."""
    packed = folder / f"{_CRATES}-packed"
    for made in (packed, folder / _CARGO):
        made.mkdir()
    (folder / _CARGO / "config.toml").write_text(cargo_configuration(), encoding="utf-8")
    for crate in package.vendored:
        path = job.files[crate.file.sha256]
        check_sdist(path, crate.file.name)
        shutil.copyfile(path, packed / crate.file.name)
    hashes = {crate.file.name: crate.file.sha256 for crate in package.vendored}
    return {"packed": f"{BUILD}/{packed.name}", "folder": f"{BUILD}/{_CRATES}", "sha256": hashes}


def _failure(package: LockedPackage, log: Path, returncode: int) -> CompileFailure:
    names = (package.name,)
    if returncode < 0:
        return CompileFailure(kind="interrupted", names=names, signal=-returncode)
    killed = "\nKilled\n" if returncode > 128 else ""
    output = log.read_text(encoding="utf-8", errors="replace") + killed
    start = back_end_program.LACKS
    lacks = tuple(text.removeprefix(start) for text in output.splitlines() if text.startswith(start))
    return CompileFailure(
        kind="requirements" if lacks else "compiler",
        names=names,
        lines=(first_error(output),),
        log=str(log),
        requirements=lacks,
    )


class Reader:
    """Writes down what a back-end says, and shows how far it is."""

    def __init__(self, name: str, log: IO[str], progress: Progress) -> None:
        self._name, self._log, self._progress = name, log, progress
        self._shown = settings.now()

    def read(self, line: str) -> None:
        """Take a line of output."""
        print(visible(line), file=self._log)
        step, now = _STEP.match(line), settings.now()
        is_last = step is not None and step[1] == step[2] != "1"  # of one file each is the last
        if step and (now - self._shown >= SECONDS or is_last):
            self._shown = now
            self._progress.note(f"compiling {self._name}: {step[1]}/{step[2]} steps")
