"""Runs commands in an image of Docker's or podman's, each in a container of its own that is removed afterwards."""

import contextlib
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphcrate.engines.runners import Runtime
from graphcrate.host import gpu, oci_engine, settings
from graphcrate.host.cache import Cache
from graphcrate.host.oci_engine import OciEngine
from graphcrate.host.process import Completed
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox import Bind, Exec, check_binds
from graphcrate.model.errors import HostError
from graphcrate.model.report import Artifact

SHARED_MEMORY = "2g"  #: of /dev/shm: the engines' 64 MB are too little for the worker processes of a DataLoader
#: A machine without CAP_SYS_RESOURCE cannot raise limits to those that podman wants.
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
_LACKS_RIGHT = "setting rlimit"
_NOTHING = Exec(("/bin/sh", "-c", "exit 0"))
#: The engine itself failed, if its words are there too; podman ends so as well where it lacks devices.
_ENGINE_FAILED, _CANNOT_START = 125, 126
_COMPLAINT = re.compile(r"(?:docker|Error): (.*)")
#: words about a GPU that the engine cannot give to a container, and what helps
_GPU_TROUBLES = {
    "could not select device driver|nvidia-container-cli": (
        "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
    ),
    r"nvidia\.com/gpu": "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
}


class Runner:
    """Docker or podman, as `engines.runners.Runner`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def runtime(self, environment: Mapping[str, str]) -> Runtime:
        """The engine. Raises HostError when it cannot be used."""
        return Runtime(self._name, oci_engine.find(self._name, environment).version)

    def exists(self, artifact: Artifact, environment: Mapping[str, str]) -> bool:
        """Whether the engine still has this very image. Raises HostError when it cannot be asked."""
        found = oci_engine.find(self._name, environment).inspect(artifact.reference)
        return found is not None and found["Id"] == artifact.digest

    @contextlib.contextmanager
    def opened(self, artifact: Artifact, *, cache: Cache, progress: Progress) -> Iterator["Image"]:
        """The image in the engine's store. Raises HostError when no container of it can be started."""
        engine, reference = oci_engine.find(self._name, settings.environment()), artifact.reference
        if engine.inspect(reference) is None:
            raise HostError(f"{engine.name} has no image {reference}", next_step="make image …    builds it")
        image = Image(engine, reference)
        tried = image.run(_NOTHING)
        if any(_LACKS_RIGHT in line for line in tried.lines):
            image = Image(engine, reference, _LIMITS)
            tried = image.run(_NOTHING)
        if tried.returncode:
            last = next((line for line in reversed(tried.lines) if line.strip()), "it says nothing")
            raise HostError(
                f"{engine.name} cannot start a container of {reference}: {last}",
                next_step=f"{engine.name} run --rm {reference} true    shows the same",
            )
        yield image


@dataclass(frozen=True)
class Image:
    """An image in an engine's store."""

    engine: OciEngine
    reference: str
    options: tuple[str, ...] = ()  #: of `run`, that this machine needs

    def run(self, command: Exec) -> Completed:
        """See `host.sandbox.Inside.run`. It is root in the container and may write there; /dev/shm has 2 GB.

        The container is gone in any case.
        """
        check_binds(command.binds)
        name = f"graphcrate-{secrets.token_hex(6)}"
        words = ["run", "--rm", "--name", name, "--shm-size", SHARED_MEMORY, *self.options, "--entrypoint", ""]
        words += self.engine.gpu_options if command.gpu and gpu.detect().devices else ()
        words += [] if command.network else ["--network", "none"]
        words += ["--workdir", command.cwd] if command.cwd else []
        words += [option for bind in command.binds for option in ("--mount", _mount(bind))]
        words += [option for item in command.environment.items() for option in ("--env", "=".join(item))]
        words += [self.reference, *command.argv]
        try:
            done = self.engine.call(*words, on_line=command.on_line, timeout=command.timeout)
        except BaseException:
            # killing the command does not end a container
            self.engine.call("kill", name)
            self.engine.call("rm", "--force", name)
            raise
        if done.returncode in (_ENGINE_FAILED, _CANNOT_START) and (complaint := _complaint(done)):
            fix = next((fix for words, fix in _GPU_TROUBLES.items() if re.search(words, complaint)), "")
            if fix or done.returncode == _ENGINE_FAILED:
                raise HostError(
                    f"{self.engine.name} cannot start a container of {self.reference}: {complaint}",
                    next_step=f"{fix}    (after apt-get install nvidia-container-toolkit)"
                    if fix
                    else f"{self.engine.name} info",
                )
        return done


def _mount(bind: Bind) -> str:
    """The bind as a value of --mount, which unlike --volume takes colons in a path. Raises HostError for commas."""
    source = str(bind.source.resolve())
    if "," in f"{source}{bind.target}":
        raise HostError(
            f"{source} cannot be bound into an image",
            cause="Docker and podman take commas in a path for the ends of its parts.",
            next_step="move it to a path without them, or set TMPDIR to one",
        )
    return f"type=bind,source={source},target={bind.target}{',readonly' if bind.read_only else ''}"


def _complaint(done: Completed) -> str:
    """The engine's own words."""
    return next((match[1] for line in done.lines if (match := _COMPLAINT.match(line))), "")
