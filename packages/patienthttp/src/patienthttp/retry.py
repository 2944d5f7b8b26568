"""Retries of failed requests, and their pauses: one policy for all that goes over HTTP."""

import random
import threading
from collections.abc import Callable
from typing import TypeVar

from patienthttp.errors import HttpError, NoAnswer
from patienthttp.patience import WORTH

FIRST_PAUSE = 0.5  #: seconds; each further failure in a row doubles it
LONGEST_PAUSE = 60.0  #: also of those that a server asks for by Retry-After; a server that asks for more is left alone
TRIES = 4  #: more tries of one request; who can ask another server instead does so soon
STALLED_TRIES = 1  #: more of one that a server let hang: each has taken half a minute
MOST = 200  #: failures of one budget, however far the work got between them: 10 GB with a break each 50 MB
SECONDS = 900.0  #: of all pauses of one budget
NOTED = 5.0  #: a pause of so many seconds is reported

Result = TypeVar("Result")


class Retry:
    """A budget of tries and pauses for one piece of work. Safe from many threads."""

    def __init__(self, sleep: Callable[[float], None], *, tries: int = TRIES, seconds: float = SECONDS) -> None:
        self.sleep, self._tries, self._left = sleep, tries, seconds
        self._lock = threading.Lock()
        self._answered = False
        self.failures = 0  #: so far, of all that was tried
        self.first_pause = FIRST_PAUSE
        self.note: Callable[[str], None] = lambda _: None  #: gets a line for each long pause

    def call(self, attempt: Callable[[], Result], position: Callable[[], int] = lambda: 0) -> Result:
        """Try until it succeeds. Raises the last HttpError when its kind does not pass or the budget is used up.

        `position` says how far the work is: a try that got further resets the count of failures.
        """
        failures = 0
        while True:
            before = position()
            try:
                result = attempt()
            except HttpError as error:
                # What a stalled server has given meanwhile has to be worth the wait.
                if position() - before >= (WORTH if error.failure.kind is NoAnswer.STALLED else 1):
                    failures = 0
                self._pause(error, failures)
                failures += 1
            else:
                self._answered = True
                return result

    def _pause(self, error: HttpError, failures: int) -> None:
        """Wait after a failure, the `failures` before it in a row. Raises `error` when there is to be no other try.

        As long as the server asks for (429 and 503 with Retry-After), else twice as long each time; the half of it at
        random, so that threads and other clients do not come back at the same moment.
        """
        tries = self._tries if error.failure.is_temporary or (self._answered and error.retries) else error.retries
        if error.failure.kind is NoAnswer.STALLED:
            tries = min(tries, STALLED_TRIES)
        asked = error.retry_after
        seconds = min(self.first_pause * 2**failures, LONGEST_PAUSE) * (0.5 + random.random() / 2)
        seconds = seconds if asked is None else asked
        with self._lock:
            over = failures >= tries or self.failures >= MOST
            if error.is_final or over or seconds > min(LONGEST_PAUSE, self._left):
                error.is_final = True  # a retry around this one must not begin again
                raise error
            self._left -= seconds
            self.failures += 1
        if seconds >= NOTED:
            self.note(f"{error.brief}: trying again in {seconds:.0f} s")
        self.sleep(seconds)
