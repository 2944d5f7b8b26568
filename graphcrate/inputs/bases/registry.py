"""A base image from a registry, pulled by digest into the cache: no daemon, no root.

Layers that are not gzip become it: every runtime reads that (enroot before 4.0 reads no zstd).
"""

import os
import re
from pathlib import Path

from graphcrate.artifacts import pull
from graphcrate.compat.plan.image_config import SYSTEM_PATH
from graphcrate.host.context import Context
from graphcrate.host.sandbox.emulation import Emulator
from graphcrate.host.sandbox.sandbox import Exec, run_in
from graphcrate.host.sandbox.steps import Step
from graphcrate.inputs.bases import Base, identity
from graphcrate.inputs.emulators import prepare_emulator
from graphcrate.model.command import LOCK_AGAIN
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import RegistryBase
from graphcrate.model.platform import platform_named
from graphcrate.model.recipe import BaseSpec
from graphcrate.oci import access, reference

FOLDERS = ("usr/local/bin", "usr/bin", "opt/conda/bin")  #: where images have Python, the most usual first
_ASK = """import os, platform
libc = "CS_GNU_LIBC_VERSION"
print("graphcrate:", platform.python_version(), os.confstr(libc) if libc in os.confstr_names else "none")"""
_ANSWER = re.compile(r"graphcrate: (\d+\.\d+\.\d+\S*) (?:glibc (\d+\.\d+)|none)")
_LIKELY_SECONDS = 120.0


def lock(spec: BaseSpec, python: str, ctx: Context) -> RegistryBase:
    """Lock a reference as of today on its platform, with the place of its Python ("3.11"); pulled only to find that.

    Raises ResolutionError for no image, none for the platform, or none with this Python; NetworkError; IntegrityError.
    """
    image, platform = reference.parse(spec.reference), spec.runs_on
    ctx.progress.note(f"base: asking {image.host} for {image}")
    source, digest = pull.find(image, ctx, platform)
    _, config = pull.documents(source, digest, ctx.cache, platform=platform)
    if version := config.run.environment.get("PYTHON_VERSION"):  # the official Python images tell their version so
        if not f"{version}.".startswith(f"{python}."):
            raise _no_python(str(image), python, [version])
        interpreter = f"/usr/local/bin/python{python}"
    else:
        _, rootfs = pull.pull(source, image.name, digest, ctx, platform)
        interpreter = find_python(rootfs, python, str(image))
    return RegistryBase(reference=image.name, digest=digest, platform=platform.name, interpreter=interpreter)


def prepare(lock: RegistryBase, ctx: Context) -> Base:
    """Bring the locked image into the cache, unpacked; at once where it is there.

    Raises NetworkError, IntegrityError, LayoutError; ResolutionError without its Python or glibc; HostError.
    """
    name, platform = f"{lock.reference}@{lock.digest}", platform_named(lock.platform)
    source = access.repository(reference.parse(name), ctx)
    layers, rootfs = pull.pull(source, lock.reference, lock.digest, ctx, platform)
    _, config = pull.documents(source, lock.digest, ctx.cache, platform=platform)
    emulator = prepare_emulator(platform, ctx)
    version, glibc = _ask_python(rootfs, lock.interpreter, name, emulator)
    return Base(
        layers=layers,
        rootfs=rootfs,
        python=lock.interpreter,
        python_version=version,
        identity=identity(lock),
        glibc=glibc,
        environment={"PATH": SYSTEM_PATH, **config.run.environment},
        labels=dict(config.run.labels or {}),
        platform=platform,
        emulator=emulator,
    )


def find_python(rootfs: Path, python: str, name: str) -> str:
    """Absolute path inside the image of its `python3.X`. Raises ResolutionError that names those it has."""
    for folder in FOLDERS:
        if os.path.lexists(rootfs / folder / f"python{python}"):
            return f"/{folder}/python{python}"
    programs = [path.name for folder in FOLDERS for path in (rootfs / folder).glob("python3.*")]
    versions = [match[1] for match in (re.fullmatch(r"python(3\.\d+)", program) for program in programs) if match]
    raise _no_python(name, python, versions)


def _ask_python(rootfs: Path, interpreter: str, name: str, emulator: Emulator | None) -> tuple[str, str]:
    """Versions of the image's Python and C library. Raises ResolutionError where it has no glibc (Alpine has musl)."""
    variables = {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}
    argv = [interpreter, "-I", "-S", "-c", _ASK]
    order = Exec(argv, variables, timeout=_LIKELY_SECONDS, step=Step.BUILD, emulator=emulator)
    completed = run_in(rootfs, order)
    answers = [match for match in map(_ANSWER.fullmatch, completed.lines) if match]
    if completed.returncode or not answers:
        tail = "; ".join(completed.lines[-3:])
        raise ResolutionError(
            f"{interpreter} of {name} does not run (exit code {completed.returncode}): {tail}",
            cause="The image lacks it, or its Python is broken or built for another machine.",
            next_step=f"name another base, or lock again if the recipe's Python was changed: {LOCK_AGAIN}",
        )
    version, glibc = answers[-1].groups()
    if glibc is None:
        raise ResolutionError(
            f"{name} has no glibc",
            cause="PyTorch's wheels need glibc (manylinux); images made from Alpine have musl.",
            next_step="name a base made from Debian, Ubuntu, Rocky or UBI, such as docker.io/library/python:3.11-slim",
        )
    return version, glibc


def _no_python(name: str, python: str, versions: list[str]) -> ResolutionError:
    interpreters = ", ".join(sorted(set(versions))) or f"none in /{', /'.join(FOLDERS)}"
    return ResolutionError(
        f"{name} has no Python {python}",
        cause=f"It has {interpreters}.",
        next_step=f"name a base that has it, such as docker.io/library/python:{python}-slim",
    )
