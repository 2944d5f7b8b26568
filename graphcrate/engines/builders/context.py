"""The folder that an engine builds from: the rendered text, and what the plan wants beside it.

`Dockerfile`; `examples/` and `suites/`, programs that ship in the image; `inputs/wheels/`, files of the local channel;
`ca.crt`, authorities to trust during the build alone. Only the first is always there.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from graphcrate.compat.planning import EXAMPLES_TITLE, PROGRAMS
from graphcrate.engines.builders import Order
from graphcrate.model.errors import HostError
from graphcrate.model.plan import LAYER_MTIME, FilesStep, Plan, WheelsStep
from graphcrate.model.recipe import Channel
from graphcrate.model.words import is_loopback

DOCKERFILE = "Dockerfile"
CERTIFICATES = "ca.crt"
WHEELS = "wheels"
#: Engines know these without an ARG and keep them out of the image and its history.
PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")


def write(folder: Path, order: Order, text: str, name: str = DOCKERFILE) -> None:
    """Write the context into an empty folder. Raises HostError for certificates that cannot be read.

    The same order gives the same bytes, modes and times, so that engines find their cached steps again.
    """
    (folder / name).write_text(text, encoding="utf-8")
    for path, content, mode in _examples(order.plan):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8")
        target.chmod(mode)
    for wheel, source in local_files(order.plan, order.files).items():
        target = folder / WHEELS / wheel
        target.parent.mkdir(exist_ok=True)
        link_or_copy(source, target)
    if order.certificates is not None:
        try:
            (folder / CERTIFICATES).write_bytes(order.certificates.read_bytes())
        except OSError as error:
            raise HostError(
                f"{order.certificates} cannot be read: {error.strerror}",
                cause="It was given as the authorities to trust (SSL_CERT_FILE).",
            ) from error
    for place in [*folder.rglob("*"), folder]:
        if place.is_dir() or place.parent.name != WHEELS:  # those are links to the cache's own files
            place.chmod(0o755 if place.stat().st_mode & 0o100 else 0o644)
            os.utime(place, (LAYER_MTIME, LAYER_MTIME))


def local_files(plan: Plan, files: Mapping[str, Path]) -> dict[str, Path]:
    """Names and places of the local channel's files that the plan installs, sdists' build wheels among them."""
    packages = [package for step in plan.steps if isinstance(step, WheelsStep) for package in step.packages]
    packages += [build for package in packages for build in package.build]
    return {package.file.name: files[package.file.sha256] for package in packages if package.channel is Channel.LOCAL}


def arguments(order: Order, base: str) -> dict[str, str]:
    """Every build argument: the base (unless empty), the order's own, and proxies under both spellings."""
    chosen = proxies(order.environment) | dict(order.arguments)
    return chosen | ({"BASE": base} if base else {})


def proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """The proxies that this environment names; small letters go first, as in curl, and both are handed on."""
    found: dict[str, str] = {}
    for name in PROXIES:
        if value := environment.get(name) or environment.get(name.upper()):
            found |= {name: value, name.upper(): value}
    return found


def secrets(values: Mapping[str, str]) -> tuple[str, ...]:
    """`user:password` of every argument that is an address with a login, which no log may hold."""
    logins = {value.partition("//")[2].partition("/")[0].rpartition("@")[0] for value in values.values()}
    return tuple(sorted(logins - {""}))


def needs_host_network(values: Mapping[str, str]) -> bool:
    """Whether an argument names a server on this machine's loopback, which a container cannot reach as such."""
    return any(_is_loopback(value) for name, value in values.items() if name.lower() not in ("no_proxy", "base"))


def _is_loopback(value: str) -> bool:
    with contextlib.suppress(ValueError):
        return is_loopback(urlsplit(value if "//" in value else f"//{value}").hostname or "")
    return False


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link where the disk is the same and its rules allow it, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _examples(plan: Plan) -> Iterator[tuple[str, str, int]]:
    """Path below PROGRAMS, text and mode of each program that the plan ships."""
    for step in plan.steps:
        if isinstance(step, FilesStep) and step.title == EXAMPLES_TITLE:
            for file in step.files:
                if not file.folder and not file.link:
                    yield file.path.removeprefix(f"{PROGRAMS}/"), file.content, file.mode
