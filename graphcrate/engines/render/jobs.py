"""Jobs as text: a script for sbatch or a shell, a request for PAI. What cannot be expressed is refused by name."""

import json
import re
import shlex
from collections.abc import Callable, Mapping

import msgspec

from graphcrate.compat import addresses, sites
from graphcrate.engines.render.layout import rendered
from graphcrate.model.errors import UsageError
from graphcrate.model.job import Job, Runtime
from graphcrate.oci import reference

#: A job's name, a container's and a partition's stand in texts as they are.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*", re.ASCII)
_ACCOUNT = re.compile(r"[A-Za-z0-9._@:/+-]+", re.ASCII)
#: what only a shell understands: its signs, and a variable that is set before the program
_SHELL = re.compile(r"[;&|<>$`()]|^\s*[A-Za-z_]\w*=", re.ASCII)
_TIME = re.compile(r"\d+(?:-\d+)?(?::\d+){0,2}", re.ASCII)


def text(job: Job) -> str:
    """The job as its runtime takes it. Raises UsageError for what this runtime cannot do."""
    _check(job)
    return _TEXTS[job.runtime](job)


def _singularity(job: Job) -> str:
    binds = "".join(f" --bind {shlex.quote(f'{mount.source}:{mount.target}')}" for mount in job.mounts)
    return rendered("job-singularity", {**_common(job), "binds": binds, "nv": " --nv" if job.gpus else ""})


def _pyxis(job: Job) -> str:
    image = job.image if job.image.startswith(("/", ".")) else reference.parse(job.image).enroot
    job = msgspec.structs.replace(job, image=image)
    binds = "".join(f",{_in_double_quotes(f'{mount.source}:{mount.target}')}" for mount in job.mounts)
    container = re.sub(r"[^A-Za-z0-9._-]+", "_", re.sub(r"\.sqsh$", "", image.rpartition("/")[2]))
    return rendered("job-pyxis", {**_common(job), "binds": binds, "container": container})


def _docker(job: Job) -> str:
    binds = "".join(f" --volume {shlex.quote(f'{mount.source}:{mount.target}')}" for mount in job.mounts)
    gpus = f" --gpus {job.gpus}" if job.gpus else ""
    return rendered(
        "job-docker",
        {"job": job, "binds": binds, "gpus": gpus, "command": _for_exec(_by_torchrun(job, "--standalone"))},
    )


def _dlc(job: Job) -> str:
    """CreateJob of PAI's API 2020-12-03. PAI calls a PyTorch job's first worker its master by itself."""
    nodes = "--nnodes=$WORLD_SIZE --node-rank=$RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT"
    worker = {"Type": "Worker", "Image": pai_image(job.image), "PodCount": job.nodes, "EcsSpec": _instance(job)}
    request: dict[str, object] = {
        "DisplayName": job.name,
        "JobType": "PyTorchJob",
        "JobSpecs": [worker],
        "UserCommand": _by_torchrun(job, nodes),
    }
    if job.mounts:
        request["DataSources"] = [{"DataSourceId": mount.source, "MountPath": mount.target} for mount in job.mounts]
    if job.driver:
        request["Settings"] = {"Driver": job.driver}
    if job.workspace:
        request["WorkspaceId"] = job.workspace
    return json.dumps(request, indent=2, ensure_ascii=False) + "\n"


def _dsw(job: Job) -> str:
    return pai_image(job.image) + "\n"


_TEXTS: Mapping[Runtime, Callable[[Job], str]] = {
    Runtime.SINGULARITY: _singularity,
    Runtime.PYXIS: _pyxis,
    Runtime.DOCKER: _docker,
    Runtime.PAI_DLC: _dlc,
    Runtime.PAI_DSW: _dsw,
}


def pai_image(text: str) -> str:
    """The address under which PAI pulls: inside the VPC, where Alibaba's registry has one. Raises UsageError."""
    parsed = reference.parse(text)
    if parsed.host == reference.DOCKER_HUB:
        return str(parsed).removeprefix(f"{parsed.host}/").removeprefix("library/")
    return str(parsed).replace(parsed.host, addresses.inside_vpc(parsed.host) or parsed.host, 1)


def _common(job: Job) -> dict[str, object]:
    cores = _cores(job)
    # since Slurm 22.05 a step does not take this over from the job
    return {
        "job": job,
        "command": _for_exec(job.command),
        "cores": cores,
        "cpus": f" --cpus-per-task={cores}" if cores else "",
    }


def _cores(job: Job) -> int:
    """Of each process; 0 where neither the person nor the site says."""
    partition = sites.known().partitions.get(job.partition)
    for_gpu = job.cpus or (partition.cores_per_gpu if partition else 0)
    return for_gpu * max(job.gpus, 1) // job.tasks


def _for_exec(command: str) -> str:
    """The command for a place where words are handed on and no shell reads them again inside the image."""
    return f"sh -c {shlex.quote(command)}" if _SHELL.search(command) else command


def _by_torchrun(job: Job, where: str) -> str:
    """The command, by torchrun where each GPU is to have a process: no batch system starts them here."""
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


def _instance(job: Job) -> str:
    known = sites.known().instances
    if job.instance or str(job.gpus) in known:
        return job.instance or known[str(job.gpus)]
    raise UsageError(
        f"no instance of PAI with {job.gpus} GPUs is known; known are those with {', '.join(known)}",
        next_step="--instance ecs.…    names any type that your resource group has",
    )


def _check(job: Job) -> None:
    """Raises UsageError for options that the runtime does not have, and for values that would break the text."""
    for name, value, form in (
        ("--name", job.name, _PLAIN),
        ("--partition", job.partition, _PLAIN),
        ("--account", job.account, _ACCOUNT),
        ("--time", job.time, _TIME),
    ):
        if value and not form.fullmatch(value):
            raise UsageError(f"{name} {value!r} is not one")
    if job.nodes < 1 or job.gpus < 0 or job.cpus < 0:
        raise UsageError("a job has at least one node, and no negative number of GPUs or cores")
    if "\n" in job.command or not job.command.strip():
        raise UsageError("the command is one line", next_step="put the steps into a script, and run that")
    foreign = {
        "--partition": job.partition and not job.runtime.is_slurm,
        "--time": job.time and not job.runtime.is_slurm,
        "--account": job.account and not job.runtime.is_slurm,
        "--cpus": job.cpus and not job.runtime.is_slurm,
        "--instance": job.instance and job.runtime is not Runtime.PAI_DLC,
        "--driver": job.driver and job.runtime is not Runtime.PAI_DLC,
        "--workspace": job.workspace and job.runtime is not Runtime.PAI_DLC,
        "--nodes": job.nodes > 1 and job.runtime in (Runtime.DOCKER, Runtime.PAI_DSW),
    }
    for option, given in foreign.items():
        if given:
            raise UsageError(f"a job of {job.runtime} has no {option}")
    partition = sites.known().partitions.get(job.partition)
    if partition and partition.gpus and job.gpus > partition.gpus:
        raise UsageError(f"a node of {job.partition} has {partition.gpus} GPUs, not {job.gpus}")


def _in_double_quotes(words: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", words)
