"""What of `host.process` needs no process; the rest is in tests/engines/test_process_run.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.errors import HostError
from graphcrate.host import process


def lines_of(pieces: list[bytes]) -> list[str]:
    seen: list[str] = []
    cutter = process._Lines(seen.append)
    for piece in pieces:
        if piece:
            cutter.feed(piece)
    cutter.feed(b"")
    return seen


def test_lines_split_at_newlines_and_carriage_returns():
    assert lines_of([b"a\nb\rc\r\nd"]) == ["a", "b", "c", "d"]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), min_size=1), st.integers(1, 7))
def test_lines_do_not_depend_on_how_bytes_arrive(lines: list[str], step: int):
    data = "".join(line + "\n" for line in lines).encode()
    assert lines_of([data[at : at + step] for at in range(0, len(data), step)]) == lines


def test_newline_pair_that_arrives_in_two_pieces_is_one():
    assert lines_of([b"a\r", b"\nb"]) == ["a", "b"]


def test_bytes_that_are_no_utf8_become_replacement_characters():
    assert lines_of([b"caf\xe9\n"]) == ["caf\N{REPLACEMENT CHARACTER}"]


def test_endless_line_is_cut_in_pieces():
    seen = lines_of([b"x" * 50_000] * 4)
    assert "".join(seen) == "x" * 200_000
    assert len(seen) > 1


def test_missing_program_names_debians_package():
    with pytest.raises(HostError) as caught:
        process.run(["mksquashfs-that-nobody-has"])
    assert "mksquashfs-that-nobody-has is not installed" in str(caught.value)
    assert "apt-get install squashfs-tools" in process.missing("mksquashfs").next_step


def test_failure_tells_signal_command_and_last_words():
    error = process.failure(["mmdebstrap", "a b"], -9, ["E: first", "E: last"])
    assert "SIGKILL" in error.what
    assert error.what.endswith("E: last")
    assert "mmdebstrap 'a b'" in error.next_step
