"""What a pure-Python sdist says of itself: its requirements and those of its build back-end. Nothing is run."""

import email
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from graphcrate.errors import IntegrityError

#: of an sdist without [build-system], by PEP 517
LEGACY_BUILD = ("setuptools>=40.8", "wheel")
LARGEST = 1 << 20  #: bytes of a metadata file that is still read


class SdistMetadata(msgspec.Struct, frozen=True):
    """PEP 508 requirements to run and to build."""

    requires: tuple[str, ...]
    build_requires: tuple[str, ...]


def read_sdist(path: Path, name: str) -> SdistMetadata:
    """Read pyproject.toml and PKG-INFO of an sdist named `name`. Raises IntegrityError when they are not there."""
    try:
        with tarfile.open(path) as archive:
            pyproject = tomllib.loads(_member(archive, "pyproject.toml") or "")
            info = _member(archive, "PKG-INFO")
    except (tarfile.TarError, EOFError, OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _broken(name, str(error)) from error
    if info is None:
        raise _broken(name, "it has no PKG-INFO")
    build: dict[str, Any] = pyproject.get("build-system", {})
    return SdistMetadata(_requires(pyproject, info), tuple(build.get("requires", LEGACY_BUILD)))


def _requires(pyproject: dict[str, Any], info: str) -> tuple[str, ...]:
    """[project] binds unless it calls its dependencies dynamic (PEP 621); then PKG-INFO, which the back-end wrote."""
    project = pyproject.get("project", {})
    if project and "dependencies" not in project.get("dynamic", ()):
        return tuple(project.get("dependencies", ()))
    stated = email.message_from_string(info).get_all("Requires-Dist") or []
    return tuple(requirement for requirement in stated if "extra ==" not in requirement)


def _member(archive: tarfile.TarFile, name: str) -> str | None:
    """The text of `<top>/name`."""
    for member in archive:
        if member.isfile() and member.name.count("/") == 1 and member.name.endswith(f"/{name}"):
            stream = archive.extractfile(member)
            return stream.read(LARGEST).decode("utf-8") if stream else None
    return None


def _broken(name: str, detail: str) -> IntegrityError:
    return IntegrityError(
        f"{name} is not a usable source archive: {detail}",
        next_step="lock another version, or bring a wheel of it: WHEELS=/path",
    )
