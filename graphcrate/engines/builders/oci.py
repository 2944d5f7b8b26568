"""Builds with Docker or podman, on the lock's own base in the engine's own store.

The image gets its name when it is whole. Steps that were finished stay in the engine's cache for the next try.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from graphcrate.artifacts.formats import docker_archive
from graphcrate.engines.builders import Order, context
from graphcrate.engines.builders import base as foundation
from graphcrate.engines.builders.output import Output, ends_with_us
from graphcrate.engines.render import dockerfile
from graphcrate.host import oci_engine
from graphcrate.host.oci_engine import OciEngine, whole
from graphcrate.model.errors import BuildError
from graphcrate.model.plan import LAYER_MTIME
from graphcrate.model.report import Artifact

LOG = "build.log"
#: A step begins: classic Docker, buildah, BuildKit; and the one that BuildKit names as failed. Its names for what
#: comes before the steps ("internal") are of use in an error alone.
_STEP = re.compile(
    r"(?:\[\d+/\d+\] )?(?:Step|STEP) (\d+/\d+) ?: (.+)|#\d+ \[([^\]]*\d+/\d+)\] (.+)| > \[([^\]]+)\] (.+?):?"
)
_IMAGE = re.compile(r"--> (?:Using cache )?([0-9a-f]{8,64})")
#: A step that gets an image, as each of them writes it.
_BASE = re.compile(r"(?:\S+ FROM|internal load metadata for) (\S+)", re.IGNORECASE)


class Builder:
    """Docker or podman, as `engines.builders.Builder`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def check(self, environment: Mapping[str, str]) -> str:
        """The engine's name and version. Raises HostError when it cannot be used."""
        engine = oci_engine.find(self._name, environment)
        if engine.name == "podman":
            return f"podman {engine.version}"
        return f"Docker Engine {engine.version} ({'BuildKit' if engine.buildkit else 'classic builder'})"

    def build(self, order: Order) -> Artifact:
        """Build the plan's image as `name:tag`. See `Builder.build`."""
        engine = oci_engine.find(self._name, order.environment)
        log = order.folder / LOG
        with order.cache.folder() as folder, log.open("w", encoding="utf-8") as stream:
            for name in ("context", "tmp"):
                (folder / name).mkdir()
            text = dockerfile(order.plan, cache_mounts=engine.buildkit)
            context.write(folder / "context", order, text)
            arguments = context.arguments(order, load_base(order, engine, folder))
            secrets = context.secrets(arguments)
            output = Output(stream, order.progress.note, step_of, prefix=engine.name, secrets=secrets)
            found = Work(engine, order, folder, log, arguments, output).run()
        reference = f"{order.plan.name}:{order.plan.tag}"
        return Artifact(
            engine=engine.name,
            kind="docker" if engine.name == "docker" else "podman",
            reference=reference,
            digest=str(found["Id"]),
            bytes=int(str(found["Size"])),
            log=str(log),
        )


@dataclass(frozen=True)
class Work:
    """One build."""

    engine: OciEngine
    order: Order
    folder: Path  #: holds the context and a folder for the engine's own files
    log: Path
    arguments: Mapping[str, str]
    output: Output

    def run(self) -> dict[str, object]:
        """Build; what the engine knows of the image. The image that had its name before goes, if nobody uses it."""
        plan, engine = self.order.plan, self.engine
        reference = f"{plan.name}:{plan.tag}"
        before = engine.inspect(reference)
        command = ["build", "--tag", reference, *engine.build_options]
        command += ["--network", "host"] if context.needs_host_network(self.arguments) else []
        # Values go through the environment: whoever lists processes must not read a proxy's password.
        command += [option for name in self.arguments for option in ("--build-arg", name)]
        variables = {**self.arguments, "TMPDIR": str(self.folder / "tmp")}
        guarded = msgspec.structs.replace(engine, command=(*ends_with_us(), *engine.command))
        with self._cleaned():
            done = guarded.call(*command, str(self.folder / "context"), on_line=self.output.line, variables=variables)
            if done.returncode:
                raise self._failure(f"{engine.name} build of {reference}")
        found = engine.inspect(reference)
        if found is None:
            raise BuildError(f"{engine.name} built {reference} and does not have it", next_step=f"less {self.log}")
        if before and before["Id"] != found["Id"] and not (engine.inspect(before["Id"]) or {}).get("RepoTags"):
            engine.call("rmi", before["Id"].removeprefix("sha256:"))  # fails where a container uses it
        return found

    def _failure(self, what: str) -> BuildError:
        error = self.output.failure(what, self.log)
        if (step := _BASE.match(self.output.step)) is None:
            return error
        image, name = step[1], self.engine.name
        return BuildError(
            error.what,
            cause=f"The base image {image} is not available: {error.cause}",
            next_step=f"{name} pull {image}    shows why (no such image, no network, a login); {error.next_step}",
        )

    @contextlib.contextmanager
    def _cleaned(self) -> Iterator[None]:
        """Remove the containers in which a build of podman's that broke off was working; Docker does it by itself."""
        if self.engine.name == "docker":
            yield
            return
        # One build of a cache at a time: what is new belongs to it, if it began from an image of this build.
        with self.order.cache.exclusively("podman-build"):
            before = self._containers()
            try:
                yield
            except BaseException:
                base = self.engine.inspect(self.arguments.get("BASE", "")) or {}
                seen = _IMAGE.findall(self.log.read_text(encoding="utf-8"))
                ours = tuple(whole(image) for image in [*seen, base.get("Id", "")] if image)
                for container, image in self._containers().items():
                    if container not in before and whole(image).startswith(ours):
                        self.engine.call("rm", "--force", container)
                raise

    def _containers(self) -> dict[str, str]:
        """Containers that builds work in → id of the image that they started from."""
        listed = self.engine.ask("ps", "--all", "--external", "--no-trunc", "--format", "json")
        return {one["Id"]: one.get("ImageID") or "" for one in listed if "buildah" in (one.get("Command") or ())}


def step_of(line: str) -> str:
    """The step that begins with this line, with its number; empty: none does."""
    found = _STEP.fullmatch(line)
    return " ".join(group for group in found.groups() if group) if found else ""


def load_base(order: Order, engine: OciEngine, folder: Path) -> str:
    """Load the lock's base into the engine, unless it has it. Returns its name, else what the engine is to pull."""
    if order.base is None:
        return qualified(order.plan.base.image.reference) if engine.name == "podman" else ""
    layout = foundation.layout(order.base, order.cache)
    name = foundation.reference(layout)
    found = engine.inspect(name)
    # by layers: an engine that keeps images in containerd has other ids
    if found is None or found["RootFS"].get("Layers") != list(layout.config.rootfs.diff_ids):
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


def qualified(reference: str) -> str:
    """An image's name with its registry. podman looks for others nowhere, or in places that its administrator chose."""
    first, slash, _ = reference.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return reference
    return f"docker.io/{reference}" if slash else f"docker.io/library/{reference}"
