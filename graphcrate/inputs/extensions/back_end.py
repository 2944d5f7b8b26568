"""Compile one source by its own back-end (PEP 517), in the sandbox: for what chooses its compilers' commands itself.

PyG's four extensions are compiled file by file beside one another (`worker`); all others by what their pyproject.toml
names, which starts CMake, meson, or compilers. Sources lie at the same path whoever compiles them, so that paths in
binaries are the same. What the user adds is isolated: its build requirements go before what else is there, and
programs of compilers' names stand before the compilers (`launcher`). pyg_lib knows both by CMake's variables alone.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from graphcrate.compat import back_ends, build_environment, build_packages, sonames, suites
from graphcrate.host import beneath, sandbox, settings
from graphcrate.host.memory import free_memory
from graphcrate.host.process import SilenceError
from graphcrate.host.progress import Progress
from graphcrate.host.steps import Step
from graphcrate.inputs.extensions import SILENCE, CompileJob, back_end_program, launcher, unfinished
from graphcrate.inputs.extensions.output import OF_TOOLKIT, SECONDS, WHEELS_ALONE, diagnose
from graphcrate.inputs.wheels.sdist import check_sdist, read_sdist
from graphcrate.model.command import IMAGE_AGAIN, filled, setting
from graphcrate.model.errors import BuildError
from graphcrate.model.lock import Compilation, LockedPackage
from graphcrate.model.plan import BUILD, BUILD_REQUIREMENTS, CUDA_HOME, VENV, site_packages
from graphcrate.model.words import either, listed

if TYPE_CHECKING:
    from graphcrate.compat.next_steps import More

#: Most that compiling one file takes: 3.4 GB is what cutlass's kernels for one GPU want of nvcc's cicc.
MEMORY_PER_JOB = 4_000_000_000
MEMORY_WITHOUT_CUDA = 1_500_000_000  #: of cc1plus with torch's headers, as measured for `compile.MEMORY_PER_JOB`
_LAUNCHER, _PROGRAM, _ORDERS = "launcher.py", "back_end.py", "orders.json"
_LIBRARIES, _HEADERS = launcher.LIBRARIES, "headers"  #: of CUDA, from the image's packages
_TOOLKIT = "cuda"  #: the toolkit with our nvcc
_CRATES, _CARGO = "crates", "cargo"  #: folders of what was unpacked, and of cargo's configuration
_LEFT_OUT_SIZE = 1 << 20  #: bytes of that list which are read: it lies where what is built may write
_CUDA = re.compile(r"(?<![a-z])cuda|nvcc|cublas", re.IGNORECASE)  #: in the error of a compile that has no toolkit
#: a header or a library of CUDA; the runtime is in every toolkit
_OF_WHEEL = re.compile(
    r"fatal error: (?P<header>[\w.+/-]{1,80}): No such file|\bld: cannot find -l(?!cudart)(?P<linked>\w{1,40})|"
    r"Could NOT find (?P<found>\w{1,40})"
)
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
    requirements of an isolated package. Raises BuildError with the first error of a compiler, IntegrityError for a
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
    binds = [sandbox.Bind(venv, VENV), sandbox.Bind(folder, BUILD, read_only=False)]
    if job.toolkit is not None:
        binds.append(sandbox.Bind(job.toolkit, CUDA_HOME))
    argv = [f"{VENV}/bin/python", "-s", f"{BUILD}/{_PROGRAM}", f"{BUILD}/{_ORDERS}"]
    variables = environment(given, compilation.architectures, jobs)
    if requirements is not None:
        binds.append(sandbox.Bind(requirements, BUILD_REQUIREMENTS))
        finished = unfinished(package, job.step, job.cache)
        finished.mkdir(exist_ok=True)
        binds.append(sandbox.Bind(finished, f"{BUILD}/{launcher.FINISHED}", read_only=False))
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
            raise BuildError(
                f"compiling {package.name} stands still: nothing was finished for {SILENCE / 60:.0f} minutes, and it "
                f"was ended\n    all of it: {log}",
                cause="A compiler hangs, or the machine has so little memory left that it does little but page.",
                next_step=f"with fewer compilers at a time: taskset -c 0 {IMAGE_AGAIN}",
            ) from error
    wheels = [path for path in (folder / "wheels").glob("*.whl") if beneath.is_plain(path, folder)]
    if returncode != 0 or len(wheels) != 1:
        raise _failure(job, package, log, returncode)
    log.unlink()
    if left_out := _left_out(folder):
        job.progress.note(f"{package.name}: compiled without {listed(left_out)}, so that it runs on other processors")
    return wheels[0]


def environment(given: Mapping[str, str], architectures: tuple[str, ...], jobs: int) -> dict[str, str]:
    """What a back-end sees besides what all compiles do: CMake's own variables, for every project that it builds."""
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
    """What changes where a package has its build requirements for itself, and compilers are found by their names."""
    compilers = f"{BUILD}/{back_end_program.COMPILERS}"
    made = {
        "PATH": f"{compilers}:{BUILD_REQUIREMENTS}/bin:{given['PATH']}",
        "PYTHONPATH": site_packages(python, BUILD_REQUIREMENTS),
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # CMake 4 refuses projects for a CMake of before, unless it is asked
        "SKBUILD_BUILD_DIR": f"{BUILD}/cmake",  # scikit-build-core's would have another name each time
    }
    if "make" not in compilation.besides:  # CMake's own generator is for make, and who asks for that wants it
        made["CMAKE_GENERATOR"] = "Ninja"
    if compilation.toolkit is None:
        return made
    toolkit, headers = f"{BUILD}/{_TOOLKIT}", f"{BUILD}/{_HEADERS}"  # these after all that a compile names itself
    made |= {"CUDA_HOME": toolkit, "PYTORCH_NVCC": f"{toolkit}/bin/nvcc", "PATH": f"{toolkit}/bin:{made['PATH']}"}
    return made | {"CPATH": headers, "CMAKE_INCLUDE_PATH": headers}


def for_cargo(jobs: int) -> dict[str, str]:
    """What cargo sees: its crates are where its configuration says, and the same sources give the same bytes.

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
    """What replaces crates.io by a folder (Source Replacement, in the Cargo book)."""
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


def _failure(job: CompileJob, package: LockedPackage, log: Path, returncode: int) -> BuildError:
    if returncode < 0:
        return BuildError(f"compiling was interrupted (signal {-returncode})", next_step="run the same command again")
    killed = "\nKilled\n" if returncode > 128 else ""
    output = log.read_text(encoding="utf-8", errors="replace") + killed
    line, cause, next_step = diagnose(output, job.step.compilation)
    start = back_end_program.LACKS
    if lacks := [text.removeprefix(start) for text in output.splitlines() if text.startswith(start)]:
        cause = f"Its back-end asks for {listed(lacks)} besides, which its metadata does not name."
        folder = setting(with_=f"./{package.name}")
        next_step = f"take its source, name that in [build-system] of pyproject.toml, and give its folder: {folder}"
    elif package.isolated and job.step.compilation.toolkit is None and _CUDA.search(line):
        cause = (
            "It is compiled with CUDA's toolkit, and the image is for the CPU alone, or nothing in the source's files "
        )
        cause += "says that it needs it."
        turned_on = setting(build_env="USE_CUDA=on")
        next_step = (
            f"an image for GPUs ({setting(cuda='11.8')}); if it is one, a variable brings the toolkit: {turned_on}"
        )
    elif known := back_ends.failure(package.name, line):
        cause, next_step = known.because, filled(known.instead)
    elif package.isolated and (lacking := _OF_WHEEL.search(line)) and (project := _wheel_with(job, lacking)):
        library = _library(lacking)
        what = f"linked to lib{library}" if library else f"compiled with the header {lacking['header']}"
        cause = f"It is {what}, which neither CUDA's toolkit has nor a package of the image: {project} of the index "
        cause += "does."
        next_step = job.beside({"with_": [project]})
    elif (
        package.isolated
        and (absent := build_packages.missing(line, _python_of(job)))
        and (absent.package or not OF_TOOLKIT.search(line))
    ):
        cause, next_step = _absent(job, absent)
    elif package.isolated and WHEELS_ALONE in next_step:
        wheel = setting(with_=f"./{package.name}-….whl")
        next_step = f"ask for another version of it, or bring a wheel ({wheel})"
    return BuildError(
        f"{package.name} {package.version} does not compile: {line}\n    all of it: {log}",
        cause=cause,
        next_step=next_step,
    )


def _wheel_with(job: CompileJob, lacking: re.Match[str]) -> str:
    """The project of the index with this header or library ("cusparse") of CUDA; empty where none has.

    What CMake does not find may be there: then it looks elsewhere.
    """
    toolkit = job.step.compilation.toolkit
    if toolkit is None:
        return ""
    if lacking["header"]:
        return sonames.wheel_with(lacking["header"], toolkit.version)
    # its number says nothing that the toolkit does not
    project = sonames.wheel_of(f"lib{_library(lacking)}.so.0", toolkit.version)
    is_there = lacking["found"] and project in {package.name for package in job.step.against}
    return "" if is_there else project


def _library(lacking: re.Match[str]) -> str:
    """The library that a line of `_OF_WHEEL` names, without "lib" in front; empty for a header."""
    return lacking["linked"] or (lacking["found"] or "").lower()


def _python_of(job: CompileJob) -> str:
    base = suites.bases().get(job.step.compilation.base.suite)
    return base.python if base else ""


def _absent(job: CompileJob, absent: build_packages.Missing) -> tuple[str, str]:
    """Cause and next step where a build lacks a header, library, program or module: with Debian's package.

    By our own lists, or by Debian's index of files.
    """
    packages = (absent.package,) if absent.package else job.bringing(absent.kind, absent.name)
    suite = suites.titled(job.step.compilation.base.suite)
    brings = f"{either(packages or ['a package'])} of {suite}"
    cause = f"It is compiled with the {absent.kind} {absent.name}, which neither its build requirements bring nor "
    finder = f", and {absent.finder} finds it" if absent.finder else ""
    cause += f"the base with the compiler: {brings} does{finder}."
    which = "" if packages else f"    (apt-file search {absent.name} says which)"
    more: dict[More, Sequence[str]] = {
        "build_apt": [*(packages[:1] or ["PACKAGE"]), *filter(None, [absent.finder])],
    }
    if linked := job.linking(packages[0]) if packages and absent.kind in ("header", "library") else ():
        cause += f" What is linked to it needs {listed(linked)} in the image, too."
        more["apt"] = linked
    return cause, f"{job.beside(more)}{which}"


class Reader:
    """Writes down what a back-end says, and shows how far it is."""

    def __init__(self, name: str, log: IO[str], progress: Progress) -> None:
        self._name, self._log, self._progress = name, log, progress
        self._shown = settings.now()

    def read(self, line: str) -> None:
        """Take a line of output."""
        print(line, file=self._log)
        step, now = _STEP.match(line), settings.now()
        is_last = step is not None and step[1] == step[2] != "1"  # of one file each is the last
        if step and (now - self._shown >= SECONDS or is_last):
            self._shown = now
            self._progress.note(f"compiling {self._name}: {step[1]}/{step[2]} steps")
