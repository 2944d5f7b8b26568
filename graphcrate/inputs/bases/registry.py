"""A base image from a registry, pulled by digest into the cache: no daemon, no root.

`lock` asks the registry what a tag means today. `prepare` brings exactly that image. Its gzip layers stay as they are;
others become gzip, which every runtime reads (enroot before 4.0 reads no zstd).
"""

import os
import re
from pathlib import Path

import msgspec

from graphcrate.artifacts import pull
from graphcrate.compat.planning import SYSTEM_PATH
from graphcrate.host.context import Context
from graphcrate.host.sandbox import run_in
from graphcrate.inputs.bases import Base
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import RegistryBase
from graphcrate.model.recipe import BaseSpec
from graphcrate.oci import reference

FOLDERS = ("usr/local/bin", "usr/bin", "opt/conda/bin")  #: where images have Python, the most wanted first
GLIBC_FOLDERS = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib64", "lib64")
#: the line in libc.so.6 that `ldd --version` also shows
_GLIBC = re.compile(rb"GNU C Library [^\n]{0,200}? release version (\d+\.\d+)")
_ASK_VERSION = "import platform; print('graphcrate:', platform.python_version())"
_ANSWER = re.compile(r"graphcrate: (\d+\.\d+\.\d+\S*)")
_LIKELY_SECONDS = 120.0


def lock(spec: BaseSpec, python: str, ctx: Context) -> RegistryBase:
    """What the reference means today on linux/amd64, and where its Python `python` ("3.11") lies.

    The image is pulled only where its configuration does not tell. Raises ResolutionError when there is no such image,
    none for the platform, or none with this Python; NetworkError; IntegrityError.
    """
    wanted = reference.parse(spec.reference)
    ctx.progress.note(f"base: asking {wanted.host} for {wanted}")
    source = pull.repository(wanted, ctx.environment)
    document = pull.for_platform(source, source.manifest(wanted.digest or wanted.tag), str(wanted))
    pull.keep(ctx.cache, {document.digest: document.data})
    _, config = pull.documents(source, document.digest, ctx.cache)
    if version := config.run.environment.get("PYTHON_VERSION"):  # the official Python images tell their version so
        if not f"{version}.".startswith(f"{python}."):
            raise _no_python(str(wanted), python, [version])
        interpreter = f"/usr/local/bin/python{python}"
    else:
        _, rootfs = pull.pull(source, wanted.name, document.digest, ctx.cache, ctx.progress)
        interpreter = find_python(rootfs, python, str(wanted))
    return RegistryBase(reference=wanted.name, digest=document.digest, interpreter=interpreter)


def prepare(lock: RegistryBase, ctx: Context) -> Base:
    """Bring the locked image into the cache, its files unpacked; at once where it is there.

    Raises NetworkError, IntegrityError, LayoutError for a malformed layer, ResolutionError for an image without its
    Python or without glibc, HostError when its Python cannot be run on this machine.
    """
    name = f"{lock.reference}@{lock.digest}"
    source = pull.repository(reference.parse(name), ctx.environment)
    layers, rootfs = pull.pull(source, lock.reference, lock.digest, ctx.cache, ctx.progress)
    _, config = pull.documents(source, lock.digest, ctx.cache)
    # What only a look into the image tells; looked up once per image and interpreter.
    record = pull.folder(lock.digest, ctx.cache) / f"{lock.interpreter.strip('/').replace('/', '-')}.facts.json"
    if not record.is_file():
        facts = [_python_version(rootfs, lock.interpreter, name), glibc_version(rootfs, name)]
        ctx.cache.write(record, msgspec.json.encode(facts))
    version, glibc = msgspec.json.decode(record.read_bytes(), type=tuple[str, str])
    return Base(
        layers=layers,
        rootfs=rootfs,
        python=lock.interpreter,
        python_version=version,
        glibc=glibc,
        environment={"PATH": SYSTEM_PATH, **config.run.environment},
        labels=dict(config.run.labels or {}),
    )


def find_python(rootfs: Path, python: str, name: str) -> str:
    """Absolute path inside the image of its `python3.X`. Raises ResolutionError that names those it has."""
    for folder in FOLDERS:
        if os.path.lexists(rootfs / folder / f"python{python}"):
            return f"/{folder}/python{python}"
    programs = [path.name for folder in FOLDERS for path in (rootfs / folder).glob("python3.*")]
    versions = [match[1] for match in (re.fullmatch(r"python(3\.\d+)", program) for program in programs) if match]
    raise _no_python(name, python, versions)


def glibc_version(rootfs: Path, name: str) -> str:
    """Version of the image's C library, "2.36". Raises ResolutionError where it has none (Alpine has musl)."""
    root = rootfs.resolve()
    for folder in GLIBC_FOLDERS:
        library = (root / folder / "libc.so.6").resolve()
        # An absolute link would lead to this machine's own.
        inside = library.is_relative_to(root) and library.is_file()
        if inside and (match := _GLIBC.search(library.read_bytes())):
            return match[1].decode()
    raise ResolutionError(
        f"{name} has no glibc",
        cause="PyTorch's wheels need glibc (manylinux); images made from Alpine have musl.",
        next_step="name a base made from Debian, Ubuntu, Rocky or UBI, such as docker.io/library/python:3.11-slim",
    )


def _python_version(rootfs: Path, interpreter: str, name: str) -> str:
    completed = run_in(
        rootfs,
        [interpreter, "-I", "-S", "-c", _ASK_VERSION],
        environment={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
        timeout=_LIKELY_SECONDS,
    )
    answers = [match[1] for match in map(_ANSWER.fullmatch, completed.lines) if match]
    if completed.returncode or not answers:
        tail = "; ".join(completed.lines[-3:])
        raise ResolutionError(
            f"{interpreter} of {name} does not run (exit code {completed.returncode}): {tail}",
            cause="The image lacks it, or its Python is broken or built for another machine.",
            next_step="name another base, or lock again if the recipe's Python was changed: ./build.py lock …",
        )
    return answers[-1]


def _no_python(name: str, python: str, found: list[str]) -> ResolutionError:
    known = ", ".join(sorted(set(found))) or f"none in /{', /'.join(FOLDERS)}"
    return ResolutionError(
        f"{name} has no Python {python}",
        cause=f"It has {known}.",
        next_step=f"name a base that has it, such as docker.io/library/python:{python}-slim",
    )
