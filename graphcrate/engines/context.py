"""The folder that an engine builds from: the rendered text, and what the plan needs beside it.

`Dockerfile`; `examples/` and `suites/`, programs that ship in the image; `inputs/wheels/`, files of the local channel;
`ca.crt`, authorities to trust during the build alone. Only the first is always there.
"""

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from graphcrate.compat.plan.image_config import PROGRAMS
from graphcrate.compat.plan.planning import EXAMPLES_TITLE
from graphcrate.engines.backend import BuildOrder
from graphcrate.host.disk.cache import Cache
from graphcrate.inputs.bases import Base
from graphcrate.model.errors import HostError
from graphcrate.model.plan import LAYER_MTIME, CompileStep, ConfigStep, FilesStep, WheelsStep
from graphcrate.model.recipe import Channel
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import Layout, write_layout
from patienthttp.errors import is_loopback

CERTIFICATES = "ca.crt"
WHEELS = "wheels"
#: Engines know these without an ARG and keep them out of the image and its history.
PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")


def write(folder: Path, order: BuildOrder, text: str, name: str) -> None:
    """Write the context into an empty folder. Raises HostError for certificates that cannot be read.

    The same order gives the same bytes, modes and times, so that engines find their cached steps again.
    """
    (folder / name).write_text(text, encoding="utf-8")
    shipped = [step for step in order.plan.of(FilesStep) if step.title == EXAMPLES_TITLE]
    for file in (file for step in shipped for file in step.files if not file.folder and not file.link):
        target = folder / file.path.removeprefix(f"{PROGRAMS}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.content, encoding="utf-8")
        target.chmod(file.mode)
    with_files = [step for step in order.plan.steps if isinstance(step, WheelsStep | CompileStep)]
    packages = [package for step in with_files for package in step.packages]
    packages += [build for package in packages for build in package.build]
    for package in dict.fromkeys(package for package in packages if package.channel is Channel.LOCAL):
        source, target = order.files[package.file.sha256], folder / WHEELS / package.file.name
        target.parent.mkdir(exist_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another disk, or rules against it
            shutil.copyfile(source, target)
    if order.certificates is not None:
        try:
            (folder / CERTIFICATES).write_bytes(order.certificates.read_bytes())
        except OSError as error:
            raise HostError(
                f"{order.certificates} cannot be read: {error.strerror}",
                cause="It was given as the authorities to trust (SSL_CERT_FILE).",
                next_step="unset SSL_CERT_FILE, or name a file that you can read",
            ) from error
    for path in [*folder.rglob("*"), folder]:
        if path.is_dir() or path.parent.name != WHEELS:  # those are links to the cache's own files
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
            os.utime(path, (LAYER_MTIME, LAYER_MTIME))


def arguments(order: BuildOrder, base: str) -> dict[str, str]:
    """Every build argument: the base (unless empty), the order's own, and proxies under both spellings."""
    chosen = proxies(order.environment) | dict(order.arguments)
    return chosen | ({"BASE": base} if base else {})


def proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """The proxies that this environment names; small letters go first, as in curl, and both are handed on."""
    named: dict[str, str] = {}
    for name in PROXIES:
        if value := environment.get(name) or environment.get(name.upper()):
            named |= {name: value, name.upper(): value}
    return named


def secrets(values: Mapping[str, str]) -> tuple[str, ...]:
    """`user:password` of every argument that is an address with a login, which no log may hold."""
    logins = {value.partition("//")[2].partition("/")[0].rpartition("@")[0] for value in values.values()}
    return tuple(sorted(logins - {""}))


def needs_host_network(values: Mapping[str, str]) -> bool:
    """Return whether an argument names a server on this machine's loopback, which a container cannot reach as such."""
    for name, value in values.items():
        with contextlib.suppress(ValueError):
            host = urlsplit(value if "//" in value else f"//{value}").hostname or ""
            if name.lower() not in ("no_proxy", "base") and is_loopback(host):
                return True
    return False


def base_layout(base: Base, cache: Cache) -> Layout:
    """The base as an OCI layout in the cache, at once where it is there. Its blobs are links to the cache's.

    Exactly its layers, and a configuration that adds nothing: an engine that pulls `debian:bookworm-slim` gets today's
    packages, one that starts from here ends with the embedded builder's files. The same base has the same digest on any
    machine. No labels: what an engine builds on it would inherit them.
    """
    config = ConfigStep(environment={}, labels={}, command=("/bin/bash",))
    image = make_image(base.layers, config, LAYER_MTIME, base.environment, base.platform)
    with cache.guard():
        return write_layout(cache.path("foundations", image.digest.removeprefix("sha256:")), image, cache.blob, "base")


def base_name(layout: Layout) -> str:
    """The name that Docker and podman know the base by: `graphcrate/base:<12 digits of its id>`."""
    return f"graphcrate/base:{layout.manifest.config.digest.removeprefix('sha256:')[:12]}"
