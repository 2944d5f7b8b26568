"""Errors: exit codes are distinct, and what crosses a process border arrives whole."""

import inspect
import pickle

from graphcrate.model import errors

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.GraphcrateError)]


def test_exit_codes_are_distinct():
    codes = [kind.exit_code for kind in KINDS]
    assert len(set(codes)) == len(codes)


def test_an_error_survives_pickling_and_says_cause_and_next_step():
    assert str(errors.UsageError("a")) == "a"
    for kind in KINDS:
        copy = pickle.loads(pickle.dumps(kind("what", cause="why", next_step="make help")))
        assert (type(copy), str(copy)) == (kind, "what\ncause: why\nnext:  make help")
