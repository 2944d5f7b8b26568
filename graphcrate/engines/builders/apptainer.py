"""Builds a SIF with Apptainer, SingularityCE or Singularity, from the plan's definition and the lock's own base.

The engine unpacks each stage into a folder in the cache: neither the user's home nor a small /tmp has room for that.
"""

import contextlib
import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from graphcrate.engines import apptainer
from graphcrate.engines.apptainer import ELSEWHERE, LACKS_CAPABILITY, OLDEST_SINGULARITY, Engine
from graphcrate.engines.builders import Order, context
from graphcrate.engines.builders.output import LOG, Output
from graphcrate.engines.render import definition
from graphcrate.host import process
from graphcrate.host.atomic import writing
from graphcrate.host.cache import remove_tree
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.plan import WheelsStep
from graphcrate.model.report import Artifact

FOLDER = "apptainer"  #: of the cache: layers that the engine keeps, and the build that runs
BASE = "base"  #: the base in the context. A name, because the image remembers what its definition said.
#: Room over the compressed wheels: two unpacked virtual environments, the downloads, the SIF.
_ROOM = 6
_ROOM_FOR_BASE = 1 << 30


def check(environment: Mapping[str, str]) -> str:
    """The engine's name and version. Raises HostError when it is missing or too old."""
    engine = _find(environment)
    return f"{engine.name} {engine.text}"


def _find(environment: Mapping[str, str]) -> Engine:
    engine = apptainer.find(environment)
    if not engine.builds_stages:
        raise HostError(
            f"{engine.name} {engine.text} is too old for a definition in stages that copy links as links: that needs "
            f"{'.'.join(map(str, OLDEST_SINGULARITY))} or later",
            cause=f"The program is {engine.program}.",
            next_step=f"module avail apptainer    (shows what else a cluster has), {ELSEWHERE}",
        )
    return engine


def build(order: Order) -> Artifact:
    """Build the plan's image as `<folder>/<name>.sif`. See `Builder.build`."""
    engine, plan, log = _find(order.environment), order.plan, order.folder / LOG
    packages = [package for step in plan.steps if isinstance(step, WheelsStep) for package in step.packages]
    room = _ROOM_FOR_BASE + _ROOM * sum(package.file.size for package in packages)
    order.cache.require(room, f"building {plan.name}:{plan.tag} with {engine.name}")
    with workplace(order) as folder, log.open("w", encoding="utf-8") as stream:
        text = definition(plan) if order.base is None else definition(plan, bootstrap="oci", base=BASE)
        (folder / "context").mkdir()
        context.write(folder / "context", order, text, f"{plan.name}.def")
        if order.base is not None:
            (folder / "context" / BASE).symlink_to(context.base_layout(order.base, order.cache).path)
        # stage → the image that it starts from
        stages = {name: image for image, name in re.findall(r"^From: (.*)\nStage: (.*)$", text, re.MULTILINE)}
        hidden = context.secrets(context.proxies(order.environment) | dict(order.arguments))
        output = Output(stream, order.progress.note, Sections(tuple(stages)), prefix=engine.name, secrets=hidden)
        sif = order.folder / f"{plan.name}.sif"
        with writing(sif, 0o755) as part:
            _run(engine, order, folder, output, tuple(stages.values()), part)
    with sif.open("rb") as built:
        digest = f"sha256:{hashlib.file_digest(built, 'sha256').hexdigest()}"
    size = sif.stat().st_size
    return Artifact(engine="apptainer", kind="sif", reference=str(sif), digest=digest, bytes=size, log=str(log))


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
            self._section = ""
            if section := _SECTION.match(informed[1]):
                self._posts += section[1] == "post"
                number = max(self._posts + (section[1] == "setup"), 1)
                in_stage = section[1] != "test" and number <= len(self._stages)
                self._section = f"%{section[1]}" + (f" of stage {self._stages[number - 1]}" if in_stage else "")
            return self._section or ("" if informed[1].startswith(_UNUSED) else informed[1])
        if line.startswith("+ ") and self._section and not _DULL.match(line[2:]):
            return f"{self._section}: {line[2:]}"
        return ""


def _run(engine: Engine, order: Order, folder: Path, output: Output, bases: Sequence[str], part: Path) -> None:
    """Write the SIF to `part`. Root that lacks capabilities gets them all in a user namespace of its own."""
    log, what = order.folder / LOG, f"{engine.name} build of {order.plan.name}:{order.plan.tag}"
    # The image keeps none of these. The engine hands proxies on by itself, as the programs in it spell them.
    variables = engine.environment(
        {**order.environment, **context.proxies(order.environment)},
        order.arguments,
        tmpdir=str(folder / "tmp"),
        cachedir=str(order.cache.path(FOLDER, "layers")),
    )
    ways = ways_to_root()
    for way in ways:
        clear(folder / "tmp")
        (folder / "tmp").mkdir()
        words = [engine.program, "build", "--force", *way, str(part.absolute()), f"{order.plan.name}.def"]
        done = process.run(words, environment=variables, cwd=folder / "context", on_line=output.line)
        if not done.returncode:
            return
        if way == ways[-1] or not any(LACKS_CAPABILITY in line for line in done.lines):
            break
        order.progress.note(f"{engine.name}: root lacks capabilities here; again with --fakeroot")
    if known := apptainer.explain(engine, output.lines, log):
        raise known
    failed = output.failure(what, log)
    if "conveyor failed to get" in failed.cause:
        images = [image for image in dict.fromkeys(bases) if image != BASE]
        pulls = "; ".join(f"{engine.name} pull docker://{image}" for image in images)
        raise BuildError(
            f"{what} failed: the base image {' or '.join(images)} is not available",
            cause=failed.cause,
            next_step=f"{pulls}    shows why (no such image, no network, a login)",
        )
    raise failed


def ways_to_root() -> list[list[str]]:
    """Options to try in turn. Plain users become root in a user namespace; so does root that lacks capabilities."""
    fakeroot = ["--fakeroot"]
    return [[], fakeroot] if apptainer.is_root() and not apptainer.root_is_limited() else [fakeroot]


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
