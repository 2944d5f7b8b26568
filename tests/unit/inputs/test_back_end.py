"""Sources compiled by their own back-end: its variables, its compilers, what is said, which wheel counts."""

import contextlib
import glob
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.assembly import extension_wheels as assembly
from graphcrate.compat.facts import back_ends
from graphcrate.compat.failures.failure import same_with
from graphcrate.compat.plan.compile_steps import compile_steps
from graphcrate.host.process import Completed, SilenceError
from graphcrate.inputs import extensions
from graphcrate.inputs.bases import contents
from graphcrate.inputs.extensions import back_end, back_end_program, launcher
from graphcrate.inputs.extensions import compile as house
from graphcrate.inputs.wheels.sdist import read_sdist
from graphcrate.model.errors import BuildError
from graphcrate.model.lock import Added
from graphcrate.model.plan import VENV
from graphcrate.model.platform import DEFAULT, platform_named
from tests.made import bookworm, deb, refused, sdist, wheel
from tests.unit.compiled_plans import lock, plain_lock
from tests.unit.inputs.test_extensions import job_of, step
from tests.unit.wheel_server import small_sdist
from tests.unit.wheelmaker import make_wheel

PYPROJECT = '[build-system]\nrequires = ["hatch"]\nbuild-backend = "own.api:hooks"\nbackend-path = ["tools"]\n'
ARM64 = platform_named("linux/arm64")
PYG_LIB = sdist("demo", "1.0", back_end=True, commit="a" * 40, build=(wheel("cmake"),))
ADDED = sdist("demo", "1.0", back_end=True, build=(wheel("meson-python"),))


@pytest.fixture
def job(tmp_path, cache, progress, monkeypatch):
    """A compile of one source whose back-end is CMake, for one GPU; 10 GB of memory are free."""
    monkeypatch.setattr(back_end, "free_memory", lambda: 10 * 10**9)
    name, content = small_sdist("demo", "1.0", pyproject="")
    source = tmp_path / name
    source.write_bytes(content)
    return SimpleNamespace(
        step=step(packages=(PYG_LIB,), architectures=("7.0", "8.0+PTX")),
        files={PYG_LIB.file.sha256: source},
        jobs=16,
        toolkit=tmp_path / "cuda",
        progress=progress,
        build_base=SimpleNamespace(rootfs=tmp_path),
        log_folder=tmp_path / "logs",
        cache=cache,
    )


@pytest.fixture
def compiled(job, tmp_path, monkeypatch, cache):
    """Compiles with a sandbox that says these lines and leaves these wheels; gives the wheel and the command."""
    commands = []

    def run(
        lines=(),
        wheels=("demo-1.0-cp311-cp311-linux_x86_64.whl",),
        returncode=0,
        error=None,
        links=None,
        package=PYG_LIB,
        left_out=None,
    ):
        def run_in(rootfs, command):
            commands.append(command)
            for line in lines:
                command.on_line(line)
            (folder / "wheels").mkdir()
            for name in wheels:
                (folder / "wheels" / name).touch()
            if left_out is not None:
                (folder / "left_out").write_bytes(left_out)
            for name, target in (links or {}).items():
                (folder / "wheels" / name).symlink_to(target)
            if error:
                raise error
            return Completed(returncode, ())

        folder = tmp_path / "build"
        job.step = msgspec.structs.replace(job.step, packages=(package,))
        job.shelves = extensions.shelves(job.step, cache)
        monkeypatch.setattr(back_end.sandbox, "run_in", run_in)
        given = {"CC": "gcc-11", "LDFLAGS": "-s", "TORCH_CUDA_ARCH_LIST": "7.0;8.0+PTX", "PATH": "/opt/venv/bin:/bin"}
        requirements = tmp_path / "requirements" if package.isolated else None
        made = back_end.build(job, package, folder, tmp_path / "venv", given, requirements)
        return made, commands[0], folder

    return run


def test_back_end_sees_the_plans_gpus_jobs_by_memory_and_our_launcher(compiled):
    made, command, folder = compiled()
    assert made == folder / "wheels/demo-1.0-cp311-cp311-linux_x86_64.whl"
    seen = command.environment
    assert (seen["MAX_JOBS"], seen["CMAKE_BUILD_PARALLEL_LEVEL"]) == ("2", "2"), "10 GB, 4 for each compiler"
    assert (seen["CUDAARCHS"], seen["CC"]) == ("70-real;80", "gcc-11")
    assert seen["LDFLAGS"] == "-s -Wl,--as-needed"
    launchers = {name: value for name, value in seen.items() if name.endswith("_LAUNCHER")}
    assert len(launchers) == 6
    assert set(launchers.values()) == {"/build/launcher.py"}
    assert (folder / "launcher.py").read_text().startswith(f"#!{VENV}/bin/python -IS\n")
    assert (folder / "launcher.py").stat().st_mode & 0o111
    assert not command.network
    assert {bind.target: bind.read_only for bind in command.binds} == {
        VENV: True,
        "/build": False,
        "/usr/local/cuda": True,
    }


def test_orders_name_the_back_end_of_the_source(job, compiled, tmp_path):
    _, content = small_sdist("demo", "1.0", pyproject=PYPROJECT)
    job.files[PYG_LIB.file.sha256].write_bytes(content)
    _, command, folder = compiled()
    assert command.argv == [f"{VENV}/bin/python", "-s", "/build/back_end.py", "/build/orders.json"]
    orders = json.loads((folder / "orders.json").read_text())
    assert (orders["back_end"], orders["path"]) == ("own.api:hooks", ["tools"])
    assert orders["sdist"] == f"/build/{PYG_LIB.file.name}"
    assert orders["folder"] == "/build/demo-1.0"


def test_added_source_sees_its_build_requirements_first_and_compilers_by_their_names(job, compiled, tmp_path):
    job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
    _, command, folder = compiled(package=ADDED)
    seen = command.environment
    assert seen["PATH"] == "/build/cuda/bin:/build/compilers:/opt/build-requirements/bin:/opt/venv/bin:/bin"
    assert seen["PYTHONPATH"] == "/opt/build-requirements/lib/python3.11/site-packages"
    assert (seen["PYTORCH_NVCC"], seen["CMAKE_GENERATOR"]) == ("/build/cuda/bin/nvcc", "Ninja")
    assert seen["CUDA_HOME"] == "/build/cuda"
    (bind,) = (bind for bind in command.binds if bind.target == "/opt/build-requirements")
    assert (bind.source, bind.read_only) == (tmp_path / "requirements", True)
    orders = json.loads((folder / "orders.json").read_text())
    assert (orders["launcher"], orders["settings"]) == ("/build/launcher.py", {})
    writable = {bind.target: bind.source for bind in command.binds if not bind.read_only}
    finished = job.shelves[ADDED.file.sha256].objects
    assert writable == {"/build": folder, "/build/finished": finished}, "of this source with these inputs alone"


def test_cmake_makes_makefiles_where_make_is_asked_for(job, compiled):
    """A build that needs make gives its words to what CMake made: horovod 0.28.1, `cmake --build . -- VERBOSE=1`."""
    job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
    compilation = msgspec.structs.replace(job.step.compilation, with_apt=("make",))
    job.step = msgspec.structs.replace(job.step, compilation=compilation)
    _, command, _ = compiled(package=ADDED)
    assert "CMAKE_GENERATOR" not in command.environment


def test_prepared_source_is_built_as_before_there_were_others(compiled):
    _, command, folder = compiled()
    assert not {"PYTHONPATH", "CMAKE_GENERATOR", "SKBUILD_BUILD_DIR"} & set(command.environment)
    assert not {"launcher", "settings"} & set(json.loads((folder / "orders.json").read_text()))


def test_meson_gets_a_folder_that_has_the_same_name_each_time(job, compiled):
    _, content = small_sdist("demo", "1.0", pyproject='[build-system]\nrequires = []\nbuild-backend = "mesonpy"\n')
    job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
    job.files[ADDED.file.sha256].write_bytes(content)
    _, _, folder = compiled(package=ADDED)
    assert json.loads((folder / "orders.json").read_text())["settings"] == {"builddir": "/build/meson"}


@pytest.mark.parametrize(
    ("left_out", "note"),
    [
        (b"-march=native\n-mtune=native -march=native\n", "compiled without -march=native and -mtune=native"),
        (b"\xff rm\x1b[0m -march=native x\n", "compiled without -march=native, so"),
        (b"nothing of ours\n", None),
        (None, None),
    ],
)
def test_options_that_were_left_out_are_said_and_nothing_else_of_that_file(job, compiled, progress, left_out, note):
    job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
    compiled(package=ADDED, left_out=left_out)
    said = [line for line in progress.lines if "compiled without" in line]
    assert note in said[0] if note else not said, said


def test_source_without_build_system_has_the_legacy_back_end(tmp_path):
    name, content = small_sdist("demo", "1.0", pyproject="")
    (tmp_path / name).write_bytes(content)
    about = read_sdist(tmp_path / name, name)
    assert (about.back_end, about.back_end_path) == ("setuptools.build_meta:__legacy__", ())


def test_progress_is_ninjas_steps_at_intervals(compiled, progress, monkeypatch):
    now = iter([0.0, 5.0, 21.0, 22.0, 23.0, 24.0])
    monkeypatch.setattr(back_end.settings, "now", lambda: next(now))
    compiled(lines=["[1/9] Building a", "[4/9] Building b", "warning: x", "[5/9] c", "[9/9] Linking"])
    shown = [line for line in progress.lines if "steps" in line]
    assert shown == ["compiling demo: 4/9 steps", "compiling demo: 9/9 steps"]


def test_failure_says_the_compilers_error_and_keeps_all_output(compiled, job):
    lines = [
        "-- Configuring",
        "FAILED: a.o",
        "/build/demo-1.0/a.cpp:3:1: error: 'x' was not declared",
        "ninja: stopped",
    ]
    with refused(BuildError, "demo 1.0 does not compile: /build/demo-1.0/a.cpp:3:1: error: 'x' was not declared"):
        compiled(lines=lines, wheels=(), returncode=1)
    kept = (job.log_folder / "compile-demo.log").read_text()
    assert "CUDAARCHS=70-real;80\n" in kept
    assert kept.endswith("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["error: x"], ["ask for another version of it, or bring a wheel (WITH=./demo-….whl)"]),
        (
            ["lacks the build requirement sip>=6", "ModuleNotFoundError: No module named 'sipbuild'"],
            ["Its back-end asks for sip>=6 besides", "give its folder: WITH=./demo"],
        ),
        (
            ['concurrent_unordered_map.cuh(503): error: namespace "thrust" has no member "device"'],
            ["of before CUDA 12", "CUDA=11.8", "NVCC_PREPEND_FLAGS=-include thrust/execution_policy.h"],
        ),
        (
            ["error: <urlopen error [Errno -3] Temporary failure in name resolution>"],
            ["what is compiled reaches no network", "BUILD_ENV=NAME=VALUE"],
        ),
    ],
)
def test_next_step_of_an_added_source_is_about_that_source(job, compiled, lines, words):
    job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
    with refused(BuildError, *words):
        compiled(lines=lines, wheels=(), returncode=1, package=ADDED)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["a.c:1:10: fatal error: umfpack.h: No such file or directory"], ["header umfpack.h", "libsuitesparse-dev"]),
        (["../meson.build:5:7: ERROR: Program 'swig' not found or not executable"], ["program swig", "BUILD_APT=swig"]),
        (["../meson.build:57:20: ERROR: C shared or static library 'umfpack' not found"], ["library umfpack"]),
        (["/usr/bin/ld: cannot find -lz: No such file or directory"], ["library z", "BUILD_APT=zlib1g-dev"]),
        (
            [
                "CMake Error at CMakeLists.txt:5 (find_package):",
                "  By not providing",
                '  file provided by "Eigen3", but',
            ],
            ["CMake Error"],
        ),
        (
            ["CMake Error at F.cmake:230 (message):", "  Could NOT find ZLIB (missing: ZLIB_LIBRARY)"],
            ["library ZLIB", "BUILD_APT=zlib1g-dev"],
        ),
        (
            [
                "[2/4] Generating",
                "FAILED: [code=1] a.c",
                "python swig.py",
                "dep not found in dependencies:",
                "ninja: stop",
            ],
            ["does not compile: dep not found in dependencies:"],
        ),
        (
            ['CMake Error: CMake was unable to find a build program corresponding to "Unix Makefiles".  CMAKE_MAKE'],
            ["the program Unix Makefiles", "BUILD_APT=make"],
        ),
        (["error: command 'make' failed: No such file or directory"], ["the program make", "BUILD_APT=make"]),
        (["ninja: error: unknown target 'VERBOSE=1'"], ["the program make", "BUILD_APT=make"]),  # horovod 0.28.1
        (
            [
                "CMake Error at CMakeLists.txt:4 (ENABLE_LANGUAGE):",  # slycot 0.5.0.0
                "  No CMAKE_Fortran_COMPILER could be found.",
            ],
            ["the compiler for Fortran", "gfortran of Debian bookworm does", "BUILD_APT=gfortran"],
        ),
        (
            ["error: extension 'a._b' has Fortran sources but no Fortran compiler found"],  # numpy.distutils
            ["the compiler for Fortran", "BUILD_APT=gfortran"],
        ),
        (
            [
                "../cairo/meson.build:31:12: ERROR: Dependency lookup for cairo with method 'pkg-config' failed: "
                "Pkg-config for machine host machine not found. Giving up."
            ],
            [
                "the library cairo",
                "libcairo2-dev of Debian bookworm does, and pkg-config finds it",
                "libcairo2-dev pkg-config",
            ],
        ),
        (
            ["  Could NOT find PkgConfig (missing: PKG_CONFIG_EXECUTABLE)"],
            ["the library PkgConfig", "BUILD_APT=pkg-config"],
        ),
        (["error: command 'g++-11' failed: No such file or directory"], ["(g++-11) is absent"]),
        (["RuntimeError: CMake must be installed to build qdldl"], ["the program CMake", "BUILD_APT=cmake"]),
        (
            ["m.c:9:12: fatal error: longintrepr.h: No such file or directory"],
            ["older Python", "another version of it"],
        ),
        (["cast.h:446:36: error: invalid use of incomplete type 'PyFrameObject'"], ["older Python", "WITH=./demo-"]),
        (
            ["Traceback", "ModuleNotFoundError: No module named 'lib2to3.pgen2'"],
            ["the module lib2to3.pgen2", "BUILD_APT=python3-lib2to3"],
        ),
        (["Traceback", "ModuleNotFoundError: No module named 'distutils.cmd'"], ["BUILD_APT=python3-distutils"]),
        (
            ["/usr/bin/ld: cannot find -lcusparse"],  # MinkowskiEngine with torch 1.13, which has it inside
            [
                "linked to libcusparse, which neither CUDA's toolkit",
                "nvidia-cusparse-cu11",
                "WITH=nvidia-cusparse-cu11",
            ],
        ),
        (
            ["CMake Error at F.cmake:230 (message):", "  Could NOT find NCCL (missing: NCCL_INCLUDE_DIR NCCL_LIBRARY)"],
            ["linked to libnccl, which neither CUDA's toolkit", "WITH=nvidia-nccl-cu11"],
        ),
        (
            ["nvtx3.hpp:34:10: fatal error: nvtx3/nvToolsExt.h: No such file or directory"],  # MinkowskiEngine
            ["neither CUDA's toolkit has nor a package of the image: nvidia-nvtx-cu11", "WITH=nvidia-nvtx-cu11"],
        ),
        (["error: unknowable.h: x", "b.c:1:2: fatal error: unknowable.h: No such file"], ["does not compile"]),
        (["b.c:1:2: fatal error: unknowable.h: No such file"], ["BUILD_APT=PACKAGE    (apt-file search unknowable.h"]),
    ],
)
def test_what_a_build_misses_is_named_with_debians_package(job, compiled, lines, words):
    job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
    with refused(BuildError, *words):
        compiled(lines=lines, wheels=(), returncode=1, package=ADDED)


@pytest.mark.parametrize(
    "line",
    [
        "a.cpp:1:10: fatal error: cuda_runtime.h: No such file or directory",
        "CMake Error at F.cmake:230 (message):   Could NOT find CUDAToolkit (missing: CUDAToolkit_NVCC_EXECUTABLE)",
        "CMake Error at CMakeLists.txt:2 (project):   No CMAKE_CUDA_COMPILER could be found.",
    ],
)
def test_source_that_wants_cuda_without_a_toolkit_gets_no_advice_about_debian(job, compiled, line):
    job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
    job.step = step(packages=(ADDED,), toolkit=None, architectures=())
    with refused(BuildError, "compiled with CUDA's toolkit", "CUDA=11.8", "BUILD_ENV=USE_CUDA=on") as caught:
        compiled(lines=[line], wheels=(), returncode=1, package=ADDED)
    assert "apt-file" not in str(caught.value)


@pytest.fixture
def explained(job, compiled, monkeypatch):
    """Compiles what ends with a line; gives the message, where Debian's index has these packages, and its questions."""

    def explain(line, packages, linked=()):
        job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
        asked = []
        monkeypatch.setattr(contents, "bringing", lambda *question: asked.append(question[:2]) or packages)
        monkeypatch.setattr(contents, "linked_by", lambda package, *_: linked if package == packages[0] else ())
        with pytest.raises(extensions.CompileError) as caught:
            compiled(lines=[line], wheels=(), returncode=1, package=ADDED)
        return str(assembly.explained(caught.value.failure, job, same_with, None)), asked

    return explain


@pytest.mark.parametrize(
    ("compiles", "image", "platforms"),
    [("amd64", "arm64", (DEFAULT, ARM64)), ("arm64", "", (ARM64, ARM64)), ("amd64", "", (DEFAULT, DEFAULT))],
)
def test_debian_is_asked_for_the_platform_that_compiles_and_of_libraries_for_the_images(
    job, compiled, monkeypatch, compiles, image, platforms
):
    """BUILD_APT installs where compilers run, APT in the image."""
    asked = []
    monkeypatch.setattr(contents, "bringing", lambda *question: asked.append(question[4:]) or ("libodd-dev",))
    monkeypatch.setattr(contents, "linked_by", lambda *question: asked.append(question[3:]) or ())
    job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
    with pytest.raises(extensions.CompileError) as caught:
        compiled(lines=["ld: cannot find -lodd"], wheels=(), returncode=1, package=ADDED)
    compilation = msgspec.structs.replace(job.step.compilation, base=bookworm(deb("libc6", architecture=compiles)))
    base = bookworm(deb("libc6", architecture=image)) if image else msgspec.UNSET  # a cross-compile's alone
    job.step = msgspec.structs.replace(job.step, base=base, compilation=compilation)
    assembly.explained(caught.value.failure, job, same_with, None)
    assert asked == [(platform,) for platform in platforms]


@pytest.mark.parametrize(
    ("packages", "words"),
    [
        (("libodd-dev",), ["libodd-dev of Debian bookworm does", "make image … BUILD_APT=libodd-dev"]),
        (("liba-dev", "libb-dev"), ["liba-dev or libb-dev of Debian bookworm does", "BUILD_APT=liba-dev"]),
    ],
)
def test_what_our_list_lacks_debians_index_of_files_names(explained, packages, words):
    message, asked = explained("b.c:1:2: fatal error: odd/odd.h: No such file or directory", packages)
    assert [word for word in words if word not in message] == []
    assert asked == [("header", "odd/odd.h")]


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("b.c:1:2: fatal error: odd/odd.h: No such file or directory", "BUILD_APT=libodd-dev APT=libodd2"),
        ("ld: cannot find -lodd", "BUILD_APT=libodd-dev APT=libodd2"),
        ("ERROR: Program 'odd' not found", "BUILD_APT=libodd-dev"),  # nothing is linked to it
    ],
)
def test_library_that_what_is_compiled_needs_is_named_with_what_it_is_compiled_with(explained, line, typed):
    """In one message: another one comes after all was compiled."""
    message, _ = explained(line, ("libodd-dev", "libodd-tiny-dev"), ("libodd2",))
    assert f"make image … {typed}" in message
    is_linked = "APT=libodd2" in typed
    assert (" APT=" in message, "linked to it needs libodd2 in the image" in message) == (is_linked, is_linked)


@pytest.mark.parametrize(
    ("name", "lines", "words"),
    [
        (
            "scikit-umfpack",
            (
                "FAILED: [code=1] a.c",
                "python meson_swig.py",
                "umfpack_dep not found in dependencies: ",
                "ninja: stopped",
            ),
            ("from a pkg-config file alone", "WITH=scikit-umfpack==0.4.1, which does without"),
        ),
        (
            "scikit-sparse",
            ("cholmod.c:1:28: error: 'cholmod_common' has no member named 'nsbounds_hit'",),
            ("From 0.5 on it is for SuiteSparse 7", "WITH=scikit-sparse==0.4.16"),
        ),
    ],
)
def test_failure_that_its_line_does_not_explain_is_one_that_is_known(job, compiled, name, lines, words):
    package = sdist(name, "0.5.0", back_end=True, build=(wheel("meson-python"),))
    job.files[package.file.sha256] = job.files[PYG_LIB.file.sha256]
    with refused(BuildError, *words):
        compiled(lines=lines, wheels=(), returncode=1, package=package)


def test_success_leaves_no_log(compiled, job):
    compiled(lines=["[1/1] done"])
    assert not [*job.log_folder.iterdir()]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"wheels": ()}, "demo 1.0 does not compile"),
        ({"wheels": ("a.whl", "b.whl")}, "demo 1.0 does not compile"),
        ({"returncode": -15}, "compiling was interrupted (signal 15)"),
        ({"returncode": 137, "wheels": ()}, "ran out of memory"),
        ({"error": SilenceError("it said nothing")}, "compiling demo stands still"),
    ],
)
def test_build_without_its_one_wheel_is_an_error(compiled, options, words):
    with refused(BuildError, words):
        compiled(**options)


def test_wheel_that_is_a_link_is_not_taken(compiled, tmp_path):
    (tmp_path / "elsewhere.whl").touch()
    with refused(BuildError, "demo 1.0 does not compile"):
        compiled(wheels=(), links={"demo.whl": tmp_path / "elsewhere.whl"})


def test_wheelhouse_key_of_a_back_end_is_its_own():
    together = step(packages=(sdist("demo", "1.0", build=(wheel("cmake"),)),))
    alone = step(packages=(PYG_LIB,))
    assert extensions.origin(together.packages[0], together) != extensions.origin(alone.packages[0], alone)


def test_wheelhouse_key_has_all_of_debian_where_packages_are_named_to_compile_with():
    """Their headers and libraries are in the wheel; of the others only compiler and libc count."""
    keys = set()
    for version in ("1", "2"):
        made = step(packages=(ADDED,), base=bookworm(deb("g++-11"), deb("libsuitesparse-dev", version)))
        named = msgspec.structs.replace(made.compilation, with_apt=("libsuitesparse-dev",))
        keys |= {extensions.origin(ADDED, made)}
        keys |= {extensions.origin(ADDED, msgspec.structs.replace(made, compilation=named))}
    assert len(keys) == 3


def test_added_source_sees_the_variables_that_were_asked_for_and_no_other_source_does(job, compiled):
    job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
    asked = ("CMAKE_ARGS=-DA=on -DB=off", "LDFLAGS=-lm", "PATH=/evil")
    job.step = step(packages=(ADDED,))
    job.step = msgspec.structs.replace(
        job.step, compilation=msgspec.structs.replace(job.step.compilation, with_env=asked)
    )
    seen = compiled(package=ADDED)[1].environment
    assert (seen["CMAKE_ARGS"], seen["LDFLAGS"]) == ("-DA=on -DB=off", "-s -Wl,--as-needed -lm")
    assert ("/evil" in seen["PATH"], seen["CPATH"]) == (False, "/build/headers")


def test_known_package_is_built_by_its_own_variables_and_options(job, compiled):
    """Of causal-conv1d, which would fetch a wheel, and of MinkowskiEngine, which goes by options alone."""
    minkowski = msgspec.structs.replace(ADDED, name="minkowskiengine")
    causal = msgspec.structs.replace(ADDED, name="causal-conv1d")
    job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
    assert compiled(package=causal)[1].environment["CAUSAL_CONV1D_FORCE_BUILD"] == "TRUE"
    shutil.rmtree(job.build_base.rootfs / "build")
    folder = compiled(package=minkowski)[2]
    orders = json.loads((folder / "orders.json").read_text())
    assert orders["settings"] == {"--global-option": ["--blas=openblas", "--force_cuda"]}
    made = step(packages=(minkowski,))
    on_cpu = step(packages=(minkowski,), toolkit=None)
    keys = {extensions.origin(package, made) for package in (ADDED, causal, minkowski)}
    assert len(keys | {extensions.origin(minkowski, on_cpu)}) == 4


@pytest.mark.parametrize("cuda", [True, False])
def test_horovod_is_built_with_nccl_where_the_image_is_for_gpus(job, compiled, cuda):
    """Without it tensors of GPUs are reduced by the CPU, over TCP; its build ends at the word without CUDA."""
    job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
    if not cuda:
        job.step = msgspec.structs.replace(
            job.step, compilation=msgspec.structs.replace(job.step.compilation, toolkit=None)
        )
    _, command, _ = compiled(package=msgspec.structs.replace(ADDED, name="horovod"))
    assert command.environment.get("HOROVOD_GPU_OPERATIONS") == ("NCCL" if cuda else None)


def test_a_source_is_built_by_what_it_states_what_its_back_end_asks_for_and_what_is_known_of_it():
    asked = back_ends.BuildNeeds(requires=("ninja>=1.5",))
    made = back_ends.all_asked("other", ["setuptools", "oldest-supported-numpy"], asked)
    assert made == ("setuptools", "numpy", "ninja>=1.5")
    made = back_ends.all_asked("minkowskiengine", ["setuptools"], asked)
    assert made == ("setuptools", "ninja>=1.5", "pybind11==2.10.4")


def test_a_source_that_was_locked_without_what_it_is_known_to_ask_for_lacks_it():
    minkowski = msgspec.structs.replace(ADDED, name="minkowskiengine")
    whole = msgspec.structs.replace(minkowski, build=(wheel("pybind11"),))
    there = ["nvidia-nvtx-cu11", "nvidia-cusparse-cu11", "torch"]

    def lacks(package, names=(*there,), cuda="11.7"):
        return back_ends.lacks(package, names, cuda)

    assert [lacks(package) for package in (ADDED, minkowski, whole)] == [False, True, False]
    assert (lacks(whole, ["torch", "nvidia-nvtx-cu11"]), lacks(whole, ["torch"], "cpu")) == (True, False)


@pytest.mark.parametrize(
    ("name", "cuda", "wheels"),
    [
        ("minkowskiengine", "11.7", ("nvidia-nvtx-cu11", "nvidia-cusparse-cu11")),
        ("minkowskiengine", "12.1", ("nvidia-nvtx-cu12", "nvidia-cusparse-cu12")),
        ("minkowskiengine", "13.0", ("nvidia-cusparse",)),  # of nvtx there is none
        ("minkowskiengine", "cpu", ()),
        ("other", "11.7", ()),
    ],
)
def test_wheels_of_cuda_that_a_package_is_known_to_want_are_named_for_the_stacks_cuda(name, cuda, wheels):
    assert back_ends.wheels(name, cuda) == wheels


def test_wheelhouse_key_has_the_wheels_of_cuda_that_a_package_is_known_to_be_compiled_with():
    keys = {}
    for name in ("minkowskiengine", "demo"):
        package = msgspec.structs.replace(ADDED, name=name)
        for version in ("1", "2"):
            against = (wheel("torch"), wheel("nvidia-cusparse-cu11", version), wheel("nvidia-cublas-cu11", version))
            keys[name, version] = extensions.origin(package, step(packages=(package,), against=against))
    assert keys["minkowskiengine", "1"] != keys["minkowskiengine", "2"]
    assert keys["demo", "1"] == keys["demo", "2"], "torch's own metadata says which"


@pytest.mark.parametrize("python", ["3.9", "3.11"])
def test_known_package_finds_its_build_requirements_whichever_the_python(job, compiled, python):
    minkowski = msgspec.structs.replace(ADDED, name="minkowskiengine")
    job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
    job.step = step(packages=(minkowski,), python=python)
    flags = compiled(package=minkowski)[1].environment["NVCC_PREPEND_FLAGS"]
    assert flags.endswith(f"-I/opt/build-requirements/lib/python{python}/site-packages/pybind11/include")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"variables": {"CFLAGS": "-I{build_requirement}/include"}},
            r"demo: \{build_requirement\} in a variable stands",
        ),
        ({"wheels": ("nvidia-nvtx", "nvidia-spares")}, "demo: nvidia-spares is not a project"),
    ],
)
def test_placeholders_and_projects_of_known_packages_are_checked(fields, said):
    with pytest.raises(ValueError, match=said):
        back_ends.checked((back_ends.Package(name="demo", source="", **fields),))


@pytest.mark.parametrize(
    ("name", "python", "imports"),
    [("minkowskiengine", "3.9", True), ("minkowskiengine", "3.11", False), ("other", "3.11", True)],
)
def test_python_that_a_known_package_can_be_imported_by(name, python, imports):
    known = back_ends.package(name)
    assert known.imports_in(python) is imports
    assert bool(known.python) is bool(known.because) is bool(known.instead)


def test_wheelhouse_key_has_the_variables_of_what_is_isolated_alone():
    made = step(packages=(ADDED, PYG_LIB))
    asked = msgspec.structs.replace(made.compilation, with_env=("A=1",))
    with_them = msgspec.structs.replace(made, compilation=asked)
    assert extensions.origin(ADDED, made) != extensions.origin(ADDED, with_them)
    assert extensions.origin(PYG_LIB, made) == extensions.origin(PYG_LIB, with_them)


def test_what_has_a_back_end_is_compiled_after_the_others_and_apart(tmp_path, monkeypatch, cache):
    scatter = sdist("torch-scatter")
    made, asked = step(packages=(PYG_LIB, scatter)), []
    monkeypatch.setattr(house, "make_venv", lambda *_: None)
    unpacked = []
    monkeypatch.setattr(house, "unpack_wheel", lambda _, path, folder, python: unpacked.append((path, folder)))
    monkeypatch.setattr(house, "_compile", lambda _, packages, build, *__: dict.fromkeys(packages, build / "a.whl"))
    monkeypatch.setattr(house, "keep", lambda _, wheels, venv, build: {
        package.file.sha256: asked.append((package.name, build)) or path for package, path in wheels.items()
    })  # fmt: skip
    seen = []
    monkeypatch.setattr(back_end, "build", lambda job, package, folder, venv, given, requirements: (
        seen.append(requirements) or folder / "b.whl"
    ))  # fmt: skip
    job = SimpleNamespace(
        step=made, cache=cache, jobs=2, files={ADDED.build[0].file.sha256: "meson.whl"}, unpacked=tuple, progress=None
    )
    job.base = job.build_base = SimpleNamespace(rootfs=tmp_path, python="/usr/bin/python3.11")
    job.shelves = extensions.shelves(step(packages=(PYG_LIB, scatter, ADDED)), cache)
    found = house._make(job, made.packages)
    assert [name for name, _ in asked] == ["torch-scatter", "demo"]
    assert asked[0][1] != asked[1][1]
    assert set(found) == {scatter.file.sha256, PYG_LIB.file.sha256}
    asked.clear()
    house._make(job, (PYG_LIB,))
    assert [name for name, _ in asked] == ["demo"]
    assert (seen, unpacked) == ([None, None], [])
    house._make(job, (ADDED,))
    assert unpacked == [("meson.whl", seen[-1])], "its build requirements are its own"


def test_what_was_finished_before_an_added_source_failed_is_kept_and_not_compiled_again(tmp_path, monkeypatch, cache):
    names = ("one", "two", "three")
    made = step(packages=tuple(sdist(name, back_end=True, build=(wheel("cmake"),)) for name in names))
    built, failing = [], {"two"}

    def build(job, package, folder, venv, given, requirements):
        built.append(package.name)
        if package.name in failing:
            raise BuildError("two 1.0 does not compile")
        folder.mkdir(parents=True)
        return make_wheel(folder, package.name)

    monkeypatch.setattr(house, "make_venv", lambda *_: None)
    monkeypatch.setattr(house, "unpack_wheel", lambda *_: None)
    monkeypatch.setattr(house, "_load", lambda *_: [])
    monkeypatch.setattr(back_end, "build", build)
    base, files = SimpleNamespace(glibc="2.36", platform=DEFAULT), {wheel("cmake").file.sha256: tmp_path}
    job = job_of(made, cache, jobs=2, files=files, base=base)
    with refused(BuildError, "two 1.0 does not compile"):
        house.provide(job)
    assert built == ["one", "two"], "the third may take hours, and the user waits for the error"
    failing.clear()
    built.clear()
    assert len(house.provide(job)) == 3
    assert built == ["two", "three"]


def test_build_requirements_of_an_added_source_are_its_own():
    made = lock(None, packages=(*plain_lock().packages, ADDED, PYG_LIB))
    made = msgspec.structs.replace(made, added=Added(packages=(ADDED.name,)))
    for compiling in compile_steps(made):
        assert ADDED.build[0] not in compiling.against
    assert ADDED.build[0] in made.for_compilation()


# What compilers are started with

ASKED = "7.0;8.0+PTX"
TORCHS = ["-gencode", "arch=compute_70,code=sm_70", "-gencode", "arch=compute_80,code=compute_80"]
OURS = ["--generate-code=arch=compute_70,code=sm_70", "--generate-code=arch=compute_80,code=compute_80"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["gcc", "-O2", "-march=native", "-c", "a.c"], ["gcc", "-O2", "-c", "a.c"]),
        (["g++", "-mtune=native", "-mcpu=native", "-march=x86-64-v3"], ["g++", "-march=x86-64-v3"]),
        (["nvcc", "-Xcompiler=-march=native", "-c", "a.cu"], ["nvcc", "-c", "a.cu"]),
        (
            ["g++", "-shared", "-o", "x.so", "/usr/lib/x86_64-linux-gnu/libpython3.11.so", "-lpython3.11", "-lm"],
            ["g++", "-shared", "-o", "x.so", "-lm"],
        ),
        (["g++", "-o", "program", "/usr/lib/libpython3.11.so"], ["g++", "-o", "program", "/usr/lib/libpython3.11.so"]),
        (["nvcc", *TORCHS, "-c", "a.cu"], ["nvcc", "-c", "a.cu", *OURS]),
        (
            ["nvcc", "--generate-code=arch=compute_60,code=[sm_60,compute_60]", *TORCHS, *TORCHS, "-c", "a.cu"],
            ["nvcc", "-c", "a.cu", *OURS],
        ),
        (["nvcc", "-gencode=arch=compute_90a,code=sm_90a"], ["nvcc", "-gencode=arch=compute_90a,code=sm_90a"]),
    ],
)
def test_launcher_leaves_out_what_works_on_this_machine_alone(command, expected):
    assert launcher.command_for(command, ASKED, (11, 8, 89)) == expected


def test_launcher_keeps_code_of_an_architecture_variant_and_all_where_no_gpu_is_named():
    command = ["nvcc", "-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_80,code=sm_80"]
    assert launcher.command_for(command, "9.0", (12, 8)) == [
        "nvcc",
        "--generate-code=arch=compute_90a,code=sm_90a",
    ]
    assert launcher.command_for(command, "", (12, 8)) == command


def test_launcher_keeps_the_newest_code_before_a_gpu_where_its_own_is_not_made():
    """setup.py of mamba-ssm makes 8.0 and 9.0 in any case: 8.6 runs the former."""
    made = ["-gencode=arch=compute_75,code=sm_75", "-gencode=arch=compute_80,code=sm_80"]
    made += ["-gencode=arch=compute_87,code=sm_87", "-gencode=arch=compute_90,code=sm_90"]
    kept = [f"--generate-code=arch=compute_{code},code=sm_{code}" for code in ("80", "90")]
    assert launcher.command_for(["nvcc", *made], "8.6;9.0", (12, 8)) == ["nvcc", *kept]
    assert launcher.command_for(["nvcc", *made], "7.0", (12, 8)) == ["nvcc", *made]


def test_launcher_is_the_compiler_that_it_is_called_and_writes_down_what_it_leaves_out(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(launcher.os, "execvpe", lambda program, command, _: started.append((program, command)))
    for name in ("CUDA_HOME", "TMPDIR", "TORCH_CUDA_ARCH_LIST"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "programs.json").write_text('{"g++": "/usr/bin/g++-12"}')
    launcher.main(["/build/compilers/g++", "-march=native", "-c", "a.cpp"], tmp_path)
    launcher.main(["/build/launcher.py", "/usr/bin/gcc-12", "-c", "a.c"], tmp_path)
    assert started == [
        ("/usr/bin/g++-12", ["/usr/bin/g++-12", "-c", "a.cpp"]),
        ("/usr/bin/gcc-12", ["/usr/bin/gcc-12", "-c", "a.c"]),
    ]
    assert (tmp_path / "left_out").read_text() == "-march=native\n"


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Starts the launcher as g++ in a folder with a.cpp; gives what g++ was started with. Each takes `seconds`."""
    monkeypatch.chdir(tmp_path)
    for name in ("CUDA_HOME", "TMPDIR", "TORCH_CUDA_ARCH_LIST", launcher.INSIDE, *launcher.READ):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "programs.json").write_text('{"g++": "/usr/bin/g++-12"}')
    (tmp_path / "a.cpp").write_text("int a;")
    (tmp_path / "finished").mkdir()
    started, now = [], [0.0]
    monkeypatch.setattr(launcher.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(launcher.os, "execvpe", lambda _, command, __: started.append(command))

    def compile_with(*words, seconds=60.0, code=0):
        def call(command, env):
            started.append(command)
            now[0] += seconds
            for number, word in enumerate(command):
                if word in ("-o", "-MF"):
                    Path(command[number + 1]).write_text(f"{word} of {Path('a.cpp').read_text()}")
            return code

        monkeypatch.setattr(launcher.subprocess, "call", call)
        with contextlib.suppress(SystemExit):
            launcher.main(["/build/compilers/g++", *words], tmp_path)
        return len(started)

    return compile_with


COMPILE = ("-c", "a.cpp", "-o", "a.o", "-MF", "a.d")


def test_object_of_an_interrupted_build_is_taken_with_its_dependencies(compiler, tmp_path):
    assert compiler(*COMPILE) == 1
    for name in ("a.o", "a.d"):
        (tmp_path / name).unlink()
    assert compiler(*COMPILE) == 1, "the compiler is not started again"
    assert [(tmp_path / name).read_text() for name in ("a.o", "a.d")] == ["-o of int a;", "-MF of int a;"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _, __: None, ("-DA", *COMPILE)),
        (lambda folder, _: (folder / "a.cpp").write_text("int b;"), COMPILE),
        (lambda _, environ: environ.setenv("CPATH", "/other"), COMPILE),
    ],
)
def test_object_of_another_command_source_or_variable_is_not_taken(compiler, tmp_path, monkeypatch, change, words):
    compiler(*COMPILE)
    change(tmp_path, monkeypatch)
    assert compiler(*words) == 2


def test_object_that_nvccs_own_compiler_makes_is_not_kept_twice(compiler, tmp_path, monkeypatch):
    monkeypatch.setenv(launcher.INSIDE, "1")
    compiler(*COMPILE)
    assert not list((tmp_path / "finished").iterdir())


@pytest.mark.parametrize("how", [{"seconds": 0.1}, {"code": 1}])
def test_object_of_a_short_compile_or_a_failed_one_is_not_kept(compiler, tmp_path, how):
    compiler(*COMPILE, **how)
    assert not list((tmp_path / "finished").iterdir())


@pytest.mark.parametrize("words", [("a.cpp", "-o", "a"), ("-c", "a.cpp"), ("-c", "a.cpp", "b.cpp", "-o", "x"), ("-v",)])
def test_what_does_not_make_one_object_is_the_compilers(compiler, tmp_path, words):
    assert compiler(*words) == 1
    assert not list((tmp_path / "finished").iterdir())


@pytest.mark.parametrize(("version", "kept"), [("12.4.131", False), ("13.0.88", True), (None, False)])
def test_launcher_leaves_out_compression_for_an_nvcc_without_it(tmp_path, monkeypatch, version, kept):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    if version:
        (tmp_path / "version.json").write_text(json.dumps({"cuda": {"version": version}}))
    command = launcher.command_for(["nvcc", "--compress-mode=size"], "", launcher.toolkit())
    assert ("--compress-mode=size" in command) is kept


def test_launcher_gives_each_nvcc_one_process_number_and_a_temporary_folder_of_its_own(tmp_path):
    """nvcc writes both into temporary names, and these into symbols of templates in unnamed namespaces."""
    library = tmp_path / "same_number.so"
    environ = {"TMPDIR": "/build/tmp", "LD_PRELOAD": "/site.so"}
    first, second = ["/usr/local/cuda/bin/nvcc", "-c", "a.cu"], ["/usr/local/cuda/bin/nvcc", "-c", "b.cu"]
    assert launcher.environment_for(first, environ, library) == environ, "no toolkit, so no library"
    library.touch()
    seen = launcher.environment_for(first, environ, library)
    assert seen["LD_PRELOAD"] == f"{library} /site.so"
    assert seen == launcher.environment_for(first, environ, library)
    folders = {seen["TMPDIR"], launcher.environment_for(second, environ, library)["TMPDIR"]}
    assert len(folders) == 2
    assert all(folder.startswith("/build/tmp/nvcc-") for folder in folders)
    assert launcher.environment_for(["/usr/bin/g++-11", "-c", "a.cpp"], environ, library) == environ


# The program in the sandbox


def test_program_builds_by_the_hooks_that_the_source_names(tmp_path, monkeypatch, capsys):
    name, content = small_sdist("demo", "1.0", pyproject=PYPROJECT)
    source = tmp_path / "source"
    source.mkdir()
    (source / name).write_bytes(content)
    folder = tmp_path / "demo-1.0"
    hooks = SimpleNamespace(build_wheel=lambda wheels: make_wheel(tmp_path / wheels, "demo").name)
    monkeypatch.setitem(sys.modules, "own.api", SimpleNamespace(hooks=hooks))
    monkeypatch.setitem(sys.modules, "own", SimpleNamespace())
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    back_end_program.main(
        {
            "sdist": str(source / name),
            "folder": str(folder),
            "wheels": str(tmp_path / "wheels"),
            "libraries": str(tmp_path / "libraries"),
            "back_end": "own.api:hooks",
            "path": ["tools"],
        }
    )
    assert sys.path[0] == str(folder / "tools")
    assert (folder / "PKG-INFO").is_file()
    assert "wheel: demo-" in capsys.readouterr().out


@pytest.mark.parametrize("ending", [".tar.gz", ".zip"])
def test_programs_of_a_source_may_be_started_whoever_packed_it(tmp_path, ending):
    source, modes = tmp_path / f"demo-1.0{ending}", {"configure": 0o700, "a.c": 0o600}
    if ending == ".zip":
        with zipfile.ZipFile(source, "w") as archive:
            for name, mode in modes.items():
                info = zipfile.ZipInfo(f"demo-1.0/{name}")
                info.external_attr = mode << 16
                archive.writestr(info, "x")
    else:
        with tarfile.open(source, "w:gz") as tar:
            for name, mode in modes.items():
                member = tarfile.TarInfo(f"demo-1.0/{name}")
                member.mode, member.uid, member.size = mode, 4321, 1
                tar.addfile(member, io.BytesIO(b"x"))
    back_end_program.unpack(str(source), tmp_path / "demo")
    assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "demo").iterdir()} == {
        "configure": 0o755,
        "a.c": 0o644,
    }
    assert {path.stat().st_uid for path in (tmp_path / "demo").iterdir()} == {os.getuid()}


def test_added_source_lists_its_folders_in_order_of_name(tmp_path, monkeypatch):
    names = ("b.c", "a.c", "c.c")
    for name in names:
        (tmp_path / name).touch()
    entries = {entry.name: entry for entry in os.scandir(tmp_path)}
    monkeypatch.setattr(os, "listdir", lambda path: [*names])
    monkeypatch.setattr(os, "scandir", lambda path: contextlib.nullcontext(entries[name] for name in names))
    back_end_program.sort_folders()
    assert os.listdir(tmp_path) == ["a.c", "b.c", "c.c"]  # noqa: PTH208  as a setup.py has it
    assert [Path(path).name for path in glob.glob(f"{tmp_path}/*")] == ["a.c", "b.c", "c.c"]  # noqa: PTH207
    assert next(os.walk(tmp_path))[2] == ["a.c", "b.c", "c.c"]
    with os.scandir(tmp_path) as listing:
        assert [entry.name for entry in listing] == ["a.c", "b.c", "c.c"]


def test_added_source_has_temporary_folders_of_the_same_names_each_time(tmp_path, monkeypatch):
    """scikit-build-core installs into one, whose path CMake wrote into llama.pc of llama-cpp-python."""
    (tmp_path / "tmp0").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "mkdtemp", tempfile.mkdtemp)
    back_end_program.number_folders()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory(".d", "build-", tmp_path) as second:
        assert (first, second) == (f"{tmp_path}/tmp1", f"{tmp_path}/build-2.d")
        assert Path(first).stat().st_mode & 0o777 == 0o700
    assert tempfile.mkdtemp(dir=os.fsencode(tmp_path)).startswith(os.fsencode(tmp_path))


def test_wheelhouse_key_of_an_added_source_changes_with_what_lists_its_folders(monkeypatch):
    made = [step(packages=(package,)) for package in (ADDED, PYG_LIB)]
    before = [extensions.origin(each.packages[0], each) for each in made]
    monkeypatch.setattr(extensions, "ISOLATED_FORMAT", 99)
    after = [extensions.origin(each.packages[0], each) for each in made]
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True]


def test_libraries_of_wheels_are_found_by_the_names_that_a_linker_asks_for(tmp_path, monkeypatch):
    packages = tmp_path / "site-packages"
    for path in (
        "torch/lib/libcudart-d0da41ae.so.11.0",
        "torch/lib/libnvToolsExt-847d78f2.so.1",
        "torch/lib/libtorch.so",
        "nvidia/cublas/lib/libcublas.so.11",
        "nvidia/cuda_runtime/lib/libcudart.so.11.0",
    ):
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / path).touch()
    stubs = []
    monkeypatch.setattr(back_end_program.subprocess, "run", lambda command, **_: stubs.append(command))
    monkeypatch.setenv("CUDA_HOME", "/usr/local/cuda")
    monkeypatch.setenv("CC", "gcc-11")
    back_end_program.link_libraries(tmp_path / "lib", packages)
    links = {path.name: str(path.readlink().relative_to(packages)) for path in (tmp_path / "lib").iterdir()}
    assert links == {
        "libcudart.so": "nvidia/cuda_runtime/lib/libcudart.so.11.0",
        "libcublas.so": "nvidia/cublas/lib/libcublas.so.11",
        "libnvToolsExt.so": "torch/lib/libnvToolsExt-847d78f2.so.1",
    }
    ((compiler, *options),) = stubs
    assert (compiler, options[-1]) == ("gcc-11", str(tmp_path / "lib/libcuda.so"))
    assert "-Wl,-soname,libcuda.so.1" in options
    monkeypatch.delenv("CUDA_HOME")
    back_end_program.link_libraries(tmp_path / "cpu", packages)
    assert len(stubs) == 1, "nothing for GPUs is asked for"


def test_headers_of_wheels_are_there_where_the_toolkit_has_none(tmp_path):
    packages, toolkit = tmp_path / "site-packages", tmp_path / "cuda"
    for path in (
        "nvtx/include/nvtx3/a.h",
        "cublas/include/cublas.h",
        "cufft/include/cufft.h",
        "cufft/include/__init__.py",
    ):
        (packages / "nvidia" / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / "nvidia" / path).touch()
    (toolkit / "include").mkdir(parents=True)
    (toolkit / "include/cublas.h").touch()
    back_end_program.link_headers(tmp_path / "headers", packages, toolkit)
    assert {path.name for path in (tmp_path / "headers").iterdir()} == {"nvtx3", "cufft.h", "cuda_profiler_api.h"}


@pytest.mark.parametrize(
    "line",
    ["a.hpp:3:10: fatal error: cuda_fp16.h: No such file or directory", "/usr/bin/ld: cannot find -lcudart"],
)
def test_header_of_cuda_that_is_absent_is_no_package_of_debian(job, compiled, line):
    job.files[ADDED.file.sha256] = job.files[PYG_LIB.file.sha256]
    job.step = step(packages=(ADDED,))
    with refused(BuildError, "lacks a header or library", "TOOLKIT=image") as caught:
        compiled(lines=[line], wheels=(), returncode=1, package=ADDED)
    assert "apt-file" not in str(caught.value)


def test_nvcc_of_cuda_home_is_the_launcher_whatever_is_on_path(tmp_path):
    """torch 2.0.1 starts CUDA_HOME/bin/nvcc, which made code for all GPUs of causal-conv1d's own list."""
    toolkit, launcher, target = tmp_path / "real", tmp_path / "launcher.py", tmp_path / "cuda"
    for path in ("bin/nvcc", "bin/ptxas", "include/cuda.h", "version.json"):
        (toolkit / path).parent.mkdir(parents=True, exist_ok=True)
        (toolkit / path).touch()
    back_end_program.link_toolkit(target, toolkit, launcher)
    links = {path.relative_to(target).as_posix(): path.readlink() for path in target.rglob("*") if path.is_symlink()}
    assert links == {
        "bin/nvcc": launcher,
        "bin/ptxas": toolkit / "bin/ptxas",
        "include": toolkit / "include",
        "version.json": toolkit / "version.json",
    }


@pytest.mark.parametrize(
    ("command", "is_linked"),
    [
        (["g++", "-shared", "a.o", "-lcusolver"], True),
        (["g++", "-shared", "a.o", "/build/cuda/lib64/libcusolver.so"], True),
        (["g++", "-shared", "a.o", "/x/libcusolver.so.11.4"], True),
        (["nvcc", "--shared", "a.o", "-lcusolver"], True),
        (["g++", "-shared", "a.o", "-lm", "-lcuda"], False),
        (["g++", "a.o", "-lcusolver"], False),
        (["g++", "-shared", "libcusolver.so.cpp", "-c"], False),
    ],
)
def test_library_that_is_linked_to_cudas_finds_them_in_the_images_packages(tmp_path, command, is_linked):
    """No loader looks into nvidia/cusolver/lib, and `import torch` does not load what is in there."""
    packages = tmp_path / "site-packages/nvidia"
    for path in ("cublas/lib/libcublas.so.11", "cusolver/lib/libcusolver.so.11"):
        (tmp_path / f"{path.rpartition('/')[2].removesuffix('.11')}").symlink_to(packages / path)
    (tmp_path / "libcuda.so").touch()
    given = launcher.with_folders(command, tmp_path)
    folders = [f"-rpath={packages}/{name}/lib" for name in ("cublas", "cusolver")]
    more = ["-Xlinker", "--disable-new-dtags", "-Xlinker", folders[0], "-Xlinker", folders[1]]
    assert given == command + more * is_linked


def test_nvcc_is_found_in_a_toolkit_with_headers_beside_it_alone(tmp_path, monkeypatch):
    """CMake's FindCUDA and horovod's FindCUDAToolkit look for cuda_runtime.h in the folder above that of nvcc."""
    toolkit, target = tmp_path / "usr" / "cuda", tmp_path / "cuda"
    for name in ("bin/nvcc", "bin/ptxas", "include/cuda_runtime.h", "lib64/libcudart.so"):
        (toolkit / name).parent.mkdir(parents=True, exist_ok=True)
        (toolkit / name).touch()
    monkeypatch.setenv("CC", "gcc-12")
    monkeypatch.setenv("CXX", "g++-12")
    monkeypatch.setattr(back_end_program.shutil, "which", {"nvcc": str(toolkit / "bin" / "nvcc")}.get)
    back_end_program.link_compilers(tmp_path / "launcher.py")
    back_end_program.link_toolkit(target, toolkit, tmp_path / "launcher.py")
    assert json.loads((tmp_path / launcher.PROGRAMS).read_text()) == {"nvcc": str(toolkit / "bin" / "nvcc")}
    assert list((tmp_path / "compilers").iterdir()) == []
    assert (target / "bin" / "nvcc").readlink() == tmp_path / "launcher.py"
    assert (target / "include" / "cuda_runtime.h").is_file()


def test_compilers_that_are_there_are_linked_under_all_their_names(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "gcc-12")
    monkeypatch.setenv("CXX", "g++-12")
    there = {"gcc-12": "/usr/bin/gcc-12", "g++-12": "/usr/bin/g++-12"}
    monkeypatch.setattr(back_end_program.shutil, "which", there.get)
    back_end_program.link_compilers(tmp_path / "launcher.py")
    links = sorted(path.name for path in (tmp_path / "compilers").iterdir())
    assert links == ["c++", "cc", "g++", "g++-12", "gcc", "gcc-12", "x86_64-linux-gnu-g++", "x86_64-linux-gnu-gcc"]
    assert {str(path.readlink()) for path in (tmp_path / "compilers").iterdir()} == {str(tmp_path / "launcher.py")}
    programs = json.loads((tmp_path / launcher.PROGRAMS).read_text())
    assert (programs["cc"], programs["g++-12"]) == ("/usr/bin/gcc-12", "/usr/bin/g++-12")


def test_requirements_of_a_back_end_that_are_not_there_are_named():
    assert back_end_program.lacking(["pytest>=1", "no-such-back-end>=2; python_version>'3'", "???"]) == [
        "no-such-back-end>=2; python_version>'3'",
        "???",
    ]
