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
from graphcrate.model.errors import HostError

SOCKET = "unix:///var/run/docker.sock"
START = "sudo systemctl start docker"
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
        if where.startswith("unix://"):  # the SDK would not close a socket that nobody answers at
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
    """Where the daemon is, as a value of DOCKER_HOST."""
    host: str | None = environment.get("DOCKER_HOST")
    if not host and (context := ContextAPI.get_context(environment.get("DOCKER_CONTEXT"))) is not None:
        host = context.Host
    if host and host != SOCKET:
        return host
    own = Path(environment.get("XDG_RUNTIME_DIR") or "/nonexistent", "docker.sock")
    return f"unix://{own}" if own.exists() and not Path(SOCKET.removeprefix("unix://")).exists() else SOCKET


def explain(error: BaseException, environment: Mapping[str, str]) -> HostError:
    """Why the daemon that this environment means cannot be used, and what to type."""
    where = endpoint(environment)
    said, what, cause = str(error), f"no Docker daemon answers at {where}: {error}", ""
    step = "docker info    shows the same, and docker context ls where it looks"
    if "Permission denied" in said:
        what = f"{where} may not be used by this user"
        cause = "Docker's socket belongs to root and to the group docker."
        step = f"sudo usermod -aG docker {environment.get('USER') or '$USER'}    (then log in again)"
    elif where.startswith("unix://") and re.search("No such file|Connection refused", said):
        what, step = "the Docker daemon is not running", START
        cause = f"Nothing answers at {where}."
        if not process.find("docker"):
            what, step = "Docker is not installed", f"sudo apt-get install docker.io    (then `{START}`)"
    return HostError(what, cause=cause, next_step=step)
