"""The connection to a Docker daemon, through Docker's SDK: where it is, whether it answers, what it can do.

The daemon that the `docker` command would talk to: DOCKER_HOST, else the current context, else the machine's own
socket, else the user's (rootless Docker).
"""

import contextlib
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import docker
import docker.errors
import docker.utils
import requests.exceptions
import urllib3.exceptions
from docker.context import ContextAPI

from graphcrate.host import process
from graphcrate.model.command import for_shell
from graphcrate.model.errors import HostError

SOCKET = "unix:///var/run/docker.sock"
SYSTEMD = Path("/run/systemd/system")  #: is there where systemd runs: sd_booted(3)
SYSTEM_SOCKETS = (SOCKET, "unix:///run/docker.sock")  #: one and the same: /var/run is a link to /run
ROOTLESS = re.compile(r"unix:///run/user/\d+/docker\.sock")
INIT_SCRIPT = Path("/etc/init.d/docker")  #: of Debian's package, for WSL and containers without systemd
#: of calls that are answered at once; builds and runs have none
SECONDS = 120
#: what a call raises when the connection breaks or the daemon refuses: the SDK lets the others through
FAILURES = (docker.errors.DockerException, requests.exceptions.RequestException, urllib3.exceptions.HTTPError)


@contextlib.contextmanager
def connected(environment: Mapping[str, str]) -> Iterator[docker.APIClient]:
    """The daemon that this environment means. Raises HostError when there is none or it may not be used."""
    where = endpoint(environment)
    options = docker.utils.kwargs_from_env(environment={**environment, "DOCKER_HOST": where})
    options |= {"timeout": SECONDS, "use_ssh_client": where.startswith("ssh://")}
    try:
        if where.startswith("unix://"):  # the SDK would not close a socket without an answer
            with socket.socket(socket.AF_UNIX) as trial:
                trial.connect(where.removeprefix("unix://"))
        # The oldest version first: the SDK hides why it could not ask for the newest.
        with contextlib.closing(docker.APIClient(version="1.24", **options)) as probe:
            version = probe.version(api_version=False)["ApiVersion"]
        api = docker.APIClient(version=version, **options)
    except (*FAILURES, OSError, ValueError, KeyError) as error:
        raise explain(error, environment) from error
    with contextlib.closing(api):
        yield api


def endpoint(environment: Mapping[str, str]) -> str:
    """The daemon's address, as a value of DOCKER_HOST."""
    host: str | None = environment.get("DOCKER_HOST")
    if not host and (context := ContextAPI.get_context(environment.get("DOCKER_CONTEXT"))) is not None:
        host = context.Host
    if host and host != SOCKET:
        return host
    own = _rootless(environment)
    return own if _exists(own) and not _exists(SOCKET) else SOCKET


def explain(error: BaseException, environment: Mapping[str, str]) -> HostError:
    """Explain why this environment's daemon cannot be used, and what to type."""
    where, message = endpoint(environment), str(error)
    if not where.startswith("unix://"):
        return _unreachable(where, message, environment)
    if "Permission denied" in message:
        return _not_allowed(where, environment)
    if not re.search("No such file|Connection refused", message):
        return HostError(
            f"no Docker daemon answers at {where}: {message}",
            next_step="docker info    shows the same, and docker context ls where it looks",
        )
    return _not_running(where, environment) if process.find("docker") else _not_installed(where, environment)


def _unreachable(where: str, message: str, environment: Mapping[str, str]) -> HostError:
    """The error for a daemon on another machine, or behind a port of this one."""
    return HostError(
        f"no Docker daemon answers at {where}: {message}",
        cause=f"{_origin(environment)} names it.",
        next_step=f"docker --host {for_shell(where)} info    shows the same; "
        f"`{_use_default(environment)}` takes the local one",
    )


def _not_allowed(where: str, environment: Mapping[str, str]) -> HostError:
    what, user = f"{where} may not be used by this user", environment.get("USER", "")
    if where not in SYSTEM_SOCKETS:  # the group docker is of no use for a rootless daemon's socket
        return HostError(
            what,
            cause=f"{_origin(environment)} names it, and the socket is another user's.",
            next_step=f"{_use_default(environment)}    (takes this machine's own daemon)",
        )
    return HostError(
        what,
        cause="Docker's socket belongs to root and to the group docker.",
        next_step=f"sudo usermod -aG docker {for_shell(user) if user else '$USER'}    (then log in again)",
    )


def _not_running(where: str, environment: Mapping[str, str]) -> HostError:
    return HostError(
        "the Docker daemon is not running",
        cause=f"Nothing answers at {where}.",
        next_step=start_command(where, environment),
    )


def _not_installed(where: str, environment: Mapping[str, str]) -> HostError:
    return HostError(
        "Docker is not installed",
        cause=f"Nothing answers at {where}, and there is no docker in PATH.",
        next_step=f"sudo apt-get install docker.io    (then `{start_command(SOCKET, environment)}`)",
    )


def start_command(where: str, environment: Mapping[str, str]) -> str:
    """Return the command that starts the daemon of this socket: the system's or a rootless one."""
    has_systemd = SYSTEMD.is_dir()
    if where in SYSTEM_SOCKETS:
        if has_systemd:
            return "sudo systemctl start docker"
        return "sudo service docker start" if INIT_SCRIPT.exists() else "sudo dockerd &"
    if where.endswith("/.docker/desktop/docker.sock"):
        return "systemctl --user start docker-desktop"
    if where == _rootless(environment) or ROOTLESS.fullmatch(where):
        return "systemctl --user start docker" if has_systemd else "dockerd-rootless.sh &"
    return f"{_use_default(environment)}    (takes this machine's own daemon)"


def _rootless(environment: Mapping[str, str]) -> str:
    """The address of this user's own daemon, as a value of DOCKER_HOST."""
    return f"unix://{environment.get('XDG_RUNTIME_DIR') or '/nonexistent'}/docker.sock"


def _exists(address: str) -> bool:
    return Path(address.removeprefix("unix://")).exists()


def _origin(environment: Mapping[str, str]) -> str:
    """Return where the daemon is, where it is not Docker's default."""
    return next((name for name in ("DOCKER_HOST", "DOCKER_CONTEXT") if environment.get(name)), "Docker's context")


def _use_default(environment: Mapping[str, str]) -> str:
    """The command after which Docker's default daemon is meant."""
    origin = _origin(environment)
    return f"unset {origin}" if origin in environment else "docker context use default"
