"""A job: its values, those that a runtime refuses, and its command by torchrun. Pure."""

import difflib
import re
from collections.abc import Iterator, Mapping

import msgspec

from graphcrate.model.command import ETC, command
from graphcrate.model.errors import UsageError
from graphcrate.model.runtime import JOBS, RUNTIMES, runtime_name
from graphcrate.model.words import visible
from graphcrate.render import slurm_batch

#: names of jobs and partitions, which are written without quotes
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*", re.ASCII)
#: of modules: pyg, or pyg/2.3.1
_MODULE = re.compile(rf"{PLAIN.pattern}(?:/{PLAIN.pattern})?", re.ASCII)
_ACCOUNT = re.compile(r"[A-Za-z0-9._@:/+-]+", re.ASCII)
_MODES: Mapping[str, tuple[str, ...]] = {"": ("",), ":": ("ro", "rw")}  #: of a mount, after a second colon or none
#: what only a shell understands: its operators, and a variable that is set before the program
SHELL_ALONE = re.compile(r"[;&|<>$`()]|^\s*[A-Za-z_]\w*=", re.ASCII)


class Mount(msgspec.Struct, frozen=True):
    """Data: a folder of the host (PAI: the id of a dataset; Kubernetes: a claim) and its path in the image."""

    source: str
    target: str
    read_only: bool = False

    @property
    def typed(self) -> str:
        """Return it as Docker, Apptainer, pyxis and `read_mount` take it."""
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


class JobNetwork(msgspec.Struct, frozen=True, kw_only=True):
    """A job's settings for the network between nodes. `plugin`: folder of the host with NCCL's, bound in as it is."""

    title: str  #: "InfiniBand"
    variables: Mapping[str, str] = {}
    hook: Mapping[str, str] = {}  #: those that enroot's hook takes on nodes that have such a card, and no others
    devices: bool = False  #: it has devices below /dev/infiniband, and pins memory
    plugin: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job. `image` as its runtime takes it: a file's path, or a reference; `command` is shell."""

    runtime: str  #: one of `model.runtime.JOBS`
    name: str
    image: str
    command: str
    suites: tuple[str, ...] = ()  #: of the image, where the job runs those
    overlay: str = ""  #: path of a delta over the image
    partition: str = ""
    nodes: int = 1
    gpus: int = 1  #: on each node
    per_gpu: bool = False  #: one process for each GPU; else one for each node
    cpus: int = 0  #: for each GPU; 0: as many as Slurm gives
    time: str = ""
    account: str = ""
    mounts: tuple[Mount, ...] = ()
    instance: str = ""  #: PAI: the type of the nodes
    driver: str = ""  #: PAI: version of the NVIDIA driver
    workspace: str = ""  #: PAI: its id
    network: JobNetwork | None = None  #: between the nodes

    @property
    def tasks(self) -> int:
        """Processes on each node."""
        return max(self.gpus, 1) if self.per_gpu else 1


def read_runtime(name: str) -> str:
    """Read the name of a kind of job, or that of a runtime which has one kind alone. Raises UsageError."""
    if name in JOBS:
        return name
    known = runtime_name(name)
    row = RUNTIMES[known] if known else None
    kinds = [kind for kind in row.jobs if kind in (known, *row.also_called)] if row else []
    if len(kinds) != 1:
        raise UsageError(
            f"there is no runtime {name!r}; there are {', '.join(JOBS)}", next_step=command(ETC, runtime=_nearest(name))
        )
    return kinds[0]


def _nearest(name: str) -> str:
    return next(iter(difflib.get_close_matches(name, JOBS, n=1, cutoff=0.3)), next(iter(JOBS)))


def read_mount(text: str) -> Mount:
    """Read SOURCE:TARGET, SOURCE:TARGET:ro or the default, SOURCE:TARGET:rw. Raises UsageError."""
    source, _, rest = text.partition(":")
    target, colon, mode = rest.partition(":")
    if not source or not target.startswith("/") or any(letter in text for letter in ",\n") or mode not in _MODES[colon]:
        raise UsageError(f"invalid mount {text!r}: not SOURCE:TARGET[:ro]", next_step="--mount /data/ogb:/data:ro")
    return Mount(source, target, read_only=mode == "ro")


def check_job(job: Job) -> None:
    """Raise UsageError for options that the runtime does not have, and for values that would break the text."""
    for name, value, form in (
        ("--name", job.name, _MODULE if job.runtime == "module" else PLAIN),
        ("--partition", job.partition, PLAIN),
        ("--account", job.account, _ACCOUNT),
    ):
        if value and not form.fullmatch(value):
            raise UsageError(f"invalid {name} {value!r}", next_step=f"letters, digits and . _ - alone: {name} …")
    slurm_batch.check_time(job.time)
    if job.nodes < 1 or job.gpus < 0 or job.cpus < 0:
        raise UsageError(
            "a job has at least one node, and no negative number of GPUs or cores", next_step="--nodes 1 --gpus 1"
        )
    strange = [value for value in _texts(job) if visible(value) != value]
    if strange:
        raise UsageError(
            f"a job has a character that is not seen: {visible(strange[0])[:200]}",
            cause="A script that shows another command than it runs may be a stranger's trick.",
            next_step="type it again, with the characters that are seen alone",
        )
    if "\n" in job.command or not job.command.strip():
        raise UsageError("invalid command: not one line", next_step="put the steps into a script, and run that")
    for option, given in (
        ("--partition", job.partition),
        ("--time", job.time),
        ("--account", job.account),
        ("--cpus", job.cpus),
        ("--instance", job.instance),
        ("--driver", job.driver),
        ("--workspace", job.workspace),
        ("--nodes", job.nodes > 1),
        ("--mount", job.mounts and not JOBS[job.runtime].mounts),
    ):
        if given and option not in JOBS[job.runtime].options:
            raise UsageError(f"a job of {job.runtime} has no {option}", next_step=f"leave {option} out")
    held = next((mount for mount in job.mounts if mount.read_only), None)
    if held and not JOBS[job.runtime].read_only:
        raise UsageError(
            f"{job.runtime} mounts every folder for writing too",
            next_step=f"--mount {held.typed.removesuffix(':ro')}    and rely on the folder's own permissions",
        )


def _texts(job: Job) -> Iterator[str]:
    """All texts that the user chose."""
    yield from (value for value in msgspec.structs.asdict(job).values() if isinstance(value, str))
    yield from (text for mount in job.mounts for text in (mount.source, mount.target))


def is_path(image: str) -> bool:
    """Return whether an image is a file, and no reference."""
    return image.startswith(("/", "."))


def by_torchrun(job: Job, where: str) -> str:
    """Start the command with torchrun for a process per GPU: no batch system starts them here."""
    if not job.per_gpu:
        return job.command
    program = job.command.removeprefix("python ")
    if program == job.command:
        raise UsageError(
            f"{job.runtime} cannot start {job.command!r} once for each GPU",
            cause="torchrun starts Python programs alone: the command has to begin with `python `.",
            next_step="write the command with its own launcher, and leave out --per-gpu",
        )
    return f"torchrun {where} --nproc-per-node={max(job.gpus, 1)} {program}"
