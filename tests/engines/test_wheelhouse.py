"""The wheelhouse at work: a real compiler in a real base, small packages, a torch that has only its build tools."""

import contextlib
import dataclasses
import io
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import msgspec
import pytest

from graphcrate.compat.facts import compilers, libraries
from graphcrate.compat.facts.compilers import packages
from graphcrate.compat.facts.libraries import Library
from graphcrate.host import process
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.inputs import extensions
from graphcrate.inputs.bases import debian
from graphcrate.inputs.extensions.compile import provide
from graphcrate.model.errors import BuildError
from graphcrate.model.lock import Compilation
from graphcrate.model.plan import CompileStep
from graphcrate.model.recipe import BaseSpec
from tests.engines.tiny import Told
from tests.engines.workplace import until
from tests.made import file_of, locked, place
from tests.unit.wheelmaker import make_wheel
from treeaudit import elf

SUITE, PYTHON, COMPILER = "bookworm", "3.11", "g++-11"
#: torch up to 2.1 builds with the first; the second takes CFLAGS and CXXFLAGS in place of Python's own
OLD_TOOLS, NEW_TOOLS = ("setuptools==69.5.1", "wheel==0.43.0"), ("setuptools==84.2.1",)
#: what a setup.py that starts CMake takes
CMAKE_TOOLS = ("setuptools==84.2.1", "cmake==4.4.4", "ninja==1.13.2")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.engine("user namespaces"),
]

#: what the program in the sandbox uses of torch, as torch has it
CPP_EXTENSION = b"""
from setuptools import Extension
from setuptools.command.build_ext import build_ext

class BuildExtension(build_ext):
    @classmethod
    def with_options(cls, **options):
        class Chosen(cls):
            def __init__(self, *arguments, **more):
                super().__init__(*arguments, **{**more, **options})
        return Chosen

    def __init__(self, *arguments, use_ninja=True, no_python_abi_suffix=False, **options):
        super().__init__(*arguments, **options)
        self.use_ninja = use_ninja

    def build_extensions(self):
        assert not self.use_ninja
        build_ext.build_extensions(self)

def CppExtension(name, sources, **options):
    return Extension(name, sources, language="c++", **options)
"""
SETUP = """
import glob
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension
import os
extensions = [
    CppExtension("{name}._" + path[5:-4], [path, "csrc/cpu/common.cpp"], include_dirs=[os.path.abspath("own")],
                 extra_compile_args=["-march=native"])
    for path in glob.glob("csrc/*.cpp")
]
setup(name="{name}", version="1.0", packages=["{name}"], ext_modules=extensions,
      cmdclass={{"build_ext": BuildExtension.with_options(use_ninja=False)}})
"""
#: takes a library where a variable says so, as torch_sparse does
LINKED_SETUP = SETUP.replace("import os\n", "import os\nwith_answer = os.getenv('WITH_ANSWER') == '1'\n").replace(
    "extra_compile_args",
    "libraries=['answer'] if with_answer else [], define_macros=[('WITH_ANSWER', None)] if with_answer else [],\n"
    "                 extra_compile_args",
)
MODULE = """
#include <Python.h>
namespace {{ int hidden() {{ return {number}; }} }}
int common();
static PyObject *answer(PyObject *, PyObject *) {{ return PyLong_FromLong(hidden() + common()); }}
static PyMethodDef methods[] = {{{{"answer", answer, METH_NOARGS, __FILE__}}, {{nullptr, nullptr, 0, nullptr}}}};
static PyModuleDef module = {{PyModuleDef_HEAD_INIT, "{name}", nullptr, -1, methods}};
PyMODINIT_FUNC PyInit_{name}() {{ return PyModule_Create(&module); }}
"""


def make_sdist(
    folder, name, *, modules=("one", "two", "three"), broken="", init="from . import _one\n", files=None, uses=None
):
    """A package with an extension module of each of these names. `broken`: code that one of them has besides.

    `files`: more of the sdist's; `uses`: module → what of torch it adds to its answer.
    """
    root = folder / f"{name}-1.0"
    (root / "csrc/cpu").mkdir(parents=True)
    (root / name).mkdir()
    (root / "setup.py").write_text(SETUP.format(name=name))
    (root / name / "__init__.py").write_text(init)
    (root / "csrc/cpu/common.cpp").write_text("int common() { return 40; }\n")
    for number, module in enumerate(modules):
        number = number if uses is None else f"{number} + {uses[module]}"
        text = MODULE.format(name=f"_{module}", number=number)
        (root / f"csrc/{module}.cpp").write_text(text if uses is None else f"#include <torch/extension.h>\n{text}")
    for path, text in (files or {}).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    if broken:
        with (root / f"csrc/{modules[-1]}.cpp").open("a") as stream:
            stream.write(broken)
    sdist = folder / f"{name}-1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.add(root, root.name)
    return sdist


@pytest.fixture(scope="module")
def base(bookworm):
    """A Debian with the compiler, which test_debian_base has too; the wheels have to work in it."""
    there = place(bookworm.cache, os.environ)
    lock = debian.lock(BaseSpec(suite=SUITE, packages=packages(COMPILER)), PYTHON, there)
    return lock, debian.prepare(lock, there)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Both sets of tools, and a torch that can build extensions."""
    folder = tmp_path_factory.mktemp("wheels")
    tools = {}
    for wanted in (OLD_TOOLS, NEW_TOOLS, CMAKE_TOOLS):
        place = folder / "-".join(wanted)
        command = ["pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", place, *wanted]
        subprocess.run([sys.executable, "-m", *command], check=True)
        tools[wanted] = sorted(place.glob("*.whl"))
    torch = {"torch/__init__.py": b"", "torch/utils/__init__.py": b"", "torch/utils/cpp_extension.py": CPP_EXTENSION}
    return make_wheel(folder, "torch", "2.0.1", torch), tools


@pytest.fixture
def job(cache, base, wheels, tmp_path):
    """Makes the job for these sdists; what it says is in `progress.notes`."""

    def make(*sdists, jobs=2, store=cache, tools=OLD_TOOLS, **more):
        files = {}

        def known(path, **more):
            package = locked((path.name, path.read_bytes()), **more)
            files[package.file.sha256] = path
            return package

        compiled = tuple(known(path, compiled=True, **more) for path in sdists)
        tooling = tuple(map(known, wheels[1][tools]))
        compilation = Compilation(architectures=(), compiler=COMPILER, base=base[0], tools=tooling)
        step = CompileStep(
            title="extensions", python=PYTHON, packages=compiled, against=(known(wheels[0]),), compilation=compilation
        )
        return extensions.CompileJob(
            step=step,
            base=base[1],
            build_base=base[1],
            toolkit=None,
            files=files,
            cache=store,
            progress=Told(),
            jobs=jobs,
            log_folder=tmp_path / "logs",
        )

    return make


def leftovers(cache):
    return list((cache.root / "tmp").glob("run-*/*"))


@pytest.mark.parametrize("tools", [OLD_TOOLS, NEW_TOOLS], ids=lambda tools: tools[0])
def test_packages_become_wheels_and_are_compiled_once(job, tmp_path, tools):
    first = make_sdist(tmp_path, "first")
    work = job(first, make_sdist(tmp_path, "second"), jobs=3, tools=tools)
    made = provide(work)
    assert {path.name for path in made.values()} == {
        f"{n}-1.0-cp311-cp311-linux_x86_64.whl" for n in ("first", "second")
    }
    assert work.progress.notes[-1] == "compiling first, second: 12/12 files"
    assert leftovers(work.cache) == []
    assert extensions.cached(work.step, work.cache) == made
    before = len(work.progress.notes)
    assert provide(work) == made
    assert len(work.progress.notes) == before
    with contextlib.closing(Cache(tmp_path / "elsewhere" / "cache")) as other:  # whatever is compiled beside it
        ((sha256, again),) = provide(job(first, jobs=1, store=other, tools=tools)).items()
        assert again.read_bytes() == made[sha256].read_bytes()
    with pytest.raises(BuildError):
        provide(job(make_sdist(tmp_path, "said", modules=("one",), broken="wrong"), tools=tools))
    log = (tmp_path / "logs" / "compile-said.log").read_text()
    command = next(line for line in log.splitlines() if " -c csrc/one.cpp " in line).split()
    assert [flag for flag in command if flag in {"-g", "-g0"}][-1] == "-g0"  # no tables for debuggers
    assert {"-O2", "-DNDEBUG", "-fPIC"} <= set(command)
    assert "-march=native" not in command, "it would be for the processor that compiles"


#: what an unpacked torch has of these names, as far as the small headers go
SMALL = {
    "types.h": "namespace torch { inline int little() { return 2; } }\n",
    "csrc/autograd/custom_function.h": "",
    "csrc/jit/runtime/custom_operator.h": "",
}


def test_a_file_that_needs_more_than_the_small_headers_is_compiled_with_torchs_own(job, tmp_path, monkeypatch):
    monkeypatch.setitem(compilers._FOLDERS, "eager", "csrc")
    own = {f"own/torch/{name}": text for name, text in SMALL.items()}
    own["own/torch/extension.h"] = "#include <torch/types.h>\nnamespace torch { inline int module() { return 3; } }\n"
    sdist = make_sdist(
        tmp_path,
        "eager",
        modules=("one", "two"),
        init="from . import _one, _two\nassert (_one.answer(), _two.answer()) == (42, 44)\n",
        files=own,
        uses={"one": "torch::little()", "two": "torch::module()"},
    )
    work = job(sdist)
    (wheel,) = provide(work).values()
    (slower,) = [note for note in work.progress.notes if "needs more than the small headers" in note]
    assert "eager" in slower
    assert "in csrc/two.cpp at least" in slower
    assert "module" in slower
    assert work.progress.notes[-1].startswith("compiling eager: 4/4 files")
    with contextlib.closing(Cache(tmp_path / "elsewhere" / "cache")) as other:
        (again,) = provide(job(sdist, jobs=1, store=other)).values()
        assert again.read_bytes() == wheel.read_bytes()


#: as pyg_lib's: an extension of no sources, whose build starts CMake; it links to libpython, as pyg_lib 0.2 does
CMAKE_SETUP = """
import os, subprocess
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

class CMakeBuild(build_ext):
    def build_extension(self, extension):
        folder = os.path.abspath(os.path.dirname(self.get_ext_fullpath(extension.name)))
        os.makedirs(self.build_temp, exist_ok=True)
        command = ["cmake", os.path.abspath("."), "-GNinja", "-DCMAKE_LIBRARY_OUTPUT_DIRECTORY=" + folder]
        subprocess.check_call(command, cwd=self.build_temp)
        subprocess.check_call(["cmake", "--build", "."], cwd=self.build_temp)

setup(name="steered", version="1.0", packages=["steered"], ext_modules=[Extension("steered._answer", [])],
      cmdclass={"build_ext": CMakeBuild})
"""
CMAKE_LISTS = """
cmake_minimum_required(VERSION 3.18)
project(steered LANGUAGES CXX)
find_package(Python3 REQUIRED COMPONENTS Development)
set(CMAKE_CXX_FLAGS "${CMAKE_CXX_FLAGS} -march=native")
add_library(_answer SHARED one.cpp two.cpp)
set_target_properties(_answer PROPERTIES PREFIX "")
target_link_libraries(_answer PRIVATE Python3::Python)
"""
STEERED = {
    "setup.py": CMAKE_SETUP,
    "CMakeLists.txt": CMAKE_LISTS,
    "PKG-INFO": "Metadata-Version: 2.1\nName: steered\nVersion: 1.0\n",
    "steered/__init__.py": "from ._answer import answer\nassert answer() == 42\n",
    "one.cpp": "#ifdef __AVX__\n#error it is compiled for this very processor\n#endif\nint common() { return 40; }\n",
    "two.cpp": MODULE.format(name="_answer", number="2"),
}


def steered(folder, **changes):
    """A source that CMake builds."""
    sdist = folder / "steered-1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for path, text in {**STEERED, **changes}.items():
            info = tarfile.TarInfo(f"steered-1.0/{path}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return sdist


def test_cmake_project_is_built_by_its_own_back_end_to_the_same_bytes(job, tmp_path):
    sdist = steered(tmp_path)
    work = job(sdist, make_sdist(tmp_path, "beside", modules=("one",)), tools=CMAKE_TOOLS)
    mixed = (msgspec.structs.replace(work.step.packages[0], back_end=True), work.step.packages[1])
    made = provide(dataclasses.replace(work, step=msgspec.structs.replace(work.step, packages=mixed)))
    wheel = made[mixed[0].file.sha256]
    assert wheel.name == "steered-1.0-cp311-cp311-linux_x86_64.whl"
    assert "compiling steered: 3/3 steps" in work.progress.notes
    assert "compiling beside: 2/2 files" in work.progress.notes
    assert leftovers(work.cache) == []
    with zipfile.ZipFile(wheel) as archive:
        library = elf.read_stream(io.BytesIO(archive.read("steered/_answer.so")), "_answer.so")
    assert not [name for name in library.binary.needed if "python" in name], "the interpreter has it inside"
    with contextlib.closing(Cache(tmp_path / "elsewhere" / "cache")) as other:
        alone = job(sdist, jobs=1, store=other, tools=CMAKE_TOOLS, back_end=True)
        assert provide(alone)[sha256_of(sdist)].read_bytes() == wheel.read_bytes()


def test_cmake_project_that_fails_says_the_compilers_first_error(job, tmp_path):
    work = job(steered(tmp_path, **{"one.cpp": "wrong;\n"}), tools=CMAKE_TOOLS, back_end=True)
    with pytest.raises(BuildError, match=r"steered 1\.0 does not compile: .*one\.cpp:1:1: ") as caught:
        provide(work)
    log = tmp_path / "logs/compile-steered.log"
    assert str(log) in caught.value.what
    assert "ninja: build stopped" in log.read_text()
    assert extensions.cached(work.step, work.cache) == {}


LIBRARY = {
    "include/answer.h": "#define ANSWER 32\nint answer_of_library(void);\n",
    "src/answer.c": "#include <answer.h>\nint answer_of_library(void) { return ANSWER; }\n",
    "src/left_out.c": "#error it is left out\n",
    "LICENSE.txt": "terms of the library\n",
}
CODE = """
#ifdef WITH_ANSWER
extern "C" {
#include <answer.h>
}
static int from_library() { return answer_of_library(); }
#else
static int from_library() { return 0; }
#endif
"""


def linked_job(job, tmp_path, monkeypatch, *sdists, files=LIBRARY, **more):
    """The job for these sdists, of which `linked` is linked to a library with these files."""
    packed = tmp_path / "answer_1.orig.tar.xz"
    with tarfile.open(packed, "w:xz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"answer-1/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    file = file_of(packed.name, packed.read_bytes())
    library = Library(
        name="answer", title="answer 1", packages=("linked",), source="answer", version="1", suite=SUITE, listed="",
        path=f"pool/main/a/answer/{packed.name}", size=file.size, sha256=file.sha256, folder="answer-1",
        edits=(("include/answer.h", "#define ANSWER 32", "#define ANSWER 64"),), files=("src/*.c",),
        without=("src/left*",), options="-O2 -fPIC -fvisibility=hidden", include=("include",), seconds=1.0,
        variables={"WITH_ANSWER": "1"}, text="LICENSE.txt", licence="MIT", notice="It is linked.\n",
    )  # fmt: skip
    monkeypatch.setattr(libraries, "_libraries", lambda: (library,))
    work = job(*sdists, **more)
    compilation = libraries.with_libraries(work.step.compilation, ["linked"])
    step = msgspec.structs.replace(work.step, compilation=compilation)
    return dataclasses.replace(work, step=step, files={**work.files, file.sha256: packed})


def make_linked(tmp_path):
    """An sdist whose module answers what the library does, 64 for 32 in its header."""
    return make_sdist(
        tmp_path,
        "linked",
        modules=("one",),
        init="from . import _one\nassert _one.answer() == 104, _one.answer()\n",
        files={"own/torch/extension.h": CODE},
        uses={"one": "from_library()"},
    )


@pytest.mark.parametrize("tools", [OLD_TOOLS, NEW_TOOLS], ids=lambda tools: tools[0])
def test_a_package_is_linked_to_its_library_and_has_its_licences(job, tmp_path, monkeypatch, tools):
    monkeypatch.setattr(f"{__name__}.SETUP", LINKED_SETUP)
    sdists = [make_linked(tmp_path), make_sdist(tmp_path, "other", modules=("one",))]
    work = linked_job(job, tmp_path, monkeypatch, *sdists, tools=tools)
    linked, _ = made = list(provide(work).values())
    with zipfile.ZipFile(linked) as archive:
        texts = {Path(name).name: archive.read(name).decode() for name in archive.namelist() if name.endswith(".txt")}
    assert texts["LICENSE.ANSWER.txt"] == "terms of the library\n"
    assert texts["NOTICE.ANSWER.txt"] == "It is linked.\n"
    with contextlib.closing(Cache(tmp_path / "elsewhere" / "cache")) as store:
        again = provide(linked_job(job, tmp_path, monkeypatch, *sdists, jobs=1, store=store, tools=tools)).values()
        assert [path.read_bytes() for path in again] == [path.read_bytes() for path in made]


def test_a_library_that_does_not_compile_is_blamed_with_its_file(job, tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.SETUP", LINKED_SETUP)
    broken = {**LIBRARY, "src/answer.c": "int answer_of_library(void) { return nonsense; }\n"}
    sdists = [make_sdist(tmp_path, "other", modules=("one",)), make_linked(tmp_path)]
    work = linked_job(job, tmp_path, monkeypatch, *sdists, files=broken)
    with pytest.raises(BuildError, match=r"linked 1\.0 does not compile at answer/src/answer\.c: .*nonsense"):
        provide(work)


def test_a_package_that_does_not_compile_is_named_with_its_first_error_and_its_log(job, tmp_path):
    good = make_sdist(tmp_path, "good", modules=("one",))
    bad = make_sdist(tmp_path, "bad", broken="int wrong = nonsense;\n" + "int more = also_wrong;\n" * 50)
    work = job(good, bad, jobs=1)
    with pytest.raises(
        BuildError, match=r"bad 1\.0 does not compile at csrc/three\.cpp: .*error: .nonsense. was not"
    ) as caught:
        provide(work)
    log = tmp_path / "logs" / "compile-bad.log"
    assert str(log) in caught.value.what
    assert "also_wrong" in log.read_text()
    assert caught.value.next_step
    assert leftovers(work.cache) == []
    assert work.step.packages[1].file.sha256 not in extensions.cached(work.step, work.cache)


@pytest.mark.parametrize(
    ("init", "code", "said"),
    [
        ("raise RuntimeError('no such luck')\n", "", r"would not work in the image: .*no such luck"),
        ("from . import _one\n", "int nowhere(); int use() { return nowhere(); }\n", "nowhere"),
    ],
    ids=["import", "symbol"],
)
def test_a_wheel_that_would_not_work_is_not_kept(job, tmp_path, init, code, said):
    work = job(make_sdist(tmp_path, "sorry", modules=("one",), init=init, broken=code))
    with pytest.raises(BuildError, match=said):
        provide(work)
    assert extensions.cached(work.step, work.cache) == {}


def test_interrupted_compile_leaves_no_process_or_file(job, tmp_path):
    include = "#include <regex>\n"
    slow = include + "\n".join(f'int f{i}() {{ return std::regex("{i}").mark_count(); }}' for i in range(400))
    work = job(make_sdist(tmp_path, "slow", modules=("oneslow",), broken=slow, init=""))
    ended = []

    def compilers():
        found = subprocess.run(["pgrep", "-fa", "cc1plus.*oneslow.cpp"], capture_output=True, check=False).stdout
        return [line for line in found.splitlines() if b"pgrep" not in line]

    def attempt():
        try:
            provide(work)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    until(compilers)
    process.end_all()
    thread.join(60)
    assert [type(error) for error in ended] == [extensions.CompileError], work.progress.notes
    assert "interrupted" in ended[0].what
    assert not compilers()
    assert leftovers(work.cache) == []
    assert extensions.cached(work.step, work.cache) == {}
