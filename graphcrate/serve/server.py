"""The process of `serve`: its address, the program that it starts for plans and builds, the names that reach it."""

import contextlib
import ipaddress
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from graphcrate.host import net, process
from graphcrate.host.arguments import Argv, line
from graphcrate.host.context import Context
from graphcrate.model.command import INSTALLED
from graphcrate.model.errors import UsageError
from graphcrate.serve.queue import JobQueue
from graphcrate.serve.site import Site, application

FOLDER = ".serve"  #: of a site's jobs, below its folder of images
_REQUESTS = 300  #: at once
_PORTS = range(65536)


def serve(listen: str, hosts: Sequence[str], dist: Path, ctx: Context, say: Callable[[str], None]) -> None:
    """Serve until it is interrupted; `say` gets the address once it listens. Raises UsageError, HostError."""
    host, port = address(listen)
    if not is_loopback(host):
        raise UsageError(
            f"{listen} can be reached from other machines",
            cause="All who reach the site build on this machine.",
            next_step="--listen 127.0.0.1:8080, with a web server of the site before it",
        )
    dist = dist.absolute()
    queue = JobQueue(dist / FOLDER, lambda words, folder, name: _start(words, folder, name, ctx), process.adopt)
    with contextlib.closing(net.listening(host, port)) as listener:
        port = listener.getsockname()[1]
        app = application(Site(ctx, dist, queue, program(ctx)), names(port, hosts))
        config = uvicorn.Config(
            app, log_config=None, log_level="warning", access_log=False, ws="none", proxy_headers=False,
            server_header=False, limit_concurrency=_REQUESTS, timeout_graceful_shutdown=1,
        )  # fmt: skip
        shown = f"[{host}]" if ":" in host else host
        say(f"http://{shown}:{port}/")
        uvicorn.Server(config).run([listener])


def address(listen: str) -> tuple[str, int]:
    """Return host and port of `127.0.0.1:8080`, `[::1]:8080`, or a port alone. Raises UsageError."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (port.isdecimal() and int(port) in _PORTS):
        raise UsageError(f"{listen!r} is not an address to listen at", next_step="--listen 127.0.0.1:8080")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names(port: int, hosts: Sequence[str]) -> frozenset[str]:
    """The names by which browsers may call the site; another could be made to mean this machine by its owner."""
    own = (f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))
    return frozenset((*own, *(host.lower() for host in hosts)))


def program(ctx: Context) -> Argv:
    """Return the command line's program, for child processes."""
    python = (sys.executable, "-E", "-s")
    if INSTALLED:
        return line(*python, "-P", "-m", "graphcrate")
    return line(*python, str(ctx.root / "build.py"))


def _start(words: tuple[str, ...], folder: Path, name: str, ctx: Context) -> process.Background:
    # `image_words` made them, and the job's file has kept them since
    return process.start(line(*words), folder, name, ctx.environment)
