"""What a job does on its node: submitit imports this module there and calls `carry_out`."""

from pathlib import Path

import msgspec

from graphcrate.engines import run_suites
from graphcrate.host.context import Context
from graphcrate.model.errors import GraphcrateError
from graphcrate.model.trial import Order, Returned
from graphcrate.smoke.memory import Memory


def carry_out(order: bytes) -> bytes:
    """Run an Order's suites, its lines on stdout; returns a Returned. Both as JSON: that has one form on all nodes."""
    return msgspec.json.encode(_returned(msgspec.json.decode(order, type=Order)))


def _returned(order: Order) -> Returned:
    ctx = Context.here()
    memory = Memory(Path(order.passes), order.rerun)
    try:
        suites = run_suites.run_suites(
            order.artifact,
            order.suites,
            Path(order.folder),
            ctx,
            order.device,
            order.packages,
            say=_say,
            memory=memory,
        )
    except GraphcrateError as error:
        return Returned(error=str(error))
    return Returned(suites=tuple(suites))


def _say(line: str) -> None:
    print(line, flush=True)
