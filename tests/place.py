"""Where inputs come to, for tests."""

from types import SimpleNamespace

from graphcrate.host.progress import Silent


def place(cache, environment=None, progress=None):
    """What inputs use of a Context."""
    return SimpleNamespace(cache=cache, environment=environment or {}, progress=progress or Silent())
