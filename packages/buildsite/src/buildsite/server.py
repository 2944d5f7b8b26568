"""The process of `serve`: its address, the program that it starts for plans and builds, the names that reach it."""

import contextlib
import functools
import ipaddress
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvicorn

from buildsite.app import application
from buildsite.connections import MOST, Connection
from buildsite.guard import UNIX, Doors, Proxy
from buildsite.queue import AT_ONCE, JobQueue
from buildsite.site import Site
from buildsite.users import Users
from buildsite.work import SiteWork
from graphcrate.engines import slurm_jobs
from graphcrate.host import net, process
from graphcrate.host.arguments import Argv, line
from graphcrate.host.context import Context
from graphcrate.host.disk.atomic import alone, make_folder
from graphcrate.model.command import INSTALLED, command
from graphcrate.model.errors import HostError, UsageError
from graphcrate.model.trial import Resources
from patienthttp.errors import is_loopback

FOLDER = ".serve"  #: of a site's jobs, below its folder of images
_NODES = 8  #: builds at once by jobs of Slurm
_PORTS = range(65536)


class Entrance(msgspec.Struct, frozen=True, kw_only=True):
    """The address to listen at, and who is let in, as they were typed."""

    listen: str = "127.0.0.1:8080"
    hosts: Sequence[str] = ()
    users: Path | None = None
    proxy: str = ""
    header: str = "X-Remote-User"


class OtherMachines(NamedTuple):
    """Other machines of a site. `resources`: of jobs of Slurm that build; None: this machine does."""

    resources: Resources | None = None
    registry: str = ""  #: `oras://…`, for SIFs


HERE = OtherMachines()


def serve(
    entrance: Entrance,
    dist: Path,
    ctx: Context,
    say: Callable[[str], None],
    log: Callable[[str], None],
    elsewhere: OtherMachines = HERE,
) -> None:
    """Serve until it is interrupted; `say` gets the address once it listens, `log` lines as `guard` has them.

    Raises UsageError, RecipeError, HostError.
    """
    proxy, users = proxy_of(entrance), Users(entrance.users)
    dist = dist.absolute()
    at_once, resources = AT_ONCE, elsewhere.resources
    if resources:
        slurm_jobs.connect(ctx, dist, [resources.partition] if resources.partition else [])
        at_once = {**AT_ONCE, "build": _NODES, "file": _NODES}
    work = SiteWork(program=program(ctx), dist=dist, on=_on(resources), registry=elsewhere.registry)
    path = file_of(entrance.listen)
    with contextlib.ExitStack() as stack:
        make_folder(dist / FOLDER)
        if not stack.enter_context(alone(dist / FOLDER / "server")):
            raise HostError(
                f"another site uses {dist}",
                cause="Both would start each of its jobs.",
                next_step=f"end that one, or {command('serve', output=f'{dist}-2')}",
            )
        listener = net.listening_file(path) if path else net.listening(*address(entrance.listen))
        stack.enter_context(contextlib.closing(listener))
        queue = JobQueue(dist / FOLDER, functools.partial(_start, ctx=ctx), process.adopt, at_once)
        own, shown = ((), entrance.listen) if path else _local(*listener.getsockname()[:2])
        doors = Doors(frozenset((*own, *(host.lower() for host in entrance.hosts))), users, proxy)
        app = application(Site(ctx, work, queue, users), doors, log)
        config = uvicorn.Config(
            app, log_config=None, log_level="warning", access_log=False, ws="none", proxy_headers=False,
            server_header=False, http=Connection, limit_concurrency=MOST + 1, timeout_graceful_shutdown=1,
        )  # fmt: skip
        say(shown)
        uvicorn.Server(config).run([listener])


def file_of(listen: str) -> Path | None:
    """Return the path of `unix:/run/…`; None of another address."""
    kind, _, path = listen.partition(":")
    return Path(path) if kind == UNIX and path else None


def proxy_of(entrance: Entrance) -> Proxy | None:
    """Judge where it listens and whom it trusts. Raises UsageError."""
    is_file = file_of(entrance.listen) is not None
    is_local = is_file or is_loopback(address(entrance.listen)[0])
    if not is_local and not entrance.proxy:
        raise UsageError(
            f"{entrance.listen} can be reached from other machines",
            cause="There is no TLS, and whoever reaches the site builds on this machine.",
            next_step="--listen 127.0.0.1:8080; or --trust-proxy ADDRESS, of the web server that alone may come",
        )
    if is_file and not entrance.hosts:
        raise UsageError(
            f"{entrance.listen} has no name by which browsers call it", next_step="--host NAME, of the web server"
        )
    if not entrance.proxy:
        return None
    if not re.fullmatch("[A-Za-z][A-Za-z0-9-]{0,60}", entrance.header):
        raise UsageError(f"{entrance.header!r} is not a header's name", next_step="--user-header X-Remote-User")
    if (entrance.proxy == UNIX) != is_file or is_loopback(entrance.proxy):
        raise UsageError(
            f"{entrance.proxy} cannot be told from others at {entrance.listen}",
            cause="Every user and program of a machine has its loopback address; of a socket's file its mode says who.",
            next_step=f"--listen unix:/run/graphcrate/site.sock --trust-proxy {UNIX}",
        )
    try:
        sender = UNIX if is_file else str(ipaddress.ip_address(entrance.proxy))
    except ValueError as error:
        raise UsageError(
            f"{entrance.proxy!r} is not an address of a machine", next_step="--trust-proxy 192.0.2.10"
        ) from error
    return Proxy(sender, entrance.header, is_only_way=not is_local)


def address(listen: str) -> tuple[str, int]:
    """Return host and port of `127.0.0.1:8080`, `[::1]:8080`, or a port alone. Raises UsageError."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (port.isdecimal() and int(port) in _PORTS):
        raise UsageError(f"{listen!r} is not an address to listen at", next_step="--listen 127.0.0.1:8080")
    return host, int(port)


def _local(host: str, port: int) -> tuple[Sequence[str], str]:
    """Return the names by which this machine may call the site, and its address.

    Any other name, unless `hosts` has it, may be a stranger's, who lets it mean this machine.
    """
    return names(port), f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def names(port: int) -> Sequence[str]:
    """Return the names of loopback, with a port."""
    return [f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")]


def program(ctx: Context) -> Argv:
    """Return the command line's program, for child processes, whose words no user typed."""
    python = (sys.executable, "-E", "-s", "-X", "typed=")
    if INSTALLED:
        return line(*python, "-P", "-m", "graphcrate")
    return line(*python, str(ctx.root / "build.py"))


def _on(resources: Resources | None) -> tuple[str, ...]:
    """Return the options by which a command is done by a job of Slurm."""
    if resources is None:
        return ()
    given = {name: getattr(resources, name) for name in ("partition", "time", "account", "cpus")}
    return ("--on=slurm", *(f"--{name}={value}" for name, value in given.items() if value))


def _start(words: tuple[str, ...], folder: Path, name: str, ctx: Context) -> process.Background:
    # `SiteWork` made them, and the job's file has kept them since
    return process.start(line(*words), folder, name, ctx.environment)
