"""The real uv against a loopback index."""

import contextlib
import hashlib
import os

import msgspec
import pytest

from graphcrate.compat import addresses
from graphcrate.compat.request import SourceOptions
from graphcrate.host import settings
from graphcrate.host.cache import Cache
from graphcrate.model.errors import NetworkError, ResolutionError
from graphcrate.model.recipe import Channel
from graphcrate.resolve import offers
from graphcrate.resolve.candidates import choose
from graphcrate.resolve.fetch import fetch
from tests.made import place
from tests.unit import small_index
from tests.unit.small_index import COMPATIBLE, CP311, PYTORCH
from tests.unit.wheel_server import Fault, WheelServer, small_wheel

pytestmark = pytest.mark.engine("uv")


@pytest.fixture
def server(monkeypatch):
    with WheelServer() as running:
        monkeypatch.setattr(addresses, "PYTORCH", running.url("/whl"))
        monkeypatch.setattr(addresses, "PYG", running.url("/whl"))
        small_index.stand_in_bases(monkeypatch)
        small_index.fill(running)
        yield running


@pytest.fixture
def cache(tmp_path):
    with contextlib.closing(Cache(tmp_path / "cache")) as opened:
        yield opened


def environment(server):
    kept = {name: value for name, value in settings.environment().items() if not name.startswith(("UV_", "PIP_"))}
    return kept | {"UV_DEFAULT_INDEX": server.url("/simple"), "PIP_CONFIG_FILE": "/dev/null", "NO_PROXY": "127.0.0.1"}


def resolved(server, cache, *candidates, request=None, **options):
    recipe = small_index.recipe(*candidates, **options)
    resolution = choose(small_index.context(recipe, request or SourceOptions(), cache, environment(server)), {})
    for compilation in (False, True):
        ctx = place(cache, environment(server))
        fetch(resolution.lock, request or SourceOptions(), ctx, compilation=compilation)
    return resolution.lock


def test_the_compatible_candidate(server, cache):
    lock = resolved(server, cache, COMPATIBLE)
    assert {package.name: package.version for package in lock.packages} == {
        "filelock": "3.0",
        "numpy": "1.26.4",
        "nvidia-cublas-cu11": "11.11.3.6",
        "setuptools": "69.5.1",
        "torch": "2.0.1",
        "torch-geometric": "2.3.1",
        "torch-scatter": "2.1.2",
        "tqdm": "4.66",
    }
    assert [package.name for package in lock.package("torch-geometric").build] == ["flit-core"]
    for package in lock.packages:
        assert package.file.sha256 == hashlib.sha256(server.files[package.file.name]).hexdigest()


def test_torch_and_extensions_from_their_channels(server, cache):
    torch = small_wheel("torch", "2.0.1+cu118", tag=CP311, requires=["filelock"])
    scatter = small_wheel("torch_scatter", "2.1.2+pt20cu118", tag=CP311, requires=["numpy", "torch"])
    server.pytorch("cu118", dict([torch]))
    server.pyg("2.0.0+cu118", dict([scatter]))
    lock = resolved(server, cache, PYTORCH)
    assert lock.package("torch").version == "2.0.1+cu118"
    assert lock.package("torch-scatter").channel is Channel.PYG
    assert lock.package("torch").file.sha256 == hashlib.sha256(torch[1]).hexdigest()


def test_a_python_that_this_machine_does_not_have(server, cache):
    recipe = small_index.recipe(COMPATIBLE)
    variant = msgspec.structs.replace(recipe.variants[0], python="3.9", torch_geometric="", extensions=())
    recipe = msgspec.structs.replace(recipe, variants=(variant,), requirements=("filelock",))
    lock = choose(small_index.context(recipe, SourceOptions(), cache, environment(server)), {}).lock
    assert lock.package("torch").file.name == "torch-2.0.1-cp39-cp39-linux_x86_64.whl"


def test_requirements_that_contradict_each_other(server, cache):
    with pytest.raises(ResolutionError) as caught:
        resolved(server, cache, COMPATIBLE, requirements=("numpy==1.26.4", "numpy==2.4.0"))
    assert "you require numpy" in caught.value.what


def test_an_index_that_breaks_down_under_uv(server, cache):
    server.faults["/simple/filelock/"] = [Fault(status=500)] * 50
    with pytest.raises(NetworkError):
        resolved(server, cache, COMPATIBLE)


def test_uv_tells_its_default_index(tmp_path):
    variables = {"UV_DEFAULT_INDEX": "https://index.example/simple", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    told = offers.emitted_indexes(variables)
    assert "--index-url https://index.example/simple" in told
