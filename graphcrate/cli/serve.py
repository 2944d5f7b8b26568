"""The command `serve`: a site's page for what `explain` and `image` answer. `cli.main` registers it."""

import sys
from typing import Annotated

import typer

from graphcrate.cli import options
from graphcrate.cli.options import here
from graphcrate.model.command import INSTALLED
from graphcrate.model.errors import HostError

Listen = Annotated[str, typer.Option(help="Where to listen, of this machine alone.", metavar="HOST:PORT")]
Host = Annotated[
    list[str] | None,
    typer.Option(help="A name, with its port, by which a web server before it is called; again for more."),
]


def serve(listen: Listen = "127.0.0.1:8080", host: Host = None, output: options.Output = options.DIST) -> None:
    """Open a page that says which image runs on a machine, and plans it. Prints its address."""
    try:
        from graphcrate.serve import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio"):
            raise
        raise HostError(
            f"the page needs {error.name}, which is not installed",
            cause="Only `serve` needs a web server, so nothing else installs one.",
            next_step="pip install 'graphcrate[serve]'" if INSTALLED else "make serve",
        ) from error
    server.serve(listen, host or (), output, here(quiet=True), _say)


def _say(address: str) -> None:
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()
