"""The doctor with real processes: a libcuda that answers, crashes or hangs; broken extensions; a user's shell."""

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from doctor.driver import CUDA_LIMIT, look_at_driver
from doctor.host import Host
from doctor.stack import IMPORT_ALL, judge_imports
from tests.conftest import program
from tools import doctor_file

pytestmark = pytest.mark.engine("python3")

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module", autouse=True)
def one_file(tmp_path_factory):
    global DOCTOR
    DOCTOR = tmp_path_factory.mktemp("doctor") / "doctor.py"
    DOCTOR.write_text(doctor_file.text())


LIBCUDA = """
#include <stddef.h>
#include <string.h>
#include <unistd.h>
int cuDriverGetVersion(int *version) { *version = 12020; return 0; }
int cuInit(unsigned int flags) { ANSWER; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, "Tesla V100-SXM3-32GB", length); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = (size_t)32 << 30; return 0; }
int cuDeviceTotalMem(size_t *bytes, int device) { *bytes = 1; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device)
{ *value = attribute == 75 ? 7 : attribute == 32 ? 1 : 0; return 0; }
"""


def compiled(folder, name, source, *options):
    """A shared library of that source."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.c").write_text(source)
    command = [program("gcc"), "-shared", "-fPIC", *options, "-o", folder / name, folder / "source.c"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / name


def host(**variables):
    here = Host(environment={**os.environ, **{name: str(value) for name, value in variables.items()}})
    here.python = sys.executable
    return here


@pytest.mark.engine("gcc")
@pytest.mark.parametrize(
    ("answer", "code", "gpus", "error"),
    [
        ("return 0", 0, 2, ""),
        ("return 802", 802, 0, ""),
        ("return *(volatile int *)0", None, 0, "asking libcuda ended by signal 11"),
    ],
)
def test_a_libcuda_is_asked(tmp_path, answer, code, gpus, error):
    compiled(tmp_path, "libcuda.so.1", LIBCUDA.replace("ANSWER", answer))
    seen = look_at_driver(host(LD_LIBRARY_PATH=tmp_path))
    assert (seen.loaded, seen.code, len(seen.gpus), seen.error) == (True, code, gpus, error)
    if not error:
        assert seen.cuda == "12.2"
        assert seen.library.endswith("/libcuda.so.1")
    assert all(
        (gpu.name, gpu.capability, gpu.memory >> 30, gpu.ecc) == ("Tesla V100-SXM3-32GB", "7.0", 32, True)
        for gpu in seen.gpus
    )


@pytest.mark.engine("gcc")
def test_a_libcuda_that_hangs_is_left(tmp_path, monkeypatch):
    compiled(tmp_path, "libcuda.so.1", LIBCUDA.replace("ANSWER", "sleep(600); return 0"))
    here = host(LD_LIBRARY_PATH=tmp_path)
    run = here.run
    monkeypatch.setattr(here, "run", lambda argv, limit: run(argv, min(limit, 3.0)))
    began = time.monotonic()
    seen = look_at_driver(here)
    assert time.monotonic() - began < 60 < 2 * CUDA_LIMIT + 1
    assert (seen.loaded, seen.code) == (True, None)
    assert "no answer" in seen.error


def package(folder, name, text):
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)
    (folder / f"{name}-1.0.dist-info").mkdir()


@pytest.mark.engine("gcc")
def test_each_import_ends_by_itself(tmp_path):
    """A torch of four lines, an extension that lacks a symbol, one that crashes, one that exits, one that is well."""
    library = compiled(
        tmp_path / "x",
        "_version.so",
        "int _ZN5torch3jit17parseSchemaOrNameERKSs(void);\nint "
        "f(void) { return "
        "_ZN5torch3jit17parseSchemaOrNameERKSs(); }\n",
        "-Wl,-z,now",
    )
    cuda = "class cuda:\n    is_available = staticmethod(lambda: False)\n    init = staticmethod(lambda: 1 / 0)\n"
    more = "    get_arch_list = staticmethod(lambda: [])\n    device_count = staticmethod(lambda: 0)\n"
    package(tmp_path, "torch", f"__version__ = '2.3.1'\nclass version: cuda = None\nclass _C: pass\n{cuda}{more}")
    package(tmp_path, "torch_scatter", f"import ctypes\nctypes.CDLL({str(library)!r})\n")
    package(tmp_path, "torch_cluster", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    package(tmp_path, "torch_sparse", "raise SystemExit(3)\n")
    package(tmp_path, "pyg_lib", "import os\nos._exit(4)\n")
    package(tmp_path, "numpy", "print('noise')\n")
    installed = dict.fromkeys(("torch_scatter", "torch_cluster", "torch_sparse", "pyg_lib", "numpy"), "1.0")
    here = host(PYTHONPATH=tmp_path)
    told = list(judge_imports(here, installed, look_at_driver(host(LD_LIBRARY_PATH="")), ""))
    seen = " ".join(finding.seen for finding in told)
    assert "can be imported: torch, numpy" in seen
    assert "undefined symbol: torch::jit::parseSchemaOrName(std::string const&)" in seen
    assert "torch_cluster crashes (SIGSEGV)" in seen
    assert "SystemExit: 3" in seen
    assert "pyg_lib: ended with exit code 4" in seen
    assert IMPORT_ALL.count("os.fork()") == 1


def doctor(*options, environment=None, cwd=None, stdin=None):
    return subprocess.run(
        [program("python3"), "-S", *options],
        env={"PATH": os.environ["PATH"], **(environment or {})},
        cwd=cwd,
        stdin=stdin or subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


def test_one_file_alone_from_anywhere_writes_nothing(tmp_path):
    (tmp_path / "home").mkdir()
    alone = shutil.copy(DOCTOR, tmp_path / "home" / "doctor.py")
    before = os.times()
    done = doctor(alone, "--json", environment={"HOME": str(tmp_path / "home")}, cwd=tmp_path / "home")
    after = os.times()
    assert done.returncode in (0, 7)
    assert done.stderr == ""
    assert len(json.loads(done.stdout)["findings"]) > 8
    assert [path.name for path in (tmp_path / "home").rglob("*")] == ["doctor.py"]
    assert (after.children_user - before.children_user) + (after.children_system - before.children_system) < 2


def test_it_comes_through_a_pipe():
    with DOCTOR.open("rb") as stream:
        done = doctor("-", "--explain", "CUDA out of memory", stdin=stream)
    assert done.returncode == 0
    assert "The GPU's memory is full" in done.stdout


def test_programs_that_hang_and_a_bare_environment_do_not_hold_it_up(tmp_path):
    for name in ("srun", "sinfo", "apptainer", "enroot", "podman", "nvidia-container-cli"):
        (tmp_path / name).write_text("#!/bin/sh\nsleep 600 & sleep 600\n")
        (tmp_path / name).chmod(0o755)
    began = time.monotonic()
    done = doctor(DOCTOR, "--no-imports", environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert time.monotonic() - began < 60
    assert done.returncode == 7  # an apptainer that does not tell its version
    assert done.stderr == ""
    for command in Path("/proc").glob("[0-9]*/cmdline"):  # not ps, which a small system lacks
        with contextlib.suppress(OSError):
            assert str(tmp_path).encode() not in command.read_bytes()
    bare = subprocess.run(
        [sys.executable, "-I", "-S", DOCTOR, "--no-imports"], env={}, capture_output=True, timeout=300, check=False
    )
    assert (bare.returncode in (0, 7), bare.stderr) == (True, b"")


def test_a_reader_that_leaves_and_a_terminal_without_letters():
    reader = subprocess.run(
        ["sh", "-c", f"{program('python3')} {DOCTOR} --no-imports | head -1"],
        capture_output=True,
        timeout=300,
        check=True,
    )
    assert (reader.stdout, reader.stderr) == (b"GPU\n", b"")
    plain = doctor(DOCTOR, "--explain", "bus error \u2014 x", environment={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert (plain.returncode, plain.stderr) == (0, "")


def test_limits_of_the_shell_are_seen(tmp_path):
    resource_limit = (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    done = subprocess.run(
        [program("python3"), "-S", DOCTOR, "--json", "--no-imports"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, resource_limit),
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert {"256 open files"} <= {each["seen"] for each in json.loads(done.stdout)["findings"]}


def test_build_py_needs_no_environment_for_it():
    build = ROOT / "build.py"
    done = subprocess.run(
        [program("python3"), "-S", build, "doctor", "--explain", "No CUDA GPUs are available"],
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0
    assert b"shows this process no GPU" in done.stdout
