"""ELF libraries and programs of 64 bits (System V gABI, and GNU's symbol versions): what the loader goes by.

pyelftools reads the headers; the tables, hundreds of thousands of entries in torch's libraries, are read here at once.
Of a large file only these tables are read.
"""

import errno
import itertools
import os
import re
import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import msgspec

from treeaudit.errors import FileError, ForeignError, UnlistedError
from treeaudit.values import Binary, NeededSymbol, VersionWanted

if TYPE_CHECKING:  # loaded where a file is read: most commands read none
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import Version, VersionAuxiliary
    from elftools.elf.sections import Section

_BY_NAME = (".nv_fatbin", "__nv_relfatbin", ".data", ".rodata")
_TABLE_LIMIT = 1 << 28  #: bytes, also of all names, which may share their ends; the largest seen are 10 MB
_PATH_LIMIT = 4096  #: PATH_MAX of Linux
_NAMES = _NEEDED, _SONAME, _RPATH, _RUNPATH = "DT_NEEDED", "DT_SONAME", "DT_RPATH", "DT_RUNPATH"
_SMALLEST = 8  #: bytes of an entry in a table of tags or versions
_SYMBOL = struct.Struct("<IBBHQQ")
_LOCAL, _WEAK = 0, 2
_HIDDEN = (1, 2)  #: visibilities internal and hidden
_UNVERSIONED = 2  #: version indexes below are "local" and "global, no version"
_NEW_STRING, _OLD_STRING = re.compile(r"NSt7__cxx1112basic_string"), re.compile(r"^_ZNK?Ss", re.MULTILINE)
_FLAG_BASE, _FLAG_WEAK = 1, 2  #: of a version: the file's own name; it may be absent


class Extent(msgspec.Struct, frozen=True):
    """Bytes of a file."""

    offset: int
    size: int


def string_forms(names: Iterable[str]) -> tuple[bool, bool]:
    """Return whether symbols refer to std::string in its form from before C++11, and in the one since (dual ABI)."""
    text = "\n".join(names)
    return _OLD_STRING.search(text) is not None, _NEW_STRING.search(text) is not None


class Elf(msgspec.Struct, frozen=True, kw_only=True):
    """An ELF file as the loader sees it, without GPU code and what is mentioned, and where GPU code is in the file."""

    binary: Binary
    type: str  #: by its name in elf.h: ET_DYN
    fat_binaries: Extent | None  #: .nv_fatbin, GPU code that the CUDA runtime loads
    linked_fat_binaries: Extent | None  #: __nv_relfatbin, what the device linker made .nv_fatbin of
    data: tuple[Extent, ...]  #: .data and .rodata


def read_stream(stream: BinaryIO, name: str) -> Elf:
    """Read an open, seekable file, called `name` in errors. Raises FileError when it is no whole ELF file."""
    reader = _Reader(stream, name)
    try:
        return reader.read()
    except Exception as error:  # pyelftools trusts offsets, indexes and names: mangled headers raise almost anything
        # EINVAL: an offset that no file has
        if isinstance(error, FileError) or (isinstance(error, OSError) and error.errno != errno.EINVAL):
            raise
        reader.fail(f"is not a whole ELF file: {error or type(error).__name__}", error)


class _Reader:
    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream, self._name = stream, name
        self._size = stream.seek(0, os.SEEK_END)
        stream.seek(0)
        self._sections: dict[str, Section] = {}  # by type, and by name that of the GPU
        self._strings = b""
        self._named = 0  # bytes of all names so far

    def fail(self, what: str, error: BaseException | None = None, kind: type[FileError] = FileError) -> NoReturn:
        raise kind(
            f"{self._name} {what}", cause="The file was damaged, cut short or built by a faulty tool."
        ) from error

    def read(self) -> Elf:
        if self._stream.read(4) != b"\x7fELF":
            self.fail("is not an ELF file")
        from elftools.elf.elffile import ELFFile

        elf = ELFFile(self._stream)
        if elf.elfclass != 64 or not elf.little_endian:
            what = f"is an ELF file of {elf.elfclass} bits for {elf['e_machine']}; only 64 bits, little-endian are read"
            self.fail(what, kind=ForeignError)
        if not elf.num_sections() and any(segment["p_type"] == "PT_DYNAMIC" for segment in elf.iter_segments()):
            self.fail("has no section headers, so that nothing tells what it needs", kind=UnlistedError)
        for section in elf.iter_sections():
            key = section.name if section.name in _BY_NAME else section["sh_type"]
            self._sections.setdefault(str(key), section)
        self._strings = self._linked_strings()
        tags = self._tags()
        versions, needs = self._definitions(), list(self._versions("SHT_GNU_verneed"))
        numbered = versions | {version["vna_other"] & 0x7FFF: version.name for _, version in needs}
        exports, undefined, names = self._symbols(numbered)
        old_strings, new_strings = string_forms(names)
        binary = Binary(
            size=self._size,
            machine=str(elf["e_machine"]),
            soname="".join(tags[_SONAME][:1]),
            needed=tuple(tags[_NEEDED]),
            runpath=tuple(filter(None, ":".join(tags[_RUNPATH] or tags[_RPATH]).split(":"))),
            inherited=bool(tags[_RPATH]) and not tags[_RUNPATH],
            interpreter=self._interpreter(elf),
            exports=exports,
            wanted=tuple(undefined),
            versions_wanted=tuple(
                VersionWanted(str(library.name), version.name)
                for library, version in needs
                if not version["vna_flags"] & _FLAG_WEAK
            ),
            versions=frozenset(versions.values()),
            old_strings=old_strings,
            new_strings=new_strings,
        )
        return Elf(
            binary=binary,
            type=str(elf["e_type"]),
            fat_binaries=self._extent(".nv_fatbin"),
            linked_fat_binaries=self._extent("__nv_relfatbin"),
            data=tuple(filter(None, map(self._extent, (".data", ".rodata")))),
        )

    def _interpreter(self, elf: "ELFFile") -> str:
        for segment in elf.iter_segments("PT_INTERP"):
            self._stream.seek(segment["p_offset"])
            path = self._stream.read(min(segment["p_filesz"], _PATH_LIMIT)).rstrip(b"\0")
            return path.decode("utf-8", "backslashreplace")
        return ""

    def _extent(self, key: str) -> Extent | None:
        """The place of a section's bytes, when they are in the file."""
        section = self._sections.get(key)
        if section is None or section["sh_type"] == "SHT_NOBITS":
            return None
        extent = Extent(section["sh_offset"], section["sh_size"])
        if extent.offset + extent.size > self._size:
            self.fail(f"ends before its section {key} does")
        return extent

    def _table(self, key: str) -> bytes:
        extent = self._extent(key)
        if extent is None:
            return b""
        if extent.size > _TABLE_LIMIT:
            self.fail(f"has {extent.size} bytes in {key}, which is absurd")
        self._stream.seek(extent.offset)
        return self._stream.read(extent.size)

    def _linked_strings(self) -> bytes:
        """The string table of the dynamic symbols, which the version tables and the tags share."""
        if symbols := self._sections.get("SHT_DYNSYM"):
            self._sections["dynamic strings"] = symbols.elffile.get_section(symbols["sh_link"])
        return self._table("dynamic strings")

    def _string(self, offset: int) -> str:
        end = self._strings.find(b"\0", offset)
        if end < 0:
            self.fail("has a name outside of its string table")
        self._named += end - offset
        if self._named > _TABLE_LIMIT:
            self.fail(f"has names of more than {_TABLE_LIMIT} bytes, which is absurd")
        return self._strings[offset:end].decode("utf-8", "backslashreplace")

    def _tags(self) -> dict[str, list[str]]:
        """Those tags of the dynamic section that are names."""
        from elftools.elf.dynamic import DynamicSection

        names: dict[str, list[str]] = {tag: [] for tag in _NAMES}
        section = self._sections.get("SHT_DYNAMIC")
        if isinstance(section, DynamicSection) and self._extent("SHT_DYNAMIC"):
            for tag in itertools.islice(section.iter_tags(), section["sh_size"] // _SMALLEST):
                if (kind := str(tag["d_tag"])) in names:
                    names[kind].append(getattr(tag, kind.removeprefix("DT_").lower()))
        return names

    def _versions(self, key: str) -> "Iterator[tuple[Version, VersionAuxiliary]]":
        """Entries of a version table, each with those that follow from it; no more than it has room for."""
        from elftools.elf.gnuversions import GNUVersionSection

        section = self._sections.get(key)
        if isinstance(section, GNUVersionSection) and self._extent(key):
            room = section["sh_size"] // _SMALLEST
            for version, more in section.iter_versions():
                for auxiliary in more:
                    if not room:
                        self.fail("has a version table that leads into itself")
                    room -= 1
                    yield version, auxiliary

    def _definitions(self) -> dict[int, str]:
        """Version index → name, of .gnu.version_d: the first of an entry's names is its own."""
        named: dict[int, str] = {}
        for version, name in self._versions("SHT_GNU_verdef"):
            if not version["vd_flags"] & _FLAG_BASE:
                named.setdefault(version["vd_ndx"] & 0x7FFF, name.name)
        return named

    def _symbols(self, versions: dict[int, str]) -> tuple[dict[str, tuple[str, ...]], list[NeededSymbol], list[str]]:
        """Global symbols that are defined, with their versions, those that must be there, and all their names."""
        table, indexes = self._table("SHT_DYNSYM"), self._table("SHT_GNU_versym")
        count = len(table) // _SYMBOL.size
        if indexes and len(indexes) // 2 < count:
            self.fail("has fewer versions than symbols")
        numbers = struct.unpack_from(f"<{count}H", indexes) if indexes else (0,) * count
        exports: dict[str, tuple[str, ...]] = {}
        undefined: list[NeededSymbol] = []
        names: list[str] = []
        whole = memoryview(table)[: count * _SYMBOL.size]
        for (offset, info, other, section, _, _), number in zip(_SYMBOL.iter_unpack(whole), numbers, strict=True):
            binding, index = info >> 4, number & 0x7FFF
            if binding == _LOCAL or other & 3 in _HIDDEN:
                continue
            name, version = self._string(offset), versions.get(index, "") if index >= _UNVERSIONED else ""
            names.append(name)
            if section:
                exports[name] = (*exports.get(name, ()), version)
            elif binding != _WEAK:
                undefined.append(NeededSymbol(name, version))
        return exports, undefined, names
