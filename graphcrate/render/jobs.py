"""Write jobs as text: a script for sbatch or a shell, a request for PAI. Refuse by name what a runtime cannot do."""

import difflib
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping

import msgspec

from graphcrate.compat.facts import addresses, facts
from graphcrate.compat.facts.fabrics import fabrics
from graphcrate.compat.plan.image_config import EXAMPLES
from graphcrate.compat.variants.targets import NodeFabric, Partition
from graphcrate.model.command import ETC, command
from graphcrate.model.errors import UsageError
from graphcrate.model.runtime import JOBS, RUNTIMES, runtime_name
from graphcrate.model.suite import SUITES
from graphcrate.model.words import visible
from graphcrate.oci import reference
from graphcrate.render import slurm_batch
from graphcrate.render.layout import render_template
from ociregistry.reference import DOCKER_HUB, Reference


class Mount(msgspec.Struct, frozen=True):
    """Data: a folder of the host (PAI: the id of a dataset) and its path in the image."""

    source: str
    target: str


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
    network: "JobNetwork | None" = None  #: between the nodes

    @property
    def tasks(self) -> int:
        """Processes on each node."""
        return max(self.gpus, 1) if self.per_gpu else 1


#: what no path that pyxis mounts may have, with its name
_NO_MOUNT = {" \t": "a space", ",": "a comma", ":": "a colon"}
BY_A_LINK = 'ln -s "THE FOLDER" ~/data    gives it a name without, which is mounted alike'
#: names of jobs and partitions, which are written without quotes
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*", re.ASCII)
#: of modules: pyg, or pyg/2.3.1
_MODULE = re.compile(rf"{PLAIN.pattern}(?:/{PLAIN.pattern})?", re.ASCII)
_MOST_OF_A_NAME = 50  #: of a job of Kubernetes, whose pods add to it
_ACCOUNT = re.compile(r"[A-Za-z0-9._@:/+-]+", re.ASCII)
#: what only a shell understands: its operators, and a variable that is set before the program
_SHELL = re.compile(r"[;&|<>$`()]|^\s*[A-Za-z_]\w*=", re.ASCII)


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
    """Read SOURCE:TARGET. Raises UsageError."""
    source, _, target = text.partition(":")
    if not source or not target.startswith("/") or any(letter in text for letter in ",\n") or ":" in target:
        raise UsageError(f"invalid mount {text!r}: not SOURCE:TARGET", next_step="--mount /data/ogb:/data")
    return Mount(source, target)


#: Shell, for the image. The token stands in no command line, which every user of a machine can list.
_NOTEBOOK = (
    'port=%s; JUPYTER_TOKEN=$(od -An -N24 -tx1 /dev/urandom | tr -d " \\n"); export JUPYTER_TOKEN; '
    'echo "http://127.0.0.1:$port/lab?token=$JUPYTER_TOKEN"; '
    'echo "from your own machine: ssh -N -L $port:127.0.0.1:$port '
    '${SLURM_SUBMIT_HOST:+-J $SLURM_SUBMIT_HOST }${SLURMD_NODENAME:-%s}"; '
    'exec jupyter lab --no-browser --allow-root --ip 127.0.0.1 --port "$port" --ServerApp.port_retries=0'
)


def notebook(port: str = "$((20000 + SLURM_JOB_ID % 20000))", host: str = "$(hostname)") -> str:
    """Return the command of JupyterLab for loopback alone: its address with the token first, then the way there."""
    return _NOTEBOOK % (port, host)


def text(job: Job) -> str:
    """Write the job as its runtime reads it.

    Raises UsageError for what this runtime cannot do, and for characters that readers of the script do not see.
    """
    _check(job)
    cores = job.cpus * max(job.gpus, 1) // job.tasks  # of each process; 0 leaves it to Slurm
    values: dict[str, object] = {
        "job": job,
        "command": _for_exec(_with_plugin(job, job.command)),
        "cores": cores,
        # since Slurm 22.05 a step does not take this over from the job
        "cpus": f" --cpus-per-task={cores}" if cores else "",
    }
    if job.runtime in _WRITERS:
        return _WRITERS[job.runtime](job, values)
    form = JOBS[job.runtime]
    values |= {
        "binds": _binds(job),
        "gpus": f" {form.gpus.format(gpus=job.gpus)}" if job.gpus and form.gpus else "",
        "network": _docker_options(job),
        "overlay": f" {form.overlay.format(delta=shlex.quote(job.overlay))}" if job.overlay else "",
    }
    if not form.is_slurm:
        values["command"] = _for_exec(_with_plugin(job, _by_torchrun(job, "--standalone")))
    return render_template(f"job-{job.runtime}", values)


def _pyxis(job: Job, values: dict[str, object]) -> str:
    image = job.image if _is_path(job.image) else reference.parse(job.image).enroot
    for mount in job.mounts:
        if strange := mountable(mount.source) or mountable(mount.target):
            raise UsageError(f"pyxis cannot mount {mount.source!r}: {strange}", next_step=BY_A_LINK)
    binds = "".join(f",{_in_double_quotes(f'{mount.source}:{mount.target}')}" for mount in job.mounts)
    container = re.sub(r"[^A-Za-z0-9._-]+", "_", re.sub(r"\.sqsh$", "", image.rpartition("/")[2]))
    values |= {"job": msgspec.structs.replace(job, image=image), "binds": binds, "container": container}
    values["warning"] = slurm_batch.warning(job.time, "TERM")
    return render_template("job-pyxis", values)


def _module(job: Job, values: dict[str, object]) -> str:
    _refuse_part_of_a_path(job)
    return render_template("job-module", values | {"binds": _binds(job)})


def _refuse_part_of_a_path(job: Job) -> None:
    if not job.image.startswith("/"):
        raise UsageError(
            f"a {job.runtime} calls its image from any folder, and {job.image} is not a whole path",
            next_step=command("job", f"/FOLDER/{job.image.removeprefix('./')}", runtime=job.runtime),
        )


def _reframe(job: Job, values: dict[str, object]) -> str:
    _refuse_part_of_a_path(job)
    title = re.sub(r"\W|^(?=\d)", "_", f"{job.name}_suites", flags=re.ASCII)  # no word of Python ends so
    rows = {name: SUITES[name] for name in job.suites}
    suites = {
        name: {
            "cpu": (shlex.join(row.argv(on_gpu=False)), row.cpu_limit),
            "cuda": (shlex.join(row.argv(on_gpu=True)), row.cuda_limit),
        }
        for name, row in rows.items()
    }
    return render_template("job-reframe", values | {"title": title, "suites": suites})


def _oci(job: Job, values: dict[str, object]) -> str:
    return render_template("job-oci", values | {"args": _arguments(_by_torchrun(job, "--standalone"))})


def _kubernetes(job: Job, values: dict[str, object]) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", job.name.lower()).strip("-")
    if name != job.name or not name[0].isalpha() or len(name) > _MOST_OF_A_NAME:
        raise UsageError(
            f"{job.name} is not a name for a job of Kubernetes",
            cause=f"It has small letters, digits and -, begins with a letter and has {_MOST_OF_A_NAME} at most.",
            next_step=f"--name {f'job-{name}' if not name[:1].isalpha() else name[:_MOST_OF_A_NAME].strip('-')}",
        )
    nodes = f"--nnodes={job.nodes} --node-rank=$JOB_COMPLETION_INDEX --master-addr=$MASTER_ADDR"
    where = f"{nodes} --master-port=$MASTER_PORT" if job.nodes > 1 else "--standalone"
    args = [word.replace("$$", "$$$$").replace("$(", "$$(") for word in _arguments(_by_torchrun(job, where))]
    return render_template("job-kubernetes", values | {"args": args})  # which fills $(NAME) in itself


def _edf(job: Job, values: dict[str, object]) -> str:
    image = job.image if _is_path(job.image) else reference.parse(job.image).enroot
    major = re.search(r"cu(\d\d)\d\b", job.image)
    return render_template("job-edf", values | {"image": image, "major": major and major[1]})


def _arguments(typed: str) -> list[str]:
    """The words by which a container starts a command of a shell."""
    return ["/bin/sh", "-c", typed if _SHELL.search(typed.replace("$", "")) else f"exec {typed}"]


def _binds(job: Job) -> str:
    """Options that mount data, where a runtime has them."""
    bind = JOBS[job.runtime].bind
    return "".join(f" {bind} {shlex.quote(f'{mount.source}:{mount.target}')}" for mount in job.mounts)


def _is_path(image: str) -> bool:
    return image.startswith(("/", "."))


def mountable(path: str) -> str:
    """Explain why pyxis cannot mount a path; empty where it can.

    It hands mounts to enroot as lines of an fstab, whose fields end at spaces; commas and colons part its own option.
    """
    separators = [name for letters, name in _NO_MOUNT.items() if any(letter in path for letter in letters)]
    return f"there is {separators[0]} in its path" if separators else ""


def _pai_dlc(job: Job, values: dict[str, object]) -> str:
    return json.dumps(_dlc(job), indent=2, ensure_ascii=False) + "\n"


def _pai_dsw(job: Job, values: dict[str, object]) -> str:
    return pai_image(job.image) + "\n"


#: kinds of jobs that their template alone does not write
_WRITERS: Mapping[str, Callable[[Job, dict[str, object]], str]] = {
    "pyxis": _pyxis,
    "module": _module,
    "reframe": _reframe,
    "oci": _oci,
    "kubernetes": _kubernetes,
    "edf": _edf,
    "pai-dlc": _pai_dlc,
    "pai-dsw": _pai_dsw,
}


def _dlc(job: Job) -> dict[str, object]:
    """Write a CreateJob of PAI's API 2020-12-03. PAI makes a PyTorch job's first worker its master."""
    known = facts.instances()
    if not job.instance and str(job.gpus) not in known:
        raise UsageError(
            f"no instance of PAI with {job.gpus} GPUs is known; known are those with {', '.join(known)}",
            next_step="--instance ecs.…    names any type that your resource group has",
        )
    instance = job.instance or known[str(job.gpus)]
    nodes = "--nnodes=$WORLD_SIZE --node-rank=$RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"
    request: dict[str, object] = {
        "DisplayName": job.name,
        "JobType": "PyTorchJob",
        "JobSpecs": [{"Type": "Worker", "Image": pai_image(job.image), "PodCount": job.nodes, "EcsSpec": instance}],
        "UserCommand": _by_torchrun(job, nodes),
        "DataSources": [{"DataSourceId": mount.source, "MountPath": mount.target} for mount in job.mounts],
        "Settings": {"Driver": job.driver} if job.driver else {},
        "WorkspaceId": job.workspace,
    }
    return {name: value for name, value in request.items() if value}


def pai_image(text: str) -> str:
    """Return the address from which PAI pulls: inside the VPC for Alibaba's registries. Raises UsageError."""
    parsed = reference.parse(text)
    if parsed.host == DOCKER_HUB:
        return str(parsed).removeprefix(f"{parsed.host}/").removeprefix("library/")
    return str(parsed).replace(parsed.host, addresses.inside_vpc(parsed.host) or parsed.host, 1)


def pulling(
    image: Reference, name: str, *, inside: Reference | None = None, plain_http: bool = False, on_gpus: bool = True
) -> dict[str, str]:
    """Return what users of a published image type, by runtime. `inside`: its address in the cloud's own network.

    `plain_http`: the registry has no TLS, which each runtime has to be told; `on_gpus`: else Docker needs no toolkit.
    """
    values = {"image": image, "enroot": image.enroot, "host": image.host, "name": name, "examples": EXAMPLES}
    values["gpus"] = "--gpus all " if on_gpus else ""
    lines = {
        program: (typed.without_tls if plain_http else typed.line).format(**values)
        for runtime in RUNTIMES.values()
        for program, typed in runtime.published.items()
    }
    if inside:  # what DSW and DLC take as an image's address
        lines["pai"] = str(inside)
        if addresses.accelerates(image.host):
            lines["pai-accelerated"] = f"{inside}_accelerated    (where the repository makes accelerated images)"
    return lines


def _for_exec(command: str) -> str:
    """Quote the command for an exec inside the image, without a shell."""
    return f"sh -c {shlex.quote(command)}" if _SHELL.search(command) else command


def _by_torchrun(job: Job, where: str) -> str:
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


def _check(job: Job) -> None:
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


def _texts(job: Job) -> Iterator[str]:
    """All texts that the user chose."""
    yield from (value for value in msgspec.structs.asdict(job).values() if isinstance(value, str))
    yield from (text for mount in job.mounts for text in (mount.source, mount.target))


def _with_plugin(job: Job, command: str) -> str:
    """The command with the libraries of the site's plugin for NCCL before others, which Apptainer adds its own to."""
    if job.network is None or not job.network.plugin:
        return command
    start = "" if _SHELL.search(command) else "exec "
    folder = f"{job.network.plugin}/lib"
    return f"export LD_LIBRARY_PATH={folder}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}; {start}{command}"


def _docker_options(job: Job) -> str:
    """Docker's options for the network: devices and pinned memory, which it gives to no container by itself."""
    if job.network is None:
        return ""
    options = ["--device=/dev/infiniband", "--ulimit memlock=-1:-1"] if job.network.devices else []
    options += [f"--env {name}={shlex.quote(value)}" for name, value in job.network.variables.items()]
    return "".join(f" {option}" for option in options)


def on_fabric(job: Job, fabric: NodeFabric | None) -> Job:
    """Set for a job of several nodes, or where devices are options, what the network between nodes needs.

    PAI sets its own, and a job on one node of Slurm needs none.
    """
    form = JOBS[job.runtime]
    if fabric is None or not ((job.nodes > 1 and form.is_slurm) or form.devices == "options"):
        return job
    row = fabrics()[fabric.kind]
    variables = dict(row.variables)
    if fabric.interface:
        variables["NCCL_SOCKET_IFNAME"] = fabric.interface
    network = JobNetwork(
        title=row.title,
        variables=variables,
        hook=row.hook if form.devices == "hook" else {},
        devices=bool(row.providers),
        plugin=fabric.plugin if row.plugin else "",
    )
    if variables or network.hook or network.devices or network.plugin:
        mounts = (*job.mounts, Mount(network.plugin, network.plugin)) if network.plugin else job.mounts
        return msgspec.structs.replace(job, network=network, mounts=mounts)
    return job


def in_partition(job: Job, name: str, partition: Partition) -> Job:
    """Send a job to a partition, with its cores where it asks for none. Raises UsageError for GPUs that no node has."""
    if partition.gpus and job.gpus > partition.gpus:
        raise UsageError(
            f"a node of {name} has {partition.gpus} GPUs, not {job.gpus}",
            next_step=f"--gpus {partition.gpus}, and --nodes for more",
        )
    return msgspec.structs.replace(job, partition=name, cpus=job.cpus or partition.cores_per_gpu)


def _in_double_quotes(words: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", words)
