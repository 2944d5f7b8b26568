"""The world in which candidates are chosen: a server with all channels, a cache, a clock that tests set."""

from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host import settings
from graphcrate.host.net import Client
from graphcrate.resolve.sources import request_sources
from graphcrate.resolve.sources.fetch import fetch
from graphcrate.resolve.stack import resolver
from graphcrate.resolve.stack.candidates import choose
from tests.made import bookworm, index_of, place
from tests.unit import small_index

BASE = bookworm()
NOWHERE = "http://127.0.0.1:1/whl"


class World:
    """A server, a cache and a clock; `choose` as the pipeline calls it."""

    def __init__(self, server, cache, progress, monkeypatch):
        self.server, self.cache, self.monkeypatch = server, cache, monkeypatch
        self.environment = index_of(server)
        self.now = 1_000_000.0
        self.notes = progress
        self.bases = 0
        self.built = set()
        monkeypatch.setattr(settings, "now", lambda: self.now)
        monkeypatch.setattr(resolver, "lock_base", self.lock_base)
        small_index.without_github(monkeypatch)

    def choose(self, *candidates, committed=None, fresh=False, recipe=None, **request):
        context = self.context(recipe or small_index.recipe(*candidates), **request)
        return choose(context, {committed.candidate: committed} if committed else {}, fresh=fresh)

    def context(self, recipe, **request):
        return small_index.context(
            recipe,
            SourceOptions(**request),
            self.cache,
            self.environment,
            progress=self.notes,
            built=lambda lock: self.built & {package.file.sha256 for package in lock.packages},
        )

    def lock_base(self, place, variant):
        self.bases += 1
        return BASE

    def fetch(self, lock, **request):
        """Everything: what is installed, and what it takes to compile."""
        for compilation in (False, True):
            ctx = place(self.cache, self.environment, self.notes)
            fetch(lock, SourceOptions(**request), ctx, compilation=compilation)

    def pytorch_channel(self):
        small_index.pytorch_channel(self.server)

    def silence(self):
        """From now on every step towards the network fails the test."""

        def fail(*_, **__):
            raise AssertionError("the network was used")

        for name in ("request", "download", "reaches"):
            self.monkeypatch.setattr(Client, name, fail)
        self.monkeypatch.setattr(request_sources, "emitted_indexes", fail)
