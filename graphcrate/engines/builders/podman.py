"""Builds with podman, on the lock's own base in podman's own store.

Steps run in a chroot (buildah's lightest isolation): it needs no OCI runtime, which on some machines cannot start
(crun on hybrid cgroups), and its processes end with podman when the build is interrupted.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from graphcrate.engines import podman
from graphcrate.engines.builders import Order, context, kept
from graphcrate.engines.builders import base as foundation
from graphcrate.engines.builders.transcript import Transcript
from graphcrate.engines.podman import Store, whole
from graphcrate.engines.render import dockerfile
from graphcrate.host import process, settings
from graphcrate.model.errors import BuildError
from graphcrate.model.report import Artifact

LOG = "build.log"


def check(environment: Mapping[str, str]) -> str:
    """podman's version. Raises HostError when it is missing, too old or does not work for this user."""
    return f"podman {podman.check(environment)}"


def build(order: Order) -> Artifact:
    """Build the plan's image as `name:tag`. See `Builder.build`."""
    podman.check(order.environment)
    plan, log = order.plan, order.folder / LOG
    store = Store(environment=podman.variables(order.environment))
    # One build of a cache at a time: what an interrupted one left is new, and began from this build's images.
    with order.cache.exclusively("podman-build"), order.cache.folder() as folder:
        (folder / "context").mkdir()
        (folder / "tmp").mkdir()
        context.write(folder / "context", order, dockerfile(plan))
        with log.open("w", encoding="utf-8") as stream:
            arguments = context.arguments(order, load_base(order, store, folder))
            hidden = context.secrets(arguments)
            transcript = Transcript(stream, order.progress.note, settings.now, prefix="podman", secrets=hidden)
            image = Work(store, order, folder, log, arguments, transcript).run()
            kept.replace_image(store, image, plan.name, plan.tag)
            kept.keep_steps(store, transcript.images, f"{plan.name}-{plan.tag}", finished=True)
        told = store.inspect(image)
    reference = f"{plan.name}:{plan.tag}"
    size = told["Size"] if told else 0
    return Artifact(engine="podman", kind="podman", reference=reference, digest=image, bytes=size, log=str(log))


@dataclass(frozen=True)
class Work:
    """One build."""

    store: Store
    order: Order
    folder: Path  #: holds the context and a place for podman's own files
    log: Path
    arguments: Mapping[str, str]
    transcript: Transcript

    def run(self) -> str:
        """The image's id."""
        plan, ids = self.order.plan, self.folder / "id"
        command = ["podman", "build", "--layers", "--iidfile", str(ids)]
        if not self.store.environment.get("BUILDAH_ISOLATION"):
            command += ["--isolation", "chroot"]
        # Values go through the environment: whoever lists processes must not read a proxy's password.
        command += [option for name in self.arguments for option in ("--build-arg", name)]
        variables = {**self.store.environment, **self.arguments, "TMPDIR": str(self.folder / "tmp")}
        with self._cleaned():
            done = process.run(
                [*kept.ends_with_us(), *command, str(self.folder / "context")],
                environment=variables,
                on_line=self.transcript.line,
            )
            self.transcript.finish()
            if done.returncode:
                message = next((line for line in reversed(done.lines) if line.startswith("Error: ")), "")
                what = f"podman build of {plan.name}:{plan.tag}"
                raise self.transcript.failure(what, message.removeprefix("Error: "), self.log)
        return whole(ids.read_text().strip())

    @contextlib.contextmanager
    def _cleaned(self) -> Iterator[None]:
        """Remove what a build that broke off was working in; whole steps are kept for the next."""
        before = self.store.build_containers()
        try:
            yield
        except BaseException:
            ours = self._began_from()
            for container, image in self.store.build_containers().items():
                if container not in before and whole(image).startswith(ours):
                    self.store.call("rm", "--force", container)
            label = f"{self.order.plan.name}-{self.order.plan.tag}"
            kept.keep_steps(self.store, self.transcript.images, label, finished=False)
            raise

    def _began_from(self) -> tuple[str, ...]:
        """Beginnings of the ids of all images that this build's steps started from: somebody else may build as well."""
        base = self.store.inspect(self.arguments.get("BASE", "")) or {}
        return tuple(whole(image) for image in [*self.transcript.images, base.get("Id", "")] if image)


def load_base(order: Order, store: Store, folder: Path) -> str:
    """Bring the lock's base into podman's store, unless it is there. Returns its name, else what is to be pulled."""
    if order.base is None:
        return qualified(order.plan.base.image.reference)
    layout = foundation.layout(order.base, order.cache)
    name = foundation.reference(layout)
    told = store.inspect(name)
    if told is None or told["RootFS"].get("Layers") != list(layout.config.rootfs.diff_ids):
        archive = folder / "base.tar"
        with order.progress.task(f"loading {name}", sum(layer.size for layer in layout.layers)) as task:
            with archive.open("wb") as stream:
                for chunk in foundation.archive(layout):
                    stream.write(chunk)
                    task.advance(len(chunk))
            done = process.run(["podman", "load", "--input", str(archive)], environment=store.environment)
        archive.unlink()
        if done.returncode:
            raise BuildError(f"podman cannot load {name}: {' '.join(done.lines[-3:])}", next_step="podman info")
    return f"localhost/{name}"


def qualified(reference: str) -> str:
    """An image's name with its registry. podman looks for others nowhere, or in places that its administrator chose."""
    first, slash, _ = reference.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return reference
    return f"docker.io/{reference}" if slash else f"docker.io/library/{reference}"
