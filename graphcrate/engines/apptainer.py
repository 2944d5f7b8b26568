"""Apptainer, SingularityCE and Singularity: builds a SIF, runs commands in one, and explains what the engine says.

The engine unpacks each stage of a build into a folder in the cache: neither the user's home nor a small /tmp has room
for that. An image that runs gets nothing of the host but what it is given: neither environment nor home, /tmp, devices
or network.
"""

import contextlib
import importlib.resources
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from graphcrate.compat.facts import facts
from graphcrate.engines import backend, context, slurm_step
from graphcrate.engines.backend import BuildOrder, Built, RuntimeVersion
from graphcrate.engines.output import COLOUR, LOG, Output, last_word
from graphcrate.host import arguments, process, settings
from graphcrate.host.disk.atomic import writing
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.hashing import file_digest
from graphcrate.host.disk.trees import remove_tree
from graphcrate.host.engines import apptainer_client
from graphcrate.host.engines.apptainer_client import ApptainerClient
from graphcrate.host.process import Completed
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox.sandbox import Exec
from graphcrate.model.command import AGAIN, command, for_shell
from graphcrate.model.errors import BuildError, DiskFullError, GraphcrateError, HostError
from graphcrate.model.plan import Plan, WheelsStep
from graphcrate.model.report import Artifact, BuildReport
from graphcrate.render import definition

LACKS_CAPABILITY = "Requesting capability set"
FOLDER = "apptainer"  #: of the cache: layers that the engine keeps, and the build that runs
BASE = "base"  #: the base in the context. A name, because the image remembers what its definition said.
#: Room over the compressed wheels: two unpacked virtual environments, the downloads, the SIF.
_ROOM = 6
_ROOM_FOR_BASE = 1 << 30
#: The engine's own steps; commands of the shell, but for those that are over at once and say little.
STEPS = re.compile(
    r"INFO:\s+(?!\s|To see mksquashfs output)(.+)|"
    r"\+ (?!(?:\[|:|cd|export|set|true|umask)(?: |$)|[A-Za-z_][A-Za-z_0-9]*=)(.+)"
)
#: A PID namespace: all that a command starts ends with it.
ISOLATED = ["--cleanenv", "--contain", "--pid"]
#: On several nodes a task has variables of its own (SLURM_PROCID); Slurm hands on those that we chose.
ON_NODES = ["--contain", "--pid"]
RDMA = Path("/dev/infiniband")
NO_NETWORK = ["--net", "--network", "none"]
SECONDS_TO_TRY = 300
#: labels that say which image it is
IDENTITY = ("org.opencontainers.image.title", "org.opencontainers.image.version", "graphcrate.lock.sha256")


def is_root() -> bool:
    """Return whether this process is root."""
    return os.geteuid() == 0


def _found(environment: Mapping[str, str], option: Literal["engine", "runner"] = "runner") -> ApptainerClient:
    """The engine. Raises HostError when there is none; `option` names another one."""
    try:
        return apptainer_client.find(environment)
    except HostError as error:
        next_step = f"{error.next_step}, {_others(option)}"
        raise HostError(error.what, cause=error.cause, next_step=next_step) from error


def _others(option: Literal["engine", "runner"]) -> str:
    return f"or another: --{option} docker or --{option} embedded"


@dataclass(frozen=True)
class ApptainerEngine(backend.Engine):
    """Apptainer or Singularity, whichever is here: builds a SIF, and runs any. `name`: how the user calls it."""

    name: Literal["apptainer", "singularity"]

    def check(self, environment: Mapping[str, str]) -> str:
        """The engine's name and version. Raises HostError when it is missing or too old to build."""
        engine = _found(environment, "engine")
        if not engine.builds_stages:
            raise HostError(
                f"{engine.name} {engine.text} is too old for a definition in stages that copy links as links: that "
                f"needs {'.'.join(map(str, apptainer_client.OLDEST_SINGULARITY))} or later",
                cause=f"The program is {engine.program}.",
                next_step=f"module avail apptainer    (shows what else a cluster has), {_others('engine')}",
            )
        return f"{engine.name} {engine.text}"

    def build(self, order: BuildOrder) -> Built:
        """Build the plan's image as `<folder>/<name>.sif`. See `Engine.build`."""
        engine, plan, log = _found(order.environment, "engine"), order.plan, order.folder / LOG
        _warn(engine, order.progress)
        packages = [package for step in plan.of(WheelsStep) for package in step.packages]
        room = _ROOM_FOR_BASE + _ROOM * sum(package.file.size for package in packages)
        order.cache.require(room, f"building {plan.name}:{plan.tag} with {engine.name}")
        sif = order.folder / f"{plan.name}.sif"
        with _build_folder(order) as folder, log.open("w", encoding="utf-8") as stream:
            text = definition(plan) if order.base is None else definition(plan, bootstrap="oci", base=BASE)
            (folder / "context").mkdir()
            context.write(folder / "context", order, text, f"{plan.name}.def")
            if order.base is not None:
                (folder / "context" / BASE).symlink_to(context.base_layout(order.base, order.cache).path)
            hidden = context.secrets(context.arguments(order, ""))
            output = Output(stream, order.progress.note, STEPS, prefix=engine.name, secrets=hidden)
            with writing(sif, 0o755) as part:
                if not _run(engine, order, folder, output, part):
                    raise explain(engine, output.lines, log) or _failure(engine, plan, output, log, text)
                _check_labels(engine, part, order)
        size, digest = sif.stat().st_size, file_digest(sif)
        artifact = Artifact(engine="apptainer", kind="sif", reference=str(sif), digest=digest, bytes=size, log=str(log))
        return Built(artifact)

    def exists(self, report: BuildReport, folder: Path, environment: Mapping[str, str]) -> bool:
        """Return whether the file has all its bytes. Its hash is not computed: that takes as long as a smoke test."""
        path = Path(report.artifact.reference)
        return path.is_file() and path.stat().st_size == report.artifact.bytes

    def runtime(self, environment: Mapping[str, str]) -> RuntimeVersion:
        """The engine that is found here. Raises HostError when there is none."""
        engine = _found(environment)
        return RuntimeVersion(engine.name, engine.text)

    @contextlib.contextmanager
    def opened(self, artifact: Artifact, *, cache: Cache, progress: Progress) -> Iterator["ApptainerImage"]:
        """The image, once the engine has run something in it. Raises HostError when it cannot."""
        image = Path(artifact.reference).absolute()
        if not image.is_file():
            raise HostError(
                f"{image} does not exist",
                next_step=f"{command('image', '…', engine='apptainer')}    (builds it; it was moved or removed)",
            )
        engine = _found(settings.environment())
        _warn(engine, progress)
        lines: list[str] = []
        over = ["--overlay", f"{artifact.overlay}:ro"] if artifact.overlay else []
        # Root that lacks some capability, as in a container, can only run with none at all.
        for rights in ([], ["--no-privs"], ["--userns"]) if is_root() else ([], ["--userns"]):
            for network_off in (NO_NETWORK, []):
                inside = ApptainerImage(engine, image, cache, [*over, *rights], network_off)
                tried = inside.run(Exec(["/bin/sh", "-c", ":"], timeout=SECONDS_TO_TRY))
                if not tried.returncode:
                    if not network_off:
                        progress.note(
                            f"{engine.name} cannot shut the network off here: the image's programs may see it"
                        )
                    yield inside
                    return
                lines += tried.lines
        raise explain(engine, lines) or _cannot_run(engine, image, last_word(lines))


def _warn(engine: ApptainerClient, progress: Progress) -> None:
    """Say what its release is known for, whose next one is without it."""
    if engine.name == "apptainer" and (objection := facts.limit("apptainer-whole-sif").objection(engine.text)):
        progress.warn(objection)


def _run(engine: ApptainerClient, order: BuildOrder, folder: Path, output: Output, part: Path) -> bool:
    """Write the SIF to `part`. A plain user, and root that lacks capabilities, has them all in a user namespace."""
    # The image keeps none of these. The engine hands proxies on by itself, as the programs in it spell them.
    variables = engine.environment(
        {**order.environment, **context.proxies(order.environment)},
        order.arguments,
        tmpdir=str(folder / "tmp"),
        cachedir=str(order.cache.path(FOLDER, "layers")),
    )
    for way in ([], ["--fakeroot"]) if is_root() else (["--fakeroot"],):
        clear(folder / "tmp")
        (folder / "tmp").mkdir()
        text, cwd = f"{order.plan.name}.def", folder / "context"
        done = engine.build(text, part, way, environment=variables, cwd=cwd, on_line=output.line)
        if not done.returncode or way or not any(LACKS_CAPABILITY in line for line in done.lines):
            break
        order.progress.note(f"{engine.name}: root lacks capabilities here; again with --fakeroot")
        output.lines.clear()  # else a later failure would be blamed on what this one said
    return not done.returncode


def _check_labels(engine: ApptainerClient, image: Path, order: BuildOrder) -> None:
    """Compare the labels that say which image it is. Raises BuildError for others than the plan's."""
    labels = order.plan.config.labels
    expected = {name: labels[name] for name in IDENTITY if name in labels}
    if not expected:
        return
    try:
        actual = engine.labels(image)
    except BuildError as error:
        order.progress.note(f"the labels of the image are not compared: {error.what.splitlines()[0]}")
        return
    others = [f"{name} is {actual.get(name)!r}" for name, value in expected.items() if actual.get(name) != value]
    if others:
        raise BuildError(
            f"{engine.name} built another image than {order.plan.name}:{order.plan.tag}: {', '.join(others)}",
            cause="The labels of the image are not those of the definition that it was built from.",
            next_step=f"less {for_shell(order.folder / LOG)}    has the whole output",
        )


def _cannot_run(engine: ApptainerClient, image: Path, message: str) -> HostError:
    """The error for an image that does not start, with no cause in this machine that is known."""
    try:
        engine.labels(image)
    except BuildError:
        return HostError(
            f"{engine.name} cannot read {image}: it is damaged, or no image of Apptainer's",
            cause=message,
            next_step=f"{command('convert', 'NAME:TAG', to='sif')}    (writes it again from the layout)",
        )
    return HostError(
        f"{engine.name} cannot run {image}",
        cause=message,
        next_step=f"{engine.program} exec {for_shell(image)} true    shows the same",
    )


def _failure(engine: ApptainerClient, plan: Plan, output: Output, log: Path, text: str) -> BuildError:
    what = f"{engine.name} build of {plan.name}:{plan.tag}"
    failed = output.failure(what, log)
    if "conveyor failed to get" not in failed.cause:
        return failed
    images = [image for image in dict.fromkeys(re.findall(r"^From: (.*)$", text, re.MULTILINE)) if image != BASE]
    return BuildError(
        f"{what} failed: the base image {' or '.join(images)} is not available",
        cause=failed.cause,
        next_step="; ".join(f"{engine.name} pull {for_shell(f'docker://{image}')}" for image in images)
        + "    shows why (no such image, no network, a login)",
    )


@contextlib.contextmanager
def _build_folder(order: BuildOrder) -> Iterator[Path]:
    """An empty folder in the cache, for one build at a time: each takes gigabytes, and a killed one leaves them.

    An engine that outlived it loses its folder and ends; so no build uses the names of an earlier one.
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
    """Remove a folder with what a build left in it. Raises HostError where that needs another user's rights."""
    try:
        remove_tree(folder)
    except PermissionError:
        # A plain user's build as root in a user namespace leaves files of the user's subordinate ids.
        with contextlib.suppress(HostError):
            process.run(arguments.line("unshare", "--map-root-user", "--map-auto", "rm", "-rf", strange=[str(folder)]))
        if folder.exists():
            raise HostError(
                f"{folder} cannot be removed",
                cause="A build that was killed left files of this user's subordinate ids in it.",
                next_step=f"rm -rf {for_shell(folder)}    (as root)",
            ) from None


@dataclass(frozen=True)
class ApptainerImage:
    """An image that the engine can run here. Nothing that runs in it can change it."""

    engine: ApptainerClient
    image: Path
    cache: Cache
    rights: Sequence[str]  #: options with which the engine runs it at all for this user, and a delta's
    network_off: Sequence[str]  #: options that keep the network out; none where this machine does not allow that

    def run(self, command: Exec) -> Completed:
        """See `host.sandbox.sandbox.Inside.run`. Of the host it sees binds alone, and the network if asked to."""
        if command.nodes > 1:
            return self._run_on_nodes(command)
        options = [*ISOLATED, *self.rights, *(() if command.network else self.network_off)]
        options += ["--no-eval"] if self.engine.takes_literal_values else []
        options += ["--pwd", command.cwd or "/"]
        variables = self.engine.environment(
            settings.environment(), command.environment, cachedir=str(self.cache.path(FOLDER, "layers"))
        )
        # /tmp and the home are on the cache's disk: in memory they would be limited to 64 MB.
        with self.cache.folder() as scratch:
            options += ["--workdir", str(scratch)]
            return self.engine.execute(self.image, command, options, environment=variables)

    def _run_on_nodes(self, command: Exec) -> Completed:
        """Run it as a step of this job, once on each node, with the node's network and devices for RDMA.

        Raises GraphcrateError for a step that Slurm took away, and where the engine did not start the image on all
        nodes: nothing is known then of what ran in it.
        """
        options = [*ON_NODES, *self.rights, "--pwd", command.cwd or "/"]
        options += ["--no-eval"] if self.engine.takes_literal_values else []
        options += ["--bind", str(RDMA)] if RDMA.is_dir() else []
        inherited = slurm_step.job_environment(settings.environment())
        variables = inherited | self.engine.environment(inherited, command.environment)
        words = slurm_step.step_words(command.nodes)
        done = self.engine.execute(self.image, command, options, environment=variables, prefix=words)
        slurm_step.raise_if_taken_away(done)
        if done.returncode and any(line.startswith("FATAL:") for line in done.lines):
            raise explain(self.engine, done.lines) or _cannot_run(self.engine, self.image, last_word(done.lines))
        return done


def explain(engine: ApptainerClient, lines: Sequence[str], log: Path | None = None) -> GraphcrateError | None:
    """The error for a machine that this engine cannot work on, by what it said; None if it says nothing of the kind."""
    text = COLOUR.sub("", "\n".join(lines))
    message = last_word(lines)
    where = f" ({log} has the whole output)" if log else ""
    known = (importlib.resources.files(__package__) / "apptainer.toml").read_text(encoding="utf-8")
    for trouble in tomllib.loads(known)["trouble"]:
        if match := re.search(trouble["says"], text):
            user = settings.environment().get("USER") or ("root" if is_root() else "$USER")
            words = {"engine": engine.name, "user": user, "found": match[match.lastindex or 0]}
            return HostError(
                trouble["what"].format(**words),
                cause=f"{engine.name} says: {message}{where}",
                next_step=trouble["next_step"].format(**words),
            )
    if re.search(r"no space left on device|disk quota exceeded", text, re.IGNORECASE):
        return DiskFullError(
            f"{engine.name} ran out of room on the disk",
            cause=f"It says: {message}{where}",
            next_step=f"free some room, or put the cache on another disk: GRAPHCRATE_CACHE=/path {AGAIN}",
        )
    return None
