"""Builds with Docker or podman, on the lock's own base in the engine's own store.

The image gets its name when it is whole. Steps that were finished stay in the engine's cache for the next try.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from graphcrate.artifacts.formats import docker_archive
from graphcrate.engines.builders import Order, context
from graphcrate.engines.builders.output import LOG, Output, ends_with_us
from graphcrate.engines.render import dockerfile
from graphcrate.host import oci_engine
from graphcrate.host.oci_engine import OciEngine, whole
from graphcrate.model.errors import BuildError
from graphcrate.model.plan import LAYER_MTIME
from graphcrate.model.report import Artifact

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
        reference, log = f"{order.plan.name}:{order.plan.tag}", order.folder / LOG
        with order.cache.folder() as folder, log.open("w", encoding="utf-8") as stream:
            for name in ("context", "tmp"):
                (folder / name).mkdir()
            context.write(folder / "context", order, dockerfile(order.plan, cache_mounts=engine.buildkit), "Dockerfile")
            arguments = context.arguments(order, load_base(order, engine, folder))
            secrets = context.secrets(arguments)
            output = Output(stream, order.progress.note, step_of, prefix=engine.name, secrets=secrets)
            built = _run(engine, order, folder, arguments, output)
        return Artifact(
            engine=engine.name,
            kind="docker" if engine.name == "docker" else "podman",
            reference=reference,
            digest=built["Id"],
            bytes=int(built["Size"]),
            log=str(log),
        )


def _run(engine: OciEngine, order: Order, folder: Path, arguments: Mapping[str, str], output: Output) -> dict[str, Any]:
    """Build; what the engine knows of the image. The image that had its name before goes, if nobody uses it."""
    reference, log = f"{order.plan.name}:{order.plan.tag}", order.folder / LOG
    before = engine.inspect(reference)
    command = ["build", "--tag", reference, *engine.build_options]
    command += ["--network", "host"] if context.needs_host_network(arguments) else []
    # Values go through the environment: whoever lists processes must not read a proxy's password.
    command += [option for name in arguments for option in ("--build-arg", name)]
    variables = {**arguments, "TMPDIR": str(folder / "tmp")}
    guarded = msgspec.structs.replace(engine, command=(*ends_with_us(), *engine.command))
    with _cleaned(engine, order, arguments):
        done = guarded.call(*command, str(folder / "context"), on_line=output.line, variables=variables)
        if done.returncode:
            raise _failure(engine, output, f"{engine.name} build of {reference}", log)
    built = engine.inspect(reference)
    if built is None:
        raise BuildError(f"{engine.name} built {reference} and does not have it", next_step=f"less {log}")
    if before and before["Id"] != built["Id"] and not (engine.inspect(before["Id"]) or {}).get("RepoTags"):
        engine.call("rmi", before["Id"].removeprefix("sha256:"))  # fails where a container uses it
    return built


def _failure(engine: OciEngine, output: Output, what: str, log: Path) -> BuildError:
    error = output.failure(what, log)
    if (step := _BASE.match(output.step)) is None:
        return error
    return BuildError(
        error.what,
        cause=f"The base image {step[1]} is not available: {error.cause}",
        next_step=f"{engine.name} pull {step[1]}    shows why (no such image, no network, a login); {error.next_step}",
    )


@contextlib.contextmanager
def _cleaned(engine: OciEngine, order: Order, arguments: Mapping[str, str]) -> Iterator[None]:
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
                    engine.call("rm", "--force", container)
            raise


def _containers(engine: OciEngine) -> dict[str, str]:
    """Containers that builds work in → id of the image that they started from."""
    listed = engine.ask("ps", "--all", "--external", "--no-trunc", "--format", "json")
    return {one["Id"]: one.get("ImageID") or "" for one in listed if "buildah" in (one.get("Command") or ())}


def step_of(line: str) -> str:
    """The step that begins with this line, with its number; empty: none does."""
    found = _STEP.fullmatch(line)
    return " ".join(group for group in found.groups() if group) if found else ""


def load_base(order: Order, engine: OciEngine, folder: Path) -> str:
    """Load the lock's base into the engine, unless it has it. Returns its name, else what the engine is to pull."""
    if order.base is None:
        return qualified(order.plan.base.image.reference) if engine.name == "podman" else ""
    layout = context.base_layout(order.base, order.cache)
    name = context.base_name(layout)
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
