"""Docker and podman: build on the lock's own base in the engine's own store, run commands in containers of an image.

An image gets its name when it is whole. Steps that were finished stay in the engine's cache for the next try.
"""

import contextlib
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from graphcrate.artifacts.formats import docker_archive
from graphcrate.engines import backend, context
from graphcrate.engines.backend import BuildOrder, Built, RuntimeVersion
from graphcrate.engines.output import LOG, Output, ends_with_us
from graphcrate.engines.run_order import passes
from graphcrate.host import settings
from graphcrate.host.disk.cache import Cache
from graphcrate.host.engines import oci_engine
from graphcrate.host.engines.oci_engine import OciClient, whole
from graphcrate.host.process import Completed
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox import attach, gpu
from graphcrate.host.sandbox.sandbox import Exec, check_binds
from graphcrate.model.command import IMAGE_AGAIN, for_shell
from graphcrate.model.errors import BuildError, HostError, UsageError
from graphcrate.model.plan import LAYER_MTIME
from graphcrate.model.report import Artifact, BuildReport
from graphcrate.oci.reference import parse
from graphcrate.render import dockerfile

#: A step begins: classic Docker, buildah, BuildKit; and the one that BuildKit names as failed. Its names for what
#: comes before the steps ("internal") are of use in an error alone.
STEPS = re.compile(
    r"(?:\[\d+/\d+\] )?(?:Step|STEP) (\d+/\d+) ?: (.+)|#\d+ \[([^\]]*\d+/\d+)\] (.+)| > \[([^\]]+)\] (.+?):?"
)
_IMAGE = re.compile(r"--> (?:Using cache )?([0-9a-f]{8,64})")
#: A step that gets an image, as each of them writes it.
_BASE = re.compile(r"(?:\S+ FROM|internal load metadata for) (\S+)", re.IGNORECASE)

SHARED_MEMORY = "2g"  #: of /dev/shm: the engines' 64 MB are too little for the worker processes of a DataLoader
#: A machine without CAP_SYS_RESOURCE cannot raise limits to those that podman sets.
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


@dataclass(frozen=True)
class StoreEngine(backend.Engine):
    """Docker or podman, which build and run, and the images in its store."""

    name: Literal["docker", "podman"]

    def check(self, environment: Mapping[str, str]) -> str:
        """The engine's name and version. Raises HostError when it cannot be used."""
        engine = self._found(environment, "engine")
        if engine.name == "podman":
            return f"podman {engine.version}"
        return f"Docker Engine {engine.version} ({'BuildKit' if engine.buildkit else 'classic builder'})"

    def _found(self, environment: Mapping[str, str], option: Literal["engine", "runner"] = "runner") -> OciClient:
        """The engine. Raises HostError when it cannot be used; `option` names another one."""
        try:
            return oci_engine.find(self.name, environment)
        except HostError as error:
            others = [name for name in ("docker", "podman") if name != self.name]
            more = " or ".join(f"--{option} {name}" for name in (*others, "embedded"))
            raise HostError(
                error.what, cause=error.cause, next_step=f"{error.next_step}, or another: {more}"
            ) from error

    def runtime(self, environment: Mapping[str, str]) -> RuntimeVersion:
        """The engine. Raises HostError when it cannot be used."""
        return RuntimeVersion(self.name, self._found(environment).version)

    def inspect(self, reference: str, environment: Mapping[str, str]) -> Artifact | None:
        """Look up an image by its name; None where it is missing. Raises HostError when the engine does not answer."""
        known = self._found(environment).inspect(reference)
        return None if known is None else self._artifact(reference, known)

    def exists(self, report: BuildReport, folder: Path, environment: Mapping[str, str]) -> bool:
        """Return whether the engine still has this very image. Raises HostError when it cannot be asked."""
        artifact = self.inspect(report.artifact.reference, environment)
        return artifact is not None and artifact.digest == report.artifact.digest

    def load(self, archive: Path, environment: Mapping[str, str]) -> Artifact:
        """Load the image of an archive. Raises UsageError for an archive without one, HostError as `inspect`."""
        done = self._found(environment).call("load", "--quiet", "--input", str(archive))
        # "Loaded image: name:tag" or "Loaded image ID: sha256:…"
        named = [line.partition(":")[2].strip() for line in done.lines if line.startswith("Loaded image")]
        artifact = self.inspect(named[0], environment) if named and not done.returncode else None
        if artifact is None:
            raise UsageError(
                f"{self.name} loads no image from {archive}: {' '.join(done.lines[-1:])}",
                cause="It is not an archive of `docker save`; Docker before 25 does not read OCI archives.",
                next_step=f"skopeo copy {for_shell(f'oci-archive:{archive}')} docker-archive:image.tar:name:tag",
            )
        return artifact

    def build(self, order: BuildOrder) -> Built:
        """Build the plan's image as `name:tag`. See `Engine.build`."""
        engine = self._found(order.environment, "engine")
        with order.cache.folder() as folder, (order.folder / LOG).open("w", encoding="utf-8") as stream:
            for name in ("context", "tmp"):
                (folder / name).mkdir()
            context.write(folder / "context", order, dockerfile(order.plan, cache_mounts=engine.buildkit), "Dockerfile")
            arguments = context.arguments(order, load_base(order, engine, folder))
            secrets = context.secrets(arguments)
            output = Output(stream, order.progress.note, STEPS, prefix=engine.name, secrets=secrets)
            built = _build(engine, order, folder, arguments, output)
        artifact = self._artifact(f"{order.plan.name}:{order.plan.tag}", built)
        return Built(msgspec.structs.replace(artifact, log=str(order.folder / LOG)))

    @contextlib.contextmanager
    def opened(self, artifact: Artifact, *, cache: Cache, progress: Progress) -> Iterator["EngineImage"]:
        """The image in the engine's store. Raises HostError when no container of it can be started."""
        engine, reference = self._found(settings.environment()), artifact.reference
        if engine.inspect(reference) is None:
            raise HostError(f"{engine.name} has no image {reference}", next_step=f"{IMAGE_AGAIN}    builds it")
        image = EngineImage(engine, reference)
        tried = image.run(_NOTHING)
        if any(_LACKS_RIGHT in line for line in tried.lines):
            image = EngineImage(engine, reference, _LIMITS)
            tried = image.run(_NOTHING)
        if tried.returncode:
            last = next((line for line in reversed(tried.lines) if line.strip()), "it says nothing")
            raise HostError(
                f"{engine.name} cannot start a container of {reference}: {last}",
                next_step=f"{engine.name} run --rm {for_shell(reference)} true    shows the same",
            )
        yield image

    def _artifact(self, reference: str, known: Mapping[str, Any]) -> Artifact:
        size = int(known.get("Size", 0))
        return Artifact(engine=self.name, kind=self.name, reference=reference, digest=known["Id"], bytes=size)


def _build(
    engine: OciClient, order: BuildOrder, folder: Path, arguments: Mapping[str, str], output: Output
) -> dict[str, Any]:
    """Build, and return what the engine knows of the image. The earlier image of its name goes if it is not in use."""
    reference, log = f"{order.plan.name}:{order.plan.tag}", order.folder / LOG
    before = engine.inspect(reference)
    command = ["build", "--tag", reference, *engine.build_options]
    command += ["--network", "host"] if context.needs_host_network(arguments) else []
    # Values go through the environment: a list of processes must not show a proxy's password.
    command += [option for name in arguments for option in ("--build-arg", name)]
    variables = {**arguments, "TMPDIR": str(folder / "tmp")}
    guarded = msgspec.structs.replace(engine, command=(*ends_with_us(), *engine.command))
    with _cleaned(engine, order, arguments):
        done = guarded.call(*command, strange=[str(folder / "context")], on_line=output.line, variables=variables)
        if done.returncode:
            raise _failure(engine, output, f"{engine.name} build of {reference}", log)
    built = engine.inspect(reference)
    if built is None:
        raise BuildError(f"{engine.name} built {reference} and does not have it", next_step=f"less {for_shell(log)}")
    if before and before["Id"] != built["Id"] and not (engine.inspect(before["Id"]) or {}).get("RepoTags"):
        engine.call("rmi", strange=[before["Id"].removeprefix("sha256:")])  # fails where a container uses it
    return built


def _failure(engine: OciClient, output: Output, what: str, log: Path) -> BuildError:
    error = output.failure(what, log)
    if (step := _BASE.match(output.step)) is None:
        return error
    return BuildError(
        error.what,
        cause=f"The base image {step[1]} is not available: {error.cause}",
        next_step=f"{engine.name} pull {for_shell(step[1])}    "
        f"shows why (no such image, no network, a login); {error.next_step}",
    )


@contextlib.contextmanager
def _cleaned(engine: OciClient, order: BuildOrder, arguments: Mapping[str, str]) -> Iterator[None]:
    """Remove the containers in which a build of podman's that broke off was working; Docker does it by itself."""
    if engine.name == "docker":
        yield
        return
    # One build of a cache at a time: what is new belongs to it, if it began from an image of this build.
    with order.cache.exclusively("podman-build"):
        before = _containers(engine)
        try:
            yield
        except BaseException:
            base = engine.inspect(arguments.get("BASE", "")) or {}
            seen = _IMAGE.findall((order.folder / LOG).read_text(encoding="utf-8"))
            ours = tuple(whole(image) for image in [*seen, base.get("Id", "")] if image)
            for container, image in _containers(engine).items():
                if container not in before and whole(image).startswith(ours):
                    engine.call("rm", "--force", strange=[container])
            raise


def _containers(engine: OciClient) -> dict[str, str]:
    """Containers that builds work in → id of the image that they started from."""
    listed = engine.ask("ps", "--all", "--external", "--no-trunc", "--format", "json")
    return {
        container["Id"]: container.get("ImageID") or ""
        for container in listed
        if "buildah" in (container.get("Command") or ())
    }


def load_base(order: BuildOrder, engine: OciClient, folder: Path) -> str:
    """Load the lock's base into the engine, unless it has it. Returns its name, else what the engine is to pull."""
    if order.base is None:
        # podman looks for names without a registry nowhere, or in places that its administrator chose
        return str(parse(order.plan.base.image.reference)) if engine.name == "podman" else ""
    layout = context.base_layout(order.base, order.cache)
    name = context.base_name(layout)
    known = engine.inspect(name)
    # by layers: an engine that keeps images in containerd has other ids
    if known is None or known["RootFS"].get("Layers") != list(layout.config.rootfs.diff_ids):
        with order.progress.task(f"loading {name}", sum(layer.size for layer in layout.layers)) as task:
            archive = folder / "base.tar"
            with archive.open("wb") as stream:
                docker_archive.write_docker(stream, layout, name, LAYER_MTIME, task.advance)
            done = engine.call("load", "--input", str(archive))
            archive.unlink()
        if done.returncode:
            raise BuildError(
                f"{engine.name} cannot load {name}: {' '.join(done.lines[-3:])}", next_step=f"{engine.name} info"
            )
    return f"localhost/{name}" if engine.name == "podman" else name


@dataclass(frozen=True)
class EngineImage:
    """An image in an engine's store."""

    engine: OciClient
    reference: str
    options: tuple[str, ...] = ()  #: of `run`, that this machine needs

    def run(self, command: Exec) -> Completed:
        """See `host.sandbox.sandbox.Inside.run`. It is root in a container of its own, which is gone in any case."""
        check_binds(command.binds, separators=",")
        name = f"graphcrate-{secrets.token_hex(6)}"
        words = ["run", "--rm", "--name", name, "--shm-size", SHARED_MEMORY, *self.options, "--entrypoint", ""]
        words += self.engine.gpu_options if command.gpu and gpu.detect().devices else ()
        words += [] if command.network else ["--network", "none"]
        if command.attached:
            words += ["--interactive", *(["--tty"] if attach.has_terminal() else [])]
            words += ["--network", "host"] if command.network else []
        words += ["--workdir", command.cwd] if command.cwd else []
        for bind in command.binds:  # --mount, unlike --volume, takes colons in a path
            end = ",readonly" if bind.read_only else ""
            words += ["--mount", f"type=bind,source={bind.source.resolve()},target={bind.target}{end}"]
        # a list of processes must not show a password; what else is named by a user or a file stays out of the
        # engine's own environment, where it could have another meaning
        quietly = {name: value for name, value in command.environment.items() if passes(name)}
        for name, value in command.environment.items():
            words += ["--env", name if name in quietly else f"{name}={value}"]
        try:
            done = self.engine.call(
                *words,
                strange=[self.reference],
                inside=command.argv,
                on_line=command.on_line,
                timeout=command.timeout,
                variables=quietly,
                attached=command.attached,
            )
        except BaseException:
            # killing the command does not end a container
            self.engine.call("kill", name)
            self.engine.call("rm", "--force", name)
            raise
        complaint = next((match[1] for line in done.lines if (match := _COMPLAINT.match(line))), "")
        if done.returncode in (_ENGINE_FAILED, _CANNOT_START) and complaint:
            fix = next((fix for words, fix in _GPU_TROUBLES.items() if re.search(words, complaint)), "")
            if fix or done.returncode == _ENGINE_FAILED:
                raise HostError(
                    f"{self.engine.name} cannot start a container of {self.reference}: {complaint}",
                    next_step=f"{fix}    (after apt-get install nvidia-container-toolkit)"
                    if fix
                    else f"{self.engine.name} info",
                )
        return done
