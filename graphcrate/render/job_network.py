"""The network between a job's nodes, by its site: variables, devices, a plugin of NCCL's; and its partition. Pure."""

import shlex

import msgspec

from graphcrate.compat.facts.fabrics import fabrics
from graphcrate.compat.variants.targets import NodeFabric, Partition
from graphcrate.model.errors import UsageError
from graphcrate.model.runtime import JOBS
from graphcrate.render.job import SHELL_ALONE, Job, JobNetwork, Mount


def on_fabric(job: Job, fabric: NodeFabric | None) -> Job:
    """Set for a job of several nodes, or where devices are options, what the network between nodes needs.

    PAI sets its own, and a job on one node of Slurm needs none.
    """
    form = JOBS[job.runtime]
    if fabric is None or not ((job.nodes > 1 and form.is_slurm) or form.devices == "options"):
        return job
    row = fabrics()[fabric.kind]
    variables = dict(row.variables)
    if fabric.interface and not form.own_network:
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


def with_plugin(job: Job, command: str) -> str:
    """The command with the libraries of the site's plugin for NCCL before others, which Apptainer adds its own to."""
    if job.network is None or not job.network.plugin:
        return command
    start = "" if SHELL_ALONE.search(command) else "exec "
    folder = f"{job.network.plugin}/lib"
    return f"export LD_LIBRARY_PATH={folder}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}; {start}{command}"


def docker_options(job: Job) -> str:
    """Docker's options for the network: devices and pinned memory, which it gives to no container by itself."""
    if job.network is None:
        return ""
    options = ["--device=/dev/infiniband", "--ulimit memlock=-1:-1"] if job.network.devices else []
    options += [f"--env {name}={shlex.quote(value)}" for name, value in job.network.variables.items()]
    return "".join(f" {option}" for option in options)
