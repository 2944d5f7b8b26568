"""Runs commands in an image through `srun --container-image`, as NVIDIA's plugin pyxis adds it to Slurm.

For what runs inside a job: each command is a step of it, in one container that pyxis makes of a .sqsh or imports from a
registry.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcrate.compat.facts import pyxis_log
from graphcrate.engines import slurm, slurm_step
from graphcrate.engines.backend import RuntimeVersion
from graphcrate.host import arguments, process, settings
from graphcrate.host.arguments import Argv
from graphcrate.host.disk.cache import Cache
from graphcrate.host.process import Completed
from graphcrate.host.progress import Progress
from graphcrate.host.sandbox.sandbox import Exec
from graphcrate.model.command import command
from graphcrate.model.errors import BuildError, HostError
from graphcrate.model.report import Artifact
from graphcrate.oci import reference
from graphcrate.render import jobs, slurm_batch

#: The host's home would bring ~/.local, and a later suite is to find the image as it was; the step has the job's
#: resources for itself.
ISOLATED = ("--no-container-mount-home", "--container-readonly")
CARDS = Path("/sys/class/infiniband")
#: seconds between tries to remove a container: what fills it may take a moment to end
PAUSES = (1, 2, 4, 8)
#: drivers of cards whose devices enroot's hook gives to those who ask; on nodes without it ends the start
MELLANOX = ("mlx4_core", "mlx5_core")
DRIVER = Path("/dev/nvidiactl")  #: is there where the node's kernel has NVIDIA's driver


def runtime(environment: Mapping[str, str]) -> RuntimeVersion:
    """pyxis does not tell its version; Slurm does. Raises HostError where srun starts no containers."""
    client = slurm.find(environment)
    if not client.has_pyxis():
        raise HostError(
            "srun starts no containers here",
            cause="`srun --help` has no --container-image: NVIDIA's plugin pyxis is not installed on this machine.",
            next_step=f"give a SIF, which apptainer runs: {command('convert', 'NAME:TAG', to='sif')}",
        )
    return RuntimeVersion("pyxis", f"with Slurm {client.version}")


@contextlib.contextmanager
def opened(artifact: Artifact, *, cache: Cache, progress: Progress) -> Iterator["Container"]:
    """The image as one container of the job that this process is part of. Raises HostError where there is none."""
    environment = settings.environment()
    runtime(environment)
    if "SLURM_JOB_ID" not in environment:
        raise HostError(
            "pyxis runs images in jobs only",
            cause="This is not a job of Slurm.",
            next_step=f"{command('test', '…', runner='slurm', partition='NAME')}    submits one",
        )
    name = slurm_batch.container(environment["SLURM_JOB_ID"])
    variables, ended = variables_of(environment), ""
    try:
        # a step of its own: an import that breaks off leaves half an image under the name, where no suite may run
        words = step(name, Exec(["true"]), container(artifact))
        made = process.run(words, environment=variables, on_line=lambda line: progress.note(f"  | {line}"))
        if made.returncode:
            raise _not_started(artifact.reference, made.lines)
        yield Container(name, variables, container(artifact))
    except KeyboardInterrupt:  # scancel, the time limit
        ended = f"pyxis_{name} is removed"
        raise
    finally:
        if outcome := _remove(name, variables) or ended:
            progress.note(outcome)


def _not_started(image: str, lines: Sequence[str]) -> HostError:
    """Word that pyxis starts an image on no node, or not on all; the doctor's table is asked for the rest."""
    from doctor import explain  # compiles its table, which no other run needs

    why = pyxis_log.why_not_started(lines) or next(reversed([line for line in lines if line.strip()]), "no word of why")
    known = next(iter(explain.explain("\n".join(lines))), None)
    ask = f"{command('doctor')}    on the node, and show it and this line to who runs the cluster"
    return HostError(
        f"pyxis does not start {image}: {why}",
        cause=known.cause if known else "",
        next_step=known.fix if known else ask,
    )


def variables_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return srun's variables.

    On a node without a driver enroot is told not to look for GPUs: it would fail to start.
    """
    variables = slurm_step.job_environment(environment)
    return variables if DRIVER.exists() else {"NVIDIA_VISIBLE_DEVICES": "void", **variables}


def _remove(name: str, variables: Mapping[str, str]) -> str:
    """Remove the container of this name, whether pyxis keeps it for the job or for all; say what is left of it.

    A step that was ended may write to it for a moment yet: it counts as removed when it is no longer listed.
    """
    # pyxis does not let a job choose enroot's folder
    chosen = {variable: value for variable, value in variables.items() if variable != "ENROOT_DATA_PATH"}
    why = "it is still listed"
    for pause in (*PAUSES, 0):
        try:
            if ours := _listed(name, chosen):
                process.output(arguments.line("enroot", "remove", "--force", strange=ours), environment=chosen)
            if not ours or not _listed(name, chosen):
                return ""
        except (BuildError, HostError) as error:
            why = error.what
        settings.wait(pause)
    return f"pyxis_{name} stays on this node: {why} (there: enroot remove --force pyxis_{name})"


def _listed(name: str, variables: Mapping[str, str]) -> list[str]:
    """List what enroot has under a name of pyxis. Raises BuildError, HostError."""
    listed = process.output(arguments.line("enroot", "list"), environment=variables).split()
    return [each for each in listed if each.startswith("pyxis_") and each.endswith(f"_{name}")]


def container(artifact: Artifact) -> str:
    """The value of --container-image. A file must begin with `/` or `.`; a registry ends with `#`, not with `/`."""
    if artifact.kind == "sqsh":
        return str(Path(artifact.reference).absolute())
    return reference.parse(artifact.reference).enroot


@dataclass(frozen=True)
class Container:
    """An image, as a container that pyxis has under this name. Nothing that runs in it changes it."""

    name: str
    variables: Mapping[str, str]
    image: str = ""  #: that it is made of; on several nodes each makes one that ends with its step

    def run(self, command: Exec) -> Completed:
        """See `host.sandbox.sandbox.Inside.run`.

        The step has the job's GPUs and the node's network: enroot knows no other.
        Raises HostError for a step that Slurm or a node took away, and for a container that did not start: nothing is
        known of what ran in it.
        """
        several = command.nodes > 1
        words = step(self.name, command, self.image if several else "")
        variables = {**_for_rdma(), **self.variables} if several else self.variables
        done = process.run(words, environment=variables, on_line=command.on_line, timeout=command.timeout)
        slurm_step.raise_if_taken_away(done)
        if done.returncode and pyxis_log.is_failed_start(done.lines):
            raise _not_started(self.image or self.name, done.lines)
        return done


def _for_rdma() -> dict[str, str]:
    """Return what asks enroot's hook for this node's cards for InfiniBand and RoCE, where it has any."""
    drivers = (os.path.realpath(card / "device" / "driver") for card in CARDS.glob("*"))
    return {"MELLANOX_VISIBLE_DEVICES": "all"} if {Path(each).name for each in drivers} & {*MELLANOX} else {}


def step(name: str, command: Exec, image: str = "") -> Argv:
    """The words of a step in the container of this name, which is made of `image` where that is given.

    On several nodes the containers have no name: pyxis removes them with the step.
    """
    options = [*ISOLATED, *([f"--container-name={name}"] if command.nodes == 1 else [])]
    options += [f"--container-image={image}"] if image else []
    options += [f"--container-workdir={command.cwd or '/'}"]
    for bind in command.binds:
        if strange := jobs.mountable(str(bind.source.resolve())):
            raise HostError(f"pyxis cannot mount {bind.source}: {strange}", next_step="TMPDIR=/tmp    and then again")
    if command.binds:
        mounts = (f"{bind.source.resolve()}:{bind.target}:{'ro' if bind.read_only else 'rw'}" for bind in command.binds)
        options += [f"--container-mounts={','.join(mounts)}"]
    # the image's variables beat the step's, unless each is named to a newer pyxis
    given = ["env", *(f"{name}={value}" for name, value in command.environment.items())] if command.environment else []
    before = (*slurm_step.step_words(command.nodes), *options, *given)
    return arguments.line(*before, strange=command.argv[:1], inside=command.argv[1:])
