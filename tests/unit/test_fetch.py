"""From a lock to files in the cache, with mirrors that are stale, broken, slow or gone."""

import contextlib
import errno
import hashlib
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import msgspec
import pytest

from graphcrate.compat.request import SourceOptions
from graphcrate.host.cache import Cache
from graphcrate.host.http import Part
from graphcrate.model.errors import DiskFullError, IntegrityError, NetworkError
from graphcrate.model.lock import LockedFile
from graphcrate.resolve import fetch as store
from graphcrate.resolve.channels import Link
from graphcrate.resolve.fetch import bytes_to_fetch, fetch, missing_packages
from tests.made import bookworm, deb, index_of, locked, place, refused
from tests.unit import compiled_plans
from tests.unit.conftest import Recorder
from tests.unit.small_index import CP311
from tests.unit.wheel_server import Fault, WheelServer, small_sdist, small_wheel


@pytest.fixture
def server(channels):
    return channels


@pytest.fixture
def get(server, cache, progress):
    """Fetches a lock's files, by default what is installed, from the server."""

    def run(lock, compilation=False, **request):
        return fetch(lock, SourceOptions(**request), place(cache, index_of(server), progress), compilation=compilation)

    return run


def lock_of(*packages):
    lock = msgspec.structs.replace(compiled_plans.lock(None, packages), cuda="11.8", torch_cuda="11.8")
    return msgspec.structs.replace(lock, compilation=None)


def served(server, *made):
    """Put files on the index; returns their locked packages."""
    packages = [locked(one) for one in made]
    for one, package in zip(made, packages, strict=True):
        server.simple(package.name, dict([one]))
    return packages


NOISE = b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(40_000))
TORCH = small_wheel("torch", "2.0.1+cu118", tag=CP311, content=NOISE)
TORCH_PATH = f"/whl/cu118/{TORCH[0]}"


@pytest.fixture
def torch_lock(server):
    """A lock of torch alone, which PyTorch's channel has."""
    server.pytorch("cu118", dict([TORCH]))
    return lock_of(locked(TORCH, "pytorch"))


def test_files_of_all_channels_arrive(server, progress, tmp_path, get):
    server.pytorch("cu118", dict([TORCH]))
    scatter, own = small_wheel("torch_scatter", "2.1.2+pt20cu118", tag=CP311), small_wheel("own", "1.0")
    server.pyg("2.0.0+cu118", dict([scatter]))
    (tmp_path / own[0]).write_bytes(own[1])
    numpy, flit = served(server, small_wheel("numpy", "1.0"), small_wheel("flit-core", "1.0"))
    numpy = msgspec.structs.replace(numpy, build=(flit,))
    lock = lock_of(locked(TORCH, "pytorch"), locked(scatter, "pyg"), locked(own, "local"), numpy)
    files = get(lock, wheels=tmp_path)
    assert {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in files.values()} == files
    assert len(files) == 5
    assert progress.done == progress.total == sum(path.stat().st_size for path in files.values())
    assert (tmp_path / own[0]).read_bytes() == own[1]
    asked = len(server.asked)
    assert get(lock, wheels=tmp_path) == files
    assert len(server.asked) == asked, "what is in the cache needs no network"


def test_what_only_a_compile_needs_is_fetched_by_itself_and_not_where_the_wheel_is_built(server, cache, get):
    """numpy is installed, scatter compiled with ninja and a toolkit of one wheel and one .deb."""
    wheels = [small_wheel(name, "1.0") for name in ("numpy", "ninja", "cudart")]
    numpy, ninja, cudart, scatter = served(server, *wheels, small_sdist("scatter", "1.0", pyproject=""))
    changed, libc, gcc = msgspec.structs.replace, deb("libc6", size=1000), deb("g++-11", size=5000)
    scatter = changed(scatter, compiled=True)
    toolkit = changed(compiled_plans.TOOLKITS["debian"], packages=(deb("nvcc", size=70_000),), wheels=(cudart,))
    lock = compiled_plans.lock(toolkit, (numpy, scatter))
    compilation = changed(lock.compilation, base=bookworm(libc, gcc), tools=(ninja,))
    lock = changed(lock, base=bookworm(libc), compilation=compilation)
    built = {scatter.file.sha256}
    assert missing_packages(lock, cache, built) == [numpy]
    assert bytes_to_fetch(lock, cache, built) == numpy.file.size + 1000
    assert missing_packages(changed(lock, packages=(numpy,)), cache) == [numpy]
    total = sum(package.file.size for package in (numpy, scatter, ninja, cudart)) + 1000 + 5000 + 70_000
    assert bytes_to_fetch(lock, cache) == total == sum(file.size for file in lock.files().values())
    assert set(get(lock)) == {numpy.file.sha256}
    assert missing_packages(lock, cache) == [scatter, ninja, cudart]
    assert set(get(lock, compilation=True)) == {package.file.sha256 for package in (scatter, ninja, cudart)}
    assert missing_packages(lock, cache) == []
    assert get(lock_of(numpy), compilation=True) == {}


@pytest.mark.parametrize("hashes", [True, False], ids=["states another hash", "has wrong bytes"])
def test_a_mirror_with_another_file_is_followed_by_the_official_place(torch_lock, progress, get, hashes):
    name, content = TORCH
    with WheelServer() as mirror:
        mirror.pytorch("cu118", {name: b"stale" if hashes else content}, prefix="", hashes=hashes)
        mirror.faults[f"/cu118/{name}"] = [Fault(wrong=True)] * 3
        files = get(torch_lock, mirror=mirror.url(""))
        assert (f"/cu118/{name}" in mirror.paths()) is not hashes
    assert next(iter(files.values())).read_bytes() == content
    assert progress.done == progress.total


def test_a_part_of_one_source_is_completed_from_the_next(server, torch_lock, progress, get):
    with WheelServer() as mirror:
        mirror.pytorch("cu118", dict([TORCH]), prefix="")
        mirror.faults[f"/cu118/{TORCH[0]}"] = [Fault(cut_after=1_200_000)] + [Fault(status=503)] * 9
        files = get(torch_lock, mirror=mirror.url(""))
    (rest,) = (asked for asked in server.asked if asked.path == TORCH_PATH)
    assert rest.headers["range"].startswith("bytes=")
    assert next(iter(files.values())).read_bytes() == TORCH[1]
    assert progress.done == progress.total


def test_a_file_that_is_wrong_everywhere_or_that_nobody_lists_or_that_was_replaced(
    server, cache, torch_lock, progress, tmp_path, get
):
    server.faults[TORCH_PATH] = [Fault(wrong=True)] * 9
    file = torch_lock.packages[0].file
    with refused(IntegrityError, "no source of the pytorch channel", "127.0.0.1 has sha256", file.sha256):
        get(torch_lock)
    assert not cache.file(file.sha256, file.name).exists()
    server.pages.clear()
    with refused(NetworkError, "HTTP 404 (127.0.0.1)", TORCH[0]):
        get(torch_lock)
    (tmp_path / TORCH[0]).write_bytes(b"?" * len(TORCH[1]))
    with refused(IntegrityError, "no source of the local channel has the bytes"):
        get(lock_of(locked(TORCH, "local")), wheels=tmp_path)
    assert progress.done == 0


def test_a_file_newer_than_the_page_in_a_cache_on_the_way_is_found(server, get):
    lock = lock_of(*served(server, small_wheel("numpy", "2.0")))
    server.pages["/simple/numpy/"].stale = dict([small_wheel("numpy", "1.0")])
    assert [path.name for path in get(lock).values()] == ["numpy-2.0-py3-none-any.whl"]
    assert server.paths().count("/simple/numpy/") == 2


def test_too_little_room_is_noticed_before_the_first_byte_and_while_it_is_written(server, monkeypatch, get):
    lock = lock_of(*served(server, small_wheel("numpy", "1.0")))
    monkeypatch.setattr(Part, "write", mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(DiskFullError):
        get(lock)
    server.asked.clear()
    monkeypatch.setattr(Cache, "free_bytes", lambda self: 1000)
    with pytest.raises(DiskFullError, match="the download needs"):
        get(lock)
    assert server.asked == []


def test_two_runs_on_one_cache_fetch_each_file_once(server, cache, torch_lock, progress, tmp_path):
    server.faults[TORCH_PATH] = [Fault(seconds=0.2)]
    second = Recorder()
    with contextlib.closing(Cache(tmp_path / "cache")) as other, ThreadPoolExecutor(2) as pool:
        ways = [place(cache, index_of(server), progress), place(other, index_of(server), second)]
        one, two = pool.map(lambda ctx: fetch(torch_lock, SourceOptions(), ctx), ways)
    assert one == two
    assert server.paths().count(TORCH_PATH) == 1
    assert progress.done == second.done == progress.total


def test_a_local_file_that_cannot_be_read_is_named(cache, tmp_path):
    wheel = tmp_path / "torch-2.0.1-cp311-cp311-linux_x86_64.whl"
    wheel.mkdir()
    file, link = LockedFile(name=wheel.name, size=1, sha256="0" * 64), Link(name=wheel.name, url=wheel.as_uri(), size=1)
    for read in (lambda: store.store(file, link.url, None, cache), lambda: store.store_unhashed(link, None, cache)):
        with pytest.raises(NetworkError, match=r"torch-2.*cannot be read: Is a directory"):
            read()
