"""The engines that build, and what runs images of each: one row each.

A row imports its module when it is asked for: each needs libraries of its own.
"""

from graphcrate.engines.backend import Engine, Runner
from graphcrate.model.command import command
from graphcrate.model.errors import UsageError

#: `singularity` is `apptainer` by its older name, and by the name of SingularityCE
ENGINES = ("embedded", "docker", "podman", "apptainer", "singularity")


def engine(name: str) -> Engine:
    """The engine of this name. Raises UsageError."""
    match name:
        case "embedded":
            from graphcrate.engines.embedded.engine import EMBEDDED

            return EMBEDDED
        case "docker" | "podman":
            from graphcrate.engines.oci import StoreEngine

            return StoreEngine(name)
        case "apptainer" | "singularity":
            from graphcrate.engines.apptainer import ApptainerEngine

            return ApptainerEngine(name)
    raise UsageError(
        f"there is no engine {name!r}; there are {', '.join(ENGINES)}",
        next_step=f"{command('image', '…', engine='auto')}    (picks one that works here)",
    )


def runner(engine: str) -> Runner:
    """Return the runner for artifacts of this engine. Raises UsageError."""
    match engine:
        case "embedded":
            from graphcrate.engines.embedded import run

            return run
        case "docker" | "podman":
            from graphcrate.engines.oci import StoreEngine

            return StoreEngine(engine)
        case "apptainer":
            from graphcrate.engines.apptainer import ApptainerEngine

            return ApptainerEngine("apptainer")
        case "pyxis":
            from graphcrate.engines import pyxis

            return pyxis
    raise UsageError(f"nothing runs images of {engine!r}", next_step=f"{command('test', 'NAME:TAG')}    (one of ours)")
