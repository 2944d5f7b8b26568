"""Names that NCCL looks up in libibverbs and libmlx5, and what it loses where a symbol is not there. Pure."""

import msgspec

from graphcrate.compat.facts.facts import table_reader

#: what brings libibverbs with providers of all cards, on Debian and Ubuntu
INSTALL = "apt-get install --yes libibverbs1 ibverbs-providers librdmacm1"


class Symbols(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Symbols of a library, each in this version (empty: any). `lost`: what NCCL does without; empty: all of RDMA."""

    library: str
    symbols: tuple[str, ...]
    known: str
    version: str = ""
    lost: str = ""


#: without which NCCL does not use the library; their version, in its data, tells that NCCL is in a file
needed = table_reader("verbs", Symbols, "needed")
optional = table_reader("verbs", tuple[Symbols, ...], "optional")
