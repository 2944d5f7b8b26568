"""What clusters and clouds give with their GPUs: `data/sites.toml`."""

import functools
from collections.abc import Mapping

import msgspec

from graphcrate.compat import tables


class Partition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition of Slurm. `gpus` on a node, 0 where nobody says."""

    cores_per_gpu: int
    gpus: int = 0


class Sites(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that is known: partitions by name, instances by their number of GPUs."""

    partitions: Mapping[str, Partition]
    instances: Mapping[str, str]


@functools.cache
def known() -> Sites:
    """The facts."""
    return tables.read("sites", Sites)
