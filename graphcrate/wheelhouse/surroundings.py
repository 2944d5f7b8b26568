"""What a compiled wheel will lie in, as an audit has it: the runtime base, the packages that it was compiled against.

Torch and CUDA are gigabytes of which a check needs a few tables: a library is read when it is asked for.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from graphcrate.audit.loading import SYSTEM_FOLDERS
from graphcrate.errors import IntegrityError
from graphcrate.formats import binary
from graphcrate.model.audit import Binary, Contents, Distribution
from graphcrate.model.plan import VENV, site_packages

LIBRARY = re.compile(r"\.so(\.[0-9]+)*$")
_INTERPRETER = re.compile(r"/bin/python3\.\d+$")
_NO_ELF = "is no library"


class _Files(Mapping[str, Binary]):
    """A wheel's own files, over libraries and interpreters below folders of the host, by their paths in the image."""

    def __init__(self, own: Mapping[str, Binary], folders: Mapping[str, Path]) -> None:
        self.links: dict[str, str] = {}
        self._own = own
        self._places: dict[str, Path] = {}
        for inside, folder in folders.items():
            for parent, names, files in os.walk(folder):
                below = f"{inside}{parent[len(str(folder)) :]}"
                for name in (*names, *files):
                    self._add(f"{below}/{name}", Path(parent, name))

    def _add(self, path: str, place: Path) -> None:
        if place.is_symlink():
            self.links[path] = str(place.readlink())
        elif (LIBRARY.search(path) or _INTERPRETER.search(path)) and place.is_file():
            self._places[path] = place

    def __getitem__(self, path: str) -> Binary:
        if path in self._own:
            return self._own[path]
        place = self._places[path]
        about = place.stat()
        return _read_once(place, about.st_ino, about.st_mtime_ns, about.st_size)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places | dict.fromkeys(self._own))

    def __len__(self) -> int:
        return len(self._places.keys() | self._own.keys())


@functools.lru_cache(maxsize=256)
def _read_once(place: Path, _inode: int, _time: int, size: int) -> Binary:
    # torch's tables take a second to read: all extensions of an image share them.
    with place.open("rb") as file:
        return binary.of_file(file, str(place)) or Binary(size=size, fault=_NO_ELF)


def surrounded(own: Mapping[str, Binary], *, site: Path, rootfs: Path, python: str) -> Contents:
    """A wheel's files, by their paths in the image, over what is there.

    `site`: the folder that is /opt/venv while it is compiled, with torch and what torch needs; `rootfs`: the base.
    Raises IntegrityError for a base without this Python.
    """
    folder = site_packages(python)
    files = _Files(own, {"": rootfs, VENV: site})
    if not any(path.endswith(f"/bin/python{python}") for path in files):
        raise IntegrityError(
            f"there is no Python {python} in the base at {rootfs}",
            cause="The base was not prepared for this image, or is damaged.",
        )
    installed = (
        Distribution(
            name=canonicalize_name(found.metadata["Name"]),
            version=found.version,
            folder=folder,
            requires=tuple(found.requires or ()),
            files=frozenset(f"{folder}/{file}" for file in found.files or () if LIBRARY.search(file.name)),
        )
        for found in distributions(path=[str(site / Path(folder).relative_to(VENV))])
    )
    return Contents(
        name="wheel",
        form="wheels",
        binaries=files,
        links=files.links,
        distributions=tuple(installed),
        python=python,
        folders=SYSTEM_FOLDERS,
    )
