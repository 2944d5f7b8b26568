"""How blobs are cut, and the headers that say where a piece lies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.oci import chunks
from graphcrate.oci.chunks import ChunkSize, arrived_bytes, content_range

sizes = st.builds(ChunkSize, bytes=st.integers(1, 1 << 30), least=st.integers(0, 1 << 26), whole=st.booleans())
events = st.lists(st.sampled_from(["arrived", "broken", "refused"]), max_size=30)


@given(st.integers(0, 1 << 50), st.integers(1, 1 << 40))
def test_a_range_that_was_written_is_read(begin, length):
    first, last = map(int, content_range(begin, length).split("-"))
    assert (first, last - first + 1) == (begin, length)
    if begin == 0 and length > 1:
        assert arrived_bytes(content_range(begin, length)) == length


@given(st.text(max_size=30))
def test_any_header_is_a_count_or_nothing(text):
    there = arrived_bytes(text)
    assert there is None or there >= 0


@pytest.mark.parametrize(
    ("header", "there"),
    [
        ("0-0", 0),
        ("0-1", 2),
        ("0-1023", 1024),
        ("bytes=0-1023", 1024),
        ("bytes 0-9", 10),
        (" 0-9 ", 10),
        ("5-9", None),
        ("0-", None),
        ("-9", None),
        ("0--9", None),
        ("", None),
        (None, None),
        ("0-9/100", None),
    ],
)
def test_ranges_of_registries(header, there):
    assert arrived_bytes(header) == there


@given(sizes, events, st.integers(1, 1 << 33))
def test_chunks_fill_a_blob_whatever_happens(size, happened, total):
    offset, least = 0, size.least
    for event in happened:
        length = size.of(total - offset)
        assert 1 <= length <= total - offset
        assert size.whole or length == total - offset or length >= least
        if event == "arrived":
            offset += length
            size = size.arrived()
        elif event == "broken":
            assert size.broken().of(total) <= size.of(total)
            size = size.broken()
        elif (smaller := size.refused(length)) is not None:
            assert smaller.of(total) < length or smaller.of(total) <= smaller.least
            assert smaller.most <= size.most
            size = smaller
        else:
            assert length // 2 < max(least, chunks.SMALLEST) or size.most < chunks.SMALLEST
        if offset == total:
            return


def test_a_refused_length_is_not_tried_again():
    size = ChunkSize().refused(chunks.FIRST)
    for _ in range(9):
        size = size.arrived()
    assert size.of(1 << 40) == chunks.FIRST // 2
    assert size.broken().of(1 << 40) == chunks.LEAST


@pytest.mark.parametrize("refused", [[16, 8], [12, 6], [6, 12], [5], [16, 12, 8, 6]])
def test_a_limit_is_found_by_powers_of_two(refused):
    """Whatever the blobs were that met it."""
    size = ChunkSize()
    for mebibytes in refused:
        size = size.refused(mebibytes << 20)
    assert size.most == 4 << 20


def test_what_a_registry_demands_counts_more_than_a_break():
    size = ChunkSize().demanded(20 << 20)
    assert size.of(1 << 40) == size.broken().of(1 << 40) == 20 << 20
    assert size.refused(20 << 20) is None
    assert size.of(5) == 5
