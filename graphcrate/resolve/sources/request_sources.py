"""One request's way to all sources: the HTTP client, pages read so far, the user's indexes."""

import functools
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.disk.os_errors import MachineError
from graphcrate.host.progress import Progress
from graphcrate.model.errors import BuildError, GraphcrateError
from graphcrate.resolve.sources import further
from graphcrate.resolve.sources.failures import Failures
from graphcrate.resolve.sources.user_indexes import UserIndexes, user_indexes
from graphcrate.resolve.sources.uv import emitted_indexes

if TYPE_CHECKING:
    from graphcrate.host.disk.cache import Cache
    from graphcrate.host.net import Client
    from graphcrate.resolve.sources.index import Listings

if TYPE_CHECKING:
    shared_property = functools.cached_property
else:

    class shared_property(functools.cached_property):  # noqa: N801
        """A cached property that threads compute once, as Python's own does before 3.12. `lock`: the instance's."""

        def __get__(self, instance: "Sources | None", owner: type | None = None) -> object:
            if instance is None:
                return self
            with instance.lock:
                return super().__get__(instance, owner)


class Sources:
    """One request's way to all sources, for many threads. Nothing is opened, imported or asked before it is needed.

    `note` gets a line for each source that does not give a locked file while another is left. `ungiven`: names of files
    that were listed and that no source gave, and why; it grows while one command looks for others.
    """

    def __init__(
        self,
        request: SourceOptions,
        cache: "Cache",
        environment: Mapping[str, str],
        note: Callable[[str], None] = lambda _: None,
        progress: Progress | None = None,
        ungiven: dict[str, GraphcrateError] | None = None,
    ) -> None:
        self.request = request
        self.cache = cache
        self.environment = environment
        self.note = note
        self.progress = progress or Progress()
        self.failures = Failures(note)
        self.ungiven = {} if ungiven is None else ungiven
        self.lock = threading.RLock()

    @shared_property
    def client(self) -> "Client":
        """The HTTP client."""
        from graphcrate.host.net import Client

        return Client(self.environment, note=self.note)

    @shared_property
    def listings(self) -> "Listings":
        """Pages read so far."""
        from graphcrate.resolve.sources.index import Listings

        return Listings(self.client)

    @shared_property
    def user(self) -> UserIndexes:
        """The user's own indexes; uv is asked for its default where nothing is set."""
        user = user_indexes(self.environment)
        user = user if user.default else user_indexes(self.environment, self._emitted(self.environment))
        if not self.request.further:
            return user
        return msgspec.structs.replace(user, further=further.asked(self.request.further, self._known(user)))

    def further_lines(self) -> list[str]:
        """Return a plan's lines on the channels that a requirements file names."""
        named = self.request.further
        return further.lines(named, self._known(self.user)) if named else []

    def _known(self, user: UserIndexes) -> tuple[str, ...]:
        """Indexes that have what a requirements file means by them: the user's own, and for the public one those."""
        return (user.default, *user.extra, *self._public)

    @shared_property
    def _public(self) -> tuple[str, ...]:
        """The index that uv takes by itself; none if unknown."""
        try:
            return (user_indexes({"PIP_CONFIG_FILE": "/dev/null"}, self._emitted({}, "--no-config")).default,)
        except (MachineError, BuildError):
            return ()

    def _emitted(self, environment: Mapping[str, str], *options: str) -> str:
        """Ask uv which indexes it would use. It starts with files in its cache: in ours, since /tmp may be full."""
        cache = ("--cache-dir", str(self.cache.path("uv"))) if self.cache else ("--no-cache",)
        return emitted_indexes(environment, *cache, *options)

    @shared_property
    def has_own_index(self) -> bool:
        """Return whether packages come from another index than the one that uv takes by itself, or may do so."""
        if self.user.extra or self.user.further:
            return True
        return self.user.default.rstrip("/") not in [public.rstrip("/") for public in self._public]
