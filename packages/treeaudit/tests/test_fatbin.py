"""treeaudit.fatbin: which GPUs a library has code for, by the headers of its fat binaries; damage is refused."""

import io

import pytest
from elfmaker import HOPPER, PTX, SASS, VOLTA_AMPERE, WHOLE_CODE, entry, fat_binary
from hypothesis import given
from hypothesis import strategies as st

from treeaudit import fatbin
from treeaudit.elf import Extent
from treeaudit.errors import FileError


def read(data, before=0, after=0):
    """Of each fat binary the kinds and capabilities."""
    stream = io.BytesIO(b"\xff" * before + data + b"\xff" * after)
    found = fatbin.read(stream, Extent(before, len(data)), "libmine.so")
    return [[(one.kind, one.capability) for one in entries] for entries in found]


def test_fat_binary_architectures_are_read():
    first, second = [(SASS, "7.0"), (SASS, "8.0"), (PTX, "8.0")], [(SASS, "9.0a"), (SASS, "10.0f")]
    assert read(WHOLE_CODE, before=100, after=7) == [first, second]


def test_fat_binary_with_link_time_code_only_has_no_architectures():
    """Link-time code (nvcc -dlto), and kinds that are yet to come, are not counted."""
    assert read(b"") == read(bytes(1 << 17)) == []
    assert read(fat_binary()) == [[]]
    assert read(fat_binary(entry(8, 90), entry(64, 100), entry(SASS, 75))) == [[(SASS, "7.5")]]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x01" + VOLTA_AMPERE, "byte 0: no fat binary begins here"),
        (VOLTA_AMPERE[:10], "byte 0: ends in the middle of a header"),
        (VOLTA_AMPERE[:-8], "byte 0: a fat binary reaches out of its section"),
        (VOLTA_AMPERE[:4] + b"\x02" + VOLTA_AMPERE[5:], "a fat binary of version 2"),
        (VOLTA_AMPERE[:6] + b"\x08" + VOLTA_AMPERE[7:], "a header of 8 bytes"),
        (VOLTA_AMPERE[:26] + b"\x01" + VOLTA_AMPERE[27:], "byte 16: an entry reaches out of its fat binary"),
        (VOLTA_AMPERE[:20] + b"\x10" + VOLTA_AMPERE[21:], "byte 16: an entry reaches out of its fat binary"),
        (fat_binary(b"\x02\x00"), "byte 16: ends in the middle of a header"),
        (HOPPER + b"a stranger here!", "no fat binary begins here"),
    ],
)
def test_damaged_fat_binary_is_an_error_with_its_offset(data, said):
    with pytest.raises(FileError, match=said) as caught:
        read(data, before=50)
    assert caught.value.what.startswith("libmine.so: GPU code, byte ")
    with pytest.raises(FileError, match="the file ends before its GPU code does"):
        fatbin.read(io.BytesIO(data), Extent(0, len(data) + 1), "libmine.so")


def binaries(data):
    return fatbin.read(io.BytesIO(data), Extent(0, len(data)), "libmine.so")


def slimmed(data, *capabilities, **options):
    """The rest of fat binaries for these GPUs, and the number of those that stay whole."""
    found = fatbin.unloaded(io.BytesIO(data), Extent(0, len(data)), "libmine.so", capabilities, **options)
    cut = bytearray(data)
    for code in found.code:
        cut[code.offset : code.offset + code.size] = bytes(code.size)
    return binaries(bytes(cut)), found.whole


def loaded(*given, **options):
    """As `slimmed`, of each code its kind and capability."""
    stays, whole = slimmed(*given, **options)
    return [[(one.kind, one.capability) for one in entries] for entries in stays], whole


@pytest.mark.parametrize(
    ("gpus", "volta_ampere", "hopper"),
    [
        (["7.0"], [(SASS, "7.0")], []),
        (["7.5"], [(SASS, "7.0")], []),
        (["8.6"], [(SASS, "8.0")], []),
        (["6.0"], [], []),
        (["9.0"], [(PTX, "8.0")], [(SASS, "9.0a")]),
        (["10.3"], [(PTX, "8.0")], [(SASS, "10.0f")]),
        (["7.0", "8.0"], [(SASS, "7.0"), (SASS, "8.0")], []),
    ],
)
def test_slimming_keeps_what_the_gpus_load(gpus, volta_ampere, hopper):
    assert loaded(WHOLE_CODE, *gpus) == ([volta_ampere, hopper], 0)


def test_slimming_keeps_the_best_sass_and_requested_newest_ptx():
    data = fat_binary(entry(SASS, 80), entry(SASS, 86), entry(SASS, 89), entry(8, 80))
    assert loaded(data, "8.7") == ([[(SASS, "8.6")]], 0)
    data = fat_binary(entry(SASS, 70), entry(PTX, 90), entry(PTX, 80))
    assert loaded(data, "7.0", keep_ptx=True) == ([[(SASS, "7.0"), (PTX, "9.0")]], 0)


def test_fat_binary_with_several_modules_is_not_slimmed():
    twice = fat_binary(entry(SASS, 70), entry(SASS, 80), entry(SASS, 70))
    stays = [[(SASS, "7.0"), (SASS, "8.0"), (SASS, "7.0")], [(SASS, "8.0")]]
    assert loaded(twice + VOLTA_AMPERE, "8.0") == (stays, 1)


CAPABILITIES = st.sampled_from([50, 60, 61, 70, 75, 80, 86, 89, 90, 100, 120])
ENTRIES = st.lists(st.tuples(st.sampled_from([SASS, PTX, 8]), CAPABILITIES, st.sampled_from([0, 0x100000])), max_size=8)


@given(ENTRIES, st.lists(CAPABILITIES, min_size=1, max_size=3), st.booleans())
def test_slimmed_fat_binary_loads_the_same_code_on_named_gpus(entries, gpus, keep_ptx):
    data = fat_binary(*(entry(kind, architecture, flags) for kind, architecture, flags in entries))
    names = [f"{gpu // 10}.{gpu % 10}" for gpu in gpus]
    (before,), (after,) = binaries(data), slimmed(data, *names, keep_ptx=keep_ptx)[0]
    for name in names:
        assert fatbin._loaded(after, name) == fatbin._loaded(before, name)
