"""The wheelhouse: compiled sdists become checked wheels in the cache, made in the image's own base against its torch.

`origin` and `cached` ask; `provide` makes what is not there. Whatever compiles is imported when something is compiled.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from graphcrate.bases import Base
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.model.plan import CompileStep
from graphcrate.wheelhouse.keys import origin
from graphcrate.wheelhouse.shelf import cached

__all__ = ["Job", "cached", "origin", "provide"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """Everything that a compile goes by. The calls are made when the cache lacks a wheel, and not before."""

    step: CompileStep
    base: Base  #: the image's base, where the wheels have to work
    build_base: Callable[[], Base]  #: `step.compilation.base`: the same with a compiler
    toolkit: Callable[[Base], Path | None]  #: the folder of the step's CUDA toolkit; gets the base with the compiler
    files: Callable[[], Mapping[str, Path]]  #: sha256 → the sdists, tools and wheels that the step names
    cache: Cache
    environment: Mapping[str, str]
    progress: Progress
    jobs: int  #: cores to use
    log_folder: Path  #: where the output of a compile that fails goes


def provide(job: Job) -> dict[str, Path]:
    """The wheels of the step's sdists by the sdists' sha256, from the cache or compiled now.

    Raises BuildError when a package does not compile or its wheel cannot work (finished ones stay in the cache),
    HostError without a compiler, DiskFullError, and whatever the job's calls raise.
    """
    found = cached(job.step, job.cache)
    if len(found) < len(job.step.packages):
        from graphcrate.wheelhouse import house

        with job.cache.exclusively("wheelhouse"):
            found = cached(job.step, job.cache)  # another process may have made them meanwhile
            if len(found) < len(job.step.packages):
                found = house.make(job, found)
    return found
