"""Programs and libraries, in pieces or on the disk; the names of libraries in them."""

import tempfile

import pytest

from graphcrate.artifacts.tree import binaries
from tests.unit.elfmaker import PTX, SASS, entry, fat_binary, make_elf
from treeaudit.elf import Extent
from treeaudit.values import GpuCode

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


def test_symbols_that_nccl_looks_up_are_read_of_its_constants_alone():
    """gloo, in torch, opens the same library and asks for no version; debug information has names of types."""
    nccl = (
        b"x\0IBVERBS_1.1\0ibv_open_device\0Call to ibv_modify_qp\0no_ibv_query_gid\0ibv_exit\xff\0mlx5dv_is_supported\0"
    )
    found = binaries.read_binary([make_elf(rodata=nccl, relocatable=b"\0ibv_mtu\0")], "libnccl.so.2")
    assert found.verbs == ("ibv_modify_qp", "ibv_open_device", "mlx5dv_is_supported")
    for others in (nccl.replace(b"IBVERBS_1.1", b""), nccl.replace(b"IBVERBS_1.1\0", b"IBVERBS_1.12\0")):
        assert binaries.read_binary([make_elf(rodata=others)], "libtorch_cuda.so").verbs == ()
    assert binaries.read_binary([make_elf(relocatable=nccl)], "libnccl.so.2").verbs == ()
    many = nccl + b"".join(b"ibv_a%d\0" % number for number in range(5000))
    assert len(binaries.read_binary([make_elf(rodata=many)], "libnccl.so.2").verbs) == 1000


@pytest.mark.parametrize("data", [b"", b"\x7f", b"\x7fEL", b"#!/bin/sh\n", make_elf(kind=1)])
def test_file_that_is_no_elf_is_no_binary(data, tmp_path):
    (tmp_path / "a").write_bytes(data)
    assert binaries.read_binary([data], "a") is None
    assert binaries.read_binary(tmp_path / "a", "a") is None
