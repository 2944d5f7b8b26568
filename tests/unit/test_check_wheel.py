"""wheelhouse.check: a good extension passes; each way in which one cannot work is found and said."""

import pytest

from graphcrate.inputs.extensions.check import asked_code, check_wheel
from tests.unit.elfmaker import PTX, SASS, entry, fat_binary, make_elf
from tests.unit.test_wheelhouse import step
from tests.unit.wheelmaker import make_wheel

CODE = fat_binary(entry(SASS, 70), entry(SASS, 80), entry(PTX, 80))
NEEDED = ("libc10.so", "libtorch_cpu.so", "libtorch_cuda.so", "libcudart.so.11.0", "libstdc++.so.6", "libc.so.6")
GOOD = {"needed": NEEDED, "defined": ("PyInit__scatter",), "fatbin": CODE}
ASKED = ("7.0", "8.0+PTX")


@pytest.fixture
def judge(tmp_path):
    """Findings about a wheel with these files; an ELF library is given by its fields."""

    def judged(files, architectures=ASKED):
        content = {name: make_elf(**data) if isinstance(data, dict) else data for name, data in files.items()}
        tag = "cp311-cp311-linux_x86_64"
        wheel = make_wheel(tmp_path, "torch_scatter", "2.1.1", content, tag=tag, purelib=False)
        return check_wheel(wheel, step(architectures=architectures))

    return judged


def scatter(**changes):
    return {"torch_scatter/_scatter_cuda.so": {**GOOD, **changes}}


@pytest.mark.parametrize(
    ("changes", "architectures"),
    [
        ({}, ASKED),
        # what nvcc's linker adds has no PTX
        ({"fatbin": fat_binary(entry(SASS, 70), entry(SASS, 80)) + CODE}, ASKED),
        ({"fatbin": None}, ()),
        ({"needed": ("libc.so.6",), "fatbin": None}, ASKED),  # without torch
    ],
)
def test_a_good_wheel(judge, changes, architectures):
    assert judge(scatter(**changes), architectures) == ()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"torch_scatter/__init__.py": b""}, "has no extension module: nothing was compiled."),
        ({"a/_a.so": b"not a library"}, "a/_a.so is not an ELF file."),
        (scatter(fatbin=CODE[:-4]), "GPU code, byte 0: a fat binary reaches out of its section."),
        ({"a/_a.cpython-39-x86_64-linux-gnu.so": GOOD}, "is for Python 3.9; the image has 3.11."),
        (scatter(needed=(*NEEDED, "libcuda.so.1")), "libcuda.so.1, which only a machine with NVIDIA's driver has."),
        (
            scatter(fatbin=fat_binary(entry(SASS, 70))),
            "has GPU code for 7.0; asked for was 7.0, 8.0 and 8.0 (PTX).",
        ),
        (
            scatter(fatbin=CODE + fat_binary(entry(SASS, 90, flags=0x100011)) + fat_binary()),
            "has GPU code for 7.0, 8.0, 9.0a and 8.0 (PTX); asked for was 7.0, 8.0 and 8.0 (PTX).",
        ),
        (
            scatter(fatbin=CODE + fat_binary(entry(SASS, 80)) + fat_binary()),
            "has GPU code for 8.0 only in 1 of its 2 parts; asked for was 7.0, 8.0 and 8.0 (PTX).",
        ),
        (scatter(fatbin=None), "no library has GPU code; asked for was 7.0, 8.0 and 8.0 (PTX). It was compiled for"),
    ],
)  # fmt: skip
def test_each_way_to_fail_is_found_alone(judge, files, said):
    (finding,) = judge(files)
    assert said in finding


def test_a_build_for_the_cpu_has_no_gpu_code(judge):
    (finding,) = judge(scatter(), architectures=())
    assert finding.endswith("has GPU code for 7.0, 8.0 and 8.0 (PTX); asked for was no GPU.")


def test_what_torch_s_list_of_architectures_asks_for():
    code = asked_code(("7.0", "8.0+PTX", "9.0a"))
    assert (code.sass, code.ptx) == ({"7.0", "8.0", "9.0a"}, {"8.0"})
