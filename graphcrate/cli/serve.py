"""The command `serve`: a site's page for what `explain` and `image` answer. `cli.main` registers it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from graphcrate.cli import node, options
from graphcrate.cli.options import here
from graphcrate.model.command import INSTALLED, command
from graphcrate.model.errors import HostError, UsageError

Listen = Annotated[str, typer.Option(help="Where to listen: of this machine alone, or unix:PATH.", metavar="HOST:PORT")]
Host = Annotated[
    list[str] | None,
    typer.Option(help="A name, with its port, by which a web server before it is called; again for more."),
]
UserFile = Annotated[
    Path | None,
    typer.Option("--users", help="Users with hashes of their tokens, and limits: who has none of these is refused."),
]
NewToken = Annotated[str, typer.Option(help="Give a user of --users a new token, print it, and end.", metavar="NAME")]
TrustProxy = Annotated[
    str,
    typer.Option(help="Address of the web server that logs users in; unix, by a socket's file.", metavar="ADDRESS"),
]
UserHeader = Annotated[str, typer.Option(help="The header in which it names them.", metavar="NAME")]


def serve(
    context: typer.Context,
    listen: Listen = "127.0.0.1:8080",
    host: Host = None,
    users: UserFile = None,
    new_token: NewToken = "",
    trust_proxy: TrustProxy = "",
    user_header: UserHeader = "X-Remote-User",
    to: Annotated[str, typer.Option(help="A registry for SIFs, too: oras://registry.example/team.")] = "",
    output: options.Output = options.DIST,
) -> None:
    """Open a page that says which image runs where, plans and builds it. Prints its address."""
    if new_token:
        _give(new_token, users)
        return
    try:
        from buildsite import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio"):
            raise
        raise HostError(
            f"the page needs {error.name}, which is not installed",
            cause="Only `serve` needs a web server, so nothing else installs one.",
            next_step="pip install 'graphcrate[serve]'" if INSTALLED else "make serve",
        ) from error
    entrance = server.Entrance(listen=listen, hosts=host or (), users=users, proxy=trust_proxy, header=user_header)
    job = node.array_of(context)
    elsewhere = server.OtherMachines(job[1] if job else None, _registry(to))
    server.serve(entrance, output, here(quiet=True), _say, _log, elsewhere)


def _give(name: str, path: Path | None) -> None:
    from buildsite.users import new_token

    if path is None:
        raise UsageError(
            "--new-token needs the file of users", next_step=command("serve", users="users.toml", new_token=name)
        )
    _say(new_token(path, name))


def _registry(to: str) -> str:
    """Return the registry of `--to`. Raises UsageError for one that takes no SIF."""
    from graphcrate.publish.destinations.parse import oras_location

    if to and oras_location(to) is None:
        raise UsageError(f"{to} is not a registry for SIFs", next_step="--to oras://registry.example/team")
    return to


def _say(address: str) -> None:
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
