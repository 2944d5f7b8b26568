"""Rows of the page of faults: a test says how its fault ended, which is kept where FAULTS_RECORDS names a folder."""

import dataclasses
import functools
import json
import os
import re
import time
from pathlib import Path
from typing import NamedTuple

import pytest

#: what the page has, in this order
GROUPS = ("Wheels", "Base and layers", "Network", "Host", "Same bytes")
RECORDS = "FAULTS_RECORDS"  #: the folder that `make faults` reads them from
ALL = os.environ.get("FAULTS") == "all"  #: the longer form, an hour instead of minutes


@dataclasses.dataclass(frozen=True)
class Row:
    """A fault. `done`: what was typed; `fault` and `done` as the page has them."""

    group: str
    fault: str
    done: str


class Ended(NamedTuple):
    """The end of a row, for the page. `seconds`: until all was well again, None where nothing had to be repeated."""

    how: str
    seconds: float | None = None


ROWS: dict[str, Row] = {}  #: by id, in the order of the modules


def row(group, fault, done):
    """Make a test a row. The test returns an `Ended`."""
    return lambda function: _recording(function, {"": _known(function.__name__, Row(group, fault, done))})


def rows(group, done, cases):
    """Make a test a row for each case: name → (fault, value). It gets the value as `case`; `done` may be of the case.

    A case of three has its own `done` last.
    """

    def decorate(function):
        known = {
            name: _known(f"{function.__name__}[{name}]", Row(group, fault, more[0] if more else done))
            for name, (fault, _, *more) in cases.items()
        }
        marked = pytest.mark.parametrize("case", [pytest.param((name, one[1]), id=name) for name, one in cases.items()])
        return marked(_recording(function, known))

    return decorate


def _known(name, row):
    assert row.group in GROUPS
    assert name not in ROWS, name
    ROWS[name] = row
    return name


def _recording(function, known):
    @functools.wraps(function)
    def test(*arguments, **fixtures):
        name = ""
        if "case" in fixtures:
            name, fixtures["case"] = fixtures["case"]
        ended = function(*arguments, **fixtures)
        assert isinstance(ended, Ended), "a row says how it ended"
        record(known[name], ended)

    return pytest.mark.faults(pytest.mark.timeout(3 * 3600 if ALL else 1800)(test))


def record(name, ended):
    """Keep how a row ended."""
    if folder := os.environ.get(RECORDS):
        Path(folder).mkdir(parents=True, exist_ok=True)
        told = {"name": name, "how": ended.how, "seconds": ended.seconds}
        Path(folder, re.sub(r"[^a-z0-9_-]", "-", name.lower()) + ".json").write_text(json.dumps(told))


@dataclasses.dataclass
class Watch:
    """Seconds since it was made, or since it was set back."""

    start: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def seconds(self):
        return round(time.monotonic() - self.start, 1)
