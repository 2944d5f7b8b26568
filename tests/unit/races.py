"""Things done at once, again and again, with threads that take turns as often as Python can."""

import contextlib
import faulthandler
import sys
import tempfile
import threading
import time
from typing import Any, NamedTuple

#: seconds that one race may take: more is taken for a wait without end
PATIENCE = 30.0


class Outcome(NamedTuple):
    """The end of one of those at once."""

    value: Any = None
    error: BaseException | None = None


@contextlib.contextmanager
def hectic(interval=1e-6):
    """Threads take turns every microsecond, not every five milliseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def at_once(*actions, patience=PATIENCE):
    """Start them at the same moment; the outcome of each, in their order. Fails where one does not end."""
    outcomes: list[Outcome | None] = [None] * len(actions)
    start = threading.Barrier(len(actions))

    def run(number):
        try:
            start.wait()
            outcomes[number] = Outcome(actions[number]())
        except BaseException as error:
            outcomes[number] = Outcome(error=error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(actions))]
    end = time.monotonic() + patience
    with hectic():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0))
    assert None not in outcomes, f"not ended after {patience:.0f} s:\n{_stacks()}"
    return outcomes


def race(make, *, rounds=50, seconds=0.8, patience=PATIENCE):
    """Give what `make(round)` returns (things to do at once) to `at_once`, again and again; the outcomes of each round.

    Ends after so many rounds, or after so many seconds. The first error of any is raised, with the number of its round.
    """
    end, all_of_them = time.monotonic() + seconds, []
    for number in range(rounds):
        outcomes = at_once(*make(number), patience=patience)
        for outcome in outcomes:
            if outcome.error is not None:
                outcome.error.add_note(f"in round {number}")
                raise outcome.error
        all_of_them.append([outcome.value for outcome in outcomes])
        if time.monotonic() > end:
            break
    return all_of_them


def _stacks():
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()
