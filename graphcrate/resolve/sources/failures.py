"""Failures of sources that did not give a file, for users and for the rest of a request."""

import threading
from collections import Counter
from collections.abc import Callable

from graphcrate.host.net import Client, HttpError
from graphcrate.model.errors import GraphcrateError, IntegrityError, NetworkError
from graphcrate.resolve.sources.wheel_mirrors import KNOCK
from patienthttp.errors import NoAnswer, server_of


class UngivenError(NetworkError):
    """No source gives a file, whose name is `file`."""

    file: str = ""


class OtherBytesError(IntegrityError):
    """Each source that has a file has other bytes; its name is `file`."""

    file: str = ""


#: what a channel's next link, its next source or the next candidate may do without
UNGIVEN = (UngivenError, OtherBytesError)


class Failures:
    """The reasons why sources did not give files, of one request. Safe from many threads.

    Each source and reason is one line in the log, the others are counted.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self.silent: dict[str, NetworkError] = {}  #: servers that are not reached, and why: not asked again
        self.slow: set[str] = set()  #: those that stopped sending: asked when no other has a file
        self.reached: set[str] = set()  #: public mirrors that took a connection

    def say(self, source: str, why: str, file: str) -> None:
        """Note that the search for a file goes on elsewhere."""
        with self._lock:
            self._counts[source, why] += 1
            is_new = self._counts[source, why] == 1
        if is_new:
            self._note(f"{source} does not give {file} ({why}): looking elsewhere")

    def knocked(self, client: Client, url: str) -> NetworkError | None:
        """Explain why the server of an address is not asked; None where it takes a connection.

        Where it cannot be reached at all, no time-out is waited for.
        """
        server = source_name(url)
        if server not in self.reached and server not in self.silent:
            if client.reaches(url, KNOCK):
                self.reached.add(server)
            else:
                self.silent[server] = HttpError.of(NoAnswer.NO_ANSWER, url)
        return self.silent.get(server)

    def remember(self, server: str, error: GraphcrateError) -> None:
        """Have a server left alone that is not reached, and one asked last that stopped sending."""
        if isinstance(error, HttpError):
            if error.failure.is_of_the_server:
                self.silent.setdefault(server, error)
            if error.failure.kind is NoAnswer.STALLED:
                self.slow.add(server)

    def sum_up(self) -> None:
        """Note how many files each source did not give, where that is more than was said."""
        for (source, why), count in self._counts.items():
            if count > 1:
                self._note(f"{source} did not give {count} files ({why}): they came from elsewhere")


def source_name(url: str) -> str:
    """Host and port of an address, without user and password; of a path, what to call it."""
    return "the folder of wheels" if url.startswith(("file:", "/")) else server_of(url)
