"""torch.compile: which Python takes it, and what it needs in an image."""

import pytest

from graphcrate.assembly.planned import compile_notes
from graphcrate.compat.facts import facts, torch_compile

BASE = ("libc6", "python3", "libstdc++6", "python3-minimal", "libpython3.11-stdlib")
HEADERS = "torch.compile needs Python's headers: APT=python3-dev, or FLAVOUR=devel"
REFUSED = "torch.compile does not work: torch 2.0.1+cu118 takes it up to Python 3.10, and this is 3.11"
ALL = "torch.compile needs a C++ compiler and Python's headers: 'APT=g++ python3-dev', or FLAVOUR=devel"


@pytest.mark.parametrize(
    ("torch", "newest"),
    [("1.13.1", ""), ("2.0.1+cu118", "3.10"), ("2.1.2", "3.11"), ("2.3.1", "3.11"), ("2.5.1", "3.12"),
     ("2.9.1", "3.13"), ("2.10.0", "3.14"), ("2.15.0", "3.15"), ("99.0", ""), ("*", "")],
)  # fmt: skip
def test_newest_python_of_torch_compile_is_that_of_the_torch(torch, newest):
    assert torch_compile.newest_python(torch) == newest


@pytest.mark.parametrize(
    ("torch", "python", "debian", "note"),
    [
        ("2.0.1+cu118", "3.11", BASE, REFUSED),
        ("2.0.1+cu118", "3.11", None, REFUSED),
        ("2.0.1", "3.9", BASE, ALL),
        ("2.3.1", "3.11", BASE, ALL),
        ("2.10.0", "3.11", BASE, ALL),
        ("2.10.0", "3.11", (*BASE, "g++", "g++-12"), HEADERS),
        ("2.10.0", "3.11", (*BASE, "g++-12", "libpython3.11-dev"), ""),
        ("2.10.0", "3.11", (*BASE, "clang-14", "python3-dev"), ""),
        ("2.10.0", "3.11", None, ""),
        ("1.13.1", "3.11", BASE, ""),
        ("*", "3.11", BASE, ""),
    ],
)  # fmt: skip
def test_torch_compile_note_says_what_is_in_the_way(torch, python, debian, note):
    assert torch_compile.note(torch, python, debian) == note


def test_torch_from_2_0_on_has_its_newest_python_for_torch_compile():
    for build in facts.torch_builds():
        assert bool(build.compile_python) == (facts.numbers(build.torch) >= (2,)), build.torch


def test_plan_says_that_torch_compile_does_not_work(lock):
    assert compile_notes(lock(), None) == [REFUSED.replace("+cu118", "")]
