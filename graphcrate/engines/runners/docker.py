"""Runs commands in an image of Docker's, each in a container of its own that is removed afterwards."""

import contextlib
import io
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import docker.errors
import docker.types

from graphcrate.engines.runners import Runtime
from graphcrate.host import docker_engine, gpu, settings
from graphcrate.host.cache import Cache
from graphcrate.host.docker_engine import Engine
from graphcrate.host.process import KEPT_LINES, Completed
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox import Bind
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.report import Artifact

#: of /dev/shm: Docker's 64 MB are too little for the worker processes of a DataLoader
SHARED_MEMORY = 2 << 30
GPU_REQUESTS = (1, 40), "containers with GPUs", "19.03"


def runtime(environment: Mapping[str, str]) -> Runtime:
    """The daemon. Raises HostError when none answers."""
    with docker_engine.connected(environment) as engine:
        return Runtime("docker", engine.version)


def exists(artifact: Artifact, environment: Mapping[str, str]) -> bool:
    """Whether the daemon still has this very image. Raises HostError when it cannot be asked."""
    with docker_engine.connected(environment) as engine:
        try:
            return bool(engine.api.inspect_image(artifact.reference)["Id"] == artifact.digest)
        except docker.errors.ImageNotFound:
            return False


@contextlib.contextmanager
def opened(artifact: Artifact, *, cache: Cache, progress: Progress | None = None) -> Iterator["Inside"]:
    """The image in the daemon. Raises HostError when either cannot be had."""
    with docker_engine.connected(settings.environment()) as engine:
        try:
            engine.api.inspect_image(artifact.reference)
        except docker.errors.ImageNotFound as error:
            raise HostError(
                f"Docker has no image {artifact.reference}", next_step="make image …    builds it"
            ) from error
        yield Inside(engine, artifact.reference)


@dataclass(frozen=True)
class Inside:
    """An image. Nothing that runs in it can change it."""

    engine: Engine
    reference: str

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
        any. Exit code 128 + N after signal N. Raises HostError when no container can be started, BuildError after
        `timeout` seconds; the container is gone in any case.
        """
        api = self.engine.api
        container = self._created(argv, environment or {}, binds, working_folder, network, gpu)
        late = threading.Event()

        def end() -> None:
            late.set()
            with contextlib.suppress(*docker_engine.FAILURES):
                api.kill(container)

        timer = threading.Timer(timeout, end) if timeout is not None else None
        kept: deque[str] = deque(maxlen=KEPT_LINES)
        try:
            with _explained(self.reference):
                api.start(container)
            if timer is not None:
                timer.start()
            for line in lines(api.logs(container, stdout=True, stderr=True, stream=True, follow=True)):
                kept.append(line)
                if on_line is not None:
                    on_line(line)
            code = int(api.wait(container, timeout=None)["StatusCode"])
        except docker_engine.FAILURES as error:
            raise docker_engine.broken(error) from error
        finally:
            if timer is not None:
                timer.cancel()
            with contextlib.suppress(*docker_engine.FAILURES):
                api.remove_container(container, force=True, v=True)
        if late.is_set():
            raise BuildError(
                f"{argv[0]} in {self.reference} did not finish within {timeout:.0f} s and was ended",
                cause="The machine is much slower than expected, or the program waits for something.",
            )
        return Completed(code, tuple(kept))

    def _created(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        binds: Sequence[Bind],
        working_folder: str,
        network: bool,
        with_gpu: bool,
    ) -> str:
        api = self.engine.api
        options: dict[str, Any] = {
            "mounts": [
                docker.types.Mount(bind.target, str(bind.source.resolve()), type="bind", read_only=bind.read_only)
                for bind in binds
            ],
            "shm_size": SHARED_MEMORY,
            "log_config": docker.types.LogConfig(type="json-file"),  # one that can be read while it is written
        }
        if not network:
            options["network_mode"] = "none"
        if with_gpu and gpu.detect().devices:
            self.engine.require(*GPU_REQUESTS)
            options["device_requests"] = [docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])]
        with _explained(self.reference):
            made = api.create_container(
                self.reference,
                entrypoint=[argv[0]],
                command=list(argv[1:]),
                environment=dict(environment),
                working_dir=working_folder or None,
                host_config=api.create_host_config(**options),
            )
        return str(made["Id"])


def lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """The lines of a stream of bytes as they come, cut at \\n and \\r, whatever their encoding."""
    text = io.TextIOWrapper(io.BufferedReader(_Stream(chunks)), encoding="utf-8", errors="replace", newline=None)
    for line in text:
        yield line.removesuffix("\n")


class _Stream(io.RawIOBase):
    """Chunks as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


@contextlib.contextmanager
def _explained(reference: str) -> Iterator[None]:
    """Turn the daemon's refusal to start a container into HostError."""
    try:
        yield
    except docker.errors.APIError as error:
        told = str(error.explanation or error)
        fix = "docker info"
        if "could not select device driver" in told or "nvidia-container-cli" in told:
            fix = "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
            fix += "    (after apt-get install nvidia-container-toolkit)"
        raise HostError(f"Docker cannot start a container of {reference}: {told}", next_step=fix) from error
