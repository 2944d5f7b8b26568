"""What runtimes, kernels and C libraries take from which version on: `data/runtimes.toml`."""

import functools

import msgspec

from graphcrate.compat import tables


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first version that will do."""

    since: str
    known: str
    source: str


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Debian: its C library's version, and the oldest kernel that this runs on."""

    glibc: str
    kernel: str
    known: str


class _Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    kernel_zstd: Limit
    tools_zstd: Limit
    sif: Limit
    enroot_oci: Limit
    enroot_zstd: Limit
    driver_glibc: Limit
    suites: dict[str, Suite]


@functools.cache
def known() -> _Limits:
    """The facts."""
    return tables.read("runtimes", _Limits)
