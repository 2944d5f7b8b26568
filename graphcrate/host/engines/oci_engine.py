"""Docker and podman through their command lines, which agree in all that is used here.

Docker's SDK finds the daemon and tells why it cannot be used. podman has none, but a store of images of its own.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from graphcrate.host import arguments, process, settings
from graphcrate.host.process import Completed
from graphcrate.host.sandbox import attach
from graphcrate.model.errors import BuildError, HostError

#: what the commands read of the environment besides what all children get
DOCKER_VARIABLES = ("DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "SSH_AUTH_SOCK")
PODMAN_VARIABLES = (
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF", "REGISTRY_AUTH_FILE"),
    *("DBUS_SESSION_BUS_ADDRESS", "BUILDAH_ISOLATION"),
)
DOCKER_STAGES = (1, 29)  #: version of the API from which on builds have stages
#: From here on BuildKit in the daemon knows cache mounts without fetching a frontend from a registry.
BUILDKIT_API = (1, 41)
BUILDX_CLIENT = 23  #: clients from here on leave BuildKit to the plug-in buildx
OLDEST_PODMAN = (3, 0)  #: before, arguments of a build cannot come from the environment


class OciClient(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that answers, and its commands. `name` is docker or podman."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]  #: of the command
    version: str
    build_options: tuple[str, ...]
    gpu_options: tuple[str, ...]  #: of `run`, for all GPUs
    buildkit: bool = False

    def call(
        self,
        *ours: str,
        strange: Sequence[str] = (),
        inside: Sequence[str] = (),
        on_line: Callable[[str], None] | None = None,
        timeout: float | None = None,
        variables: Mapping[str, str] | None = None,
        attached: bool = False,
    ) -> Completed:
        """Run one of the engine's commands, as `process.run` does; `variables` go over its environment.

        `strange` and `inside` are those of `arguments.line`; `attached`: it gets this process's terminal.
        """
        environment = {**self.environment, **(variables or {})}
        argv = arguments.line(*self.command, *ours, strange=strange, inside=inside)
        if attached:
            return Completed(attach.run(argv, environment=environment), ())
        return process.run(argv, environment=environment, on_line=on_line, timeout=timeout)

    def ask(self, *ours: str, strange: Sequence[str] = ()) -> Any:  # noqa: ANN401
        """Run a command that prints JSON. Raises BuildError when it fails."""
        argv = arguments.line(*self.command, *ours, strange=strange)
        text = process.output(argv, environment=self.environment, timeout=300)
        return json.loads(text or "null") or []

    def inspect(self, image: str) -> dict[str, Any] | None:
        """Inspect an image; None where it is not there. Its id begins with `sha256:`."""
        try:
            known = dict(self.ask("image", "inspect", strange=[image])[0])
        except BuildError:
            return None
        return {**known, "Id": whole(known["Id"])}


def find(name: str, environment: Mapping[str, str]) -> OciClient:
    """The engine of this name. Raises HostError when it is missing, not running, too old, or not for this user."""
    return _docker(environment) if name == "docker" else _podman(environment)


def whole(image: str) -> str:
    """An image's id as Docker writes it."""
    return image if image.startswith("sha256:") else f"sha256:{image}"


def _docker(environment: Mapping[str, str]) -> OciClient:
    from graphcrate.host.engines import docker_engine

    with docker_engine.connected(environment) as api:
        version, speaks = api.version()["Version"], tuple(map(int, api.api_version.split(".")))
    where = docker_engine.endpoint(environment)
    if speaks < DOCKER_STAGES:
        raise HostError(
            f"Docker Engine {version} is too old for a build in stages: that needs 17.05 or later",
            next_step="install a newer Docker Engine",
        )
    variables = settings.select_for_child(environment, DOCKER_VARIABLES)
    clients = [client for client in _programs(variables) if _client_version(client, variables)]
    if not clients:
        raise HostError(
            "the docker command is not installed",
            cause=f"A daemon answers at {where}, and its command builds and runs images.",
            next_step="sudo apt-get install docker-cli    (docker.io on older systems)",
        )
    able = [] if speaks < BUILDKIT_API else [client for client in clients if _has_buildkit(client, variables)]
    return OciClient(
        name="docker",
        command=((able or clients)[0], "--host", where),
        # No BUILDX_BUILDER of the user's: another builder than the daemon's cannot see our base.
        environment=variables
        | {"DOCKER_BUILDKIT": "1" if able else "0", "BUILDX_BUILDER": "default"}
        | {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"},  # an index instead of an image
        version=version,
        build_options=("--progress", "plain") if able else ("--force-rm",),
        gpu_options=("--gpus", "all"),
        buildkit=bool(able),
    )


def _programs(variables: Mapping[str, str]) -> list[str]:
    """Every `docker` in PATH."""
    programs = [Path(folder, "docker") for folder in variables["PATH"].split(":")]
    return [str(program) for program in dict.fromkeys(programs) if program.is_file() and os.access(program, os.X_OK)]


def _client_version(client: str, variables: Mapping[str, str]) -> int:
    """The major version of a docker command; 0 for podman-docker, or a broken one."""
    done = process.run(arguments.line(client, "--version"), environment=variables, timeout=60)
    match = re.search(r"Docker version (\d+)", " ".join(done.lines))
    return int(match[1]) if match and not done.returncode else 0


def _has_buildkit(client: str, variables: Mapping[str, str]) -> bool:
    if _client_version(client, variables) < BUILDX_CLIENT:
        return True
    return process.run(arguments.line(client, "buildx", "version"), environment=variables, timeout=60).returncode == 0


def _podman(environment: Mapping[str, str]) -> OciClient:
    variables = settings.select_for_child(environment, PODMAN_VARIABLES)
    done = process.run(arguments.line("podman", "--version"), environment=variables, timeout=60)
    match = re.search(r"podman version ((\d+)\.(\d+)\S*)", "\n".join(done.lines))
    if done.returncode or match is None:
        raise _broken(done.lines)
    if (int(match[2]), int(match[3])) < OLDEST_PODMAN:
        raise HostError(
            f"podman {match[1]} is too old for build arguments from the environment: that needs 3.0 or later",
            next_step="install a newer podman",
        )
    # a plain user without subordinate ids learns it here
    works = process.run(arguments.line("podman", "info"), environment=variables, timeout=120)
    if works.returncode:
        raise _broken(works.lines)
    # A chroot, buildah's lightest isolation, needs no OCI runtime, which on some machines cannot start (crun on hybrid
    # cgroups), and its processes end with podman when the build is interrupted.
    isolation = () if variables.get("BUILDAH_ISOLATION") else ("--isolation", "chroot")
    return OciClient(
        name="podman",
        command=("podman",),
        environment=variables,
        version=match[1],
        build_options=("--layers", *isolation),
        # SELinux would keep the container from the devices
        gpu_options=("--device", "nvidia.com/gpu=all", "--security-opt", "label=disable"),
    )


def _broken(lines: Sequence[str]) -> HostError:
    last = next((line for line in reversed(lines) if line.strip()), "it says nothing")
    fix = "podman info    shows the same"
    if re.search(r"subuid|subgid|newuidmap|newgidmap", "\n".join(lines)):
        fix = "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER    (then log in again)"
    return HostError(f"podman does not work here: {last}", next_step=fix)
