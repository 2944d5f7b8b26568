"""Runs commands in an image of podman's, each in a container of its own that is removed afterwards."""

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphcrate.engines import podman
from graphcrate.engines.podman import Store
from graphcrate.engines.runners import Runtime
from graphcrate.host import gpu, process, settings
from graphcrate.host.cache import Cache
from graphcrate.host.process import Completed
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox import Bind
from graphcrate.model.errors import HostError
from graphcrate.model.report import Artifact

SHARED_MEMORY = "2g"  #: of /dev/shm: podman's 64 MB are too little for the worker processes of a DataLoader
#: A machine without CAP_SYS_RESOURCE cannot raise limits to those that podman wants.
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
_LACKS_RIGHT = "setting rlimit"
_NOTHING = ("/bin/sh", "-c", "exit 0")


def runtime(environment: Mapping[str, str]) -> Runtime:
    """podman. Raises HostError when it is missing or does not work for this user."""
    return Runtime("podman", podman.check(environment))


def exists(artifact: Artifact, environment: Mapping[str, str]) -> bool:
    """Whether podman still has this very image. Raises HostError when podman is missing."""
    told = Store(environment=podman.variables(environment)).inspect(artifact.reference)
    return told is not None and podman.whole(told["Id"]) == artifact.digest


@contextlib.contextmanager
def opened(artifact: Artifact, *, cache: Cache, progress: Progress | None = None) -> Iterator["Inside"]:
    """The image in podman's store. Raises HostError when no container of it can be started."""
    variables = podman.variables(settings.environment())
    if Store(environment=variables).inspect(artifact.reference) is None:
        raise HostError(f"podman has no image {artifact.reference}", next_step="make image …    builds it")
    inside = Inside(artifact.reference, variables, ())
    told = inside.run(_NOTHING)
    if any(_LACKS_RIGHT in line for line in told.lines):
        inside = Inside(artifact.reference, variables, _LIMITS)
        told = inside.run(_NOTHING)
    if told.returncode:
        last = next((line for line in reversed(told.lines) if line.strip()), "it says nothing")
        raise HostError(
            f"podman cannot start a container of {artifact.reference}: {last}",
            next_step=f"podman run --rm {artifact.reference} true    shows the same",
        )
    yield inside


@dataclass(frozen=True)
class Inside:
    """An image. Nothing that runs in it can change it."""

    reference: str
    variables: Mapping[str, str]
    options: tuple[str, ...]  #: of `podman run`, that this machine needs

    def run(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        binds: Sequence[Bind] = (),
        working_folder: str = "",
        network: bool = False,
        on_line: Callable[[str], None] | None = None,
        timeout: float | None = None,
        gpu: bool = False,
    ) -> Completed:
        """Run a command with the image's variables, `environment` over them; the image's entry point is not used.

        It is root in the container and may write there; /dev/shm has 2 GB. `gpu` asks for all GPUs where there are
        any (through CDI). Exit code 128 + N after signal N. Raises HostError when podman is missing, BuildError
        after `timeout` seconds; the container is gone in any case.
        """
        name = f"graphcrate-{secrets.token_hex(6)}"
        command = ["podman", "run", "--rm", "--name", name, "--pull", "never", "--shm-size", SHARED_MEMORY]
        command += [*self.options, "--entrypoint", "", *self._gpu(gpu)]
        command += [] if network else ["--network", "none"]
        command += ["--workdir", working_folder] if working_folder else []
        for bind in binds:
            command += ["--volume", f"{bind.source.resolve()}:{bind.target}:{'ro' if bind.read_only else 'rw'}"]
        command += [option for item in (environment or {}).items() for option in ("--env", "=".join(item))]
        try:
            return process.run(
                [*command, self.reference, *argv],
                environment=self.variables,
                on_line=on_line,
                timeout=timeout,
            )
        except BaseException:
            # killing podman does not end a container
            process.run(["podman", "kill", name], environment=self.variables)
            process.run(["podman", "rm", "--force", name], environment=self.variables)
            raise

    def _gpu(self, wanted: bool) -> list[str]:
        if not wanted or not gpu.detect().devices:
            return []
        # SELinux would keep the container from the devices
        return ["--device", "nvidia.com/gpu=all", "--security-opt", "label=disable"]
