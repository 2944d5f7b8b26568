"""A job that a user submits: what is run, in which image, by which runtime."""

from enum import StrEnum

import msgspec


class Runtime(StrEnum):
    """Where it runs."""

    PYXIS = "pyxis"
    SINGULARITY = "singularity"
    DOCKER = "docker"
    PAI_DLC = "pai-dlc"
    PAI_DSW = "pai-dsw"

    @property
    def is_slurm(self) -> bool:
        """Whether it is a script for sbatch."""
        return self in (Runtime.PYXIS, Runtime.SINGULARITY)

    @property
    def is_pai(self) -> bool:
        """Whether Alibaba PAI runs it."""
        return self in (Runtime.PAI_DLC, Runtime.PAI_DSW)


class Mount(msgspec.Struct, frozen=True):
    """Data: a folder of the host (PAI: the id of a dataset) and its path in the image."""

    source: str
    target: str


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job. `image` as its runtime takes it: a file's path, or a reference; `command` is shell."""

    runtime: Runtime
    name: str
    image: str
    command: str
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

    @property
    def tasks(self) -> int:
        """Processes on each node."""
        return max(self.gpus, 1) if self.per_gpu else 1
