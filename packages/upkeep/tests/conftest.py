"""Fixtures of graphcrate's unit tests, which these take too."""

from tests.conftest import no_further_channels, no_witnesses
from tests.unit.conftest import cache, context, gpus_are, no_places, one_day, progress, server, typed

__all__ = ["cache", "context", "gpus_are", "no_further_channels", "no_places", "no_witnesses"]
__all__ += ["one_day", "progress", "server", "typed"]
