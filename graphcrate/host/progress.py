"""What a person sees while work goes on: bars with bytes, rate and time left on a terminal, plain lines elsewhere.

Everything goes to stderr; stdout belongs to results. This module has the protocols; `host.bars` draws.
"""

import contextlib
from collections.abc import Iterator
from typing import Protocol


class Task(Protocol):
    """A running piece of work."""

    def advance(self, amount: int) -> None:
        """Say that `amount` more bytes are done. Safe from any thread."""


class Progress(Protocol):
    """Where stages report to."""

    def note(self, message: str) -> None:
        """Say one line."""

    def task(self, description: str, total: int) -> contextlib.AbstractContextManager[Task]:
        """A task of `total` bytes; entering shows it, leaving ends it."""


class Silent:
    """Reports nothing; for tests and library use."""

    def note(self, message: str) -> None:
        pass

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Task]:
        yield _Nothing()


class _Nothing:
    def advance(self, amount: int) -> None:
        pass
