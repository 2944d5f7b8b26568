"""Distributions made of .debs and their suites: what a base has, its security updates, where its packages are. Pure.

Dates are days of UTC. The caller gives today's.
"""

import dataclasses
import datetime
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

import debroot.distributions
import debroot.mirrors
from graphcrate.compat.facts.facts import table_reader
from graphcrate.model.command import AGAIN, LOCK_AGAIN
from graphcrate.model.errors import ResolutionError
from graphcrate.model.recipe import BaseSpec

#: `LTS`: by the team for long-term support; `ended`: by no one of Debian's; `unreleased`: testing, by way of unstable
State = Literal["unreleased", "supported", "LTS", "ended"]
#: whether its packages are on the archive of retired suites alone; `perhaps`: they may be there by now, or on both
Retired = Literal["no", "perhaps", "yes"]


_DEBIAN = "debian"


class BaseFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A base's facts: Python and C library, the oldest kernel that this runs on, and its C++ compilers."""

    python: str
    glibc: str
    kernel: str
    gcc: tuple[int, ...]  #: major versions, the default last
    known: str
    packages: tuple[str, ...] = ()  #: that a base of it needs besides what all need
    fabric: tuple[str, ...] = ()  #: packages with libibverbs, its providers and librdmacm
    rust: tuple[str, ...] = ()  #: packages with rustc and cargo
    links_usr: bool = False  #: no package brings /bin → usr/bin and its like, so the maker of a base does
    compiles_again: bool = False  #: bytecode that its scripts make is another one each time


@dataclass(frozen=True, kw_only=True)
class Distribution(debroot.distributions.Distribution):
    """A system made of .debs: what its suites have in common. `{…}` stands for what differs."""

    name: str = ""  #: also namespace of package URLs; in capitals before the names of variables
    image: str  #: what engines start from: "debian:{suite}-slim"

    def variable(self, name: str) -> str:
        """The environment's variable for it: "DEBIAN_MIRROR"."""
        return debroot.mirrors.variable(self, name)

    @property
    def another_mirror(self) -> str:
        """The setting by which a user names another mirror of it."""
        return f"{self.variable('MIRROR')}=http://a-mirror/{self.main} {AGAIN}"


class DebianSuite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A suite of a distribution. None: not known yet, or not so yet."""

    distribution: str = _DEBIAN
    release: str  #: "12"
    released: datetime.date | None = None
    security_until: datetime.date | None = None  #: last day of the security team
    lts_until: datetime.date | None = None  #: last day of the LTS team
    archived: datetime.date | None = None  #: first day on which no mirror had it
    base: BaseFacts | None = None  #: None: no base is made of it
    known: str


class SuiteSupport(NamedTuple):
    """The support of a suite on some day, and the last day of that; of `ended` the last one with updates."""

    state: State
    until: datetime.date | None

    @property
    def has_updates(self) -> bool:
        return self.state in ("supported", "LTS")


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: str
    distributions: dict[str, Distribution]
    suites: dict[str, DebianSuite]


_document = table_reader("suites", _Document)


@functools.cache
def distributions() -> Mapping[str, Distribution]:
    """Every distribution that is known, by name."""
    rows = _document().distributions.items()
    return {name: dataclasses.replace(distribution, name=name) for name, distribution in rows}


def distribution_of(suite: str) -> Distribution:
    """Whose suite it is; Debian for one that is not known, for a lock may name any."""
    row = known().get(suite)
    return distributions()[row.distribution if row else _DEBIAN]


def titled(suite: str) -> str:
    """As texts name a suite: "Debian bookworm"."""
    return f"{distribution_of(suite).title} {suite}"


def known() -> dict[str, DebianSuite]:
    """Every suite that is known, the oldest first."""
    return _document().suites


@functools.cache
def bases() -> Mapping[str, BaseFacts]:
    """Map the suites that a base can be made of, the oldest first, to the facts of their bases."""
    return {name: suite.base for name, suite in known().items() if suite.base is not None}


def base_of(suite: str) -> BaseFacts:
    """Look up a suite's base. Raises ResolutionError for one that none is made of: a lock may name any."""
    if (base := bases().get(suite)) is None:
        raise ResolutionError(
            f"no base is made of the suite {suite!r}",
            cause=f"A base is made of {', '.join(bases())}.",
            next_step=f"name one of these in the recipe (base.suite), and lock again: {LOCK_AGAIN}",
        )
    return base


def of_release(number: str, distribution: str = _DEBIAN) -> str:
    """The suite of a release's number ("12", "12.5"); empty for one that is not known."""
    rows = (name for name, row in known().items() if row.distribution == distribution)
    return next((name for name in rows if f"{number}.".startswith(f"{known()[name].release}.")), "")


def of_base(base: BaseSpec) -> str:
    """The suite of a recipe's base; of one from a registry by its name. Empty where that has none."""
    return base.suite or named_in(base.reference)


def named_in(reference: str) -> str:
    """The suite that an image's reference names (`python:3.11-slim-bookworm`); empty where it names none."""
    return next((name for name in known() if name in reference), "")


def standing(name: str, today: datetime.date) -> SuiteSupport | None:
    """The support of a suite on a day; None for one that is not known."""
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
    """Describe the support of a suite, as a clause; empty for one that is not known."""
    its_standing = standing(name, today)
    if its_standing is None:
        return ""
    if its_standing.state == "ended":
        return f"no security updates since {its_standing.until}"
    if its_standing.state == "LTS":
        return f"security updates by LTS until {its_standing.until}"
    if its_standing.state == "unreleased":
        return "not released yet"
    more = f", by LTS until {last}" if (last := last_day(name)) and last != its_standing.until else ""
    return f"security updates until {its_standing.until}{more}" if its_standing.until else "security updates"


def updated(today: datetime.date) -> tuple[str, ...]:
    """The suites that get security updates on a day, the newest first."""
    return tuple(
        name for name in reversed(known()) if (its_standing := standing(name, today)) and its_standing.has_updates
    )


def retired(name: str, today: datetime.date) -> Retired:
    """Return whether a suite's packages are on the archive of retired suites, where they go after the last update.

    `perhaps`: it may have moved since this was written, and is copied there before mirrors drop it. `no` of a suite
    that is not known.
    """
    suite = known().get(name)
    if suite is None:
        return "no"
    if suite.archived is not None and suite.archived <= today:
        return "yes"
    its_standing = standing(name, today)
    return "perhaps" if its_standing is not None and its_standing.state == "ended" else "no"
