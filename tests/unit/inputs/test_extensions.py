"""The wheelhouse without a process: keys, the cache, sources, jobs, progress, compilers' last pages."""

import contextlib
import gzip
import json
import re
import shutil
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace

import filelock
import msgspec
import pytest

from graphcrate.assembly.extension_wheels import explained
from graphcrate.compat.facts import compilers
from graphcrate.compat.failures import error_lines
from graphcrate.compat.failures.first_error import first_error
from graphcrate.compat.plan.compile_steps import compile_steps
from graphcrate.compat.variants.next_steps import NextSteps
from graphcrate.compat.variants.request import BuildRequest
from graphcrate.host import settings
from graphcrate.host.disk import waiting
from graphcrate.host.memory import free_memory
from graphcrate.host.process import Completed, SilenceError
from graphcrate.inputs import extensions
from graphcrate.inputs.bases import listed
from graphcrate.inputs.extensions import compile as house
from graphcrate.inputs.extensions import worker
from graphcrate.inputs.extensions.compile import provide
from graphcrate.inputs.extensions.ground import Ground
from graphcrate.inputs.extensions.output import Watcher
from graphcrate.inputs.extensions.worker import Compiler, Work, header_of
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.lock import Compilation, decode_lock
from graphcrate.model.plan import CompileStep
from graphcrate.model.platform import DEFAULT
from graphcrate.model.recipe import Additions
from tests import ROOT
from tests.made import bookworm, deb, refused, sdist, wheel
from tests.unit import races, tars
from tests.unit.elfmaker import SASS, entry, fat_binary, make_elf
from tests.unit.small_index import TOOLKIT
from tests.unit.wheelmaker import make_wheel


def step(**changes):
    values = {"architectures": ("7.0",), "compiler": "g++-11", "toolkit": TOOLKIT}
    values |= {"base": bookworm(deb("g++-11"), deb("libc6"), deb("openssl"))}
    values |= {"tools": (wheel("setuptools"), wheel("wheel"))}
    compilation = Compilation(**{key: changes.pop(key, value) for key, value in values.items()})
    packages, against = (sdist("torch-scatter"),), (wheel("numpy"), wheel("torch"))
    plain = {"title": "extensions", "python": "3.11", "packages": packages, "against": against}
    return CompileStep(**{**plain, **changes}, compilation=compilation)


def job_of(made, cache, **more):
    """A compile of a step, of which only this much is there."""
    fields = ("base", "build_base", "toolkit", "files", "progress", "jobs", "log_folder")
    return extensions.CompileJob(**{**dict.fromkeys(fields), "step": made, "cache": cache, **more})


def key(**changes):
    made = step(**changes)
    return extensions.origin(made.packages[0], made)


def test_wheelhouse_key_depends_on_what_changes_the_wheel(monkeypatch):
    others = (sdist("torch-x"),)
    for same, changes in (
        (False, {"architectures": ("7.0", "8.0")}),
        (False, {"compiler": "g++-12"}),
        (False, {"base": bookworm(deb("g++-11"), deb("libc6", "2"))}),
        (False, {"tools": (wheel("setuptools", ending="-py2-none-any.whl"), wheel("wheel"))}),
        (False, {"toolkit": None}),
        (False, {"python": "3.9"}),
        (False, {"against": (wheel("numpy"), wheel("torch", ending="-py2-none-any.whl"))}),
        (False, {"packages": (wheel("torch-scatter", ending=".zip", compiled=True),)}),
        (True, {"base": bookworm(deb("openssl", "2"), deb("libc6"), deb("g++-11"))}),
        (True, {"against": (wheel("numpy", ending="-py2-none-any.whl"), wheel("torch"))}),
        (True, {"tools": (wheel("wheel"), wheel("setuptools"))}),
    ):
        assert (key(**changes) == key()) is same, changes
    before = key(), key(packages=others)
    monkeypatch.setitem(compilers.STAND_INS, "torch/torch.h", ("#pragma once",))  # for what gets these headers
    assert (key() == before[0], key(packages=others) == before[1]) == (False, True)


PYG = decode_lock((ROOT / "images/pyg/cu116/compatible.lock.json").read_bytes())


def exchanged(packages, name, sha256="f" * 64):
    """The same packages, with other bytes under the name and version of one."""
    return tuple(
        msgspec.structs.replace(each, file=msgspec.structs.replace(each.file, sha256=sha256))
        if each.name == name
        else each
        for each in packages
    )


def of_compiler(lock, change):
    """A lock with the packages of its base to compile in changed."""
    compilation = lock.compilation
    base = msgspec.structs.replace(compilation.base, packages=change(compilation.base.packages))
    return msgspec.structs.replace(lock, compilation=msgspec.structs.replace(compilation, base=base))


def keys_of(lock, cache):
    return [extensions.key(package, step, cache) for step in compile_steps(lock) for package in step.packages]


def test_wheelhouse_key_of_a_committed_lock_goes_by_names_and_versions_alone(cache):
    steps = compile_steps(PYG)
    assert keys_of(PYG, cache) == [extensions.origin(package, step) for step in steps for package in step.packages]


@pytest.mark.parametrize("name", ["libzstd1", "g++-11"])
def test_package_with_other_bytes_under_a_committed_name_and_version_has_another_wheelhouse_key(cache, name):
    names = [package.name for package in PYG.compilation.base.packages]
    name = name if name in names else next(each for each in names if each.startswith("g++"))
    strange = of_compiler(PYG, lambda packages: exchanged(packages, name))
    assert not {*keys_of(strange, cache)} & {*keys_of(PYG, cache)}
    assert keys_of(of_compiler(PYG, lambda packages: exchanged(packages, name, "e" * 64)), cache) != keys_of(
        strange, cache
    )


def test_package_that_no_committed_lock_names_changes_the_wheelhouse_key_unless_debian_listed_it_here(cache):
    more = of_compiler(PYG, lambda packages: (*packages, deb("libfoo-dev", "1")))
    assert not {*keys_of(more, cache)} & {*keys_of(PYG, cache)}
    listed.keep(more.compilation.base, cache)
    assert keys_of(more, cache) == keys_of(PYG, cache)
    other = of_compiler(PYG, lambda packages: (*packages, deb("libfoo-dev", "1", sha256="f" * 64)))
    assert keys_of(other, cache) != keys_of(more, cache)


def test_wheel_that_torch_imports_and_no_committed_lock_names_changes_the_wheelhouse_key(cache):
    """It runs wherever torch is imported, and so in each compile."""
    strange = msgspec.structs.replace(PYG, packages=exchanged(PYG.packages, "numpy"))
    assert not {*keys_of(strange, cache)} & {*keys_of(PYG, cache)}
    beside = msgspec.structs.replace(PYG, packages=exchanged(PYG.packages, "tqdm"))
    assert keys_of(beside, cache) == keys_of(PYG, cache), "torch imports it in no compile"


def test_base_that_a_cross_compile_runs_setup_py_in_is_a_part_of_its_key(cache):
    ours = decode_lock((ROOT / "images/pyg/cu132/arm64/pypi.lock.json").read_bytes())
    base = msgspec.structs.replace(ours.base, packages=exchanged(ours.base.packages, "python3.11-minimal"))
    assert not {*keys_of(msgspec.structs.replace(ours, base=base), cache)} & {*keys_of(ours, cache)}


def test_wheelhouse_key_depends_on_the_toolkit():
    """nvcc of two versions compiles the same sources to other code, all else alike."""
    newer = msgspec.structs.replace(TOOLKIT, packages=(deb("nvidia-cuda-toolkit", "11.8.89-6"),))
    assert newer.packages != TOOLKIT.packages
    assert key(toolkit=newer) != key()
    assert key(toolkit=newer, architectures=(), compiler="g++-11") != key(architectures=(), compiler="g++-11")
    later = msgspec.structs.replace(TOOLKIT, listed="20261126T000000Z")  # a new lock, and the same packages
    assert key(toolkit=later) == key()


def test_what_is_made_again_has_folders_of_its_own_though_the_cache_has_it(cache, tmp_path):
    made = step()
    (usual,) = extensions.shelves(made, cache).values()
    (usual.wheel / "x.whl").parent.mkdir(parents=True)
    (usual.wheel / "x.whl").touch()
    (apart,) = job_of(made, cache, apart=tmp_path / "apart").shelves.values()
    assert (apart.made, apart.wheel.name) == (None, usual.wheel.name)
    apart.objects.mkdir()


def test_waiting_for_another_compile_is_noted(cache, monkeypatch, capsys):
    made = step()
    other = filelock.FileLock(cache.root / "locks" / "wheelhouse.lock")
    path = extensions.shelves(made, cache)[made.packages[0].file.sha256].wheel / "one-1.0-cp311-cp311-linux_x86_64.whl"

    def finish(_):
        path.parent.mkdir(parents=True)
        path.touch()
        other.release()

    other.acquire()
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    monkeypatch.setattr(waiting.time, "sleep", finish)
    job = job_of(made, cache)
    assert extensions.cached(made, cache) == {}
    assert provide(job) == provide(job) == extensions.cached(made, cache) == {made.packages[0].file.sha256: path}
    (said,) = capsys.readouterr().err.splitlines()
    assert ", which compiles (" in said


def test_zip_sdist_is_unpacked_like_a_tar(tmp_path):
    order = {"sdist": tmp_path / "a-1.zip", "folder": f"{tmp_path}/a"}
    with zipfile.ZipFile(order["sdist"], "w") as archive:
        archive.writestr("a-1/setup.py", "")
        archive.writestr("a-1/csrc/a.cpp", "y")
    worker.unpack(order)
    assert (tmp_path / "a/csrc/a.cpp").read_bytes() == b"y"


def test_sdist_is_unpacked_into_a_fixed_folder(tmp_path):
    order = {"sdist": tmp_path / "a.tar.gz", "folder": f"{tmp_path}/torch-x-1.0"}
    for top, found in (("some_name-1", True), ("more/some_name-1", False)):
        members = [tars.file(f"{top}/setup.py"), tars.file(f"{top}/csrc/a.cpp", b"y")]
        order["sdist"].write_bytes(gzip.compress(tars.tar(members)))
        with contextlib.nullcontext() if found else pytest.raises(FileNotFoundError, match=r"no setup\.py"):
            worker.unpack(order)
        assert (tmp_path / "torch-x-1.0/csrc/a.cpp").read_bytes() == b"y"


MEMINFO = {"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    8388608 kB\n"}
V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"
SLURM = "/slurm/uid_1/job_2"


def group(version, limit, use, folder="", stat=""):
    """Files of a memory cgroup."""
    place, names = (V1, ("limit_in_bytes", "usage_in_bytes")) if version == 1 else (V2, ("max", "current"))
    files = {f"{place}{folder}/memory.{name}": value for name, value in zip(names, (limit, use), strict=True)}
    return files | ({f"{place}{folder}/memory.stat": stat} if stat else {})


@pytest.mark.parametrize(
    ("line", "files", "expected"),
    [
        ("0::/", group(2, "max\n", "5"), 8 * 2**30),
        ("0::/", group(2, "4000\n", "1000\n"), 3000),
        ("4:memory:/", group(1, "9223372036854771712", "1"), 8 * 2**30),
        # a job's limit, steps below the root and above the process
        (f"0::{SLURM}/step_0", group(2, "4000", "1000", SLURM), 3000),
        (f"4:memory:{SLURM}/step_0\n1:cpu:/x", group(1, "4000", "1000", SLURM), 3000),
        # files that were read and written lately count as used, and give way
        ("0::/", group(2, "32000", "31000", stat="anon 7000\nactive_file 1\ninactive_file 24000\n"), 25000),
        ("4:memory:/", group(1, "32000", "31000", stat="inactive_file 5\ntotal_inactive_file 24000\n"), 25000),
    ],
)
def test_free_memory_is_that_of_the_cgroup(tmp_path, line, files, expected):
    for name, text in {**MEMINFO, "/proc/self/cgroup": f"{line}\n", **files}.items():
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert free_memory(tmp_path) == expected


def read(watcher, event, package="one", **more):
    watcher.read(json.dumps({"event": event, "package": package, **more}))


def test_compile_progress_is_one_line_at_intervals(monkeypatch, progress):
    clock = [100.0]
    monkeypatch.setattr(settings, "now", lambda: clock[0])
    watcher = Watcher(["one", "two"], progress)
    read(watcher, "files", count=2, weight=10)
    for _ in range(2):
        read(watcher, "compiled", weight=2.0)
    assert progress.lines == []  # what the other has is not known
    read(watcher, "files", "two", count=3, weight=6)
    clock[0] += 21
    for _ in range(3):
        read(watcher, "compiled", "two", weight=2.0)
    read(watcher, "built", "two")
    assert progress.lines == ["compiling one, two: 3/5 files, about 35 s left", "compiling one, two: 5/5 files"]
    assert watcher.built == {"two"}


def test_compile_events_slower_fewer_and_failed_are_noted(progress):
    watcher = Watcher(["one"], progress)
    for _ in range(2):  # noted once for a package
        read(watcher, "slower", source="a.cu", output="a.cu(3): error: no such")
    read(watcher, "fewer", source="b.cu", jobs=1)
    read(watcher, "failed", source="b.cu", log="/build/x.log")
    read(watcher, "failed", "two")
    for stray in ("Traceback (most recent call last):", "7"):
        watcher.read(stray)
    slower, fewer = progress.lines
    assert re.search(r"one needs more than the small headers, in a\.cu at .*\(a\.cu\(3\): error: no such\)", slower)
    assert "from here 1 at a time, and b.cu again" in fewer
    assert (watcher.failed, watcher.source, watcher.log) == ("one", "b.cu", "/build/x.log")
    assert list(watcher.strays) == ["Traceback (most recent call last):", "7"]


COMPILATION = step(architectures=("3.5", "7.0"), compiler="g++-12").compilation
GCC = """csrc/scatter.cpp:12:9: warning: unused variable 'error' [-Wunused-variable]
csrc/scatter.cpp:14:9: error: 'nonsense' was not declared in this scope
csrc/scatter.cpp:15:9: error: 'more' was not declared in this scope
distutils.errors.CompileError: command '/usr/bin/g++-11' failed with exit code 1
"""
TOO_NEW = """In file included from /usr/local/cuda/include/cuda_runtime.h:83,
crt/host_config.h:132:2: error: #error -- unsupported GNU version! gcc versions later than 11 are not supported!
"""


#: as setup.py's `config` tries what there is; mpi4py 3.1.6 without libopenmpi-dev
TRIAL = """checking for library 'lmpe' ...
mpicc -c _configtest.c -o _configtest.o
mpicc -s _configtest.o -llmpe -o _configtest
/usr/bin/ld: cannot find -llmpe: No such file or directory
collect2: error: ld returned 1 exit status
failure.
removing: _configtest.c _configtest.o
"""
TRIED = """mpicc -c _configtest.c -o _configtest.o
_configtest.c:2:10: fatal error: mpi.h: No such file or directory
failure.
removing: _configtest.c _configtest.o
error: Cannot compile MPI programs. Check your configuration!!!
"""


@pytest.mark.parametrize(
    ("output", "line", "cause"),
    [
        (f"{TRIAL}/usr/bin/ld: cannot find -lmpi: No such file or directory\n", "cannot find -lmpi:", "do not go"),
        (f"{TRIAL}gcc -c a.c -o a.o\n{TRIED}", "fatal error: mpi.h", "do not go"),
        (f"{TRIAL}error: no lmpe\n", "ld: cannot find -llmpe", "do not go"),
        (f"{TRIAL}last words\n", "last words", "do not go"),
        (GCC, "csrc/scatter.cpp:14:9: error: 'nonsense' was not declared in this scope", "do not go with this torch"),
        (TOO_NEW, "unsupported GNU version! gcc versions later than 11", "does not go with CUDA 11.8.89"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_35'\n", "nvcc fatal", "asked for: 3.5, 7.0"),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n", "died due to signal 9", "ran out of memory"),
        ("a.cpp:1:10: fatal error: Python.h: No such file or directory\n", "Python.h", "or this Python"),
        ("a.cpp:1:10: fatal error: cusparse.h: No such file or directory\n", "cusparse.h", "lacks a header or library"),
        ("cc1plus: fatal error: x.s: No space left on device\n", "No space left", "disk"),
        ("mismatches the version that was used to compile PyTorch (11.8)", "(11.8)", "does not go with"),
        ("Traceback\nModuleNotFoundError: No module named 'numpy'\n", "ModuleNotFoundError", "Python package"),
        ("error: command 'g++-11' failed: No such file or directory\n", "g++-11", "(g++-12) is absent"),
        (
            "w.c:6: error: \u2018PyArray_INT\u2019 undeclared (first use in this function)\n",
            "PyArray_INT",
            "for numpy 1",
        ),
        (
            "w.c:6: error: \u2018PyArray_Descr\u2019 has no member named \u2018subarray\u2019\n",
            "w.c",
            "for numpy 1",
        ),
        ("one\nlast words\n", "last words", "do not go with"),
        ("", "it said nothing", "do not go with"),
        ("a.cpp:1:1: error: " + "x" * 5000, "x" * (400 - 19) + "…", "do not go with"),
    ],
)
def test_output_of_a_compiler_has_its_first_error_and_cause(output, line, cause):
    first = first_error(output)
    why, step = error_lines.of_any(first, COMPILATION)
    assert (line in first, cause in why, bool(step)) == (True, True, True)


@pytest.mark.parametrize("finished", [False, True])
def test_hanging_compile_is_killed_and_finished_wheels_kept(tmp_path, monkeypatch, progress, finished):
    made = step(packages=(sdist("torch-scatter"), sdist("torch-sparse")))
    one = made.packages[0]
    kept, build = [], tmp_path / "build"
    build.mkdir()

    def hang(_, command):
        assert 0 < command.silence < 86400
        if finished:
            wheel = build / "wheels" / one.name / "a.whl"
            wheel.parent.mkdir()
            wheel.touch()
            command.on_line(json.dumps({"event": "built", "package": one.name}))
        raise SilenceError("it said nothing")

    monkeypatch.setattr(house.sandbox, "run_in", hang)
    monkeypatch.setattr(house, "keep", lambda _, wheels, *__: kept.extend(wheels))
    files = {package.file.sha256: tmp_path / package.file.name for package in made.packages}
    for path in files.values():
        path.touch()
    base = SimpleNamespace(rootfs=tmp_path)
    job = SimpleNamespace(step=made, files=files, toolkit=None, jobs=2, progress=progress, build_base=base)
    with refused(BuildError, "torch-scatter, torch-sparse stands still"):
        house._compile(job, made.packages, build, tmp_path, Ground(tmp_path, "/usr/bin/python3.11"))
    assert kept == [one] * finished


@pytest.mark.parametrize(
    ("source", "fatbin", "architectures", "kept"),
    [
        ("csrc/a.cu", fat_binary(entry(SASS, 70)), ("7.0",), True),
        ("csrc/a.cpp", None, ("7.0",), True),
        ("csrc/a.cu", None, (), True),
        ("csrc/a.cu", None, ("7.0",), False),
    ],
)
def test_compiled_wheel_with_cuda_sources_and_no_gpu_code_is_refused(
    tmp_path, cache, monkeypatch, source, fatbin, architectures, kept
):
    monkeypatch.setattr(house, "_load", lambda *_: [])
    made = step(architectures=architectures)
    (package,) = made.packages
    build = tmp_path / "build"
    path = build / f"{package.name}-{package.version}" / source
    path.parent.mkdir(parents=True)
    path.touch()
    tag, library = "cp311-cp311-linux_x86_64", make_elf(needed=("libtorch_cpu.so",), defined=(), fatbin=fatbin)
    wheel = make_wheel(tmp_path, "torch_scatter", "2.1.1", {"x/_x.so": library}, tag=tag, purelib=False)
    job = job_of(made, cache, base=SimpleNamespace(glibc="2.36", platform=DEFAULT))
    if kept:
        assert house.keep(job, {package: wheel}, tmp_path, build) == extensions.cached(made, cache)
    else:
        with pytest.raises(BuildError, match=r"torch-scatter has CUDA sources and no GPU code"):
            house.keep(job, {package: wheel}, tmp_path, build)
    assert bool(extensions.cached(made, cache)) is kept


@pytest.mark.parametrize(
    ("name", "hint"), [("llama-cpp-python", " For GPUs: BUILD_ENV=CMAKE_ARGS=-DGGML_CUDA=on"), ("other", "")]
)
def test_source_that_makes_code_for_gpus_by_a_variable_alone_names_it(tmp_path, cache, monkeypatch, name, hint):
    monkeypatch.setattr(house, "_load", lambda *_: [])
    package = msgspec.structs.replace(sdist(name, "1.0"), back_end=True)
    made, build, said = step(packages=(package,)), tmp_path / "build", []
    path = build / f"{name}-1.0" / "a.cu"
    path.parent.mkdir(parents=True)
    path.touch()
    tag, module = "cp311-cp311-linux_x86_64", name.replace("-", "_")
    wheel = make_wheel(tmp_path, module, "1.0", {"x/_x.so": make_elf(needed=("libm.so.6",))}, tag=tag, purelib=False)
    base, progress = SimpleNamespace(glibc="2.36", platform=DEFAULT), SimpleNamespace(warn=said.append)
    job = job_of(made, cache, base=base, progress=progress)
    house.keep(job, {package: wheel}, tmp_path, build)
    (warning,) = said
    alone, _, rest = warning.partition("compiled for the CPU alone.")
    assert (alone.startswith(f"{name} has CUDA sources"), rest.startswith(hint), bool(rest)) == (True, True, bool(hint))


@pytest.mark.parametrize(
    ("ended", "kind", "words"),
    [
        (Completed(1, ("_x.so: undefined symbol: _ZN3c104cuda9SetDeviceEa",)), BuildError, "undefined symbol"),
        (
            Completed(1, ("import x: AttributeError: module 'torch.library' has no attribute 'custom_op'",)),
            BuildError,
            "written for another torch than the image has",
        ),
        (
            Completed(1, ("import x: ImportError: cannot import name 'Sequence' from 'collections' (/usr/lib/x.py)",)),
            BuildError,
            "for Python before 3.10, and the image has 3.11",
        ),
        (  # pot 0.8.2, whose trial comes before the image's test of imports
            Completed(1, ("import x: AttributeError: `np.infty` was removed in the NumPy 2.0 release. Use `np.inf`",)),
            BuildError,
            "make image … 'WITH=numpy<2'",
        ),
        (Completed(139, ()), BuildError, "ended by signal 11"),
        (Completed(1, ()), HostError, "could not be tried out"),
    ],
)
def test_compiled_wheel_that_python_cannot_load_is_refused(tmp_path, cache, monkeypatch, ended, kind, words):
    made = step(architectures=())
    (package,) = made.packages
    library = make_elf(needed=("libtorch_cpu.so",))
    wheel = make_wheel(
        tmp_path, "torch_scatter", "2.1.1", {"x/_x.so": library}, tag="cp311-cp311-linux_x86_64", purelib=False
    )
    job = job_of(
        made,
        cache,
        base=SimpleNamespace(glibc="2.36", rootfs=tmp_path, platform=DEFAULT, emulator=None),
    )
    monkeypatch.setattr(house.sandbox, "run_in", lambda *_: ended)
    with refused(kind, words):
        house.keep(job, {package: wheel}, tmp_path, tmp_path / "build")
    assert extensions.cached(made, cache) == {}
    shutil.rmtree(tmp_path / "checked")
    monkeypatch.setattr(house.sandbox, "run_in", lambda *_: Completed(0, ()))
    assert house.keep(job, {package: wheel}, tmp_path, tmp_path / "build") == extensions.cached(made, cache) != {}


@pytest.mark.parametrize(("gigabytes", "cores", "jobs"), [(7, 32, 2), (100, 4, 4), (1, 32, 1), (0, 1, 1)])
def test_compile_jobs_follow_free_memory_with_a_clean_environment(
    tmp_path, cache, progress, monkeypatch, gigabytes, cores, jobs
):
    """And with one hash seed: the order of sets gets into generated sources, and so into wheels."""
    monkeypatch.setattr(house, "free_memory", lambda: gigabytes * 10**9)
    monkeypatch.setenv("PYTHONHASHSEED", "1234")
    asked = []

    def run_in(rootfs, command):
        orders = json.loads((build / "orders.json").read_text())
        asked.append((orders["jobs"], command.environment))
        return Completed(1, ("no compiler",))

    monkeypatch.setattr(house.sandbox, "run_in", run_in)
    made, build = step(), tmp_path / "build"
    build.mkdir()
    (package,) = made.packages
    source = tmp_path / "sdist"
    source.touch()
    job = SimpleNamespace(
        step=made, jobs=cores, progress=progress, files={package.file.sha256: source}, toolkit=None, cache=cache,
        build_base=SimpleNamespace(rootfs=tmp_path), log_folder=tmp_path / "logs",
    )  # fmt: skip
    with pytest.raises(BuildError):
        house._compile(job, made.packages, build, tmp_path / "venv", Ground(tmp_path, "/usr/bin/python3.11"))
    ((told, environment),) = asked
    assert (told, environment["MAX_JOBS"]) == (jobs, str(jobs))
    assert environment["PYTHONHASHSEED"] == "0"
    assert [f"enough for {jobs} compilers and not for {cores}" in line for line in progress.lines[1:]] == (
        [True] if jobs < cores else []
    )


# The program that compiles in the sandbox: what it lists, in which order and which ways it compiles

CXX = ["g++-11", "-O2", "-I/torch", "-Icsrc", "-DWITH_CUDA", "-c", "csrc/a.cpp", "-o", "a.o", "-std=c++17"]
SMALL = ["g++-11", "-I/headers"]
NVCC = ["/usr/local/cuda/bin/nvcc", "-I/torch", "-c", "csrc/a.cu", "-o", "a.o"]


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Makes the work for a source; its command is told by the source."""
    monkeypatch.setattr(worker, "PRECOMPILED", str(tmp_path / "precompiled"))

    def make(source, seconds=1.0, headers="", package="pkg", command=None):
        log = tmp_path / f"{package}-{Path(source).name}.log"
        log.touch()
        return Work(package, source, f"{source}.o", command or [source], str(tmp_path), str(log), headers, seconds)

    return make


@pytest.fixture
def compiled(capsys):
    """Compiles by a function in place of compilers; returns the commands in their order, the outcomes, the events."""

    def run(works, code=lambda *_: 0, jobs=1):
        commands = []

        def compiler(command, work):
            commands.append(command)
            Path(work.log).touch()
            return code(command, work)

        files = Compiler(jobs, compiler).start(works)
        failed = [file.exception() is not None for package in files.values() for file in package]
        return commands, failed, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def test_longest_source_is_compiled_first(work, compiled):
    works = [work(f"{seconds}.cpp", seconds, package=f"p{seconds % 2}") for seconds in (5, 9, 1, 7)]
    commands, failed, events = compiled(works)
    assert (commands, any(failed)) == ([["9.cpp"], ["7.cpp"], ["5.cpp"], ["1.cpp"]], False)
    assert events[0] == {"event": "compiled", "package": "p1", "source": "9.cpp", "weight": 9}


def test_oom_killed_compiler_runs_again_with_fewer_jobs(work, compiled):
    tries = []

    def short_of_memory(command, work):
        tries.append(command)
        Path(work.log).write_text("g++: fatal error: Killed signal terminated program cc1plus" * (len(tries) < 3))
        return int(len(tries) < 3)

    _, failed, events = compiled([work("a.cpp")], short_of_memory, jobs=4)
    assert failed == [False]
    assert [(event["event"], event.get("jobs")) for event in events] == [("fewer", 2), ("fewer", 1), ("compiled", None)]
    tries.clear()
    _, failed, events = compiled([work("a.cpp")], lambda *given: short_of_memory(*given) or 1, jobs=2)
    assert (failed, [event["event"] for event in events]) == ([True], ["fewer", "failed"])
    assert events[1]["log"].endswith("a.cpp.log")


KILLED = "g++: fatal error: Killed signal terminated program cc1plus"


@pytest.mark.parametrize("at_once", [2, 3, 8])
def test_oom_killed_compilers_all_run_again_with_fewer_jobs(work, capsys, at_once):
    """Each round all compilers that run are killed at the same moment; then one at a time has memory enough."""
    works, most = [work(f"{number}.cpp") for number in range(12)], []

    def compile_all(_):
        # Only what starts while nothing else runs gets through: the number has to come down to one.
        running, ends, together = set(), threading.Lock(), threading.Barrier(at_once)

        def short_of_memory(command, work):
            with ends:
                running.add(work.source)
                most.append(len(running))
            with contextlib.suppress(threading.BrokenBarrierError):  # fewer than `at_once` are left
                together.wait(0.02)
            with ends:
                killed = len(running) > 1
                running.remove(work.source)
            Path(work.log).write_text(KILLED * killed)
            return int(killed)

        def run():
            files = Compiler(8, short_of_memory).start(works)
            return [file.result() for file in files["pkg"]]

        return [run]

    for (made,) in races.race(compile_all, rounds=8, seconds=0.3, patience=20):
        assert made == [None] * len(works)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert max(most) <= 8
    assert {event["jobs"] for event in events if event["event"] == "fewer"} <= {4, 2, 1}


def test_compiler_oom_killed_alone_is_the_error(work, capsys):
    together = threading.Barrier(4)

    def killed(command, work):
        Path(work.log).write_text(KILLED)
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(0.05)
        return 1

    def run():
        files = Compiler(4, killed).start([work(f"{number}.cpp") for number in range(6)])
        return [type(file.exception()) for file in files["pkg"]]

    (outcome,) = races.at_once(run, patience=20)
    assert outcome.value == [OSError] * 6
    jobs = [event.get("jobs") for event in map(json.loads, capsys.readouterr().out.splitlines())]
    assert [number for number in jobs if number] == [2, 1]  # halved once for all that were killed together


@pytest.mark.parametrize(
    ("command", "headers", "ways"),
    [
        (CXX, "", [CXX]),
        (NVCC, "/headers", [[NVCC[0], "-I/headers", *NVCC[1:]], NVCC]),
        (CXX, "/headers", [["g++-11", "-I/headers", "-include", "HEADER", *CXX[1:]], [*SMALL, *CXX[1:]], CXX]),
    ],
)  # fmt: skip
def test_compile_command_of_setup_py_is_the_last_fallback(work, compiled, command, headers, ways):
    one = work(command[command.index("-c") + 1], headers=headers, command=command)
    commands, failed, events = compiled([one], lambda command, _: command[1] != "-x" and command != ways[-1])
    tried = [[word.replace(header_of(one).source, "HEADER") for word in way] for way in commands if way[1] != "-x"]
    assert (tried, failed) == (ways, [False])
    assert [event["event"] for event in events] == ["slower"] * (len(ways) - 1) + ["compiled"]


def test_precompiled_header_is_shared_by_equal_options(work, compiled):
    other = [word.replace("csrc/a.cpp", "csrc/b.cpp").replace("CUDA", "PYTHON") for word in CXX]
    other += ["-I/build/torch-sparse-0.6.18/third_party/parallel-hashmap", "-I/build/metis/include"]  # its own, too
    commands = CXX, other, [*CXX, "-O3"]
    works = [work(one[6], headers="/headers", command=one)._replace(target="a.o") for one in commands]
    commands, _, _ = compiled(works)
    made = [command for command in commands if command[1] == "-x"]
    assert made == [header_of(works[0]).command, header_of(works[2]).command]
    assert header_of(works[0])[3:4] == header_of(works[1])[3:4]
    header = header_of(works[0]).source
    own = ["-I/headers", "-O2", "-I/torch", "-std=c++17"]
    assert made[0] == ["g++-11", "-x", "c++-header", header, "-o", f"{header}.gch", *own]
    assert Path(header).read_text() == "#include <torch/extension.h>\n"
    commands, failed, _ = compiled(works[:2], lambda command, _: command[1] == "-x")  # one that cannot be made
    assert [command[1] for command in commands] == ["-x", "-I/headers", "-I/headers"]
    assert not any(failed)


def test_source_weight_is_its_known_or_usual_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    order = {"name": "pkg", "folder": ".", "log": "logs/pkg", "headers": "", "seconds": {"long.cu": 60.0}}
    weights = []
    for name in ("b.cpp", "longer.cpp", "a.cu", "long.cu"):
        Path(name).write_text(name)
        weights.append(worker.work_of(order, name, f"temp/{name}.o", []).seconds)
    assert weights == sorted(weights)
    assert worker.work_of(order, "a.cu", "temp/a.cu.o", []).log == "logs/pkg.temp_a.cu.o.log"


def installed_in(rootfs):
    """A base in which dpkg has a library whose package is not named after it, and one with a package of its own."""
    lists = rootfs / "var/lib/dpkg/info"
    lists.mkdir(parents=True)
    folder = "/usr/lib/x86_64-linux-gnu"
    (lists / "libsnappy1v5:amd64.list").write_text(f"/.\n{folder}/libsnappy.so.1\n{folder}/libsnappy.so.1.1.9\n")
    (lists / "libopenblas0-pthread:amd64.list").write_text(f"{folder}/openblas-pthread/libopenblas.so.0\n")
    (lists / "libopenblas0:amd64.list").write_text("/usr/share/doc/libopenblas0\n")
    return rootfs


@pytest.mark.parametrize(
    ("absent", "words"),
    [
        (
            ("libcublas.so.11",),
            ("which the image has in /opt/venv/lib/python3.11/site-packages/nvidia/cublas/lib", "LDFLAGS=-Wl,-rpath,"),
        ),
        (
            ("libcusolver.so.11", "libopenblas.so.0"),
            ("no package of the image has", "make image STACK=torch CUDA=11.8 'WITH=demo nvidia-cusolver-cu11'"),
        ),
        (("libopenblas.so.0",), ("the image has not", "CUDA=11.8 WITH=demo 'APT=libumfpack5 libopenblas0'")),
        (("libsnappy.so.1",), ("the image has not", "CUDA=11.8 WITH=demo 'APT=libumfpack5 libsnappy1v5'")),
    ],
)
def test_library_that_the_image_lacks_is_added_to_what_was_typed(tmp_path, cache, monkeypatch, absent, words):
    package = msgspec.structs.replace(sdist("demo", "1.0"), back_end=True)
    request = BuildRequest(name="torch", cuda="11.8", additions=Additions(packages=("demo",), apt=("libumfpack5",)))
    job = SimpleNamespace(
        step=step(packages=(package,), architectures=()),
        base=SimpleNamespace(glibc="2.36", rootfs=tmp_path, platform=DEFAULT, emulator=None),
        build_base=SimpleNamespace(rootfs=installed_in(tmp_path / "base")),
        cache=cache,
    )
    lines = tuple(f"{name}: cannot open shared object file: No such file or directory" for name in absent)
    monkeypatch.setattr(house.sandbox, "run_in", lambda *_: Completed(1, lines))
    library = {"x/_x.so": make_elf(needed=absent)}
    wheel = make_wheel(tmp_path, "demo", "1.0", library, tag="cp311-cp311-linux_x86_64", purelib=False)
    cublas = tmp_path / "venv/lib/python3.11/site-packages/nvidia/cublas/lib/libcublas.so.11"
    cublas.parent.mkdir(parents=True)
    cublas.touch()
    with pytest.raises(extensions.CompileError) as caught:
        house.keep(job, {package: wheel}, tmp_path / "venv", tmp_path / "build")
    message = str(explained(caught.value.failure, job, NextSteps(request).beside, None))
    assert [word for word in (*absent, *words) if word not in message] == []
