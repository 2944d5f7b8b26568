"""The connection to a Docker daemon, through Docker's SDK: where it is, whether it answers, what it can do.

The daemon that the `docker` command would talk to: DOCKER_HOST, else the current context, else the machine's own
socket, else the user's (rootless Docker).
"""

import contextlib
import hashlib
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import docker.errors
import docker.utils
import msgspec
import requests.exceptions
import urllib3.exceptions

from graphcrate.host import process
from graphcrate.model.errors import UNREADABLE, HostError

SOCKET = "/var/run/docker.sock"
ELSEWHERE = "or use another engine: --engine podman, --engine embedded"
#: of calls that are answered at once; builds and runs have none
SECONDS = 120
#: what a call raises when the connection breaks or the daemon refuses: the SDK lets the others through
FAILURES = (docker.errors.DockerException, requests.exceptions.RequestException, urllib3.exceptions.HTTPError)


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """A daemon that answers. `version` as it says ("20.10.24+dfsg1"), `api_version` as a tuple."""

    api: Any  #: docker.APIClient
    endpoint: str  #: as in DOCKER_HOST
    version: str
    api_version: tuple[int, ...]

    def require(self, api_version: tuple[int, int], construct: str, release: str) -> None:
        """Raises HostError, naming the construct, unless the daemon speaks this version of the API or a later one."""
        if self.api_version < api_version:
            have = ".".join(map(str, self.api_version))
            need = ".".join(map(str, api_version))
            raise HostError(
                f"Docker Engine {self.version} is too old for {construct}: that needs {release} or later",
                cause=f"It speaks version {have} of Docker's API, and {need} is needed.",
                next_step=f"install a newer Docker Engine, {ELSEWHERE}",
            )


@contextlib.contextmanager
def connected(environment: Mapping[str, str]) -> Iterator[Engine]:
    """The daemon that this environment means. Raises HostError when there is none or it may not be used."""
    where = endpoint(environment)
    options = docker.utils.kwargs_from_env(environment={**environment, "DOCKER_HOST": where})
    options |= {"timeout": SECONDS, "use_ssh_client": where.startswith("ssh://")}
    try:
        _try(where)
        # The oldest version first: the SDK hides why it could not ask for the newest.
        with contextlib.closing(docker.APIClient(version="1.24", **options)) as probe:
            version = probe.version(api_version=False)
        number = tuple(map(int, version["ApiVersion"].split(".")))
        if number < (1, 24):
            old = Engine(api=None, endpoint=where, version=version["Version"], api_version=number)
            old.require((1, 24), "Docker's SDK", "1.12")
        api = docker.APIClient(version=version["ApiVersion"], **options)
    except (*FAILURES, OSError, ValueError, KeyError) as error:
        raise explain(where, error, environment) from error
    with contextlib.closing(api):
        yield Engine(api=api, endpoint=where, version=version["Version"], api_version=number)


def _try(where: str) -> None:
    """Raises what keeps us from a socket of this machine: the SDK wraps it, and forgets to close."""
    if where.startswith("unix://"):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as trial:
            trial.settimeout(SECONDS)
            trial.connect(where.removeprefix("unix://"))


def endpoint(environment: Mapping[str, str]) -> str:
    """Where the daemon is, as a value of DOCKER_HOST."""
    if host := environment.get("DOCKER_HOST"):
        return host
    if host := _context(environment):
        return host
    own = Path(environment.get("XDG_RUNTIME_DIR") or "/nonexistent", "docker.sock")
    return f"unix://{own}" if own.exists() and not Path(SOCKET).exists() else f"unix://{SOCKET}"


def _context(environment: Mapping[str, str]) -> str:
    """The current context's daemon (`docker context use`); empty for the default one, or where it cannot be read."""
    folder = Path(environment.get("DOCKER_CONFIG") or Path(environment.get("HOME") or "/nonexistent", ".docker"))
    with contextlib.suppress(OSError, *UNREADABLE, KeyError, TypeError, AttributeError):
        name = environment.get("DOCKER_CONTEXT")
        if not name:
            name = msgspec.json.decode((folder / "config.json").read_bytes()).get("currentContext")
        if name and name != "default":
            place = folder / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
            return str(msgspec.json.decode(place.read_bytes())["Endpoints"]["docker"]["Host"])
    return ""


def explain(where: str, error: BaseException, environment: Mapping[str, str]) -> HostError:
    """Why the daemon at this address cannot be used, and what to type."""
    what = f"the Docker daemon at {where} gives no proper answer: {error}"
    cause, step = "", "docker info    shows the same"
    if isinstance(error, PermissionError):
        what, cause = (
            f"{where} may not be used by this user",
            "Docker's socket belongs to root and to the group docker.",
        )
        step = f"sudo usermod -aG docker {environment.get('USER') or '$USER'}    (then log in again), {ELSEWHERE}"
    elif not where.startswith("unix://"):
        what, cause = f"no Docker daemon answers at {where}: {error}", "DOCKER_HOST or the current context names it."
        step = f"docker --host {where} info    shows the same; `unset DOCKER_HOST` takes the machine's own"
    elif isinstance(error, FileNotFoundError | ConnectionRefusedError):
        what, cause = "the Docker daemon is not running", f"Nothing answers at {where}."
        step = f"{start_command(where)}    ({ELSEWHERE})"
        if not process.find("dockerd") and not process.find("docker"):
            what, cause = "Docker is not installed", f"There is no {where} and neither docker nor dockerd in PATH."
            step = f"sudo apt-get install docker.io    (then `{start_command(where)}`), {ELSEWHERE}"
    return HostError(what, cause=cause, next_step=step)


def start_command(where: str) -> str:
    """What starts the daemon on this machine."""
    if where != f"unix://{SOCKET}":
        return "systemctl --user start docker"
    if Path("/run/systemd/system").is_dir():
        return "sudo systemctl start docker"
    return "sudo service docker start" if Path("/etc/init.d/docker").exists() else "sudo dockerd &"
