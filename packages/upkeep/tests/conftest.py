"""Fixtures of graphcrate's unit tests, which these take too."""

from tests.unit.conftest import cache, context, gpus_are, no_places, one_day, progress, server, typed

__all__ = ["cache", "context", "gpus_are", "no_places", "one_day", "progress", "server", "typed"]
