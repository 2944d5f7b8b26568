"""From a lock to files in the cache, with mirrors that are stale, broken, slow or gone."""

import errno
import hashlib
import threading
from pathlib import Path

import msgspec
import pytest

from graphcrate.compat.request import SourceOptions
from graphcrate.host.cache import Cache
from graphcrate.host.http import Part
from graphcrate.model.errors import DiskFullError, HostError, IntegrityError, NetworkError
from graphcrate.model.lock import (
    Compilation,
    DebianBase,
    DebianPackage,
    DebianToolkit,
    Lock,
    LockedFile,
    LockedPackage,
)
from graphcrate.model.recipe import Channel
from graphcrate.resolve import fetch as store
from graphcrate.resolve.channels import Link
from graphcrate.resolve.fetch import bytes_to_fetch, fetch, missing_packages
from tests.unit.conftest import Recorder
from tests.unit.wheel_server import Fault, WheelServer, small_sdist, small_wheel


@pytest.fixture
def server(channels):
    return channels


@pytest.fixture
def get(server, cache, progress):
    """Fetches a lock's files, by default what is installed, from the server."""

    def run(lock, compilation=False, **request):
        return fetch(lock, SourceOptions(**request), cache, environment(server), progress, compilation=compilation)

    return run


def locked_file(name, content):
    return LockedFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def package(name, version, file, channel=Channel.PYPI, build=()):
    return LockedPackage(name=name, version=version, channel=channel, file=file, build=build)


def lock_of(*packages, base=None):
    return Lock(
        recipe="pyg",
        cuda="11.8",
        candidate="pytorch",
        torch_cuda="11.8",
        python="3.11",
        created=0,
        request_sha256="",
        base=base or DebianBase(suite="bookworm", packages=()),
        packages=packages,
    )


def environment(server):
    return {"UV_DEFAULT_INDEX": server.url("/simple"), "PIP_CONFIG_FILE": "/dev/null"}


def big_wheel(name, version, **options):
    noise = b"".join(hashlib.sha256(f"{name}{number}".encode()).digest() for number in range(40_000))
    return small_wheel(name, version, content=noise, **options)


def served(server, *names):
    """Projects on the index; returns their locked packages."""
    packages = []
    for name in names:
        file, content = small_wheel(name, "1.0")
        server.simple(name, {file: content})
        packages.append(package(name, "1.0", locked_file(file, content)))
    return packages


def test_files_of_all_channels_arrive(server, progress, tmp_path, get):
    torch, torch_bytes = big_wheel("torch", "2.0.1+cu118", tag="cp311-cp311-linux_x86_64")
    server.pytorch("cu118", {torch: torch_bytes})
    scatter, scatter_bytes = small_wheel("torch_scatter", "2.1.2+pt20cu118", tag="cp311-cp311-linux_x86_64")
    server.pyg("2.0.0+cu118", {scatter: scatter_bytes})
    own, own_bytes = small_wheel("own", "1.0")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / own).write_bytes(own_bytes)
    numpy, flit = served(server, "numpy", "flit-core")
    lock = lock_of(
        package("torch", "2.0.1+cu118", locked_file(torch, torch_bytes), Channel.PYTORCH),
        package("torch-scatter", "2.1.2+pt20cu118", locked_file(scatter, scatter_bytes), Channel.PYG),
        package("own", "1.0", locked_file(own, own_bytes), Channel.LOCAL),
        package("numpy", "1.0", numpy.file, build=(flit,)),
    )
    files = get(lock, wheels=tmp_path / "wheels")
    assert len(files) == 5
    for sha256, path in files.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    assert progress.done == progress.total == sum(path.stat().st_size for path in files.values())
    assert (tmp_path / "wheels" / own).read_bytes() == own_bytes
    asked = len(server.asked)
    assert get(lock, wheels=tmp_path / "wheels") == files
    assert len(server.asked) == asked, "what is in the cache needs no network"


def deb(name, size):
    file = LockedFile(name=f"{name}.deb", size=size, sha256=hashlib.sha256(name.encode()).hexdigest())
    return DebianPackage(name=name, version="1", architecture="amd64", file=file)


def compiling_lock(server):
    """numpy is installed, scatter compiled with ninja and a toolkit of one wheel and one .deb."""
    numpy, ninja, cudart = served(server, "numpy", "ninja", "cudart")
    name, content = small_sdist("scatter", "1.0", pyproject="")
    server.simple("scatter", {name: content})
    scatter = LockedPackage(
        name="scatter", version="1.0", channel=Channel.PYPI, file=locked_file(name, content), compiled=True
    )
    compilation = Compilation(
        architectures=("7.0",),
        compiler="g++-11",
        base=DebianBase(suite="bookworm", packages=(deb("libc6", 1000), deb("g++-11", 5000))),
        tools=(ninja,),
        toolkit=DebianToolkit(version="11.8.89", suite="bookworm", packages=(deb("nvcc", 70_000),), wheels=(cudart,)),
    )
    lock = lock_of(numpy, scatter, base=DebianBase(suite="bookworm", packages=(deb("libc6", 1000),)))
    return msgspec.structs.replace(lock, compilation=compilation), numpy, scatter, ninja, cudart


def test_what_only_a_compile_needs_is_fetched_by_itself(server, cache, get):
    lock, numpy, scatter, ninja, cudart = compiling_lock(server)
    assert set(get(lock)) == {numpy.file.sha256}
    assert [package.name for package in missing_packages(lock, cache)] == ["scatter", "ninja", "cudart"]
    files = get(lock, compilation=True)
    assert set(files) == {package.file.sha256 for package in (scatter, ninja, cudart)}
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() == sha256 for sha256, path in files.items())
    assert missing_packages(lock, cache) == []
    assert get(lock_of(numpy), compilation=True) == {}


def test_what_is_missing_depends_on_what_is_built(server, cache):
    """A wheel that is there wants nothing of what it was built with, and a lock without sdists no compiler."""
    lock, numpy, scatter, ninja, cudart = compiling_lock(server)
    built = {scatter.file.sha256}
    assert missing_packages(lock, cache, built) == [numpy]
    assert bytes_to_fetch(lock, cache, built) == numpy.file.size + 1000
    assert missing_packages(msgspec.structs.replace(lock, packages=(numpy,)), cache) == [numpy]
    wheels = sum(package.file.size for package in (numpy, scatter, ninja, cudart))
    assert bytes_to_fetch(lock, cache) == wheels + 1000 + 5000 + 70_000 == lock.download_bytes


def torch_lock(server):
    name, content = big_wheel("torch", "2.0.1+cu118", tag="cp311-cp311-linux_x86_64")
    server.pytorch("cu118", {name: content})
    return name, content, lock_of(package("torch", "2.0.1+cu118", locked_file(name, content), Channel.PYTORCH))


@pytest.mark.parametrize("hashes", [True, False], ids=["states another hash", "has wrong bytes"])
def test_a_mirror_with_another_file_is_followed_by_the_official_place(server, progress, get, hashes):
    with WheelServer() as mirror:
        name, content, lock = torch_lock(server)
        mirror.pytorch("cu118", {name: b"stale" if hashes else content}, prefix="", hashes=hashes)
        mirror.faults[f"/cu118/{name}"] = [Fault(wrong=True)] * 3
        files = get(lock, mirror=mirror.url(""))
        assert (f"/cu118/{name}" in mirror.paths()) is not hashes
    assert next(iter(files.values())).read_bytes() == content
    assert progress.done == progress.total


def test_wrong_bytes_everywhere(server, cache, get):
    name, _, lock = torch_lock(server)
    server.faults[f"/whl/cu118/{name}"] = [Fault(wrong=True)] * 9
    with pytest.raises(IntegrityError, match="no source of the pytorch channel") as caught:
        get(lock)
    assert lock.packages[0].file.sha256 in caught.value.cause
    assert "127.0.0.1 has sha256" in caught.value.what
    assert not cache.file(lock.packages[0].file.sha256, name).exists()


def test_a_part_of_one_source_is_completed_from_the_next(server, progress, get):
    with WheelServer() as mirror:
        name, content, lock = torch_lock(server)
        mirror.pytorch("cu118", {name: content}, prefix="")
        mirror.faults[f"/cu118/{name}"] = [Fault(cut_after=1_200_000)] + [Fault(status=503)] * 9
        files = get(lock, mirror=mirror.url(""))
    ranges = [asked.headers.get("range") for asked in server.asked if asked.path == f"/whl/cu118/{name}"]
    assert len(ranges) == 1
    assert ranges[0] is not None
    assert next(iter(files.values())).read_bytes() == content
    assert progress.done == progress.total


def test_a_killed_run_is_gone_on_with(server, cache, get):
    name, content, lock = torch_lock(server)
    file = lock.packages[0].file
    cache.path("partial", file.sha256).write_bytes(content[:700_000])
    cache.write(cache.file(file.sha256, name), b"half: the size tells")
    get(lock)
    asked = next(asked for asked in server.asked if asked.path == f"/whl/cu118/{name}")
    assert asked.headers["range"] == "bytes=700000-"
    assert not cache.path("partial", file.sha256).exists()


def test_a_file_that_nobody_lists(server, get):
    name, _, lock = torch_lock(server)
    server.pages.clear()
    with pytest.raises(NetworkError, match=r"HTTP 404 \(127.0.0.1\)") as caught:
        get(lock)
    assert name in caught.value.what


def test_a_local_file_that_was_replaced(progress, tmp_path, get):
    name, content = small_wheel("torch", "2.13.0+cpu")
    (tmp_path / name).write_bytes(b"?" * len(content))
    lock = lock_of(package("torch", "2.13.0+cpu", locked_file(name, content), Channel.LOCAL))
    with pytest.raises(IntegrityError, match="no source of the local channel has the bytes"):
        get(lock, wheels=tmp_path)
    assert progress.done == 0


def test_too_little_room_is_noticed_before_the_first_byte_and_while_it_is_written(server, monkeypatch, get):
    def full(self, chunk):
        raise OSError(errno.ENOSPC, "No space left on device")

    lock = lock_of(*served(server, "numpy"))
    monkeypatch.setattr(Part, "write", full)
    with pytest.raises(DiskFullError):
        get(lock)
    server.asked.clear()
    monkeypatch.setattr(Cache, "free_bytes", lambda self: 1000)
    with pytest.raises(DiskFullError, match="the download needs"):
        get(lock)
    assert server.asked == []


def test_two_runs_on_one_cache_fetch_each_file_once(server, cache, progress, tmp_path):
    name, _, lock = torch_lock(server)
    server.faults[f"/whl/cu118/{name}"] = [Fault(seconds=0.2)]
    other = Cache(tmp_path / "cache")
    second = Recorder()
    errors = []

    def run(opened, watched):
        try:
            fetch(lock, SourceOptions(), opened, environment(server), watched)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in ((cache, progress), (other, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert errors == []
    assert server.paths().count(f"/whl/cu118/{name}") == 1
    assert progress.done == second.done == progress.total


@pytest.mark.parametrize("vouched", [True, False], ids=["fetch", "lock"])
def test_a_local_file_that_cannot_be_read_is_named(cache, tmp_path, monkeypatch, vouched):
    wheel = tmp_path / "torch-2.0.1-cp311-cp311-linux_x86_64.whl"
    wheel.write_bytes(b"x")
    real = Path.open

    def closed(path, *more, **options):
        if path == wheel:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *more, **options)

    monkeypatch.setattr(Path, "open", closed)
    file, link = LockedFile(name=wheel.name, size=1, sha256="0" * 64), Link(name=wheel.name, url=wheel.as_uri(), size=1)
    with pytest.raises(HostError, match=r"torch-2.*cannot be read: Permission denied"):
        store.store(file, link.url, None, cache) if vouched else store.store_unvouched(link, None, cache)
