"""Small ELF libraries and CUDA fat binaries for tests, made without a compiler."""

import struct

SHT = {"PROGBITS": 1, "STRTAB": 3, "DYNAMIC": 6, "DYNSYM": 11}
SHT |= {"VERDEF": 0x6FFFFFFD, "VERNEED": 0x6FFFFFFE, "VERSYM": 0x6FFFFFFF}
NEEDED, SONAME, RPATH, RUNPATH = 1, 14, 15, 29
PTX, SASS = 1, 2


class Strings:
    """A string table."""

    def __init__(self):
        self.data = b"\0"

    def add(self, text):
        offset = len(self.data)
        self.data += text.encode() + b"\0"
        return offset


def make_elf(
    needed=(),
    soname="",
    runpath="",
    rpath="",
    defined=(),
    undefined=(),
    *,
    needs=None,
    versions=(),
    fatbin=None,
    relocatable=None,
    rodata=None,
    machine=62,
    kind=3,
    interpreter="",
):
    """A library. Symbols are "name", "name@version", with "?" before the name for weak ones, "." for hidden ones.

    `needs`: library → versions; a version that ends in "?" is weak. Sections only: there is nothing to run.
    """
    strings, numbers, parts = Strings(), {"": 1}, []
    for version in versions:
        numbers[version] = len(numbers) + 1
    for wanted in (needs or {}).values():
        for version in wanted:
            numbers.setdefault(version.rstrip("?"), len(numbers) + 1)
    symbols, indexes = symbol_table(strings, numbers, defined, undefined)
    verdef = definitions(strings, numbers, versions)
    verneed = needed_versions(strings, numbers, needs or {})
    tags = [(NEEDED, name) for name in needed]
    tags += [(tag, text) for tag, text in ((SONAME, soname), (RPATH, rpath), (RUNPATH, runpath)) if text]
    dynamic = b"".join(struct.pack("<qQ", tag, strings.add(text)) for tag, text in tags) + bytes(16)
    parts = [(".dynstr", SHT["STRTAB"], strings.data, 0), (".dynsym", SHT["DYNSYM"], symbols, 24)]
    parts += [(".gnu.version", SHT["VERSYM"], indexes, 2)] if len(numbers) > 1 else []
    parts += [(".gnu.version_d", SHT["VERDEF"], verdef, len(versions) + 1)] if verdef else []
    parts += [(".gnu.version_r", SHT["VERNEED"], verneed, len(needs))] if verneed else []
    parts += [(".dynamic", SHT["DYNAMIC"], dynamic, 16)]
    code = {".nv_fatbin": fatbin, "__nv_relfatbin": relocatable, ".rodata": rodata}
    parts += [(name, SHT["PROGBITS"], data, 0) for name, data in code.items() if data is not None]
    return assemble(parts, machine, kind, interpreter)


def symbol_table(strings, numbers, defined, undefined):
    symbols, indexes = bytes(24), struct.pack("<H", 0)
    for names, section in ((defined, 1), (undefined, 0)):
        for text in names:
            name, _, version = text.lstrip("?.").partition("@")
            info = (2 if text.startswith("?") else 1) << 4 | 2
            symbols += struct.pack("<IBBHQQ", strings.add(name), info, 2 * text.startswith("."), section, 0, 0)
            indexes += struct.pack("<H", numbers[version])
    return symbols, indexes


def definitions(strings, numbers, versions):
    entries = [(1, 1, "base")] + [(0, numbers[version], version) for version in versions] if versions else []
    data = b""
    for place, (flags, index, name) in enumerate(entries):
        following = 28 if place < len(entries) - 1 else 0
        data += struct.pack("<HHHHIII", 1, flags, index, 1, 0, 20, following)
        data += struct.pack("<II", strings.add(name), 0)
    return data


def needed_versions(strings, numbers, needs):
    data = b""
    for place, (library, versions) in enumerate(needs.items()):
        following = 16 + 16 * len(versions) if place < len(needs) - 1 else 0
        data += struct.pack("<HHIII", 1, len(versions), strings.add(library), 16, following)
        for inner, version in enumerate(versions):
            name, weak = version.rstrip("?"), version.endswith("?")
            following = 16 if inner < len(versions) - 1 else 0
            data += struct.pack("<IHHII", 0, 2 if weak else 0, numbers[name], strings.add(name), following)
    return data


def assemble(parts, machine, kind, interpreter=""):
    """Header, contents, section headers. The first part is the string table of all others."""
    names = Strings()
    body, rows = b"", [bytes(64)]
    for name, number, data, size in [*parts, (".shstrtab", SHT["STRTAB"], None, 0)]:
        label = names.add(name)
        content = names.data if data is None else data
        link = 2 if number == SHT["VERSYM"] else 1 if number not in (SHT["STRTAB"], SHT["PROGBITS"]) else 0
        count = size if number in (SHT["VERDEF"], SHT["VERNEED"]) else 1  # of entries in these two
        rows.append(struct.pack("<IIQQQQIIQQ", label, number, 0, 0, 64 + len(body), len(content), link, count, 8, size))
        body += content + bytes(-len(content) % 8)
    table = 64 + len(body)
    segments = table + 64 * len(rows) if interpreter else 0
    path = interpreter.encode() + b"\0"
    segment = struct.pack("<IIQQQQQQ", 3, 4, segments + 56, 0, 0, len(path), len(path), 1) + path
    counts = (64, 56, 1 if interpreter else 0, 64, len(rows), len(parts) + 1)
    head = struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, segments, table, 0, *counts)
    return b"\x7fELF\x02\x01\x01" + bytes(9) + head + body + b"".join(rows) + (segment if interpreter else b"")


def entry(kind, architecture, flags=0x11, code=b"machine code, 24 bytes..", header=64):
    """An entry of a fat binary."""
    head = struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, header, len(code), 0, 0, 7, 1, architecture, 0, 0, flags, 0, 0)
    return head + bytes(header - len(head)) + code


def fat_binary(*entries):
    """A fat binary of these entries."""
    content = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


#: a library with all that is read of one
WHOLE = make_elf(
    needed=("libc10.so", "libc.so.6"),
    soname="libmine.so",
    runpath="$ORIGIN/../torch/lib:$ORIGIN",
    defined=("mine@MINE_1", "?other", "third@MINE_2", ".inside"),
    undefined=("memcpy@GLIBC_2.14", "?__gmon_start__", "_ZN3c104cuda9SetDeviceEa"),
    needs={"libc.so.6": ("GLIBC_2.14", "GLIBC_2.34?"), "libm.so.6": ("GLIBC_2.29",)},
    versions=("MINE_1", "MINE_2"),
    fatbin=b"x" * 40,
    interpreter="/lib64/ld-linux-x86-64.so.2",
)
VOLTA_AMPERE = fat_binary(entry(SASS, 70), entry(SASS, 80), entry(PTX, 80, flags=0x2011, header=72))
HOPPER = fat_binary(entry(SASS, 90, flags=0x100011), entry(SASS, 100, flags=0x1200011, header=112))
#: a section with two of them, and zeros between
WHOLE_CODE = VOLTA_AMPERE + bytes(24) + HOPPER + bytes(8)
