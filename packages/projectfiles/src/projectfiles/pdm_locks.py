"""pdm.lock: the versions of a project whose needs its pyproject.toml has."""

import msgspec

from projectfiles.parts import LockedFile, PinnedGit, at_commits, hashes_of, merged
from projectfiles.toml_text import package_places, read_toml
from projectfiles.values import Needs, Release


class _PdmPackage(msgspec.Struct, frozen=True):
    name: str
    version: str = ""
    files: list[LockedFile] = []
    marker: str = ""
    git: str = ""
    ref: str = ""
    revision: str = ""
    subdirectory: str = ""
    path: str = ""
    url: str = ""


class _PdmLock(msgspec.Struct, frozen=True):
    package: list[_PdmPackage] = []


def read(text: str, name: str, project: Needs) -> Needs:
    """Return a project's needs, and the versions of its pdm.lock. Raises ProjectFileError."""
    lock, at = read_toml(text, name, _PdmLock), package_places(text, name)
    project.locked += merged(
        Release(at(package.name), package.name, package.version, hashes_of(package.files), package.marker)
        for package in lock.package
        if not (package.git or package.path or package.url)
    )
    gits = [
        PinnedGit(package.git, package.ref, package.revision, package.subdirectory)
        for package in lock.package
        if package.git
    ]
    project.lines = at_commits(project.lines, gits)
    return project
