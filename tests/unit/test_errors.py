"""Errors: exit codes are distinct, and what crosses a process border arrives whole."""

import inspect
import pickle

from graphcrate.model import errors

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.GraphcrateError)]


def test_exit_codes_are_distinct():
    codes = [kind.exit_code for kind in KINDS]
    assert len(set(codes)) == len(codes)


def test_an_error_survives_pickling():
    for kind in KINDS:
        error = kind("what", cause="why", next_step="make help")
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.what, copy.cause, copy.next_step) == (kind, "what", "why", "make help")


def test_the_message_has_cause_and_next_step():
    assert str(errors.UsageError("a", cause="b", next_step="c")) == "a\ncause: b\nnext:  c"
    assert str(errors.UsageError("a")) == "a"
