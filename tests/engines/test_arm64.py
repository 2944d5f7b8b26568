"""Programs of arm64 in the sandbox on another processor: Debian's own busybox, run by the emulator that a base gets.

And what this machine's cross-compiler makes there, when an emulated program starts it.
"""

import os
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.compat.facts import compilers
from graphcrate.compat.facts.compilers import variables
from graphcrate.compat.plan.compile_steps import compile_steps
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.host.sandbox.emulation import Emulator, is_native
from graphcrate.host.sandbox.sandbox import Exec, run_in
from graphcrate.host.sandbox.steps import Step
from graphcrate.inputs import toolkits
from graphcrate.inputs.bases import debian
from graphcrate.inputs.bases.archive import SuiteArchive
from graphcrate.inputs.bases.deb import extract, inflate_member
from graphcrate.inputs.bases.debs import fetch_debs
from graphcrate.inputs.emulators import prepare_emulator
from graphcrate.inputs.extensions import ground
from graphcrate.inputs.extensions.worker import seeded
from graphcrate.model.lock import decode_lock
from graphcrate.model.plan import CUDA_HOME
from graphcrate.model.platform import ARM64
from graphcrate.resolve.sources.fetch import fetch
from graphcrate.resolve.stack.base import compiler_spec
from graphcrate.resolve.stack.extensions import lock_cross
from nsbox.binfmt import REGISTERED
from nsbox.box import Bind
from tests import ROOT
from tests.made import RECIPES, place
from treeaudit import elf

KERNEL = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.engine("user namespaces"),
    pytest.mark.skipif(is_native(ARM64), reason="nothing is emulated on an arm64 machine"),
    pytest.mark.skipif(KERNEL < (6, 7), reason="a namespace has its own binfmt_misc from Linux 6.7 on"),
]


@pytest.fixture(scope="module")
def ctx(cache):
    """One cache for all of these tests: each list of packages is read once."""
    return place(cache, os.environ)


@pytest.fixture(scope="module")
def emulator(ctx):
    return prepare_emulator(ARM64, ctx)


@pytest.fixture(scope="module")
def root(ctx, tmp_path_factory):
    """A root file system with one static program of arm64."""
    folder = tmp_path_factory.mktemp("root")
    archive = SuiteArchive("bookworm", ctx, platform=ARM64)
    package = next(each for each in archive.resolve(["busybox-static"]) if each.name == "busybox-static")
    (deb,) = fetch_debs([package], "bookworm", ctx, listed=archive.listed)
    extract(folder / "plain", inflate_member(deb, folder / "plain"), folder / "unpacked", only="bin/busybox")
    for name in ("proc", "sys", "dev", "tmp", "run", "bin"):
        (folder / "root" / name).mkdir(parents=True)
    shutil.copy(folder / "unpacked/bin/busybox", folder / "root/bin/busybox")
    (folder / "root/bin/sh").symlink_to("busybox")
    return folder / "root"


def registered():
    return sorted(path.name for path in REGISTERED.iterdir()) if REGISTERED.is_dir() else []


@pytest.mark.parametrize("step", [Step.BUILD, Step.SMOKE, Step.RUN])
def test_a_program_of_arm64_runs_in_each_step_and_leaves_nothing_registered(emulator, root, step):
    before = registered()
    script = "busybox uname -m; busybox ls /proc/sys/fs/binfmt_misc; echo 1 > /proc/sys/fs/binfmt_misc/status"
    done = run_in(root, Exec(["/bin/sh", "-c", script], {"PATH": "/bin"}, step=step, emulator=emulator))
    assert done.lines[0] == ARM64.machine
    if emulator.program is not None:
        assert ARM64.qemu in done.lines
    assert any("can't create" in line for line in done.lines), "who runs inside registers nothing"
    assert registered() == before


def test_without_an_emulator_a_program_of_arm64_cannot_be_run(root, emulator):
    if emulator.program is None:
        pytest.skip("this host's kernel has an emulator registered")
    done = run_in(root, Exec(["/bin/busybox", "true"], {"PATH": "/bin"}, step=Step.BUILD))
    assert done.returncode == 126
    assert "cannot be run in the image: Exec format error" in done.lines[-1]


def test_an_emulator_in_a_folder_with_a_colon_is_registered(emulator, root, tmp_path):
    if emulator.program is None:
        pytest.skip("this host's kernel has an emulator registered")
    folder = tmp_path / ("a:" + "b" * 200)
    folder.mkdir()
    shutil.copy(emulator.program, folder / "qemu")
    order = Exec(["/bin/busybox", "uname", "-m"], {"PATH": "/bin"}, emulator=Emulator(ARM64, Path(folder / "qemu")))
    assert run_in(root, order).lines == (ARM64.machine,)


MODULE = """
#include <Python.h>
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "small", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit_small() { return PyModule_Create(&module); }
"""
PROGRAM = """
#include <cstdio>
#include <sys/utsname.h>
int main() { utsname name; uname(&name); std::printf("made for %s: %d\\n", name.machine, __aarch64__); }
"""


@pytest.fixture(scope="module")
def crossed(ctx, tmp_path_factory, emulator, root):
    """The sandbox that compiles extensions for arm64, with the root of busybox in place of an image's base."""
    folder = tmp_path_factory.mktemp("cross")
    compiler = compilers.compiler_for("bookworm", None, ARM64)
    locked = debian.lock(compiler_spec(RECIPES["pyg"].variants[0], "bookworm", compiler), "3.11", ctx)
    cross = lock_cross("bookworm", "3.11", ARM64, ctx)
    debs = fetch_debs(cross.headers, "bookworm", ctx, listed=locked.listed)
    files = dict(zip((package.file.sha256 for package in cross.headers), debs, strict=True))
    (root / "usr/lib").mkdir(parents=True)  # as in a base of Debian: the loader's link leads to /lib
    (root / "lib").symlink_to("usr/lib")
    image = SimpleNamespace(rootfs=root, python="/usr/bin/python3.11", emulator=emulator)
    compilation = SimpleNamespace(crossed=cross, base=locked)
    base = debian.prepare(locked, ctx)
    return ground.prepare(compilation, image, base, files, folder / "headers"), compiler, base


def test_an_emulated_program_starts_the_cross_compiler_whose_code_is_of_arm64(crossed, tmp_path):
    made, compiler, _ = crossed
    (tmp_path / "small.cpp").write_text(MODULE)
    (tmp_path / "hello.cpp").write_text(PROGRAM)
    _, cxx = compilers.programs(compiler)
    script = f"""
uname -m
{cxx} -O1 -fPIC -shared -I/usr/include/python3.11 small.cpp -o small.so
{cxx} -O1 -static hello.cpp -o hello
./hello
"""
    binds = [*made.binds, Bind(tmp_path, "/build", read_only=False)]
    given = {"PATH": f"/bin:{compilers.CROSS}/usr/bin", "TMPDIR": "/build"}
    order = Exec(["/bin/sh", "-exc", script], given, binds, cwd="/build", step=Step.BUILD, emulator=made.emulator)
    done = run_in(made.rootfs, order)
    assert done.returncode == 0, done.lines
    assert ARM64.machine in done.lines
    assert f"made for {ARM64.machine}: 1" in done.lines
    with (tmp_path / "small.so").open("rb") as stream:
        library = elf.read_stream(stream, "small.so").binary
    assert library.machine == ARM64.elf


#: of a template in a namespace without a name, nvcc names the kernel by its process number
HIDDEN = """
namespace { template <typename T> __global__ void twice(T *x) { x[threadIdx.x] *= 2; } }
static void call(float *x) { twice<float><<<1, 32>>>(x); }
static void (*volatile keep)(float *) = call;
"""


@pytest.fixture(scope="module")
def nvcc(ctx, crossed):
    """The toolkit of the committed lock that compiles for arm64, put together in the compiler's base."""
    lock = decode_lock((ROOT / "images/pyg/cu132/arm64/pypi.lock.json").read_bytes())
    (step,) = compile_steps(lock)
    smaller = msgspec.structs.replace(lock, packages=())
    files = fetch(smaller, SourceOptions(), ctx, compilation=True)
    base = crossed[2]
    made = toolkits.prepare(step.compilation.toolkit, files, base.rootfs, ctx, base=base.identity)
    return made, variables(step.compilation)


def test_nvcc_gives_a_file_whose_names_are_all_hidden_the_same_bytes_each_time(crossed, nvcc, tmp_path):
    made, (toolkit, given) = crossed[0], nvcc
    (tmp_path / "hidden.cu").write_text(HIDDEN)
    command = [f"{CUDA_HOME}/bin/nvcc", "-arch=sm_90", "-c", "hidden.cu", "-o", "hidden.o"]
    link = f"{given['CXX']} -shared -s hidden.o -o"
    lines = [
        line
        for name, words in (("seeded", seeded(command, "hidden.cu")), ("plain", command))
        for number in (1, 2)
        for line in (shlex.join(words), f"{link} {name}{number}.so")
    ]
    binds = [*made.binds, Bind(toolkit, CUDA_HOME), Bind(tmp_path, "/build", read_only=False)]
    seen = {**given, "PATH": f"/bin:{compilers.CROSS}/usr/bin", "TMPDIR": "/build"}
    argv = ["/bin/sh", "-exc", "\n".join(lines)]
    done = run_in(made.rootfs, Exec(argv, seen, binds, cwd="/build", step=Step.BUILD, emulator=made.emulator))
    assert done.returncode == 0, done.lines
    first, second, *plain = (
        sha256_of(tmp_path / f"{name}{number}.so") for name in ("seeded", "plain") for number in (1, 2)
    )
    assert first == second
    assert plain[0] != plain[1], "without a seed they differ: nvcc's process number is in the kernel's name"
