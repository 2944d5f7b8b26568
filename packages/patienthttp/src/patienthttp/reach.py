"""Remember which servers answer: one that does not is asked once, for any number of its files."""

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from patienthttp.errors import HttpError, server_of

Result = TypeVar("Result")


class Reach:
    """Asks servers, and remembers those that do not answer. Safe from many threads."""

    def __init__(self) -> None:
        self._asked: set[str] = set()
        self._answering: set[str] = set()
        self._silent: dict[str, HttpError] = {}
        self._refusing: dict[str, HttpError] = {}
        self._first: dict[str, threading.Lock] = {}

    def ask(self, url: str, question: Callable[[], Result]) -> Result:
        """Run `question`, which sends requests to this address. Raises HttpError; a silent server's own again.

        The first question to a server is waited for: who it does not answer is not followed by others.
        """
        server = server_of(url)
        if server not in self._asked:
            with self._first.setdefault(server, threading.Lock()):
                if server not in self._asked:
                    try:
                        return self._ask(server, question)
                    finally:
                        self._asked.add(server)
        return self._ask(server, question)

    def _ask(self, server: str, question: Callable[[], Result]) -> Result:
        if server in self._silent:
            raise self._silent[server]
        try:
            answer = question()
        except HttpError as error:
            if error.failure.is_temporary or error.failure.is_of_the_server:
                self._silent[server] = error
            elif error.failure.is_absent:
                self._answering.add(server)
            else:
                self._refusing[server] = error
            raise
        self._answering.add(server)
        return answer

    @property
    def silent(self) -> Mapping[str, str]:
        """The servers that answered nothing that was asked, or stopped to answer, and why."""
        refusing = {server: error for server, error in self._refusing.items() if server not in self._answering}
        return {server: error.failure.why for server, error in sorted({**refusing, **self._silent}.items())}
