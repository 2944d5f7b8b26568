"""The real uv against a loopback index, and a download that is killed."""

import contextlib
import hashlib
import os
import subprocess
import sys

import msgspec
import pytest

from graphcrate.compat import addresses
from graphcrate.compat.request import SourceOptions
from graphcrate.host import settings
from graphcrate.host.cache import Cache
from graphcrate.model.errors import NetworkError, ResolutionError
from graphcrate.model.lock import DebianBase, Lock, LockedFile, LockedPackage, encode
from graphcrate.model.recipe import Channel
from graphcrate.resolve import offers
from graphcrate.resolve.candidates import choose
from graphcrate.resolve.fetch import fetch
from tests.conftest import ROOT
from tests.engines.workplace import until
from tests.made import place
from tests.unit import small_index
from tests.unit.small_index import COMPATIBLE, CP311, PYTORCH
from tests.unit.wheel_server import Fault, WheelServer, small_sdist, small_wheel

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


def test_sdists_are_not_built_for_their_metadata(server, cache, tmp_path):
    marker = tmp_path / "it ran"
    backend = (
        f"def get_requires_for_build_wheel(settings=None):\n    open({str(marker)!r}, 'w').close()\n    return []\n"
    )
    pyproject = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    sdist = small_sdist("strange", "1.0", pyproject=pyproject, more={"backend.py": backend})
    server.simple("strange", dict([sdist]))
    with pytest.raises(ResolutionError):
        resolved(server, cache, COMPATIBLE, requirements=("strange",))
    assert not marker.exists()


def test_uv_tells_its_default_index(tmp_path):
    variables = {"UV_DEFAULT_INDEX": "https://index.example/simple", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    told = offers.emitted_indexes(variables)
    assert "--index-url https://index.example/simple" in told


KILLED = """
import sys
from pathlib import Path
from graphcrate.host import settings
from graphcrate.host.cache import Cache
from graphcrate.model.lock import decode_lock
from graphcrate.compat.request import SourceOptions
from graphcrate.resolve.fetch import fetch
from tests.made import place
lock = decode_lock(Path(sys.argv[1]).read_bytes())
fetch(lock, SourceOptions(), place(Cache(Path(sys.argv[2])), settings.environment()))
"""


def test_a_download_that_is_killed_is_gone_on_with(server, tmp_path, monkeypatch):
    content = os.urandom(1 << 20) * 30
    name = "torch-2.0.1-cp311-cp311-linux_x86_64.whl"
    server.simple("torch", {name: content})
    server.slow_after = 4 << 20
    sha256 = hashlib.sha256(content).hexdigest()
    file = LockedFile(name=name, size=len(content), sha256=sha256)
    lock = Lock(
        recipe="torch",
        cuda="11.7",
        candidate="pypi",
        torch_cuda="11.7",
        python="3.11",
        created=0,
        request_sha256="",
        base=DebianBase(suite="bookworm", packages=()),
        packages=(LockedPackage(name="torch", version="2.0.1", channel=Channel.PYPI, file=file),),
    )
    (tmp_path / "lock.json").write_bytes(encode(lock))
    argv = [sys.executable, "-c", KILLED, str(tmp_path / "lock.json"), str(tmp_path / "cache")]
    variables = environment(server) | {"PYTHONPATH": str(ROOT)}
    partial = tmp_path / "cache" / "partial" / sha256
    with subprocess.Popen(argv, env=variables) as process:
        until(lambda: partial.exists() and partial.stat().st_size >= 2 << 20, process=process)
        process.kill()
    kept = partial.stat().st_size
    server.slow_after = None
    assert subprocess.run(argv, env=variables, check=False).returncode == 0
    last = [asked for asked in server.asked if asked.path == f"/files/{name}"][-1]
    assert last.headers["range"] == f"bytes={kept}-"
    assert (tmp_path / "cache" / "files" / sha256 / name).read_bytes() == content
