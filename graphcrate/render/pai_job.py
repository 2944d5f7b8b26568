"""Jobs of Alibaba PAI: a request of DLC's, and the address of an image for DSW. Pure."""

import json
import re

from graphcrate.compat.facts import addresses, facts
from graphcrate.model.errors import UsageError
from graphcrate.oci import reference
from graphcrate.render.job import Job, Mount, by_torchrun
from ociregistry.reference import DOCKER_HUB

#: of a data set
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*", re.ASCII)


def dlc_request(job: Job) -> str:
    """Write a CreateJob of PAI's API 2020-12-03. PAI makes a PyTorch job's first worker its master.

    Raises UsageError for a number of GPUs that no known instance has, and for what is no id.
    """
    known = facts.instances()
    if not job.instance and str(job.gpus) not in known:
        raise UsageError(
            f"no instance of PAI with {job.gpus} GPUs is known; known are those with {', '.join(known)}",
            next_step="--instance ecs.…    names any type that your resource group has",
        )
    instance = job.instance or known[str(job.gpus)]
    if job.workspace and not (job.workspace.isascii() and job.workspace.isdigit()):
        raise UsageError(
            f"a workspace of PAI has a number as its id, and this is {job.workspace!r}",
            next_step="--workspace 12345    the console shows it beside the workspace's name",
        )
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
    if not _ID.fullmatch(mount.source):
        raise UsageError(
            f"PAI mounts data sets by their ids, and {mount.source!r} is not one",
            next_step=f"--mount d-ID:{mount.target}    the console lists ids below AI assets, datasets",
        )
    access = {"MountAccess": "RO"} if mount.read_only else {}
    return {"DataSourceId": mount.source, "MountPath": mount.target, **access}


def pai_image(text: str) -> str:
    """Return the address from which PAI pulls: inside the VPC for Alibaba's registries. Raises UsageError."""
    parsed = reference.parse(text)
    if parsed.host == DOCKER_HUB:
        return str(parsed).removeprefix(f"{parsed.host}/").removeprefix("library/")
    return str(parsed).replace(parsed.host, addresses.inside_vpc(parsed.host) or parsed.host, 1)
