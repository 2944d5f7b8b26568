"""What a pure-Python sdist says of itself: its requirements and those of its build back-end. Nothing is run."""

import email
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from graphcrate.model.errors import IntegrityError

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
            listed = _member(archive, "requires.txt", below=".egg-info")
    except (tarfile.TarError, EOFError, OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _broken(name, str(error)) from error
    if info is None:
        raise _broken(name, "it has no PKG-INFO")
    build: dict[str, Any] = pyproject.get("build-system", {})
    return SdistMetadata(_requires(pyproject, info, listed or ""), tuple(build.get("requires", LEGACY_BUILD)))


def _requires(pyproject: dict[str, Any], info: str, listed: str) -> tuple[str, ...]:
    """[project] binds unless it calls its dependencies dynamic (PEP 621). Then what the back-end wrote: PKG-INFO, or
    where an old setuptools left them out of it (torch_geometric 2.3.1), requires.txt."""
    project = pyproject.get("project", {})
    if project and "dependencies" not in project.get("dynamic", ()):
        return tuple(project.get("dependencies", ()))
    stated = email.message_from_string(info).get_all("Requires-Dist") or []
    return tuple(item for item in stated if "extra ==" not in item) or _of_requires_txt(listed)


def _of_requires_txt(text: str) -> tuple[str, ...]:
    """Requirements of setuptools' requires.txt; a section `[:marker]` is conditional, `[name]` is an extra."""
    found, section = [], ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not section:
            found.append(line)
        elif line and section.startswith(":"):
            found.append(f"{line} ; {section[1:]}")
    return tuple(found)


def _member(archive: tarfile.TarFile, name: str, below: str = "") -> str | None:
    """The text of `<top>/name`, or of `<top>/<any><below>/name`."""
    for member in archive.getmembers():
        folder, _, last = member.name.rpartition("/")
        _, slash, inner = folder.partition("/")
        if member.isfile() and last == name and (inner.endswith(below) and bool(slash) == bool(below)):
            stream = archive.extractfile(member)
            return stream.read(LARGEST).decode("utf-8") if stream else None
    return None


def _broken(name: str, detail: str) -> IntegrityError:
    return IntegrityError(
        f"{name} is not a usable source archive: {detail}",
        next_step="lock another version, or bring a wheel of it: WHEELS=/path",
    )
