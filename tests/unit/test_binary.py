"""Programs and libraries, in pieces or on the disk; the names of libraries in them."""

import tempfile

import pytest

from graphcrate.artifacts.formats.elf import Extent
from graphcrate.artifacts.tree import binaries
from graphcrate.model.audit import GpuCode
from tests.unit.elfmaker import PTX, SASS, entry, fat_binary, make_elf

CODE = fat_binary(entry(SASS, 70, code=b"\xee" * 9000), entry(PTX, 80, code=b"\xee" * 555))


def test_library_names_in_a_binary_are_found_whole():
    data = b"\0libcupti.so.11.8\0junk.so\xff libnccl.so\0" + b"x" * 300 + b"\0libfoo-1+2.so.3\0.so\0"
    whole = ("libcupti.so.11.8", "libfoo-1+2.so.3", "libnccl.so")
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        assert binaries.mentions(file, None) == whole
        assert binaries.mentions(file, Extent(8, 4)) == whole[1:]
        assert binaries.mentions(file, Extent(data.index(b"nccl") - 5, 2)) == whole[:2]


def test_binary_read_from_a_stream_equals_that_from_a_file(tmp_path):
    data = make_elf(needed=("libc.so.6",), defined=("a",), fatbin=CODE, relocatable=b"\0libother.so.2\0")
    (tmp_path / "a.so").write_bytes(data)
    streamed = binaries.read_binary((data[at : at + 100] for at in range(0, len(data), 100)), "a.so")
    assert binaries.read_binary(tmp_path / "a.so", "a.so") == streamed
    assert (streamed.code, streamed.size) == (GpuCode(sass=("7.0",), ptx=("8.0",)), len(data))
    assert "libother.so.2" in streamed.mentions


@pytest.mark.parametrize("data", [b"", b"\x7f", b"\x7fEL", b"#!/bin/sh\n", make_elf(kind=1)])
def test_file_that_is_no_elf_is_no_binary(data, tmp_path):
    (tmp_path / "a").write_bytes(data)
    assert binaries.read_binary([data], "a") is None
    assert binaries.read_binary(tmp_path / "a", "a") is None
