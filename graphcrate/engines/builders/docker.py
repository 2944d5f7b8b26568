"""Builds with Docker: BuildKit through the command line where both are there, else the classic builder.

Both start from the lock's own base, loaded into the daemon, and neither gives the image its name before it is whole.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker.errors

from graphcrate.engines.builders import Order, base, context, kept
from graphcrate.engines.builders.transcript import Transcript
from graphcrate.engines.render import DockerForm, dockerfile
from graphcrate.host import docker_engine, process, settings
from graphcrate.host.docker_engine import Engine
from graphcrate.model.errors import BuildError
from graphcrate.model.report import Artifact

LOG = "build.log"
STAGES = (1, 29), "a build in stages", "17.05"
#: From here on BuildKit in the daemon knows cache mounts without fetching a frontend from a registry.
BUILDKIT_API = (1, 41)
#: Clients from here on leave BuildKit to the plug-in buildx.
BUILDX_CLIENT = 23
#: what the docker command needs of the environment besides what all children get
CLIENT_VARIABLES = ("DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "SSH_AUTH_SOCK")
_GONE = (docker.errors.NotFound, docker.errors.APIError)
#: in which the daemon ends what an interrupted build was doing
SECONDS_TO_END = 15.0


def check(environment: Mapping[str, str]) -> str:
    """The daemon's version and builder. Raises HostError when it is missing, not running or too old."""
    with docker_engine.connected(environment) as engine:
        engine.require(*STAGES)
        how = "BuildKit" if buildkit_client(engine, environment) else "classic builder"
        return f"Docker Engine {engine.version} ({how})"


def build(order: Order) -> Artifact:
    """Build the plan's image as `name:tag`. See `Builder.build`."""
    plan = order.plan
    log = order.folder / LOG
    with docker_engine.connected(order.environment) as engine, order.cache.folder() as folder:
        engine.require(*STAGES)
        client = buildkit_client(engine, order.environment)
        context.write(folder, order, dockerfile(plan, DockerForm(cache_mounts=bool(client))))
        with log.open("w", encoding="utf-8") as stream, explained(log):
            arguments = context.arguments(order, load_base(order, engine))
            hidden = context.secrets(arguments)
            transcript = Transcript(stream, order.progress.note, settings.now, prefix="docker", secrets=hidden)
            work = Work(engine, order, folder, log, arguments, transcript)
            image = work.buildkit(client) if client else work.classic()
            kept.replace_image(Images(engine.api), image, plan.name, plan.tag)
            if not client:
                kept.keep_steps(Images(engine.api), transcript.images, work.label, finished=True)
            told = engine.api.inspect_image(image)
    reference = f"{plan.name}:{plan.tag}"
    return Artifact(
        engine="docker", kind="docker", reference=reference, digest=told["Id"], bytes=told["Size"], log=str(log)
    )


@dataclass(frozen=True)
class Work:
    """One build, on either builder."""

    engine: Engine
    order: Order
    folder: Path  #: the context
    log: Path
    arguments: Mapping[str, str]
    transcript: Transcript

    @property
    def what(self) -> str:
        return f"docker build of {self.order.plan.name}:{self.order.plan.tag}"

    @property
    def label(self) -> str:
        return f"{self.order.plan.name}-{self.order.plan.tag}"

    @property
    def network(self) -> str | None:
        return "host" if context.needs_host_network(self.arguments) else None

    def classic(self) -> str:
        """Build through the daemon's own API. Returns the image's id."""
        made = ""
        try:
            with contextlib.closing(self._asked()) as events:
                for event in events:
                    if "error" in event:
                        raise self.transcript.failure(self.what, event["error"].strip(), self.log)
                    if "ID" in (event.get("aux") or {}):
                        made = event["aux"]["ID"]  # of each stage, the image's last
                    self.transcript.feed(_text(event))
            self.transcript.finish()
        except BaseException:
            self.transcript.finish()
            # also after an interrupt: the daemon ends the build once the connection is closed
            _await_end(self.engine.api, self.transcript.containers)
            kept.keep_steps(Images(self.engine.api), self.transcript.images, self.label, finished=False)
            raise
        return made

    def _asked(self) -> Any:  # noqa: ANN401
        """The build's events. Closing them closes the connection."""
        return self.engine.api.build(
            fileobj=context.stream(self.folder),
            custom_context=True,
            dockerfile=context.DOCKERFILE,
            buildargs=dict(self.arguments),
            network_mode=self.network,
            rm=True,
            forcerm=True,
            decode=True,
        )

    def buildkit(self, client: str) -> str:
        """Build through the docker command. Returns the image's id."""
        ids = self.folder.with_name(f"{self.folder.name}.id")
        command = [client, "--host", self.engine.endpoint, "build", "--progress", "plain", "--iidfile", str(ids)]
        command += ["--network", self.network] if self.network else []
        # Values go through the environment: whoever lists processes must not read a proxy's password.
        command += [option for name in self.arguments for option in ("--build-arg", name)]
        try:
            done = process.run(
                [*kept.ends_with_us(), *command, str(self.folder)],
                environment=client_environment(self.order.environment) | dict(self.arguments),
                on_line=self.transcript.line,
            )
            self.transcript.finish()
            if done.returncode:
                message = next((line for line in reversed(done.lines) if line.strip()), "")
                raise self.transcript.failure(self.what, message.removeprefix("ERROR: "), self.log)
            return ids.read_text().strip()
        finally:
            ids.unlink(missing_ok=True)


def load_base(order: Order, engine: Engine) -> str:
    """Bring the lock's base into the daemon, unless it is there. Returns its name; empty without such a base."""
    if order.base is None:
        return ""
    layout = base.layout(order.base, order.cache)
    name = base.reference(layout)
    try:
        there = engine.api.inspect_image(name)["RootFS"].get("Layers")
    except docker.errors.ImageNotFound:
        there = None
    # by layers: an engine that keeps images in containerd has other ids
    if there != list(layout.config.rootfs.diff_ids):
        with order.progress.task(f"loading {name}", sum(layer.size for layer in layout.layers)) as task:
            for event in engine.load(_counted(base.archive(layout), task.advance)):
                if "error" in event:
                    raise BuildError(f"docker cannot load {name}: {event['error']}")
    return name


def _counted(chunks: Iterator[bytes], advance: Any) -> Iterator[bytes]:  # noqa: ANN401
    for chunk in chunks:
        advance(len(chunk))
        yield chunk


def buildkit_client(engine: Engine, environment: Mapping[str, str]) -> str:
    """The first docker command in PATH that builds with BuildKit, where the daemon can too; empty: none."""
    if engine.api_version < BUILDKIT_API:
        return ""
    variables = client_environment(environment)
    for folder in variables["PATH"].split(":"):
        client = Path(folder, "docker")
        if client.is_file() and os.access(client, os.X_OK) and _has_buildkit(str(client), variables):
            return str(client)
    return ""


def _has_buildkit(client: str, variables: Mapping[str, str]) -> bool:
    told = process.run([client, "--version"], environment=variables, timeout=60)
    words = " ".join(told.lines).replace("Docker version ", "")
    if told.returncode or not words[:1].isdigit():
        return False  # podman-docker, or a broken one
    if int(words.partition(".")[0]) < BUILDX_CLIENT:
        return True
    return process.run([client, "buildx", "version"], environment=variables, timeout=60).returncode == 0


def client_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What the docker command gets. No BUILDX_BUILDER: another builder than the daemon's cannot see our base."""
    return settings.select_for_child(environment, CLIENT_VARIABLES) | {
        "DOCKER_BUILDKIT": "1",
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",  # an index instead of an image
        "BUILDX_BUILDER": "default",
    }


@dataclass(frozen=True)
class Images:
    """The daemon's images, as `kept.Store`."""

    api: Any

    def dangling(self) -> list[str]:
        return [image["Id"] for image in self.api.images(filters={"dangling": True})]

    def named(self, repository: str) -> dict[str, str]:
        images = self.api.images(name=repository)
        names = {name: image["Id"] for image in images for name in image["RepoTags"] or ()}
        start = f"{repository}:"
        return {name.removeprefix(start): image for name, image in names.items() if name.startswith(start)}

    def name(self, image: str, repository: str, tag: str) -> None:
        self.api.tag(image, repository, tag)

    def remove(self, reference: str) -> None:
        with contextlib.suppress(*_GONE):
            self.api.remove_image(reference)


@contextlib.contextmanager
def explained(log: Path) -> Iterator[None]:
    """Turn what the SDK raises into BuildError."""
    try:
        yield
    except docker.errors.APIError as error:
        raise BuildError(f"docker refuses: {error.explanation or error}", next_step=f"less {log}") from error
    except docker_engine.FAILURES as error:
        raise docker_engine.broken(error) from error


def _await_end(api: Any, containers: list[str]) -> None:  # noqa: ANN401
    """Wait until the daemon has removed the last step's container; remove it if it does not."""
    for container in containers[-1:]:
        try:
            api.wait(container, timeout=SECONDS_TO_END, condition="removed")
        except _GONE:
            return
        except docker_engine.FAILURES:
            with contextlib.suppress(*docker_engine.FAILURES):
                api.remove_container(container, force=True)


def _text(event: Mapping[str, Any]) -> str:
    """What an event says, as the docker command would print it. Of a download, its beginning and end."""
    if "stream" in event:
        return str(event["stream"])
    if "status" in event and not event.get("progress"):
        name = f"{event['id']}: " if event.get("id") else ""
        return f"{name}{event['status']}\n"
    return ""
