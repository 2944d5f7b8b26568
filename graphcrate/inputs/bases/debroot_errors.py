"""Errors of `debroot` as ours, with the commands to type: the one place that says them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from debroot.errors import (
    BrokenFileError,
    DebrootError,
    DpkgError,
    LinkInTheWayError,
    ListError,
    ListTimeError,
    MissingPackageError,
    NotAPackageError,
    TooDeepError,
    TreeError,
)
from graphcrate.compat.facts import suites
from graphcrate.host.disk import trees
from graphcrate.model.command import AGAIN, ETC, LOCK_AGAIN, command, setting
from graphcrate.model.errors import (
    BuildError,
    DiskFullError,
    GraphcrateError,
    HostError,
    IntegrityError,
    ResolutionError,
)
from graphcrate.model.words import with_mark
from nsbox.namespaces import NO_SECCOMP

REGISTRY_INSTEAD = 'or take a base from a registry: base.provider = "registry" in the recipe'
_OTHER = f"{LOCK_AGAIN}    (takes the suite's packages of today), or tell who wrote graphcrate"


@contextlib.contextmanager
def translated(suite: str = "", root: Path | None = None) -> Iterator[None]:
    """Raise errors of the library as ours. `suite`, `root`: of the system, for what to do."""
    try:
        yield
    except DebrootError as error:
        raise explained(error, suite, root) from error


def explained(error: DebrootError, suite: str = "", root: Path | None = None) -> GraphcrateError:
    """The same error as one of ours."""
    kind: type[GraphcrateError] = IntegrityError
    match error:
        case DpkgError():
            return _of_dpkg(error, root)
        case TooDeepError():
            return trees.too_deep(error.root, error.path)
        case ListError():
            check = "check `date`; " if isinstance(error, ListTimeError) else ""
            step = f"{check}{suites.distribution_of(suite).another_mirror}"
        case NotAPackageError():
            step = f"{error.next_step}: {LOCK_AGAIN}"
        case BrokenFileError():
            step = ""
        case MissingPackageError():
            kind, step = ResolutionError, error.next_step
        case LinkInTheWayError():
            kind, step = BuildError, f"{error.next_step}, from base.packages of the recipe or {setting(apt='…')}"
        case TreeError():
            kind, step = BuildError, _OTHER
        case _:
            step = error.next_step
    return kind(error.what, cause=error.cause, next_step=step)


def _of_dpkg(error: DpkgError, root: Path | None) -> GraphcrateError:
    tail = with_mark(error.lines[-12:])
    if any("No space left on device" in line or "Disk quota exceeded" in line for line in error.lines):
        return DiskFullError(
            f"the disk that holds {root} is full, or its quota is used up{tail}",
            next_step=f"free some room, or name another disk: GRAPHCRATE_CACHE=/path {AGAIN}",
        )
    if any(line.startswith(NO_SECCOMP) for line in error.lines):
        return HostError(
            f"a Debian base cannot be made here: {error.lines[-1]}",
            cause="The kernel, or the container around this shell, forbids them; without, a user cannot own a system.",
            next_step=f"{command('image', ETC, engine='docker')}, podman or apptainer: one that is set up here    "
            f"({REGISTRY_INSTEAD})",
        )
    return BuildError(
        f"dpkg cannot install {', '.join(error.packages) or 'a package'}{tail}",
        cause=error.cause,
        next_step=f"leave it out of base.packages in the recipe, or lock again: {LOCK_AGAIN}",
    )
