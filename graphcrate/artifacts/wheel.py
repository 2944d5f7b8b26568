"""Wheels (PEP 427) as `wheelread` opens them, and whether one is for an image."""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags

from graphcrate.artifacts.wheel_archive import WheelArchive
from graphcrate.model.command import LOCK_AGAIN
from graphcrate.model.errors import BuildError, IntegrityError
from graphcrate.model.platform import DEFAULT, Platform
from wheelread import wheel as wheels
from wheelread.wheel import Wheel


@contextlib.contextmanager
def open_wheel(path: Path) -> Iterator[Wheel]:
    """Open a wheel after checking everything but the members' content, which is checked while it is read.

    Raises IntegrityError naming the wheel, the member and what is wrong.
    """
    wheels.parse_name(path.name, IntegrityError)  # an invalid file name is not damage
    with WheelArchive(path) as archive:
        yield wheels.checked(archive)


def check_tags(filename: str, python: str, glibc: str, platform: Platform = DEFAULT) -> None:
    """Raises BuildError unless the wheel is for this Python ("3.11") and a glibc of this version on the platform.

    Goes by the file name, as installers do: the WHEEL file inside of torch says `linux_x86_64`.
    """
    _, _, tags = wheels.parse_name(filename, IntegrityError)
    if tags.isdisjoint(supported_tags(python, glibc, platform)):
        raise BuildError(
            f"{filename} is not for this image: Python {python} on {platform.title} Linux with glibc {glibc}",
            cause=f"Its tags are {', '.join(sorted(map(str, tags)))}.",
            next_step=f"lock the variant again ({LOCK_AGAIN}), or put the wheel for this Python into the folder",
        )


@functools.cache  # a build asks once for each of its wheels
def supported_tags(python: str, glibc: str, platform: Platform = DEFAULT) -> tuple[Tag, ...]:
    """Every tag that CPython `python` ("3.11") on the platform with this glibc can install, the best first.

    By PEP 425 and PEP 600.
    """
    version = tuple(int(part) for part in python.split(".")[:2])
    interpreter = f"cp{version[0]}{version[1]}"
    # `packaging` asks the running system where it is not told; the image's is told throughout.
    abi = interpreter + ("m" if version < (3, 8) else "")
    platforms = [*_manylinux(glibc, platform), platform.wheel_tag]
    return (
        *cpython_tags(version, abis=[abi], platforms=platforms),
        *compatible_tags(version, interpreter=interpreter, platforms=platforms),
    )


def _manylinux(glibc: str, platform: Platform) -> Iterator[str]:
    major, minor = (int(part) for part in glibc.split(".")[:2])
    if major != 2:
        raise BuildError(
            f"glibc {glibc} is not known: manylinux is defined for glibc 2",
            next_step="take a base with glibc 2 (base.suite in the recipe)",
        )
    for number in range(minor, platform.oldest_glibc - 1, -1):
        yield from platform.manylinux(number)
