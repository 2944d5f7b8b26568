"""Small locked things for tests, and where inputs come to."""

import contextlib
import hashlib
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.compat.variants import recipes
from graphcrate.compat.variants.request import BuildRequest, SourceOptions, SuiteOptions
from graphcrate.compat.variants.targets import MachineRequest
from graphcrate.host.progress import Progress
from graphcrate.model.lock import DebianBase, DebianPackage, LockedFile, LockedPackage
from graphcrate.model.recipe import Channel
from graphcrate.resolve.sources.target import project_and_version
from tests import ROOT

RECIPES = {path.stem: recipes.load(path) for path in sorted((ROOT / "recipes").glob("*.toml"))}
#: recipes of one day, for what tests say word by word: a new release changes the committed ones (docs/dev/update.md)
OF_ONE_DAY = ROOT / "tests" / "unit" / "golden" / "recipes"
KNOWN = {path.stem: recipes.load(path) for path in sorted(OF_ONE_DAY.glob("*.toml"))}
#: (recipe, variant, candidate)
SHIPPED = [(one, variant, way) for one in RECIPES.values() for variant in one.variants for way in variant.candidates]


@contextlib.contextmanager
def refused(kind, *words):
    """Expect an error of this kind in the block, whose text with cause and next step has all these words."""
    with pytest.raises(kind) as caught:
        yield caught
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


def build_request(**options):
    """A request by its options alone, whichever value they stand in: `gpu`, `channel`, `rerun`, `name` and the like."""
    kinds = {"machine": MachineRequest, "sources": SourceOptions, "suites": SuiteOptions}
    values = {
        field: kind(**{name: options.pop(name) for name in kind.__struct_fields__ if name in options})
        for field, kind in kinds.items()
    }
    return BuildRequest(**{"name": "pyg", "cuda": "11.8", **values, **options})


def index_of(server):
    """The environment of a user whose package index is this server, without settings of pip and public mirrors."""
    return {"UV_DEFAULT_INDEX": server.url("/simple"), "PIP_CONFIG_FILE": "/dev/null", "WHEEL_FALLBACK": "none"}


def public(server, monkeypatch):
    """The environment of a user who has set no index, where uv's own is this server, and public mirrors are asked."""
    emitted = f"--index-url {server.url('/simple')}\n"
    monkeypatch.setattr("graphcrate.resolve.sources.request_sources.emitted_indexes", lambda *_: emitted)
    return {"PIP_CONFIG_FILE": "/dev/null"}


def place(cache, environment=None, progress=None, *, without_security=False):
    """The part of a Context that inputs use."""
    return SimpleNamespace(
        cache=cache,
        environment=environment or {},
        progress=progress or Progress(),
        without_security=without_security,
    )


def file_of(name, content):
    return LockedFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def named(name, size=None):
    """A locked file of which only the name matters; its hash is the name's."""
    return LockedFile(name=name, size=size or 1000 + len(name), sha256=hashlib.sha256(name.encode()).hexdigest())


def locked(made, channel="pypi", **more):
    """The lock's entry for (file name, content) of a wheel or sdist."""
    project, version = project_and_version(made[0])
    return LockedPackage(name=project, version=str(version), channel=channel, file=file_of(*made), **more)


def wheel(name, version="1.0", channel="pypi", *, ending="-py3-none-any.whl", size=None, **more):
    """A locked wheel that is nowhere."""
    file = named(f"{name.replace('-', '_')}-{version}{ending}", size)
    return LockedPackage(name=name, version=version, channel=Channel(channel), file=file, **more)


def sdist(name, version="1.0", channel="pypi", *, compiled=True, **more):
    """A locked sdist that is nowhere."""
    return wheel(name, version, channel, ending=".tar.gz", compiled=compiled, **more)


def deb(name, version="1", *, size=None, sha256="", architecture="amd64", path=""):
    """A locked package of Debian's."""
    file = named(f"{name}_{version.rpartition(':')[2]}_{architecture}.deb", size)
    file = msgspec.structs.replace(file, sha256=sha256 or file.sha256)
    return DebianPackage(name=name, version=version, architecture=architecture, file=file, path=path)


def bookworm(*packages):
    return DebianBase(suite="bookworm", packages=packages)
