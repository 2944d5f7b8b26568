"""Turns of builders at one shared cache: each compiles what no other does, and waits for what others compile.

A builder with a key takes a lease for each wheel, in the first place that is written to; one without waits for those of
others. All who may write there can make others wait, but no longer than compiling takes here.
"""

import contextlib
import functools
import os
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from graphcrate.host import settings
from graphcrate.inputs import making
from graphcrate.inputs.shared.entry import COMPILED, tag
from graphcrate.inputs.shared.leases import Leases, LeaseStore
from graphcrate.inputs.shared.places import CachePlace
from graphcrate.inputs.shared.site_cache import SiteCache
from graphcrate.model.lock import LockedPackage
from graphcrate.model.words import duration, listed, printable

BEAT, EXPIRY = 10.0, 60.0
PAUSE = 3.0  #: seconds between two looks at what others do
LEAST = 600.0  #: seconds that others are waited for at least: they fetch and unpack what they compile against, too
_MOST_WORDS = 120  #: of who has a lease, which a stranger may have written
_Result = TypeVar("_Result")
#: wheels by their folders in this machine's cache, and the source of each
Wheels = Mapping[Path, LockedPackage]


class _PlaceError(Exception):
    """The place failed, which was said; turns are unknown from now on."""


@dataclass(frozen=True)
class _Asked:
    """The leases of a place, which is left out when it fails, as for all else that it is asked."""

    shared: SiteCache
    place: CachePlace
    store: LeaseStore

    @property
    def delay(self) -> float:
        return self.store.delay

    def latest(self, name: str) -> tuple[int, bytes]:
        return self._ask(functools.partial(self.store.latest, name))

    def create(self, name: str, generation: int, text: bytes) -> bool:
        return self._ask(functools.partial(self.store.create, name, generation, text))

    def write(self, name: str, generation: int, text: bytes) -> None:
        self._ask(functools.partial(self.store.write, name, generation, text))

    def _ask(self, question: Callable[[], _Result]) -> _Result:
        answer = self.shared.asked(self.place, "does not say who compiles what", [question])
        if answer is None:
            raise _PlaceError
        return answer[0]


@dataclass
class Turns:
    """The turns of one build. `leases`: None where no place has any.

    `look`: brings wheels that the shared cache has by now.
    """

    shared: SiteCache | None
    look: Callable[[Wheels], object]
    leases: Leases | None = None
    _end: float = 0.0
    _said: set[str] = field(default_factory=set)

    @classmethod
    def at(cls, shared: SiteCache | None, look: Callable[[Wheels], object]) -> "Turns":
        """Return the turns at a shared cache."""
        place = next((place for place in shared.places if place.is_writable), None) if shared else None
        store = place.leases if place is not None else None
        if shared is None or place is None or store is None:
            return cls(shared, look)
        owner = f"{making.this_machine()} ({os.getpid()}-{secrets.token_hex(3)})"
        return cls(shared, look, Leases(_Asked(shared, place, store), owner, expiry=EXPIRY, beat=BEAT))

    def claim(self, sources: Wheels) -> set[Path]:
        """Take what no other builder compiles; return the rest. Does not wait."""
        with contextlib.suppress(_PlaceError):
            return {shelf for shelf in sources if not self._begin(shelf, sources)}
        return set()

    def due(self, sources: Wheels, seconds: float) -> list[Path]:
        """Return those to compile now; none where one has come. Waits while others compile all of them.

        `seconds`: what compiling them here takes. What others lack by then is compiled here.
        """
        if self.shared is None or self.leases is None or not sources:
            return list(sources)
        self._end = self._end or settings.now() + max(LEAST, seconds)
        try:
            while True:
                open_here = [shelf for shelf in sources if self._is_turn(shelf, sources)]
                if came := [shelf for shelf in sources if any(shelf.glob("*.whl"))]:
                    self.leases.leave(names={_name(shelf) for shelf in came})
                    return []
                if open_here or settings.now() >= self._end or not self.shared.trusted:
                    return open_here or list(sources)
                self._say(sources)
                settings.wait(PAUSE)
        except _PlaceError:
            return list(sources)

    def give(self, wheels: Collection[Path]) -> None:
        """Give what was compiled here, so that who waits for it goes on."""
        if self.shared is None or not self.shared.writes_to:
            return
        self.shared.give(wheels)
        with contextlib.suppress(_PlaceError):
            if self.leases is not None:
                self.leases.leave(names={_name(wheel.parent) for wheel in wheels})

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Hold what is taken meanwhile, and give the rest back at the end."""
        with contextlib.ExitStack() as stack:
            if self.leases is not None:
                stack.callback(self._leave)
                stack.enter_context(self.leases.beating())
            yield

    def _leave(self) -> None:
        with contextlib.suppress(_PlaceError):
            if self.leases is not None:
                self.leases.leave()

    def _is_turn(self, shelf: Path, sources: Wheels) -> bool:
        """Return whether a wheel is for this build to compile now; who has no key asks only whether others do."""
        assert self.leases is not None
        if not self._gives:
            return self._begin(shelf, sources)
        return self.leases.has(_name(shelf)) or (self._begin(shelf, sources) and self.leases.has(_name(shelf)))

    def _begin(self, shelf: Path, sources: Wheels) -> bool:
        """Take a wheel's lease where it is free, and look once more: its last holder may have given the wheel."""
        if self.leases is None:
            return True
        is_open = self.leases.take(_name(shelf)) if self._gives else self.leases.is_open(_name(shelf))
        if is_open:
            self.look({shelf: sources[shelf]})
        return is_open

    @property
    def _gives(self) -> bool:
        return self.shared is not None and bool(self.shared.writes_to)

    def _say(self, sources: Wheels) -> None:
        """Say once of each who compiles something that it is waited for."""
        assert self.shared is not None
        assert self.leases is not None
        others: dict[str, list[str]] = {}
        for shelf, package in sources.items():
            others.setdefault(printable(self.leases.holder(_name(shelf)))[:_MOST_WORDS], []).append(package.name)
        left = duration(max(0.0, self._end - settings.now()))
        for who, names in others.items():
            if who and who not in self._said:
                self._said.add(who)
                self.shared.ctx.progress.note(f"waiting for {listed(names)} of {who}, at most {left}")


def _name(shelf: Path) -> str:
    return tag(COMPILED, shelf.name)
