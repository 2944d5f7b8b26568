"""treeaudit.elf: what the loader goes by, of libraries made here and of real ones; damaged ones are refused."""

import io
import os
import struct
import sys
from pathlib import Path

import msgspec
import pytest
from elfmaker import SHT, WHOLE, assemble, make_elf

from treeaudit import elf
from treeaudit.errors import FileError
from treeaudit.values import Binary, NeededSymbol, VersionWanted


def tables(strings, symbols):
    return [(".dynstr", SHT["STRTAB"], strings, 0), (".dynsym", SHT["DYNSYM"], symbols, 24)]


TABLES = tables(b"\0libc.so.6\0and more names\0", bytes(24))


#: sstrip leaves what the kernel and the loader need; the tables are still there, and nothing says where
SEGMENT = struct.pack("<IIQQQQQQ", 2, 6, 64, 0, 0, 16, 16, 8)  # PT_DYNAMIC
STRIPPED = WHOLE[:16] + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0) + SEGMENT


def read(data):
    return elf.read_stream(io.BytesIO(data), "libmine.so")


def test_elf_reader_reads_all_that_the_loader_uses():
    found = read(WHOLE)
    binary = found.binary
    assert (binary.machine, found.type, binary.soname) == ("EM_X86_64", "ET_DYN", "libmine.so")
    assert binary.interpreter == "/lib64/ld-linux-x86-64.so.2"
    assert binary.needed == ("libc10.so", "libc.so.6")
    assert binary.runpath == ("$ORIGIN/../torch/lib", "$ORIGIN")
    assert binary.exports == {"mine": ("MINE_1",), "other": ("",), "third": ("MINE_2",)}
    assert binary.wanted == (NeededSymbol("memcpy", "GLIBC_2.14"), NeededSymbol("_ZN3c104cuda9SetDeviceEa"))
    needs = VersionWanted("libc.so.6", "GLIBC_2.14"), VersionWanted("libm.so.6", "GLIBC_2.29")
    assert (binary.versions_wanted, binary.versions) == (needs, {"MINE_1", "MINE_2"})
    assert WHOLE[found.fat_binaries.offset :][: found.fat_binaries.size] == b"x" * 40


def test_elf_without_optional_parts_is_read():
    found = read(make_elf(machine=183, kind=1))
    assert (found.type, found.fat_binaries) == ("ET_REL", None)
    assert found.binary == Binary(size=found.binary.size, machine="EM_AARCH64")
    paths = {}, {"rpath": "/old"}, {"rpath": "/old", "runpath": "/new"}
    looked_in = [(found.runpath, found.inherited) for found in (read(make_elf(**one)).binary for one in paths)]
    assert looked_in == [((), False), (("/old",), True), (("/new",), False)]


def test_elf_of_real_extension_and_interpreter_is_read():
    """The extension of a dependency, and the interpreter."""
    extension = read(Path(msgspec._core.__file__).read_bytes()).binary
    assert "libc.so.6" in extension.needed
    assert "PyInit__core" in extension.exports
    assert "PyErr_SetString" in {symbol.name for symbol in extension.wanted}
    assert any(need.version.startswith("GLIBC_2.") for need in extension.versions_wanted)
    assert "ld-linux" in read(Path(sys.executable).read_bytes()).binary.interpreter


def test_elf_reader_reads_tables_of_a_large_file_only(tmp_path):
    """A terabyte of GPU code, as a hole in the file."""
    path = tmp_path / "large.so"
    path.write_bytes(make_elf(needed=("libc.so.6",), fatbin=b""))
    os.truncate(path, 1 << 40)
    with path.open("rb") as stream:
        assert elf.read_stream(stream, path.name).binary.needed == ("libc.so.6",)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not an ELF file"),
        (b"PK\x03\x04", "is not an ELF file"),
        (b"\x7fELF", "is not a whole ELF file"),
        (b"\x7fELF\x01\x01\x01" + WHOLE[7:], "32 bits"),
        (WHOLE[:5] + b"\x02" + WHOLE[6:], "only 64 bits, little-endian"),
        (STRIPPED, "no section headers"),
    ],
)
def test_elf_of_32_bits_or_without_sections_is_refused(data, said):
    with pytest.raises(FileError, match=said) as caught:
        read(data)
    assert caught.value.what.startswith("libmine.so ")


def test_elf_with_a_cyclic_version_table_is_refused():
    """It says to have more entries than its bytes have room for."""
    table = struct.pack("<HHIII", 1, 0xFFFF, 1, 16, 0) + struct.pack("<IHHII", 0, 0, 2, 1, 0)
    data = assemble([*TABLES, (".gnu.version_r", SHT["VERNEED"], table, 0xFFFFFFFF)], 62, 3)
    with pytest.raises(FileError, match="a version table that leads into itself"):
        read(data)


def test_elf_with_overlapping_symbol_names_is_limited(monkeypatch):
    strings = b"\0" + b"A" * 40_000 + b"\0"
    symbols = bytes(24) + b"".join(struct.pack("<IBBHQQ", 1 + at, 0x10, 0, 0, 0, 0) for at in range(40))
    data = assemble(tables(strings, symbols), 62, 3)
    assert len(read(data).binary.wanted) == 40
    monkeypatch.setattr(elf, "_TABLE_LIMIT", 1 << 20)
    with pytest.raises(FileError, match="names of more than 1048576 bytes"):
        read(data)
