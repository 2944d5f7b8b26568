"""All that is said where a source does not become a wheel that works: each message whole, as a file has it.

`WRITE=1 python -m pytest tests/unit/inputs/test_compile_failures.py` writes the file. A message that is no longer in
it is a diagnosis that was lost.
"""

import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.assembly.extension_wheels import explained
from graphcrate.compat.failures import error_lines
from graphcrate.compat.failures.failure import same_with
from graphcrate.compat.variants.next_steps import NextSteps
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.host.process import Completed, SilenceError
from graphcrate.inputs import extensions
from graphcrate.inputs.bases import contents
from graphcrate.inputs.extensions import CompileError, back_end
from graphcrate.inputs.extensions import compile as house
from graphcrate.inputs.extensions.ground import Ground
from graphcrate.model.platform import DEFAULT
from graphcrate.model.recipe import Additions
from tests.made import sdist, wheel
from tests.unit.elfmaker import make_elf
from tests.unit.inputs.test_extensions import installed_in, step
from tests.unit.wheel_server import small_sdist
from tests.unit.wheelmaker import make_wheel

MESSAGES = Path(__file__).parents[1] / "golden" / "compile_failures.txt"
REQUEST = BuildRequest(name="torch", cuda="11.8", additions=Additions(packages=("demo",), apt=("libumfpack5",)))
#: kind and name → Debian's packages, any of which brings it
INDEX = {
    ("header", "odd/odd.h"): ("libodd-dev", "libodd-tiny-dev"),
    ("library", "odd"): ("libodd-dev",),
    ("program", "odd"): ("odd-tools",),
}
LINKED = {"libodd-dev": ("libodd2",)}
NO_FILE = "No such file or directory"
#: the words by which a compiler, linker or back-end ends
LINES = {
    "unsupported compiler": ["a.h:132:2: error: #error -- unsupported GNU version! gcc later than 11"],
    "compiler is absent": [f"error: command 'g++-11' failed: {NO_FILE}"],
    "Python.h": [f"a.cpp:1:10: fatal error: Python.h: {NO_FILE}"],
    "another CUDA": ["RuntimeError: (12.1) mismatches the version that was used to compile PyTorch (11.8)"],
    "architecture": ["nvcc fatal   : Unsupported gpu architecture 'compute_35'"],
    "out of memory": ["nvcc error   : 'cicc' died due to signal 9 (Kill signal)"],
    "disk is full": ["cc1plus: fatal error: x.s: No space left on device"],
    "header of the toolkit": [f"a.hpp:3:10: fatal error: cuda_fp16.h: {NO_FILE}"],
    "library of the toolkit": ["/usr/bin/ld: cannot find -lcudart"],
    "thrust": ['concurrent_unordered_map.cuh(503): error: namespace "thrust" has no member "device"'],
    "older Python": ["cast.h:446:36: error: invalid use of incomplete type 'PyFrameObject'"],
    "longintrepr.h": [f"m.c:9:12: fatal error: longintrepr.h: {NO_FILE}"],
    "no network": ["error: <urlopen error [Errno -3] Temporary failure in name resolution>"],
    "numpy 1": ["w.c:6: error: 'PyArray_INT' undeclared (first use in this function)"],
    "module is absent": ["Traceback", "ModuleNotFoundError: No module named 'numpy'"],
    "nobody knows": ["a.cpp:14:9: error: 'nonsense' was not declared in this scope"],
    "build requirement": ["lacks the build requirement sip>=6", "ModuleNotFoundError: No module named 'sipbuild'"],
    "needs CUDA": ["CMake Error at CMakeLists.txt:2 (project):", "  No CMAKE_CUDA_COMPILER could be found."],
    "header of a wheel": [f"nvtx3.hpp:34:10: fatal error: nvtx3/nvToolsExt.h: {NO_FILE}"],
    "library of a wheel": ["/usr/bin/ld: cannot find -lcusparse"],
    "found by no CMake": ["CMake Error at F.cmake:230 (message):", "  Could NOT find NCCL (missing: NCCL_LIBRARY)"],
    "header of Debian": [f"a.c:1:10: fatal error: umfpack.h: {NO_FILE}"],
    "library of Debian": [f"/usr/bin/ld: cannot find -lz: {NO_FILE}"],
    "library by CMake": ["CMake Error at F.cmake:230 (message):", "  Could NOT find ZLIB (missing: ZLIB_LIBRARY)"],
    "library by pkg-config": [
        "meson.build:31:12: ERROR: Dependency lookup for cairo with method 'pkg-config' failed: "
        "Pkg-config for machine host machine not found. Giving up."
    ],
    "program": ["../meson.build:5:7: ERROR: Program 'swig' not found or not executable"],
    "make": ["ninja: error: unknown target 'VERBOSE=1'"],
    "Fortran": ["CMake Error at CMakeLists.txt:4 (ENABLE_LANGUAGE):", "  No CMAKE_Fortran_COMPILER could be found."],
    "module of Debian": ["Traceback", "ModuleNotFoundError: No module named 'lib2to3.pgen2'"],
    "header of Debian's index": [f"b.c:1:2: fatal error: odd/odd.h: {NO_FILE}"],
    "library of Debian's index": ["ld: cannot find -lodd"],
    "program of Debian's index": ["ERROR: Program 'odd' not found"],
    "header of nobody": [f"b.c:1:2: fatal error: unknowable.h: {NO_FILE}"],
    "crate without a library": [
        "error: failed to run custom build command for `zstd-sys`",
        "The system library `libzstd` required by crate `zstd-sys` was not found",
    ],
}
#: of all that is compiled; a stack's own sources get no advice about packages
OF_ANY = ("architecture", "header of the toolkit", "older Python", "module is absent", "nobody knows")
OF_STACK = (*OF_ANY, "build requirement", "library of a wheel", "header of Debian")
OF_CPU = ("needs CUDA", "header of the toolkit", "library of a wheel", "header of Debian")
KNOWN = {
    "scikit-umfpack": ["FAILED: [code=1] a.c", "python meson_swig.py", "umfpack_dep not found in dependencies: "],
    "scikit-sparse": ["cholmod.c:1:28: error: 'cholmod_common' has no member named 'nsbounds_hit'"],
}
#: what is said when a compiled wheel is loaded
COMPLAINTS = {
    "symbol": ["_x.so: undefined symbol: _ZN3c104cuda9SetDeviceEa"],
    "another torch": ["import x: AttributeError: module 'torch.library' has no attribute 'custom_op'"],
    "another Python": ["import x: ImportError: cannot import name 'Sequence' from 'collections' (/usr/lib/x.py)"],
    "known remedy": ["import x: AttributeError: `np.infty` was removed in the NumPy 2.0 release. Use `np.inf`"],
    "library of the image": [f"libcublas.so.11: cannot open shared object file: {NO_FILE}"],
    "library of a wheel": [
        f"{name}: cannot open shared object file: {NO_FILE}" for name in ("libcusolver.so.11", "libopenblas.so.0")
    ],
    "library of Debian": [f"libsnappy.so.1: cannot open shared object file: {NO_FILE}"],
    "library of nobody": [f"libodd_x.so.3: cannot open shared object file: {NO_FILE}"],
}


def packages(name="demo"):
    """Kind → a source of that kind."""
    added = sdist(name, "1.0", back_end=True, build=(wheel("meson-python"),))
    return {"stack": msgspec.structs.replace(added, build=(), commit="a" * 40), "added": added}


def is_cpu(kind):
    return {"toolkit": None, "architectures": ()} if kind == "cpu" else {"architectures": ("3.5", "7.0")}


@pytest.fixture
def job(tmp_path, cache, progress, monkeypatch):
    """Makes a compile of a package; `beside`: what its messages say is typed."""
    monkeypatch.setattr(back_end, "free_memory", lambda: 10 * 10**9)
    monkeypatch.setattr(house, "free_memory", lambda: 10 * 10**9)
    source = tmp_path / "demo.tar.gz"
    source.write_bytes(small_sdist("demo", "1.0", pyproject="")[1])
    base = SimpleNamespace(glibc="2.36", rootfs=tmp_path, platform=DEFAULT, emulator=None)
    build_base = SimpleNamespace(rootfs=installed_in(tmp_path / "base"))

    def make(package, kind="", beside=same_with):
        made = step(packages=(package,), **is_cpu(kind))
        return SimpleNamespace(
            step=made,
            shelves=extensions.shelves(made, cache),
            files={package.file.sha256: source},
            jobs=2,
            toolkit=None,
            progress=progress,
            base=base,
            build_base=build_base,
            log_folder=tmp_path / "logs",
            cache=cache,
        ), beside

    monkeypatch.setattr(contents, "bringing", lambda kind, name, *_: INDEX.get((kind, name), ()))
    monkeypatch.setattr(contents, "linked_by", lambda package, *_: LINKED.get(package, ()))
    return make


def told(job, compile_it):
    """The message that a compile ends with, as the user reads it."""
    with pytest.raises(CompileError) as caught:
        compile_it(job[0])
    return str(explained(caught.value.failure, *job, None))


def in_sandbox(monkeypatch, lines, returncode=1, error=None):
    def run_in(_, command):
        for line in lines:
            if command.on_line:
                command.on_line(line)
        if error:
            raise error
        return Completed(returncode, tuple(lines))

    monkeypatch.setattr(house.sandbox, "run_in", run_in)


class Messages(dict):
    """Title → message. Each `tell` makes one, of a compile in a folder of its own."""

    def __init__(self, folder, job, monkeypatch):
        super().__init__()
        self.folder, self.job, self._monkeypatch = folder, job, monkeypatch

    def new(self):
        folder = self.folder / f"build-{len(self)}"
        folder.mkdir()
        return folder

    def tell(self, title, package, compile_it, lines, kind="", beside=same_with, **ending):
        in_sandbox(self._monkeypatch, lines, **ending)
        message = told(self.job(package, kind, beside), lambda job: compile_it(self, job, package))
        self[title] = message.replace(str(self.folder), "…")


def by_back_end(messages, job, package):
    needs = messages.folder / "requirements" if package.isolated else None
    folder, given = messages.new() / "build", {"PATH": "/opt/venv/bin:/bin"}
    back_end.build(job, package, folder, messages.folder / "venv", given, needs)


def by_files(messages, job, package):
    house._compile(
        job, (package,), messages.new(), messages.folder / "venv", Ground(messages.folder, "/usr/bin/python3")
    )


def loaded(messages, job, package, source="a.cpp"):
    folder, library = messages.new(), {"x/_x.so": make_elf(needed=("libtorch_cpu.so",))}
    tag = "cp311-cp311-linux_x86_64"
    made = make_wheel(folder, package.name.replace("-", "_"), "1.0", library, tag=tag, purelib=False)
    (folder / "build" / f"{package.name}-1.0").mkdir(parents=True)
    (folder / "build" / f"{package.name}-1.0" / source).touch()
    house.keep(job, {package: made}, messages.folder / "venv", folder / "build")


def without_gpu_code(messages, job, package):
    loaded(messages, job, package, "a.cu")


@pytest.fixture
def messages(tmp_path, job, monkeypatch):
    """Title → message, for everything that is known to fail."""
    made, beside = Messages(tmp_path, job, monkeypatch), NextSteps(REQUEST).beside
    stack, added, plain = *packages().values(), sdist("torch-scatter", "1.0")
    for title, lines in LINES.items():
        made.tell(title, added, by_back_end, lines)
    for title in OF_CPU:
        made.tell(f"{title}, without CUDA", added, by_back_end, LINES[title], "cpu")
    for title in OF_STACK:
        made.tell(f"{title}, of a stack", stack, by_back_end, LINES[title])
    for title in OF_ANY:
        made.tell(f"{title}, by files", plain, by_files, LINES[title])
    for name, lines in KNOWN.items():
        made.tell(f"known of {name}", packages(name)["added"], by_back_end, lines)
    for title in ("header of Debian", "header of Debian's index", "library of a wheel"):
        made.tell(f"{title}, of a request", added, by_back_end, LINES[title], beside=beside)
    for title, compile_it, package in (("by files", by_files, plain), ("by its back-end", by_back_end, added)):
        made.tell(f"hangs, {title}", package, compile_it, [], error=SilenceError("silent"))
        made.tell(f"interrupted, {title}", package, compile_it, [], returncode=-15)
        made.tell(f"killed, {title}", package, compile_it, [], returncode=137)
    cublas = tmp_path / "venv/lib/python3.11/site-packages/nvidia/cublas/lib/libcublas.so.11"
    cublas.parent.mkdir(parents=True)
    cublas.touch()
    for title, lines in COMPLAINTS.items():
        made.tell(f"not loaded: {title}", added, loaded, lines)
    for title in ("known remedy", "library of a wheel", "library of Debian"):
        made.tell(f"not loaded: {title}, of a request", added, loaded, COMPLAINTS[title], beside=beside)
    made.tell("not loaded: library of a wheel, without CUDA", added, loaded, COMPLAINTS["library of a wheel"], "cpu")
    made.tell("not loaded: signal", added, loaded, [], returncode=139)
    made.tell("no code for GPUs", added, without_gpu_code, [])
    return made


def test_messages_of_failed_compiles_are_those_of_the_file(messages):
    text = "".join(f"== {title}\n{message}\n" for title, message in messages.items())
    if "WRITE" in os.environ:
        MESSAGES.write_text(text, encoding="utf-8")
    assert text == MESSAGES.read_text(encoding="utf-8")


def test_every_known_cause_has_a_message_in_the_file():
    text = MESSAGES.read_text(encoding="utf-8")
    causes = [cause.partition("{")[0] for _, cause, _ in error_lines._CAUSES]
    causes += [row.because for row in error_lines._known()]
    assert [cause for cause in causes if cause not in text] == []
