"""The wheelhouse at work: a real compiler in a real base, small packages, a torch that has only its build tools."""

import contextlib
import os
import subprocess
import sys
import tarfile
import threading

import pytest

from graphcrate.compat import compilers
from graphcrate.compat.compilers import packages
from graphcrate.host import process
from graphcrate.host.cache import Cache
from graphcrate.inputs import extensions
from graphcrate.inputs.bases import debian
from graphcrate.inputs.extensions.compile import provide
from graphcrate.model.errors import BuildError
from graphcrate.model.lock import Compilation
from graphcrate.model.plan import CompileStep
from graphcrate.model.recipe import BaseSpec
from tests.engines.tiny import Told
from tests.engines.workplace import until
from tests.made import locked, place
from tests.unit.wheelmaker import make_wheel

SUITE, PYTHON, COMPILER = "bookworm", "3.11", "g++-11"
#: torch up to 2.1 builds with the first; the second takes CFLAGS and CXXFLAGS in place of Python's own
OLD_TOOLS, NEW_TOOLS = ("setuptools==69.5.1", "wheel==0.43.0"), ("setuptools==84.2.1",)
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
def base(cache):
    """A Debian with the compiler; the wheels have to work in it too."""
    lock = debian.lock(BaseSpec(suite=SUITE, packages=packages(COMPILER)), PYTHON, place(cache, os.environ))
    return lock, debian.prepare(lock, place(cache, os.environ))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Both sets of tools, and a torch that can build extensions."""
    folder = tmp_path_factory.mktemp("wheels")
    tools = {}
    for wanted in (OLD_TOOLS, NEW_TOOLS):
        place = folder / wanted[0]
        command = ["pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", place, *wanted]
        subprocess.run([sys.executable, "-m", *command], check=True)
        tools[wanted] = sorted(place.glob("*.whl"))
    torch = {"torch/__init__.py": b"", "torch/utils/__init__.py": b"", "torch/utils/cpp_extension.py": CPP_EXTENSION}
    return make_wheel(folder, "torch", "2.0.1", torch), tools


@pytest.fixture
def job(cache, base, wheels, tmp_path):
    """Makes the job for these sdists; what it says is in `progress.notes`."""

    def make(*sdists, jobs=2, store=cache, tools=OLD_TOOLS):
        files = {}

        def known(path, **more):
            package = locked((path.name, path.read_bytes()), **more)
            files[package.file.sha256] = path
            return package

        compiled = tuple(known(path, compiled=True) for path in sdists)
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


def test_an_interrupt_leaves_nothing(job, tmp_path):
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
    assert [type(error) for error in ended] == [BuildError], work.progress.notes
    assert "interrupted" in ended[0].what
    assert not compilers()
    assert leftovers(work.cache) == []
    assert extensions.cached(work.step, work.cache) == {}
