"""Jobs of Alibaba PAI: a request of DLC's, and the address of an image for DSW. Pure."""

import json

from graphcrate.compat.facts import addresses, facts
from graphcrate.model.errors import UsageError
from graphcrate.oci import reference
from graphcrate.render.job import Job, Mount, by_torchrun
from ociregistry.reference import DOCKER_HUB


def dlc_request(job: Job) -> str:
    """Write a CreateJob of PAI's API 2020-12-03. PAI makes a PyTorch job's first worker its master.

    Raises UsageError for a number of GPUs that no known instance has.
    """
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
        "UserCommand": by_torchrun(job, nodes),
        "DataSources": [_data_source(mount) for mount in job.mounts],
        "Settings": {"Driver": job.driver} if job.driver else {},
        "WorkspaceId": job.workspace,
    }
    given = {name: value for name, value in request.items() if value}
    return json.dumps(given, indent=2, ensure_ascii=False) + "\n"


def _data_source(mount: Mount) -> dict[str, str]:
    access = {"MountAccess": "RO"} if mount.read_only else {}
    return {"DataSourceId": mount.source, "MountPath": mount.target, **access}


def pai_image(text: str) -> str:
    """Return the address from which PAI pulls: inside the VPC for Alibaba's registries. Raises UsageError."""
    parsed = reference.parse(text)
    if parsed.host == DOCKER_HUB:
        return str(parsed).removeprefix(f"{parsed.host}/").removeprefix("library/")
    return str(parsed).replace(parsed.host, addresses.inside_vpc(parsed.host) or parsed.host, 1)
