"""Builds a SIF with Apptainer, SingularityCE or Singularity, from the plan's definition and the lock's own base.

The engine unpacks each stage into a folder in the cache: neither the user's home nor a small /tmp has room for that.
"""

import contextlib
import hashlib
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcrate.engines import apptainer
from graphcrate.engines.apptainer import ARGUMENTS, LACKS_CAPABILITY, STAGES, Engine
from graphcrate.engines.builders import Order, base, context
from graphcrate.engines.builders.scriptlets import Scriptlets
from graphcrate.engines.render import DefinitionForm, definition
from graphcrate.host import process, settings
from graphcrate.host.cache import remove_tree
from graphcrate.host.process import Completed
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.plan import Plan, WheelsStep
from graphcrate.model.report import Artifact

LOG = "build.log"
FOLDER = "apptainer"  #: of the cache: layers that the engine keeps, and the build that runs
BASE = "base"  #: the base in the context. A name, because the image remembers what its definition said.
SECTIONS = ("build", "final")
#: Room over the compressed wheels: two unpacked virtual environments, the downloads, the SIF.
_ROOM = 6
_ROOM_FOR_BASE = 1 << 30


def check(environment: Mapping[str, str]) -> str:
    """The engine's name and version. Raises HostError when it is missing or too old."""
    engine = apptainer.find(environment)
    engine.require(STAGES)
    form = "" if engine.can(ARGUMENTS) else " (definition in the form of Singularity 3.5)"
    return f"{engine.name} {engine.text}{form}"


def build(order: Order) -> Artifact:
    """Build the plan's image as `<folder>/<name>.sif`. See `Builder.build`."""
    engine = apptainer.find(order.environment)
    engine.require(STAGES)
    plan, log = order.plan, order.folder / LOG
    order.cache.require(room(plan), f"building {plan.name}:{plan.tag} with {engine.name}")
    with workplace(order) as folder, log.open("w", encoding="utf-8") as stream:
        form = definition_form(engine, order)
        text = definition(plan, form)
        place = folder / "context"
        place.mkdir()
        context.write(place, order, text, f"{plan.name}.def")
        if order.base is not None:
            (place / BASE).symlink_to(base.layout(order.base, order.cache).path)
        transcript = Scriptlets(
            stream,
            order.progress.note,
            settings.now,
            prefix=engine.name,
            stages=SECTIONS,
            secrets=context.secrets(context.proxies(order.environment) | dict(order.arguments)),
        )
        sif = order.folder / f"{plan.name}.sif"
        with unfinished(sif) as part:
            Work(engine, order, folder, log, transcript).run(part, form)
    digest, size = _identity(sif)
    return Artifact(
        engine="apptainer", kind="sif", reference=str(sif), digest=f"sha256:{digest}", bytes=size, log=str(log)
    )


def definition_form(engine: Engine, order: Order) -> DefinitionForm:
    """The form that this engine reads. Where it has arguments, the text is the one that is committed."""
    if engine.can(ARGUMENTS):
        return DefinitionForm()
    if order.base is None:
        return DefinitionForm(arguments=False)
    return DefinitionForm(arguments=False, bootstrap="oci", base=BASE)


@dataclass(frozen=True)
class Work:
    """One build."""

    engine: Engine
    order: Order
    folder: Path
    log: Path
    transcript: Scriptlets

    def run(self, part: Path, form: DefinitionForm) -> None:
        """Write the SIF to `part`. Root that lacks capabilities gets them all in a user namespace of its own."""
        what = f"{self.engine.name} build of {self.order.plan.name}:{self.order.plan.tag}"
        ways = ways_to_root(apptainer.is_root(), apptainer.root_is_limited())
        for way in ways:
            done = self._once(part, [*way, *self._arguments(form)])
            if not done.returncode:
                return
            if way == ways[-1] or not any(LACKS_CAPABILITY in line for line in done.lines):
                break
            self.order.progress.note(f"{self.engine.name}: root lacks capabilities here; again with --fakeroot")
        if known := apptainer.explain(self.engine, self.transcript.last, self.log):
            raise known
        failed = self.transcript.failure(what, self.log)
        if self.order.base is None and "conveyor failed to get" in failed.cause:
            image = self.order.plan.base.image.reference
            raise BuildError(
                f"{what} failed: the base image {image} cannot be had",
                cause=failed.cause,
                next_step=f"{self.engine.name} pull docker://{image}    shows why (no such image, no network, a login)",
            )
        raise failed

    def _arguments(self, form: DefinitionForm) -> list[str]:
        if self.order.base is None or not form.arguments:
            return []
        return ["--build-arg", "BOOTSTRAP=oci", "--build-arg", f"BASE={BASE}"]

    def _once(self, part: Path, options: list[str]) -> Completed:
        # The image keeps none of these. The engine hands proxies on by itself, as the programs in it spell them.
        variables = self.engine.environment(
            {**self.order.environment, **context.proxies(self.order.environment)},
            self.order.arguments,
            tmpdir=str(self.folder / "tmp"),
            cachedir=str(self.order.cache.path(FOLDER, "layers")),
        )

        def carried_out(argv: Sequence[str]) -> Completed:
            return process.run(argv, environment=variables, cwd=self.folder / "context", on_line=self.transcript.line)

        clear(self.folder / "tmp")
        (self.folder / "tmp").mkdir()
        client = self.engine.client(carried_out)
        client.build(
            recipe=f"{self.order.plan.name}.def",
            image=str(part.absolute()),
            options=options,
            force=True,
            sudo=False,
            quiet=True,
        )
        self.transcript.finish()
        assert client.completed is not None
        return client.completed


def ways_to_root(root: bool, limited: bool) -> list[list[str]]:
    """Options to try in turn. Plain users become root in a user namespace; so does root that lacks capabilities."""
    if not root or limited:
        return [["--fakeroot"]]
    return [[], ["--fakeroot"]]


def room(plan: Plan) -> int:
    """Bytes that a build takes in the cache at most, as far as the plan knows."""
    packages = [package for step in plan.steps if isinstance(step, WheelsStep) for package in step.packages]
    return _ROOM_FOR_BASE + _ROOM * sum(package.file.size for package in packages)


@contextlib.contextmanager
def workplace(order: Order) -> Iterator[Path]:
    """An empty folder in the cache. One build at a time: each takes many gigabytes, and a killed one leaves them.

    What it left is removed here, for the lock is free as soon as its process is gone. An engine that outlived it loses
    its folder and ends; so no build uses the names of an earlier one.
    """
    parent = order.cache.path(FOLDER, "build")
    with order.cache.exclusively(FOLDER), order.cache.guard():
        clear(parent)
        parent.mkdir()
        folder = Path(tempfile.mkdtemp(dir=parent))
        try:
            yield folder
        finally:
            clear(parent)


def clear(folder: Path) -> None:
    """Remove a folder with what a build left in it. Raises HostError where that needs somebody else's rights."""
    try:
        remove_tree(folder)
    except PermissionError:
        # A plain user's build as root in a user namespace leaves files of the user's subordinate ids.
        with contextlib.suppress(HostError):
            process.run(["unshare", "--map-root-user", "--map-auto", "rm", "-rf", str(folder)])
        if folder.exists():
            raise HostError(
                f"{folder} cannot be removed",
                cause="A build that was killed left files of this user's subordinate ids in it.",
                next_step=f"rm -rf {folder}    (as root)",
            ) from None


@contextlib.contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """A name beside the target for the file while it grows; it takes the target's at the end, or goes."""
    for abandoned in target.parent.glob(f".{target.name}.*.part"):
        abandoned.unlink(missing_ok=True)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        part.chmod(0o755)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[str, int]:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest(), path.stat().st_size
