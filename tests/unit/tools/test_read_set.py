"""The record of what is read while programs start: what a guest tells becomes rows, and the text reads back."""

import tomllib

from graphcrate.artifacts.formats.early import LibraryReads, Recorded
from graphcrate.model import codec
from sifsquash.packer import BLOCKS
from tools.read_set import RECORD, renewed, text

BLOCK = min(BLOCKS.values())
LARGE = "/opt/lib/libtorch.so"
TOLD = {
    "small": [["/usr/lib/b.pyc", 5], ["/usr/lib/a.pyc", BLOCK - 1], ["/usr/lib/large.pyc", BLOCK]],
    "libraries": [
        [LARGE, BLOCK, "aa", [0, 1, 2, 7, 9, 10]],
        ["/usr/lib/untouched.so", BLOCK, "bb", []],
        ["/opt/lib/small.so", 9, "cc", [0]],
    ],
}


def test_told_files_become_runs_of_units_and_folders_in_their_order():
    record = renewed(Recorded(), TOLD)
    assert record.library == (LibraryReads("libtorch.so", "aa", "0-2 7 9-10"),)
    assert record.small == (("usr/lib", "b.pyc", "a.pyc"), ("opt/lib", "small.so"))
    assert record.units() == {"aa": {0, 1, 2, 7, 9, 10}}


def test_record_keeps_other_libraries_and_the_order_of_small_files():
    before = Recorded(
        (LibraryReads("a.so", "11", "4"), LibraryReads("libtorch.so", "aa", "0-99")), (("usr/lib", "a.pyc", "c.pyc"),)
    )
    record = renewed(before, TOLD)
    assert [(each.name, each.read) for each in record.library] == [("a.so", "4"), ("libtorch.so", "0-2 7 9-10")]
    assert record.small == (("usr/lib", "a.pyc", "c.pyc", "b.pyc"), ("opt/lib", "small.so"))


def test_text_of_the_record_reads_back():
    record = renewed(Recorded(), TOLD)
    assert codec.convert(tomllib.loads(text(record)), Recorded) == record
    committed = RECORD.read_text("utf-8")
    assert text(codec.convert(tomllib.loads(committed), Recorded)) == committed
