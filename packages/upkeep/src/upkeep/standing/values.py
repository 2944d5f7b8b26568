"""The standing of locks: where each file is, what has updates, what was taken back."""

from collections.abc import Iterable
from typing import Literal, Self

import msgspec

from patienthttp.errors import FetchFailure

#: `index`: a package index or a page of links that is set; `mirror`: one of those that was named, or one of Debian's
#: archives; `here`: this machine; `copy`: a mirror of an index that was not named; `archive`: that of Debian's retired
#: suites; `snapshot`: the service that keeps all that Debian had
Kind = Literal["index", "mirror", "here", "copy", "archive", "snapshot"]
#: `nowhere`: all that may have it answered, and none has; `unknown`: none has that answered; `own`: of the user's
#: folder, which no other place has
State = Literal["there", "nowhere", "unknown", "own"]
_USUAL = ("index", "mirror")  #: where a build finds things as a rule


class FilePlace(msgspec.Struct, frozen=True):
    """A place that may have files: its server, or the path of an index on this machine."""

    kind: Kind
    host: str


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One source's answer about a file; None: it does not answer. `why` not."""

    place: FilePlace
    has: bool | None
    why: str = ""
    yanked: bool = False  #: PEP 592
    yanked_for: str = ""

    @classmethod
    def without(cls, place: FilePlace, failure: FetchFailure) -> Self:
        """The sighting of a place that gave nothing."""
        if failure.is_absent:
            return cls(place=place, has=False, why="does not have it")
        return cls(place=place, has=None, why=failure.why)


class FileStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A file of locks, and what the places say that were asked, in their order: until two have a .deb."""

    name: str
    sha256: str
    size: int
    package: str
    version: str
    state: State
    #: one place alone has it, of those that answer and may have copies
    is_single: bool = False
    sightings: tuple[Sighting, ...] = ()

    @property
    def places(self) -> tuple[FilePlace, ...]:
        """Those that have it."""
        return tuple(sighting.place for sighting in self.sightings if sighting.has)

    @property
    def is_elsewhere(self) -> bool:
        """Return whether only a last resort has it."""
        return self.state == "there" and not any(place.kind in _USUAL for place in self.places)

    @property
    def is_yanked(self) -> bool:
        """Return whether an index that has it took it back."""
        return any(sighting.yanked for sighting in self.sightings)

    @property
    def yanked_for(self) -> str:
        """The reason that an index gives, if any."""
        return next((sighting.yanked_for for sighting in self.sightings if sighting.yanked_for), "")


def state_of(sightings: Iterable[Sighting]) -> State:
    """Return a file's state from these sightings.

    Indexes know what they have, and each may be another's: all have to answer, and their mirrors none. Of Debian's
    mirrors, which are copies of each other, one has to, and so the archive of retired suites and the snapshots.
    """
    answered: dict[Kind, list[bool]] = {}
    for sighting in sightings:
        if sighting.has:
            return "there"
        answered.setdefault(sighting.place.kind, []).append(sighting.has is not None)
    if indexes := answered.get("index"):
        return "nowhere" if all(indexes) else "unknown"
    return "nowhere" if answered and all(any(of_kind) for of_kind in answered.values()) else "unknown"


def is_single(sightings: Iterable[Sighting]) -> bool:
    """Return whether one place has the file and another that may have a copy of it does not.

    A second index is no copy.
    """
    there = {sighting.place.host for sighting in sightings if sighting.has}
    return len(there) == 1 and any(
        sighting.has is False and sighting.place.kind not in ("index", "here") for sighting in sightings
    )


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """A Debian package of a lock that its suite has a newer version of."""

    of: Literal["base", "compiler"]  #: of the image's base, or only of the base with the compiler
    name: str
    locked: str  #: version
    newest: str
    is_security: bool  #: the security archive has a version that is newer than the locked one


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """A doubt of today's lists about the lists that a base was locked from."""

    of: Literal["base", "compiler"]
    suite: str
    #: `unfixed`: they were without those of security updates, as the lock says; `late`: fixes were out by then that the
    #: lock lacks; `ahead`: packages are newer than any that the suite has; `older`: today's lists are older
    kind: Literal["unfixed", "late", "ahead", "older"]
    names: tuple[str, ...] = ()  #: packages with versions; of `older` the days of both lists


class SuiteLists(msgspec.Struct, frozen=True, kw_only=True):
    """Today's lists of a suite. `error`: why there are none, and nothing is known of updates."""

    suite: str
    platform: str = ""  #: whose packages they list, where it is not the default one
    kept: str = ""  #: how long it gets security updates, as a clause
    listed: str = ""  #: when the newest was made, as the snapshot service writes times
    has_security: bool = False  #: whether the security archive's list is among them
    error: str = ""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of a lock's files by place; `single` counts some of the others again."""

    files: int
    usual: int  #: on an index or a mirror
    elsewhere: int
    single: int
    nowhere: int
    unknown: int
    own: int
    yanked: int


class LockStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The standing of one lock. `recipe`: a name, or the path of the user's own recipe."""

    recipe: str
    cuda: str
    candidate: str
    platform: str = ""  #: where it is not the default one
    path: str
    renew: str  #: the command that locks it again
    counts: Counts
    files: tuple[str, ...]  #: by sha256
    suites: tuple[str, ...]  #: of Debian, whose lists its updates are from
    updates: tuple[Update, ...] = ()
    images: tuple[str, ...] = ()  #: that it takes from registries, which are not asked
    doubts: tuple[Doubt, ...] = ()  #: whether its bases were locked from the lists of their suites

    @property
    def title(self) -> str:
        return f"{self.recipe} {self.cuda} {self.candidate}" + (f" for {self.platform}" if self.platform else "")


class Silent(msgspec.Struct, frozen=True):
    """A server that did not answer, and why."""

    host: str
    why: str


class LocksStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The standing of locks. A file that several have is in `files` once."""

    date: str  #: UTC, ISO 8601
    locks: tuple[LockStanding, ...]
    files: tuple[FileStanding, ...]
    suites: tuple[SuiteLists, ...]
    silent: tuple[Silent, ...]
