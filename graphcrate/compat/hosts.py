"""A host as a person describes it on the command line. Pure."""

from collections.abc import Mapping, Sequence

from graphcrate.compat import drivers, facts
from graphcrate.model.contract import RUNTIMES, Host, Runtime
from graphcrate.model.errors import UsageError

ALSO_CALLED: Mapping[str, Runtime] = {
    "podman": "docker",
    "singularity": "apptainer",
    "enroot": "pyxis",
    "slurm": "pyxis",
}


def runtimes_of(names: Sequence[str]) -> tuple[Runtime, ...]:
    """The runtimes that a person named, in any form of their names. Raises UsageError."""
    found = []
    for name in names:
        runtime = ALSO_CALLED.get(name.lower(), name.lower())
        if runtime not in RUNTIMES:
            raise UsageError(f"there is no runtime {name!r}", next_step=f"choose from: {', '.join(RUNTIMES)}")
        found.append(runtime)
    return tuple(dict.fromkeys(found))


def host_of(
    runtimes: Sequence[Runtime], version: str, gpus: str | None, driver: str, kernel: str, glibc: str, shm: str
) -> Host:
    """A host as a person describes it. `version` is that of the one runtime. Raises UsageError."""
    models = facts.gpu_models(gpus) if gpus else ()
    refuse_unclear_version(runtimes, version)
    refuse_no_versions({"driver": driver, "kernel": kernel, "glibc": glibc, "runtime-version": version})
    versions: dict[str, str] = {runtimes[0]: version} if version else {}
    return Host(gpus=models, driver=driver, kernel=kernel, glibc=glibc, shm=_bytes(shm), versions=versions)


def refuse_unclear_version(runtimes: Sequence[Runtime], version: str) -> None:
    """Raises UsageError for a version of a runtime where not exactly one is named."""
    if version and len(runtimes) != 1:
        raise UsageError("a version of which runtime?", next_step="--runtime pyxis --runtime-version 3.4.1")


def refuse_no_versions(options: Mapping[str, str]) -> None:
    """Raises UsageError where an option (name → value) is neither empty nor a version."""
    for option, value in options.items():
        if value and not drivers.numbers(value):
            raise UsageError(f"--{option} {value!r} is no version", next_step="write it like 450.80.02 or 3.10")


def _bytes(text: str) -> int | None:
    """`64m`, `8g` as `docker run --shm-size` takes it."""
    if not text:
        return None
    number, unit = text.strip().lower().removesuffix("b").removesuffix("i"), 1
    if number[-1:] in "kmg":
        unit = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[number[-1:]]
        number = number[:-1]
    if not number.isdecimal():
        raise UsageError(f"--shm {text!r} is no size", next_step="write it as docker does: --shm 64m, --shm 8g")
    return int(number) * unit
