"""Networks between nodes, and what an image needs to use them. Pure."""

from collections.abc import Mapping

import msgspec

from graphcrate.compat.facts.facts import table_reader


class Fabric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network between nodes, as NCCL sees it."""

    title: str  #: in texts: "InfiniBand"
    providers: tuple[str, ...] = ()  #: of libibverbs, any of which serves: "mlx5"
    plugin: bool = False  #: NCCL needs a libnccl-net.so, which the site has
    variables: Mapping[str, str] = {}  #: that a job on several nodes sets
    hook: Mapping[str, str] = {}  #: that enroot's hooks need besides
    known: str


#: every network that is known, by name
fabrics = table_reader("fabrics", dict[str, Fabric])
