"""The doctor with real processes: a libcuda that answers, crashes or hangs; broken extensions; a user's shell."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from doctor.driver import look_at_driver
from doctor.host import Host
from doctor.stack import judge_imports
from doctor.verbs import ask_verbs
from graphcrate.compat.plan import programs
from tests.conftest import ROOT, program
from tests.engines.workplace import running

pytestmark = pytest.mark.engine("python3")
CANNOT_OPEN = "cannot open shared object file: No such file or directory"


@pytest.fixture(scope="module")
def one_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("doctor") / "doctor.py"
    path.write_text(programs.doctor(ROOT / "doctor"))
    return path


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
        ("return *(volatile int *)0", None, 0, "asking libcuda ended by signal 11"),
    ],
)
def test_driver_findings_are_what_libcuda_answers(tmp_path, answer, code, gpus, error):
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
def test_crash_of_one_import_leaves_findings_of_the_others(tmp_path):
    """A torch of four lines, an extension that lacks a symbol, one that crashes, one that exits, one that is well."""
    symbol = "_ZN5torch3jit17parseSchemaOrNameERKSs"
    lacks = f"int {symbol}(void);\nint f(void) {{ return {symbol}(); }}\n"
    library = compiled(tmp_path / "x", "_version.so", lacks, "-Wl,-z,now")
    cuda = "class cuda:\n    is_available = staticmethod(lambda: False)\n    init = staticmethod(lambda: 1 / 0)\n"
    more = "    get_arch_list = staticmethod(lambda: [])\n    device_count = staticmethod(lambda: 0)\n"
    packages = {
        "torch": f"__version__ = '2.3.1'\nclass version: cuda = None\nclass _C: pass\n{cuda}{more}",
        "torch_scatter": f"import ctypes\nctypes.CDLL({str(library)!r})\n",
        "torch_cluster": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
        "torch_sparse": "raise SystemExit(3)\n",
        "pyg_lib": "import os\nos._exit(4)\n",
        "numpy": "print('noise')\n",
    }
    for name, text in packages.items():
        (tmp_path / f"{name}.py").write_text(text)
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
    installed = {name: "1.0" for name in packages if name != "torch"}
    here = host(PYTHONPATH=tmp_path)
    told = list(judge_imports(here, installed, look_at_driver(host(LD_LIBRARY_PATH="")), ""))
    seen = " ".join(finding.seen for finding in told)
    assert "can be imported: torch, numpy" in seen
    assert "undefined symbol: torch::jit::parseSchemaOrName(std::string const&)" in seen
    assert "torch_cluster crashes (SIGSEGV)" in seen
    assert "SystemExit: 3" in seen
    assert "pyg_lib: ended with exit code 4" in seen


LIBIBVERBS = """
#include <stddef.h>
struct ibv_device { char before[8]; char name[64]; } first = {"", "mlx5_0"}, second = {"", "mlx5_1"};
struct ibv_device *both[] = {&first, &second, NULL};
struct ibv_device **ibv_get_device_list(int *count) { ANSWER; }
const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }
"""


@pytest.mark.engine("gcc")
def test_cards_are_those_that_libibverbs_lists_and_a_crash_is_an_answer(tmp_path):
    plugin = compiled(tmp_path, "libnccl-net.so", "int ncclNetPlugin_v8;\n")
    for name, answer in (("two", "*count = 2; return both"), ("none", "return NULL"), ("crash", "return *(void **)8")):
        compiled(tmp_path / name, "libibverbs.so.1", LIBIBVERBS.replace("ANSWER", answer))
    two = ask_verbs(host(LD_LIBRARY_PATH=tmp_path / "two"), (str(plugin), str(tmp_path / "gone.so")))
    assert (two.loaded, two.devices, two.dmabuf) == (True, ("mlx5_0", "mlx5_1"), False)
    assert two.plugins[str(plugin)] == ""
    assert CANNOT_OPEN in two.plugins[str(tmp_path / "gone.so")]
    assert ask_verbs(host(LD_LIBRARY_PATH=tmp_path / "none"), ()).devices == ()
    assert ask_verbs(host(LD_LIBRARY_PATH=tmp_path / "crash"), ()).trouble.startswith("it ended with -11")
    assert CANNOT_OPEN in ask_verbs(host(LD_LIBRARY_PATH=tmp_path), ()).error


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


def test_one_file_alone_from_anywhere_writes_nothing(one_file, tmp_path):
    (tmp_path / "home").mkdir()
    alone = shutil.copy(one_file, tmp_path / "home" / "doctor.py")
    before = os.times()
    done = doctor(alone, "--json", environment={"HOME": str(tmp_path / "home")}, cwd=tmp_path / "home")
    after = os.times()
    assert done.returncode in (0, 7)
    assert done.stderr == ""
    areas = {finding["area"] for finding in json.loads(done.stdout)["findings"]}
    assert areas >= {"GPU", "environment", "machine", "storage"}
    assert [path.name for path in (tmp_path / "home").rglob("*")] == ["doctor.py"]
    assert (after.children_user - before.children_user) + (after.children_system - before.children_system) < 2


def test_doctor_read_from_stdin_explains_an_error(one_file):
    with one_file.open("rb") as stream:
        done = doctor("-", "--explain", "CUDA out of memory", stdin=stream)
    assert done.returncode == 0
    assert "The GPU's memory is full" in done.stdout


def test_programs_that_hang_and_a_bare_environment_do_not_hold_it_up(one_file, tmp_path):
    for name in ("srun", "sinfo", "apptainer", "enroot", "podman", "nvidia-container-cli"):
        (tmp_path / name).write_text("#!/bin/sh\nsleep 600 & sleep 600\n")
        (tmp_path / name).chmod(0o755)
    began = time.monotonic()
    done = doctor(one_file, "--no-imports", environment={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert time.monotonic() - began < 60
    assert done.returncode == 7  # an apptainer that does not tell its version
    assert done.stderr == ""
    assert not [name for name in ("srun", "apptainer", "podman") if running("/bin/sh", tmp_path / name)]
    bare = [sys.executable, "-I", "-S", one_file, "--no-imports"]
    done = subprocess.run(bare, env={}, capture_output=True, timeout=300, check=False)
    assert (done.returncode in (0, 7), done.stderr) == (True, b"")


def test_a_reader_that_leaves_and_a_terminal_without_letters(one_file):
    piped = f"{program('python3')} {one_file} --no-imports | head -1"
    reader = subprocess.run(["sh", "-c", piped], capture_output=True, timeout=300, check=True)
    assert (reader.stdout, reader.stderr) == (b"GPU\n", b"")
    plain = doctor(
        one_file, "--explain", "bus error \u2014 x", environment={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    )
    assert (plain.returncode, plain.stderr) == (0, "")


def test_build_py_explains_once_where_nobody_says_which_package_has_a_library(tmp_path):
    places = {"DEBIAN_MIRROR": "http://127.0.0.1:9/debian", "GRAPHCRATE_CACHE": str(tmp_path)}
    done = doctor(ROOT / "build.py", "doctor", "--explain", f"libX11.so.6: {CANNOT_OPEN}", environment=places)
    assert (done.returncode, done.stdout.count("error:"), done.stderr) == (0, 1, "")


@pytest.mark.parametrize(("release", "is_told"), [("1.5.0-1.el9", True), ("1.5.1", False)])
def test_build_py_names_a_release_of_apptainer_that_writes_sifs_cut_short(tmp_path, release, is_told):
    (tmp_path / "apptainer").write_text(f"#!/bin/sh\necho apptainer version {release}\n")
    (tmp_path / "apptainer").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = doctor(ROOT / "build.py", "doctor", "--no-imports", "--json", environment=path)
    named = {each["seen"] for each in json.loads(done.stdout)["findings"] if each["id"] == "release"}
    assert (named, done.stderr) == ({"apptainer 1.5.0"} if is_told else set(), "")


def test_build_py_needs_no_environment_for_it():
    done = doctor(ROOT / "build.py", "doctor", "--explain", "No CUDA GPUs are available")
    assert (done.returncode, "shows this process no GPU" in done.stdout) == (0, True)
