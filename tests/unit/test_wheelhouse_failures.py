"""Compilers' last pages, and the one line of them that matters."""

import json
from types import SimpleNamespace

import pytest

from graphcrate.inputs.extensions import compile as house
from graphcrate.inputs.extensions.diagnosis import diagnose, first_error
from graphcrate.inputs.extensions.progress import Watcher
from graphcrate.model.lock import Compilation, DebianBase, DebianToolkit
from tests.unit.test_wheelhouse import package, step

COMPILATION = Compilation(
    architectures=("3.5", "7.0"),
    compiler="g++-12",
    base=DebianBase(suite="bookworm", packages=()),
    tools=(),
    toolkit=DebianToolkit(version="11.8.89", suite="bookworm", packages=(), wheels=()),
)
GCC = """g++-11 -c csrc/scatter.cpp -o build/scatter.o
csrc/scatter.cpp: In function 'int f()':
csrc/scatter.cpp:12:9: warning: unused variable 'error' [-Wunused-variable]
csrc/scatter.cpp:14:9: error: 'nonsense' was not declared in this scope
   14 | int x = nonsense;
csrc/scatter.cpp:15:9: error: 'more' was not declared in this scope
Traceback (most recent call last):
  File "compile.py", line 1, in <module>
distutils.errors.CompileError: command '/usr/bin/g++-11' failed with exit code 1
"""
TOO_NEW = """In file included from /usr/local/cuda/include/cuda_runtime.h:83,
                 from <command-line>:
/usr/local/cuda/include/crt/host_config.h:132:2: error: #error -- unsupported GNU version! gcc versions later than 11 \
are not supported! The nvcc flag '-allow-unsupported-compiler' can be used to override this version check;
  132 | #error -- unsupported GNU version!
"""


@pytest.mark.parametrize(
    ("output", "line", "cause"),
    [
        (GCC, "csrc/scatter.cpp:14:9: error: 'nonsense' was not declared in this scope", "do not go with this torch"),
        (TOO_NEW, "unsupported GNU version! gcc versions later than 11", "too new a compiler for CUDA 11.8.89"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_35'\n", "nvcc fatal", "asked for: 3.5, 7.0"),
        ('csrc/a.cu(12): error: identifier "x" is undefined\n1 error detected\n', "csrc/a.cu(12): error", "torch"),
        ("g++-11: fatal error: Killed signal terminated program cc1plus\n", "Killed", "ran out of memory"),
        ("nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n", "died due to signal 9", "ran out of memory"),
        ("a.cpp:1:10: fatal error: Python.h: No such file or directory\n", "Python.h", "headers of its Python"),
        ("a.cpp:1:10: fatal error: cusparse.h: No such file or directory\n", "cusparse.h", "lacks a header or library"),
        ("/usr/bin/ld: cannot find -lcudart: No such file\n", "cannot find -lcudart", "lacks a header or library"),
        ("cc1plus: fatal error: x.s: No space left on device\n", "No space left", "disk"),
        (
            "RuntimeError: The detected CUDA version (12.4) mismatches the version that was used to compile",
            "RuntimeError",
            "built for another CUDA",
        ),
        ("Traceback\nModuleNotFoundError: No module named 'numpy'\n", "ModuleNotFoundError", "Python package"),
        ("error: command 'g++-11' failed: No such file or directory\n", "g++-11", "no such compiler"),
        ("one\nlast words\n", "last words", "do not go with"),
        ("", "it said nothing", "do not go with"),
    ],
)
def test_the_first_error_and_its_cause(output, line, cause):
    found = diagnose(output, COMPILATION)
    assert line in found.line
    assert cause in found.cause
    assert found.next_step


def test_a_long_line_is_cut():
    assert len(first_error("a.cpp:1:1: error: " + "x" * 5000)) == 400


LINKER = """running bdist_wheel
/usr/bin/ld: cannot find -lcublas: No such file or directory
collect2: error: ld returned 1 exit status
error: command '/usr/bin/g++-11' failed with exit code 1
"""


def failed(folder, event):
    """The error for a package with a log of its own and one of a file that compiled, and what is kept of them."""
    member = package("torch-scatter", compiled=True)
    logs = folder / "build" / "logs"
    logs.mkdir(parents=True)
    (logs / "torch-scatter.build_temp_a.o.log").write_text("a.cpp:12:3: warning: unused variable\n")
    (logs / "torch-scatter.build_temp_b.o.log").write_text("b.cpp:1:1: error: no\n")
    (logs / "torch-scatter.log").write_text(LINKER)
    watcher = Watcher([member.name], SimpleNamespace(note=print))
    watcher.read(json.dumps({"event": "failed", "package": member.name, **event}))
    job = SimpleNamespace(step=step(packages=(member,)), log_folder=folder / "dist", jobs=1)
    error = house._failure(job, member, folder / "build", watcher, 1)
    return error, (folder / "dist" / "compile-torch-scatter.log").read_text()


LINK = "torch-scatter.log"
A, B = "torch-scatter.build_temp_a.o.log", "torch-scatter.build_temp_b.o.log"


@pytest.mark.parametrize(
    ("event", "what", "order"),
    [
        ({}, "cannot find -lcublas", [LINK, A, B]),
        ({"source": "b.cpp", "log": f"/build/logs/{B}"}, "at b.cpp: b.cpp:1:1: error: no", [B, LINK, A]),
    ],
)
def test_a_failure_is_told_from_the_log_of_the_package_or_the_file(tmp_path, event, what, order):
    error, kept = failed(tmp_path, event)
    assert what in error.what
    assert [line[4:] for line in kept.splitlines() if line.startswith("=== ")] == order
