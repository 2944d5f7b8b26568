"""Docker and podman through their command lines, which agree in all that is used here.

Docker's daemon is the one that the command finds: by DOCKER_HOST, by its context, or at the machine's own socket.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from graphcrate.host import process, settings
from graphcrate.host.process import Completed
from graphcrate.model.errors import BuildError, HostError

#: what the commands read of the environment besides what all children get
DOCKER_VARIABLES = (
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "SSH_AUTH_SOCK"),
)
PODMAN_VARIABLES = (
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF", "REGISTRY_AUTH_FILE"),
    *("DBUS_SESSION_BUS_ADDRESS", "BUILDAH_ISOLATION"),
)
DOCKER_STAGES = (1, 29)  #: version of the API from which on a build has stages
#: From here on BuildKit in the daemon knows cache mounts without fetching a frontend from a registry.
BUILDKIT_API = (1, 41)
BUILDX_CLIENT = 23  #: clients from here on leave BuildKit to the plug-in buildx
OLDEST_PODMAN = (3, 0)  #: before, arguments of a build cannot come from the environment
ELSEWHERE = "or use another engine: --engine embedded"
START = "sudo systemctl start docker"


class OciEngine(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that answers. `name` is docker or podman."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]  #: of the command
    version: str
    build_options: tuple[str, ...]
    gpu_options: tuple[str, ...]  #: of `run`, for all GPUs
    buildkit: bool = False

    def call(
        self,
        *arguments: str,
        on_line: Callable[[str], None] | None = None,
        timeout: float | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run one of the engine's commands, as `process.run` does; `variables` go over its environment."""
        environment = {**self.environment, **(variables or {})}
        return process.run([*self.command, *arguments], environment=environment, on_line=on_line, timeout=timeout)

    def ask(self, *arguments: str) -> Any:  # noqa: ANN401
        """What a command prints as JSON. Raises BuildError when it fails."""
        text = process.output([*self.command, *arguments], environment=self.environment, timeout=300)
        return json.loads(text or "null") or []

    def inspect(self, image: str) -> dict[str, Any] | None:
        """What is known of an image; None where it is not there. Its id begins with `sha256:`."""
        try:
            found = dict(self.ask("image", "inspect", image)[0])
        except BuildError:
            return None
        return {**found, "Id": whole(found["Id"])}


def find(name: str, environment: Mapping[str, str]) -> OciEngine:
    """The engine of this name. Raises HostError when it is missing, not running, too old, or not for this user."""
    return _docker(environment) if name == "docker" else _podman(environment)


def whole(image: str) -> str:
    """An image's id as Docker writes it."""
    return image if image.startswith("sha256:") else f"sha256:{image}"


def _docker(environment: Mapping[str, str]) -> OciEngine:
    variables = settings.select_for_child(environment, DOCKER_VARIABLES)
    done = process.run(["docker", "version", "--format", "{{json .}}"], environment=variables, timeout=60)
    known: dict[str, Any] = next((json.loads(line) for line in done.lines if line.startswith("{")), {})
    server = known.get("Server")
    if not server:  # also podman-docker, which has none
        raise _no_daemon([line for line in done.lines if not line.startswith("{")], environment)
    speaks = tuple(map(int, server["ApiVersion"].split(".")))
    if speaks < DOCKER_STAGES:
        raise HostError(
            f"Docker Engine {server['Version']} is too old for a build in stages: that needs 17.05 or later",
            next_step=f"install a newer Docker Engine, {ELSEWHERE}",
        )
    buildkit = speaks >= BUILDKIT_API and _has_buildkit(int(known["Client"]["Version"].partition(".")[0]), variables)
    return OciEngine(
        name="docker",
        command=("docker",),
        # No BUILDX_BUILDER of the user's: another builder than the daemon's cannot see our base.
        environment=variables
        | {"DOCKER_BUILDKIT": str(int(buildkit)), "BUILDX_BUILDER": "default"}
        | {"BUILDX_NO_DEFAULT_ATTESTATIONS": "1"},  # an index instead of an image
        version=server["Version"],
        build_options=("--progress", "plain") if buildkit else ("--force-rm",),
        gpu_options=("--gpus", "all"),
        buildkit=buildkit,
    )


def _has_buildkit(client: int, variables: Mapping[str, str]) -> bool:
    """Whether a docker command of this major version can drive BuildKit."""
    if client < BUILDX_CLIENT:
        return True
    return process.run(["docker", "buildx", "version"], environment=variables, timeout=60).returncode == 0


def _no_daemon(lines: Sequence[str], environment: Mapping[str, str]) -> HostError:
    """The error for a docker command that reaches no daemon, from what it says."""
    said = _last(lines)
    step = "docker info    shows the same"
    if "permission denied" in said.lower():  # the socket belongs to root and to the group docker
        step = f"sudo usermod -aG docker {environment.get('USER') or '$USER'}    (then log in again)"
    elif "Is the docker daemon running" in said:
        step = f"{START}    (where DOCKER_HOST or `docker context use` names another machine, there)"
    return HostError(f"no Docker daemon can be used here: {said}", next_step=f"{step}, {ELSEWHERE}")


def _podman(environment: Mapping[str, str]) -> OciEngine:
    variables = settings.select_for_child(environment, PODMAN_VARIABLES)
    done = process.run(["podman", "--version"], environment=variables, timeout=60)
    found = re.search(r"podman version ((\d+)\.(\d+)\S*)", "\n".join(done.lines))
    if done.returncode or found is None:
        raise _broken(done.lines)
    if (int(found[2]), int(found[3])) < OLDEST_PODMAN:
        raise HostError(
            f"podman {found[1]} is too old for build arguments from the environment: that needs 3.0 or later",
            next_step=f"install a newer podman, {ELSEWHERE}",
        )
    # a plain user without subordinate ids learns it here
    works = process.run(["podman", "info"], environment=variables, timeout=120)
    if works.returncode:
        raise _broken(works.lines)
    # A chroot, buildah's lightest isolation, needs no OCI runtime, which on some machines cannot start (crun on hybrid
    # cgroups), and its processes end with podman when the build is interrupted.
    isolation = () if variables.get("BUILDAH_ISOLATION") else ("--isolation", "chroot")
    return OciEngine(
        name="podman",
        command=("podman",),
        environment=variables,
        version=found[1],
        build_options=("--layers", *isolation),
        # SELinux would keep the container from the devices
        gpu_options=("--device", "nvidia.com/gpu=all", "--security-opt", "label=disable"),
    )


def _broken(lines: Sequence[str]) -> HostError:
    fix = "podman info    shows the same"
    if re.search(r"subuid|subgid|newuidmap|newgidmap", "\n".join(lines)):
        fix = "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER    (then log in again)"
    return HostError(f"podman does not work here: {_last(lines)}", next_step=f"{fix}, {ELSEWHERE}")


def _last(lines: Sequence[str]) -> str:
    return next((line for line in reversed(lines) if line.strip()), "it says nothing")
