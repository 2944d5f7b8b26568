"""Libraries of a wheel that load, and the order in which they are tried."""

import ctypes
from pathlib import Path

import pytest

from graphcrate.inputs.extensions.import_check import load


@pytest.mark.parametrize(
    ("needs", "failing"),
    [
        ({"libllama-common.so": "libllama.so", "libllama.so": "libggml.so", "libggml.so": ""}, []),
        ({"libmtmd.so": "libabsent.so", "libllama.so": ""}, ["libmtmd.so"]),
        ({"liba.so": "libb.so", "libb.so": "liba.so"}, ["liba.so", "libb.so"]),
        ({"_ext.cpython-311-x86_64-linux-gnu.so": "libz.so", "libz.so": ""}, ["_ext.cpython-311-x86_64-linux-gnu.so"]),
        ({}, []),
    ],
    ids=["each after what it is linked to", "one is absent", "none is first", "a module of Python is alone", "nothing"],
)
def test_libraries_of_one_package_load_in_the_order_that_they_are_linked_in(monkeypatch, needs, failing):
    """libllama-common.so of llama-cpp-python, linked to libllama.so.0, was tried first and failed."""
    there = {""}

    def loaded(path, mode):
        name = Path(path).name
        if needs[name] not in there:
            raise OSError(f"{name}: {needs[name]}: cannot open shared object file")
        there.add(name)

    monkeypatch.setattr(ctypes, "CDLL", loaded)
    said = load([Path("site", name) for name in sorted(needs)])
    assert [text.partition(":")[0] for text in said] == failing
