"""How long a piece of work goes on asking a server that fails for now: one budget for all of its requests."""

import random
import threading
from collections.abc import Callable
from typing import TypeVar

from graphcrate.host.connections import HttpError

FIRST_PAUSE = 0.5  #: seconds; each further failure in a row doubles it
LONGEST_PAUSE = 60.0  #: also of those that a server asks for by Retry-After; one that asks for more is left alone
TRIES = 8  #: more tries of one request. Where a fifth of all fail, one in two million requests needs another.
SECONDS = 900.0  #: of all pauses of the work together
TOLD = 5.0  #: a pause of so many seconds is worth a word
_WORTH = 3  #: `HttpError.retries` of failures that come and go

Result = TypeVar("Result")


class Patience:
    """The budget of one piece of work, from however many threads."""

    def __init__(self, sleep: Callable[[float], None], *, tries: int = TRIES, seconds: float = SECONDS) -> None:
        self._sleep, self._tries, self._left = sleep, tries, seconds
        self._lock = threading.Lock()
        self._known = False
        self.tell: Callable[[str], None] = lambda _: None  #: gets a line for each long pause

    def insist(self, attempt: Callable[[], Result]) -> Result:
        """Try until it is done. Raises the last HttpError when its kind does not pass or the budget is used up."""
        failures = 0
        while True:
            try:
                result = attempt()
            except HttpError as error:
                self.wait(error, failures)
                failures += 1
            else:
                self._known = True
                return result

    def wait(self, error: HttpError, failures: int) -> None:
        """Pause before another try, after `failures` before this one. Raises `error` when there is to be none.

        As long as the server asks for (429 and 503 with Retry-After), else twice as long each time; the half of it at
        random, so that threads and other clients do not come back at the same moment.
        """
        worth = error.retries if error.retries < _WORTH and not self._known else self._tries * (error.retries > 0)
        asked = error.retry_after
        if failures >= worth or (asked is not None and asked > LONGEST_PAUSE):
            raise error
        if asked is not None:
            seconds = asked
        else:
            seconds = min(FIRST_PAUSE * 2**failures, LONGEST_PAUSE) * (0.5 + random.random() / 2)
        with self._lock:
            if seconds > self._left:
                raise error
            self._left -= seconds
        if seconds >= TOLD:
            self.tell(f"{error.constraint}: trying again in {seconds:.0f} s")
        self._sleep(seconds)
