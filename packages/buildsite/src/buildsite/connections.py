"""Connections of the site: the one that keeps it waiting goes, first when it is full, later in any case.

A request that is worked on stays. The site waits for a request, for the rest of one, for an answer to be taken.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 300  #: at once
REQUEST_SECONDS = 10.0  #: for the head of a request to arrive
TAKING_SECONDS = 60.0  #: for 64 kB of an answer to be taken


class Waiting(NamedTuple):
    """A connection on which the site waits for the other end. `since`: of the loop's clock."""

    address: str
    since: float


def longest(waiting: Sequence[Waiting]) -> int | None:
    """Return the index of the connection that goes: of the address with most of them, the one waited for longest."""
    if not waiting:
        return None
    of_address = Counter(each.address for each in waiting)
    return min(range(len(waiting)), key=lambda index: (-of_address[waiting[index].address], waiting[index].since))


class Connection(H11Protocol):
    """A connection of uvicorn's with these limits. The body of a request is the guard's."""

    _since = 0.0
    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Wait for a request; where there are too many connections, another goes."""
        super().connection_made(transport)
        self._wait(REQUEST_SECONDS)
        if len(self.connections) > MOST:
            others = [each for each in self.connections if isinstance(each, Connection) and each.is_waited_for]
            others.remove(self)
            index = longest([each.waiting for each in others])
            if index is not None:
                others[index].drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._go_on()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take what came; a whole head of a request ends the wait for it."""
        before: Any = self.cycle
        super().handle_events()
        if self.cycle is not before and not self._is_idle:
            self._go_on()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._wait(TAKING_SECONDS if self.transport.get_write_buffer_size() else REQUEST_SECONDS)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait until more of an answer is taken."""
        super().pause_writing()
        self._wait(TAKING_SECONDS)

    def resume_writing(self) -> None:
        """Go on with an answer."""
        super().resume_writing()
        self._go_on()
        if self._is_idle:
            self._wait(REQUEST_SECONDS)

    @property
    def waiting(self) -> Waiting:
        """Return where it comes from, and since when it is waited for."""
        return Waiting(self.client[0] if self.client else "", self._since)

    @property
    def is_waited_for(self) -> bool:
        """Return whether the site waits for the other end."""
        return self._end is not None or self.cycle.more_body

    def drop(self) -> None:
        """End it at once."""
        self._go_on()
        self.connections.discard(self)  # before the loop tells
        self.transport.abort()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self, seconds: float) -> None:
        self._go_on()
        self._since = self.loop.time()
        self._end = self.loop.call_later(seconds, self.drop)

    def _go_on(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
