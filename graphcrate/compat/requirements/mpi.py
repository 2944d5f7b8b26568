"""MPI in an image: the one that comes with a package that loads one, and how Slurm starts its ranks. Pure."""

from collections.abc import Iterator

import msgspec

from graphcrate.compat.facts.facts import table_reader
from graphcrate.compat.requirements import own_packages
from graphcrate.model.command import setting
from graphcrate.model.lock import DebianBase, Lock
from graphcrate.model.recipe import Additions
from graphcrate.model.words import listed


class _Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`package` (normalised name) loads an MPI: one of `wheels` or of `debian`, or what `apt` brings."""

    package: str
    apt: tuple[str, ...]
    wheels: tuple[str, ...]
    debian: tuple[str, ...]
    known: str


class _Mpi(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MPI, of Debian's packages or of a wheel; the data's own comments have each field."""

    title: str
    debian: tuple[str, ...] = ()
    pmix: tuple[str, ...] = ()
    wheel: str = ""
    srun: str
    otherwise: str
    known: str


_loads = table_reader("mpi", tuple[_Load, ...], "load")
_mpis = table_reader("mpi", tuple[_Mpi, ...], "mpi")


def with_library(additions: Additions) -> Additions:
    """The additions with Debian's MPI, and a note of it, for what loads one where none was asked for."""
    names = {own_packages.name_of(package) for package in additions.packages}
    for load in _loads():
        if load.package in names and names.isdisjoint(load.wheels) and set(load.debian).isdisjoint(additions.apt):
            other = setting(with_=f"{load.package} mpich")
            note = f"{load.package} loads an MPI and brings none: Debian's {listed(load.apt)} comes with it"
            note += f" ({other}: MPICH, where Slurm has pmi2 alone)"
            additions = msgspec.structs.replace(
                additions, apt=(*additions.apt, *load.apt), notes=(*additions.notes, note)
            )
    return additions


def notes(lock: Lock) -> Iterator[str]:
    """Yield a plan's notes on each MPI of a lock: its version, its PMIx, and srun's option."""
    debian = {}
    if isinstance(lock.base, DebianBase):
        debian = {package.name: _upstream(package.version) for package in lock.base.packages}
    for mpi in _mpis():
        wheel = lock.package(mpi.wheel) if mpi.wheel else None
        version = wheel.version if wheel else next((debian[name] for name in mpi.debian if name in debian), "")
        pmix = next((f" with PMIx {debian[name]}" for name in mpi.pmix if name in debian), "")
        if version:
            yield f"{mpi.title} {version}{pmix}: srun --mpi={mpi.srun}; {mpi.otherwise}"


def _upstream(version: str) -> str:
    """Of a version of Debian's ("1:4.1.4-3+b1") that of the project ("4.1.4")."""
    rest = version.partition(":")[2] or version
    return rest.rpartition("-")[0] or rest
