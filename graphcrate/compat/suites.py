"""Debian's suites: what a base of one has, how long it gets security updates, where its packages are. Pure.

Dates are days of UTC. Which day it is, whoever asks says.
"""

import datetime
import functools
from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from graphcrate.compat.facts import table
from graphcrate.model.recipe import BaseSpec

#: `LTS`: by the team for long-term support; `ended`: by nobody of Debian's; `unreleased`: testing, by way of unstable
State = Literal["unreleased", "supported", "LTS", "ended"]
#: whether its packages are on the archive of retired suites alone; `perhaps`: they may be there by now, or on both
Retired = Literal["no", "perhaps", "yes"]


class BaseFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a base has: Python and C library, the oldest kernel that this runs on, and its C++ compilers."""

    python: str
    glibc: str
    kernel: str
    gcc: tuple[int, ...]  #: major versions, the default last
    known: str


class DebianSuite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Debian. None: not known yet, or not so yet."""

    release: str  #: "12"
    released: datetime.date | None = None
    security_until: datetime.date | None = None  #: last day of the security team
    lts_until: datetime.date | None = None  #: last day of the LTS team
    archived: datetime.date | None = None  #: first day on which no mirror had it
    base: BaseFacts | None = None  #: None: no base is made of it
    known: str


class SuiteSupport(NamedTuple):
    """How a suite is kept on some day, and the last day of that; of `ended` the last one with updates."""

    state: State
    until: datetime.date | None

    @property
    def has_updates(self) -> bool:
        return self.state in ("supported", "LTS")


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    suites: dict[str, DebianSuite]


_document = functools.cache(functools.partial(table, "suites", _Document))


def known() -> dict[str, DebianSuite]:
    """Every suite that is known, the oldest first."""
    return _document().suites


@functools.cache
def bases() -> Mapping[str, BaseFacts]:
    """What bases have, of the suites that one can be made of, the oldest first."""
    return {name: suite.base for name, suite in known().items() if suite.base is not None}


def of_release(number: str) -> str:
    """The suite of a release's number ("12"); empty for one that is not known."""
    return next((name for name, suite in known().items() if suite.release == number.partition(".")[0]), "")


def of_base(base: BaseSpec) -> str:
    """The suite of a recipe's base; of one from a registry by its name. Empty where that has none."""
    return base.suite or named_in(base.reference)


def named_in(reference: str) -> str:
    """The suite that an image's reference names (`python:3.11-slim-bookworm`); empty where it names none."""
    return next((name for name in known() if name in reference), "")


def standing(name: str, today: datetime.date) -> SuiteSupport | None:
    """How a suite is kept on a day; None for one that is not known."""
    suite = known().get(name)
    if suite is None:
        return None
    if suite.released is None or today < suite.released:
        return SuiteSupport("unreleased", None)
    if suite.security_until is None or today <= suite.security_until:
        return SuiteSupport("supported", suite.security_until)
    last = suite.lts_until or suite.security_until
    return SuiteSupport("LTS" if today <= last else "ended", last)


def last_day(name: str) -> datetime.date | None:
    """The last day with security updates, by whichever team; None where it is not known."""
    suite = known().get(name)
    return (suite.lts_until or suite.security_until) if suite else None


def described(name: str, today: datetime.date) -> str:
    """How a suite is kept, as a clause; empty for one that is not known."""
    found = standing(name, today)
    if found is None:
        return ""
    if found.state == "ended":
        return f"no security updates since {found.until}"
    if found.state == "LTS":
        return f"security updates by LTS until {found.until}"
    if found.state == "unreleased":
        return "not released yet"
    more = f", by LTS until {last}" if (last := last_day(name)) and last != found.until else ""
    return f"security updates until {found.until}{more}" if found.until else "security updates"


def updated(today: datetime.date) -> tuple[str, ...]:
    """The suites that get security updates on a day, the newest first."""
    return tuple(name for name in reversed(known()) if (found := standing(name, today)) and found.has_updates)


def retired(name: str, today: datetime.date) -> Retired:
    """Whether a suite's packages are on the archive of retired suites: Debian moves them there after the last update.

    `perhaps`: it may have moved since this was written, and is copied there before mirrors drop it. `no` of a suite
    that is not known.
    """
    suite = known().get(name)
    if suite is None:
        return "no"
    if suite.archived is not None and suite.archived <= today:
        return "yes"
    found = standing(name, today)
    return "perhaps" if found is not None and found.state == "ended" else "no"
