"""Small locked things for tests, and where inputs come to."""

import hashlib
from types import SimpleNamespace

from graphcrate.host.progress import Silent
from graphcrate.model.lock import DebianBase, DebianPackage, LockedFile, LockedPackage
from graphcrate.resolve.target import project_and_version


def place(cache, environment=None, progress=None):
    """What inputs use of a Context."""
    return SimpleNamespace(cache=cache, environment=environment or {}, progress=progress or Silent())


def file_of(name, content):
    return LockedFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def locked(made, channel="pypi", **more):
    """The lock's entry for (file name, content) of a wheel or sdist."""
    project, version = project_and_version(made[0])
    return LockedPackage(name=project, version=str(version), channel=channel, file=file_of(*made), **more)


def deb(name, version="1", *, size=1, sha256=""):
    """A locked package of Debian's."""
    sha256 = sha256 or hashlib.sha256(f"{name} {version}".encode()).hexdigest()
    file = LockedFile(name=f"{name}_{version.rpartition(':')[2]}_amd64.deb", size=size, sha256=sha256)
    return DebianPackage(name=name, version=version, architecture="amd64", file=file)


def bookworm(*packages):
    return DebianBase(suite="bookworm", packages=packages)
