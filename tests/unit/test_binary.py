"""Programs and libraries: GPU code is left out of the copy, nothing else; library names are noted."""

import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.artifacts.formats import binary
from graphcrate.artifacts.formats.elf import Extent
from graphcrate.artifacts.formats.fatbin import BEGIN
from graphcrate.model.audit import GpuCode
from tests.unit.elfmaker import PTX, SASS, entry, fat_binary, make_elf

CODE = fat_binary(entry(SASS, 70, code=b"\xee" * 9000), entry(PTX, 80, code=b"\xee" * 555))
ODD = [CODE[:16], CODE[:16] + b"\xff" * 100, CODE[:40], CODE[:20] + b"\x28\0\0\0" + CODE[24:30], CODE[:4] * 20]


def pieces(data, size):
    return (data[at : at + size] for at in range(0, len(data), size))


def copied(data, size):
    with tempfile.TemporaryFile() as out:  # unlike BytesIO it grows when it is cut to a greater length
        binary.strip(pieces(data, size), out)
        out.seek(0)
        return out.read()


@pytest.mark.parametrize("size", [1, 7, 64, 4096, 1 << 20])
def test_code_becomes_a_hole_and_what_only_looks_like_it_stays(size):
    data = b"before" + bytes(2) + CODE + b"after"
    got = copied(data, size)
    assert got.count(b"\xee") == 2 * BEGIN, "which tells code from zeros"
    assert len(got) == len(data)
    assert got.replace(b"\xee", b"\0") == data.replace(b"\xee", b"\0")
    assert [copied(odd, size) for odd in ODD] == ODD


@given(st.binary(max_size=400), st.integers(1, 50), st.lists(st.integers(0, 3), max_size=4))
def test_any_bytes_are_copied_but_for_code(noise, size, places):
    data = noise
    for place in places:
        at = place * len(data) // 4
        data = data[:at] + CODE + data[at:]
    got = copied(data, size)
    assert len(got) == len(data)
    assert all(one in (other, 0) for one, other in zip(got, data, strict=True))
    if not places and CODE[:8] not in noise:
        assert got == data


def test_names_of_libraries_but_not_those_that_code_cuts():
    data = b"\0libcupti.so.11.8\0junk.so\xff libnccl.so\0" + b"x" * 300 + b"\0libfoo-1+2.so.3\0.so\0"
    whole = ("libcupti.so.11.8", "libfoo-1+2.so.3", "libnccl.so")
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        assert binary.mentions(file, None) == whole
        assert binary.mentions(file, Extent(8, 4)) == whole[1:]
        assert binary.mentions(file, Extent(data.index(b"nccl") - 5, 2)) == whole[:2]


def test_a_stream_and_a_file_tell_the_same(tmp_path):
    data = make_elf(needed=("libc.so.6",), defined=("a",), fatbin=CODE, relocatable=b"\0libother.so.2\0")
    (tmp_path / "a.so").write_bytes(data)
    streamed = binary.read(pieces(data, 100), "a.so")
    assert binary.read(tmp_path / "a.so", "a.so") == streamed
    assert (streamed.code, streamed.size) == (GpuCode(sass=("7.0",), ptx=("8.0",)), len(data))
    assert "libother.so.2" in streamed.mentions


@pytest.mark.parametrize("data", [b"", b"\x7f", b"\x7fEL", b"#!/bin/sh\n", make_elf(kind=1)])
def test_what_no_loader_takes_is_nothing(data, tmp_path):
    (tmp_path / "a").write_bytes(data)
    assert binary.read([data], "a") is None
    assert binary.read(tmp_path / "a", "a") is None
