"""End processes that worked together: none while another still needs it, and none by the group's own end.

The first to leave closes its connections, and rank 0's process serves the store in which all meet: a process that is
still in its last barrier would read "Connection reset by peer" and fail, after a training that was right. So all say in
the store that they are through, and wait for the others so long and no longer: it is their barrier.

Then the process ends by `verdict.exit_with`. torch's `destroy_process_group` may wait for ever, as may Python's own end
and RPC's shutdown (docs/decisions/leaving.md).
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proof.verdict import Proof

SECONDS_TO_LEAVE = 60.0  #: for the slowest process


def leave(store: Any, rank: int, world: int, proof: Proof, seconds: float = SECONDS_TO_LEAVE) -> None:  # noqa: ANN401
    """Return when this process may end: all are through what they do together, and rank 0 is the last.

    `store`: torch's, the same for all, served by rank 0 or a file. It may be gone once this has returned. A process
    that does not come within `seconds` is named, and not waited for: its own verdict tells why.
    """
    until = time.monotonic() + seconds
    try:
        store.set(f"done/{rank}", "1")
        _wait(store, "done", range(world), until)
        if rank:
            store.set(f"left/{rank}", "1")  # the last that it asks of the store
        else:
            with _quiet():
                _wait(store, "left", range(1, world), until)
    except RuntimeError as error:  # what torch raises: a time-out, a connection that was closed
        proof.say(f"rank {rank} leaves without the others, whose own lines say why: {error}")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave unsaid what libraries say in C++ of connections that end now, as they should."""
    sys.stderr.flush()
    kept = os.dup(2)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    os.close(silence)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _wait(store: Any, what: str, ranks: range, until: float) -> None:  # noqa: ANN401
    """Raise RuntimeError that names the first rank without `what` in time."""
    for rank in ranks:
        left = datetime.timedelta(seconds=max(until - time.monotonic(), 0.1))
        try:
            store.wait([f"{what}/{rank}"], left)
        except RuntimeError as error:
            raise RuntimeError(f"rank {rank} has not come to its end ({error})") from error
