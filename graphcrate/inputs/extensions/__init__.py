"""The wheelhouse: compiled sdists become checked wheels in the cache, made in the image's own base against its torch.

`origin` and `cached` ask; `provide` makes what is not there. Whatever compiles is imported when something is compiled.
"""

from pathlib import Path

from graphcrate.inputs.extensions.cache import Job, cached, origin

__all__ = ["Job", "cached", "origin", "provide"]


def provide(job: Job) -> dict[str, Path]:
    """The wheels of the step's sdists by the sdists' sha256, from the cache or compiled now.

    Raises BuildError when a package does not compile or its wheel cannot work (finished ones stay in the cache),
    HostError without a compiler, DiskFullError, and whatever the job's calls raise.
    """
    found = cached(job.step, job.cache)
    if len(found) < len(job.step.packages):
        from graphcrate.inputs.extensions.compile import make

        waiting = "compiling: another run is compiling; waiting for it"
        with job.cache.exclusively("wheelhouse", lambda: job.progress.note(waiting)):
            found = cached(job.step, job.cache)  # another process may have made them meanwhile
            if len(found) < len(job.step.packages):
                found = make(job, found)
    return found
