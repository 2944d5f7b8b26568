"""A message is read back as the error that wrote it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.model import errors
from graphcrate.model.errors import DiskFullError, GraphcrateError, HostError, LayoutError, UsageError

PARTS = st.lists(st.sampled_from(["a", " ", "\n", "cause: ", "next:  ", "graphcrate: "]), max_size=12).map("".join)


@given(what=PARTS, cause=PARTS, next_step=PARTS)
def test_message_read_back_is_the_same_message_with_the_same_parts(what, cause, next_step):
    for kind in (UsageError, HostError, DiskFullError):
        written = str(kind(what, cause=cause, next_step=next_step))
        error = errors.read(written, kind.exit_code)
        assert (str(error), type(error)) == (written, kind)
        assert (bool(error.cause), bool(error.next_step)) == (bool(cause), bool(next_step))


@pytest.mark.parametrize(
    ("kind", "of_machine"), [(GraphcrateError, False), (UsageError, False), (HostError, True), (LayoutError, True)]
)
def test_errors_of_the_machine_are_told_from_those_of_what_was_asked(kind, of_machine):
    assert kind("it is so").of_machine is of_machine
