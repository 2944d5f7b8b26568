"""The uncompressed parts of a squashfs: bytecode, and what the loader and a library's first code read."""

import struct

import pytest

from graphcrate.artifacts.formats.early import MOST_DATA, EarlyBytes
from sifsquash.packer import BLOCKS
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


def test_bytecode_of_any_size_is_early():
    assert early(bytes(range(256)) * 4096, "usr/lib/python3/a/__pycache__/b.pyc") == "0-7"


@pytest.mark.parametrize("compression", list(Compression))
def test_squashfs_has_early_blocks_uncompressed_and_the_rest_compressed(tmp_path, compression):
    block = BLOCKS[compression]
    library = elf((LOAD, R, 0, block), size=3 * block)[: 3 * block - 7]
    library = library[:block] + b"later" * (2 * block // 5)
    small = {f"{n}.{kind}": f"{kind} {n}\n".encode() * 3000 for n in range(12) for kind in ("py", "pyc")}
    content = {"a.so": library, **small, "large.pyc": b"module" * block}
    path, _ = squash(tmp_path, layout(tmp_path, [file(name, data) for name, data in content.items()]), compression)
    assert {name: data for name, (_, data) in members(path).items()} == content
    written = path.read_bytes()
    assert (library[:block] in written) == (compression is Compression.GZIP)
    assert b"later" * 100 not in written
    for name, data in content.items():
        if name != "a.so":
            assert (data[: block // 2] in written) == name.endswith(".pyc"), name
