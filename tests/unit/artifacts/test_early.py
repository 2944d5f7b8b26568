"""The files that programs read while they start, in a squashfs: a record of them, else a rule for libraries."""

import random
import struct

import pytest

from graphcrate.artifacts.formats import packed
from graphcrate.artifacts.formats.early import (
    MOST_DATA,
    UNIT,
    Early,
    EarlyBytes,
    LibraryReads,
    Recorded,
    head_digest,
    recorded,
)
from sifsquash.packer import BLOCKS
from sifsquash.squashfs import STORED_DATA, Squashfs
from sifsquash.values import Compression
from tests.unit.artifacts.test_merged import members, squash
from tests.unit.small_layouts import layout
from tests.unit.tars import file
from treeaudit.fatbin import BEGINNING

KIB, MIB = 1 << 10, 1 << 20
BLOCK = 128 * KIB
MOST_CODE = 4 * MIB
LOAD, FRAMES = 1, 0x6474E550
R, RX, RW = 4, 5, 6
LIBRARY = "opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so"


def elf(*segments, size=MIB, entry=56, table=64):
    """A library of this size whose program headers are (type, flags, offset, size)."""
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, table, 0, 0, 64, entry, len(segments), 0, 0, 0
    )
    head += b"".join(struct.pack("<IIQQQQQQ", kind, flags, at, at, at, n, n, 4096) for kind, flags, at, n in segments)
    return head.ljust(size, b"\x90")


def early(content, path=LIBRARY):
    """Numbers of the blocks that are read early, as ranges: "0-3 7"."""
    rule = EarlyBytes(path, content[:BLOCK], MOST_CODE)
    found = [n for n in range(-(-len(content) // BLOCK)) if rule.has(n * BLOCK, content[n * BLOCK : (n + 1) * BLOCK])]
    starts = [n for n in found if n - 1 not in found]
    ends = [n for n in found if n + 1 not in found]
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def with_gpu_code(content, at):
    return content[:at] + BEGINNING + content[at + len(BEGINNING) :]


@pytest.mark.parametrize(
    ("content", "blocks"),
    [
        # tables, code, constants up to the frames, data; then symbols for debuggers
        (
            elf(
                (LOAD, R, 0, 2 * BLOCK),
                (LOAD, RX, 2 * BLOCK, 3 * BLOCK),
                (LOAD, R, 5 * BLOCK, 4 * BLOCK),
                (LOAD, RW, 9 * BLOCK, BLOCK),
                (FRAMES, R, 6 * BLOCK, 100),
                size=14 * BLOCK,
            ),
            "0-5 9",
        ),
        # one segment with all of it, as NVIDIA's; GPU code ends what is early until there is data
        (with_gpu_code(elf((LOAD, RX, 0, 9 * BLOCK), (LOAD, RW, 9 * BLOCK, 1), size=12 * BLOCK), 3 * BLOCK), "0-2 9"),
        (with_gpu_code(elf((LOAD, RX, 0, 2 * BLOCK), (LOAD, RW, 2 * BLOCK, BLOCK), size=4 * BLOCK), 2 * BLOCK), "0-2"),
        # the first part of code and of data
        (elf((LOAD, RX, 0, 8 * MIB), size=8 * MIB), f"0-{MOST_CODE // BLOCK - 1}"),
        (elf((LOAD, RW, 0, 30 * MIB), size=30 * MIB), f"0-{MOST_DATA // BLOCK - 1}"),
        # a segment that begins and ends within blocks
        (elf((LOAD, RX, BLOCK + 5, BLOCK), size=4 * BLOCK), "1-2"),
    ],
)
def test_early_blocks_of_libraries_are_tables_constants_and_the_first_code(content, blocks):
    assert early(content) == blocks


@pytest.mark.parametrize(
    "content",
    [
        b"text" * MIB,
        b"\x7fELF\x02\x01",
        b"\x7fELF\x01\x01".ljust(MIB, b"\x01"),
        elf((LOAD, RX, 0, MIB), entry=55),
        elf((LOAD, RX, 0, MIB), table=BLOCK),
        elf((LOAD, RX, 0, MIB), table=(1 << 64) - 1),
        elf((FRAMES, R, 0, MIB)),
        elf((LOAD, RX, (1 << 64) - 1, (1 << 64) - 1)),
    ],
)
def test_file_without_sound_elf_headers_has_no_early_blocks(content):
    assert early(content) == ""


def test_libraries_that_are_opened_later_and_programs_of_packages_are_not_early():
    content = elf((LOAD, RX, 0, MIB))
    packages = "opt/venv/lib/python3.11/site-packages"
    late = ("nvidia/cudnn/lib/libcudnn_cnn_infer.so.8", "triton/_C/libtriton.so", "triton/third_party/cuda/bin/ptxas")
    assert [early(content, f"{packages}/{path}") for path in late] == ["", "", ""]
    assert early(content, "usr/bin/python3.11") == early(content, f"{packages}/torch/lib/libc10.so") == "0-7"


@pytest.mark.parametrize("compression", list(Compression))
def test_squashfs_has_incompressible_early_blocks_as_they_are_with_gzip_alone(tmp_path, compression):
    block = BLOCKS[compression]
    noise = random.Random(1).randbytes(block * 3 // 4).ljust(block, b"\0")  # leaves three quarters
    segments = ((LOAD, RX, 0, 2 * block),)
    library = noisy(elf(*segments, size=block), noise) + noise + noise[:-7]  # of the last block no segment has any
    easy = elf((LOAD, RX, 0, 3 * block), size=3 * block)
    content = {"a.so": library, "b.so": easy}
    path, _ = squash(tmp_path, layout(tmp_path, [file(name, data) for name, data in content.items()]), compression)
    assert {name: data for name, (_, data) in members(path).items()} == content
    sizes = stored_sizes(path)
    assert [bool(size & STORED_DATA) for size in sizes["a.so"]] == [compression is Compression.GZIP] * 2 + [False]
    assert not any(size & STORED_DATA for size in sizes["b.so"]), "little is left of it"


def noisy(head, noise):
    """A block with this header and noise after it."""
    return head[: 1 << 12] + noise[1 << 12 :]


def stored_sizes(path):
    """Sizes of the blocks of each file, as they are stored."""
    with Squashfs(path, 99) as squashed:
        return {name.lstrip("/"): found.sizes for name, _, found in squashed.entries() if found}


def test_recorded_library_has_its_recorded_blocks_as_they_are_and_no_others(tmp_path, monkeypatch):
    noise = random.Random(2).randbytes(UNIT * 3 // 4).ljust(UNIT, b"\0")
    library = noisy(elf((LOAD, RX, 0, 12 * UNIT), size=UNIT), noise) + 11 * noise
    record(monkeypatch, Recorded((LibraryReads("a.so", head_digest(library), "3 6-9"),), ()))
    path, _ = squash(tmp_path, layout(tmp_path, [file("a.so", library)]), Compression.GZIP)
    each = BLOCKS[Compression.GZIP] // UNIT
    found = [bool(size & STORED_DATA) for size in stored_sizes(path)["a.so"]]
    assert found == [not {3, 6, 7, 8, 9}.isdisjoint(range(n, n + each)) for n in range(0, 12, each)]


@pytest.mark.parametrize("compression", list(Compression))
def test_recorded_small_files_are_together_in_the_recorded_order(tmp_path, monkeypatch, compression):
    content = {f"{name}.pyc": name.encode() * 100 for name in "abcdef"}
    record(monkeypatch, Recorded((), (("lib", "e.pyc", "b.pyc"), ("", "f.pyc"), ("lib", "gone.pyc", "c.pyc"))))
    files = {f"{'' if name == 'f.pyc' else 'lib/'}{name}": data for name, data in content.items()}
    path, _ = squash(tmp_path, layout(tmp_path, [file(name, data) for name, data in files.items()]), compression)
    assert {name: data for name, (kind, data) in members(path).items() if data} == files
    with Squashfs(path, 99) as squashed:
        ends = {name: (found.fragment, found.offset) for name, _, found in squashed.entries() if found}
    assert sorted(ends, key=ends.__getitem__) == [
        "/lib/a.pyc",
        "/lib/d.pyc",
        "/lib/e.pyc",
        "/lib/b.pyc",
        "/f.pyc",
        "/lib/c.pyc",
    ]
    assert len({ends[name][0] for name in ("/lib/e.pyc", "/lib/b.pyc", "/f.pyc", "/lib/c.pyc")}) == 1
    assert ends["/lib/a.pyc"][0] != ends["/lib/b.pyc"][0]


def record(monkeypatch, recorded):
    """Make this the record of what is read."""
    for kind in Compression:
        monkeypatch.setitem(packed.EARLY, kind, Early(lambda: recorded, is_stored=kind is Compression.GZIP))


def test_committed_record_is_read_and_names_the_libraries_of_torch():
    found = recorded()
    assert {"libtorch_cpu.so", "libtorch_python.so", "libc.so.6"} <= {library.name for library in found.library}
    assert all(found.units().values())
    ranks = found.ranks()
    assert len(ranks) == sum(len(names) - 1 for names in found.small), "each path once"
    assert min(ranks, key=ranks.__getitem__).startswith("usr/lib/python3")
