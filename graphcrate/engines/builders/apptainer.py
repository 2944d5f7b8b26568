"""Builds a SIF with Apptainer, SingularityCE or Singularity, from the plan's definition and the lock's own base.

The engine unpacks each stage into a folder in the cache: neither the user's home nor a small /tmp has room for that.
"""

import contextlib
import hashlib
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcrate.engines import apptainer
from graphcrate.engines.apptainer import LACKS_CAPABILITY, STAGES, Engine
from graphcrate.engines.builders import Order, base, context
from graphcrate.engines.builders.output import Output
from graphcrate.engines.render import definition
from graphcrate.host import process
from graphcrate.host.cache import remove_tree
from graphcrate.host.process import Completed
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.plan import Plan, WheelsStep
from graphcrate.model.report import Artifact

LOG = "build.log"
FOLDER = "apptainer"  #: of the cache: layers that the engine keeps, and the build that runs
BASE = "base"  #: the base in the context. A name, because the image remembers what its definition said.
#: Room over the compressed wheels: two unpacked virtual environments, the downloads, the SIF.
_ROOM = 6
_ROOM_FOR_BASE = 1 << 30


def check(environment: Mapping[str, str]) -> str:
    """The engine's name and version. Raises HostError when it is missing or too old."""
    engine = apptainer.find(environment)
    engine.require(STAGES)
    return f"{engine.name} {engine.text}"


def build(order: Order) -> Artifact:
    """Build the plan's image as `<folder>/<name>.sif`. See `Builder.build`."""
    engine = apptainer.find(order.environment)
    engine.require(STAGES)
    plan, log = order.plan, order.folder / LOG
    order.cache.require(room(plan), f"building {plan.name}:{plan.tag} with {engine.name}")
    with workplace(order) as folder, log.open("w", encoding="utf-8") as stream:
        text = definition(plan) if order.base is None else definition(plan, bootstrap="oci", base=BASE)
        place = folder / "context"
        place.mkdir()
        context.write(place, order, text, f"{plan.name}.def")
        if order.base is not None:
            (place / BASE).symlink_to(base.layout(order.base, order.cache).path)
        stages = apptainer.stages_of(text)
        hidden = context.secrets(context.proxies(order.environment) | dict(order.arguments))
        output = Output(stream, order.progress.note, Sections(tuple(stages)), prefix=engine.name, secrets=hidden)
        sif = order.folder / f"{plan.name}.sif"
        with unfinished(sif) as part:
            Work(engine, order, folder, log, output, tuple(stages.values())).run(part)
    digest, size = _identity(sif)
    return Artifact(
        engine="apptainer", kind="sif", reference=str(sif), digest=f"sha256:{digest}", bytes=size, log=str(log)
    )


_INFORMED = re.compile(r"INFO:\s+(.*)")
_SECTION = re.compile(r"Running (setup|post|test) ?script(?:let)?")
#: commands that are over at once and say little
_DULL = re.compile(r"(?:\[|:|cd|export|set|true|umask)(?: |$)|[A-Za-z_][A-Za-z_0-9]*=")
_UNUSED = "To see mksquashfs output"


class Sections:
    """Finds the steps in the engine's output, which names sections without their stage, and each shell command."""

    def __init__(self, stages: Sequence[str]) -> None:
        """`stages` as the definition names them."""
        self._stages = stages
        self._posts = 0  # how many stages have come to their %post
        self._section = ""

    def __call__(self, line: str) -> str:
        """The step that begins with this line; empty: none does."""
        if informed := _INFORMED.match(line):
            section = _SECTION.match(informed[1])
            self._section = self._named(section[1]) if section else ""
            return self._section or ("" if informed[1].startswith(_UNUSED) else informed[1])
        if line.startswith("+ ") and self._section and not _DULL.match(line[2:]):
            return f"{self._section}: {line[2:]}"
        return ""

    def _named(self, section: str) -> str:
        self._posts += section == "post"
        number = max(self._posts + (section == "setup"), 1)
        if section == "test" or number > len(self._stages):
            return f"%{section}"
        return f"%{section} of stage {self._stages[number - 1]}"


@dataclass(frozen=True)
class Work:
    """One build."""

    engine: Engine
    order: Order
    folder: Path
    log: Path
    output: Output
    bases: Sequence[str]  #: images that the definition starts from

    def run(self, part: Path) -> None:
        """Write the SIF to `part`. Root that lacks capabilities gets them all in a user namespace of its own."""
        what = f"{self.engine.name} build of {self.order.plan.name}:{self.order.plan.tag}"
        ways = ways_to_root(apptainer.is_root(), apptainer.root_is_limited())
        for way in ways:
            done = self._once(part, way)
            if not done.returncode:
                return
            if way == ways[-1] or not any(LACKS_CAPABILITY in line for line in done.lines):
                break
            self.order.progress.note(f"{self.engine.name}: root lacks capabilities here; again with --fakeroot")
        if known := apptainer.explain(self.engine, self.output.lines, self.log):
            raise known
        failed = self.output.failure(what, self.log)
        if "conveyor failed to get" in failed.cause:
            images = [image for image in dict.fromkeys(self.bases) if image != BASE]
            pulls = "; ".join(f"{self.engine.name} pull docker://{image}" for image in images)
            raise BuildError(
                f"{what} failed: the base image {' or '.join(images)} is not available",
                cause=failed.cause,
                next_step=f"{pulls}    shows why (no such image, no network, a login)",
            )
        raise failed

    def _once(self, part: Path, options: list[str]) -> Completed:
        # The image keeps none of these. The engine hands proxies on by itself, as the programs in it spell them.
        variables = self.engine.environment(
            {**self.order.environment, **context.proxies(self.order.environment)},
            self.order.arguments,
            tmpdir=str(self.folder / "tmp"),
            cachedir=str(self.order.cache.path(FOLDER, "layers")),
        )

        clear(self.folder / "tmp")
        (self.folder / "tmp").mkdir()
        return process.run(
            [self.engine.program, "build", "--force", *options, str(part.absolute()), f"{self.order.plan.name}.def"],
            environment=variables,
            cwd=self.folder / "context",
            on_line=self.output.line,
        )


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
