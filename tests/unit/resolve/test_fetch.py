"""From a lock to files in the cache, with mirrors that are stale, broken, slow or gone."""

import contextlib
import errno
import hashlib
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from graphcrate.compat.facts import addresses
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.arrivals import Arrivals
from graphcrate.host.disk.cache import Cache
from graphcrate.host.net import Client
from graphcrate.host.parallel import StoppedError
from graphcrate.model.errors import DiskFullError, HostError, IntegrityError, LockedError, NetworkError
from graphcrate.model.lock import LockedFile
from graphcrate.model.recipe import Channel
from graphcrate.resolve.sources import fetch as store
from graphcrate.resolve.sources import storing, wheel_mirrors
from graphcrate.resolve.sources.fetch import bytes_to_fetch, fetch, missing_packages
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Link
from graphcrate.resolve.sources.wheel_mirrors import WheelMirror
from patienthttp.client import CHUNK, PartialDownload
from tests.made import bookworm, deb, file_of, index_of, locked, place, public, refused
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

    def run(lock, compilation=False, fallback=False, **request):
        environment = index_of(server) | ({"WHEEL_FALLBACK": ""} if fallback else {})
        return fetch(lock, SourceOptions(**request), place(cache, environment, progress), compilation=compilation)

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


def test_fetch_gets_files_of_all_channels(server, progress, tmp_path, get):
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


def test_build_requirements_are_fetched_unless_the_wheel_is_built(server, cache, get):
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


MIRRORED, PAGE = f"/cu118/{TORCH[0]}", "/cu118/torch/"
#: what is wrong with a mirror: why in the log, what it serves, its faults, its paths that are asked
BROKEN = {
    "no page": ("HTTP 404", None, {}, [PAGE]),
    "a page without it": ("it is not listed", small_wheel("torch", "2.0.0+cu118", tag=CP311), {}, [PAGE]),
    "a damaged page": ("the page is damaged", b"<![x[", {}, [PAGE]),
    "a page cut off": ("connection was cut", TORCH, {PAGE: Fault(cut_after=9)}, [PAGE] * 2),
    "a busy index": ("HTTP 503", TORCH, {PAGE: Fault(status=503)}, [PAGE] * 2),
    "another hash": ("it has another file of this name", (TORCH[0], b"stale"), {}, [PAGE]),
    "wrong bytes": ("it has other bytes", TORCH, {MIRRORED: Fault(wrong=True)}, [PAGE, MIRRORED]),
    "no file": ("HTTP 404", TORCH, {MIRRORED: Fault(status=404)}, [PAGE, MIRRORED]),
    "busy files": ("HTTP 429", TORCH, {MIRRORED: Fault(status=429)}, [PAGE, *[MIRRORED] * 2]),
}


@pytest.mark.parametrize("case", BROKEN)
def test_failing_mirror_is_noted_and_the_official_source_used(server, torch_lock, progress, get, case):
    why, has, faults, asked = BROKEN[case]
    with WheelServer() as mirror:
        if isinstance(has, bytes):
            mirror.put(PAGE, has)
        elif has:
            mirror.pytorch("cu118", dict([has]), prefix="")
        mirror.faults = {path: [fault] * 9 for path, fault in faults.items()}
        (file,) = get(torch_lock, mirror=mirror.url("")).values()
        assert mirror.paths() == asked
        lines = [f"127.0.0.1:{mirror.port} does not give {TORCH[0]} ({why}): looking elsewhere"]
    assert (file.read_bytes(), progress.lines) == (TORCH[1], lines)
    assert progress.done == progress.total
    assert server.paths() == ["/whl/cu118/torch/", TORCH_PATH]


def test_partial_download_is_completed_from_the_next_source(server, torch_lock, progress, get):
    with WheelServer() as mirror:
        mirror.pytorch("cu118", dict([TORCH]), prefix="")
        mirror.faults[f"/cu118/{TORCH[0]}"] = [Fault(cut_after=1_200_000)] + [Fault(status=503)] * 9
        files = get(torch_lock, mirror=mirror.url(""))
    (rest,) = (asked for asked in server.asked if asked.path == TORCH_PATH)
    assert rest.headers["range"].startswith("bytes=")
    assert next(iter(files.values())).read_bytes() == TORCH[1]
    assert progress.done == progress.total


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: content + b"x", lambda content: b""])
def test_cached_file_of_another_size_is_fetched_again(server, cache, torch_lock, get, damage):
    get(torch_lock)
    (package,) = torch_lock.packages
    cached = cache.file(package.file.sha256, package.file.name)
    cached.write_bytes(damage(cached.read_bytes()))
    assert bytes_to_fetch(torch_lock, cache) == package.file.size
    server.asked.clear()
    assert get(torch_lock)[package.file.sha256].read_bytes() == TORCH[1]
    assert TORCH_PATH in server.paths()


def test_file_with_a_wrong_hash_or_unlisted_everywhere_is_an_error(server, cache, torch_lock, progress, tmp_path, get):
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


def test_file_missing_from_a_stale_index_page_is_found(server, get):
    lock = lock_of(*served(server, small_wheel("numpy", "2.0")))
    server.pages["/simple/numpy/"].stale = dict([small_wheel("numpy", "1.0")])
    assert [path.name for path in get(lock).values()] == ["numpy-2.0-py3-none-any.whl"]
    assert server.paths().count("/simple/numpy/") == 2


def test_wheel_that_a_folder_lacks_is_not_waited_for(get, tmp_path, monkeypatch):
    """A server behind an address may be older than another; a folder is what it is."""
    monkeypatch.setattr("graphcrate.resolve.sources.search.AGAIN", (1e20,))
    lock = lock_of(locked(small_wheel("mine", "1.0"), "local"))
    with refused(NetworkError, "no source of the local channel gives it"):
        get(lock, wheels=tmp_path)


def test_fetch_from_a_good_first_source_asks_no_other(server, mirrors, progress, get):
    """A page and a file of each package; what comes after the first place is not asked."""
    made = [small_wheel(name, "1.0") for name in ("numpy", "tqdm")]
    lock = lock_of(*served(server, *made), locked(TORCH, "pytorch"))
    server.pytorch("cu118", dict([TORCH]))
    expected = ["/whl/cu118/torch/", TORCH_PATH]
    expected += [path for name, _ in made for path in (f"/simple/{name.split('-')[0]}/", f"/files/{name}")]
    get(lock, fallback=True)
    assert (sorted(server.paths()), progress.lines) == (sorted(expected), [])
    assert [mirror.asked for mirror in mirrors] == [[], []]


@pytest.fixture
def get_public(server, cache, progress, monkeypatch):
    """As `get`, for a user who has set no index: uv's own is the server."""
    environment = public(server, monkeypatch)

    def run(lock, more=None, **request):
        return fetch(lock, SourceOptions(**request), place(cache, environment | (more or {}), progress))

    return run


def test_file_gone_from_its_channel_comes_from_public_mirrors(server, mirrors, progress, get_public):
    """torch, whose page does not list it any more, and numpy, which the index has deleted."""
    one, two = mirrors
    numpy = small_wheel("numpy", "1.0")
    for place_without in (server, one):
        place_without.pytorch("cu118", dict([small_wheel("torch", "2.0.0+cu118", tag=CP311)]))
    two.pytorch("cu118", dict([TORCH]))
    two.simple("numpy", dict([numpy]))
    files = get_public(lock_of(locked(TORCH, "pytorch"), locked(numpy)))
    assert {path.name: path.read_bytes() for path in files.values()} == dict([TORCH, numpy])
    assert sorted(one.paths()) == ["/simple/numpy/", "/whl/cu118/torch/"]
    assert sorted(progress.lines) == sorted(
        f"127.0.0.1:{place.port} does not give {name} ({why}): looking elsewhere"
        for place, name, why in [
            (server, TORCH[0], "it is not listed"),
            (one, TORCH[0], "it is not listed"),
            (server, numpy[0], "HTTP 404"),
            (one, numpy[0], "HTTP 404"),
        ]
    )
    assert progress.done == progress.total


def test_failing_source_is_noted_once_and_then_counted(mirrors, progress, get_public):
    made = [small_wheel(name, "1.0") for name in ("numpy", "tqdm", "pillow")]
    for name, content in made:
        mirrors[0].simple(name.partition("-")[0], {name: content})
    get_public(lock_of(*map(locked, made)))
    first, last = progress.lines
    assert "(HTTP 404): looking elsewhere" in first
    assert "did not give 3 files (HTTP 404)" in last


CORPORATE = "UV_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX"


@pytest.mark.parametrize("variable", [*CORPORATE, "WHEEL_FALLBACK"])
def test_packages_of_a_private_index_are_not_asked_of_public_mirrors(server, mirrors, get_public, variable):
    """An index of one's own, beside the default one too, or the word that no public mirror is to be asked."""
    secret = small_wheel("secret", "1.0")
    mirrors[0].simple("secret", dict([secret]))
    setting = {variable: "none" if variable == "WHEEL_FALLBACK" else server.url("/own")}
    with refused(NetworkError, "no source of the pypi channel gives it", "HTTP 404 (127.0.0.1)", "MIRROR=sjtu"):
        get_public(lock_of(locked(secret)), setting)
    assert [mirror.asked for mirror in mirrors] == [[], []]
    # A mirror that a person names is theirs to name.
    assert len(get_public(lock_of(locked(secret)), setting, mirror="one")) == 1
    assert mirrors[1].asked == []


def test_explicit_default_index_allows_mirrors_and_local_wheels_do_not(server, mirrors, tmp_path, get_public):
    numpy, own = small_wheel("numpy", "1.0"), small_wheel("own", "1.0")
    mirrors[0].simple("numpy", dict([numpy]))
    mirrors[0].simple("own", dict([own]))
    assert len(get_public(lock_of(locked(numpy)), {"PIP_INDEX_URL": server.url("/simple/")})) == 1
    with refused(NetworkError, "does not list own-1.0", "WHEELS="):
        get_public(lock_of(locked(own, "local")), wheels=tmp_path)
    assert mirrors[0].paths() == ["/simple/numpy/", f"/files/{numpy[0]}"]


def test_unreachable_public_mirror_is_tried_once(server, mirrors, progress, monkeypatch, get_public):
    knocked, reaches = [], Client.reaches
    monkeypatch.setattr(
        Client, "reaches", lambda self, url, seconds: knocked.append(url) or reaches(self, url, seconds)
    )
    known = {"gone": WheelMirror(pypi="http://127.0.0.1:1/simple"), **wheel_mirrors.MIRRORS}
    monkeypatch.setattr(wheel_mirrors, "MIRRORS", known)
    monkeypatch.setattr(store, "THREADS", 1)
    made = [small_wheel(name, "1.0") for name in ("numpy", "tqdm")]
    for name, content in made:
        mirrors[0].simple(name.partition("-")[0], {name: content})
    get_public(lock_of(*map(locked, made)))
    assert knocked == ["http://127.0.0.1:1/simple", mirrors[0].url("/simple")]
    assert progress.lines[-1].startswith("127.0.0.1:1 did not give 2 files (no answer")


def test_failed_file_stops_the_search_for_others(server, cache):
    def stopped(_):
        raise StoppedError

    offers = Offers(Sources(SourceOptions(), cache, index_of(server)), "", "11.8")
    with pytest.raises(StoppedError):
        store.fetch_one(locked(small_wheel("numpy", "1.0")), offers, stopped)
    assert server.asked == []


def test_files_arrive_one_by_one_and_those_of_the_cache_at_once(server, cache):
    numpy, flit = served(server, small_wheel("numpy", "1.0"), small_wheel("flit-core", "1.0"))
    ctx = place(cache, index_of(server))
    fetch(lock_of(flit), SourceOptions(), ctx)
    arrivals = Arrivals([numpy.file.sha256, flit.file.sha256, "another"])
    fetch(lock_of(numpy, flit), SourceOptions(), ctx, arrivals=arrivals)
    there = [future.done() for future in arrivals.of([numpy.file.sha256, flit.file.sha256, "another", "unknown"])]
    assert there == [True, True, False]
    error = NetworkError("gone")
    arrivals.fail(error)
    assert [future.exception() for future in arrivals.of([numpy.file.sha256, "another"])] == [None, error]


def test_file_that_is_fetched_for_the_image_and_for_a_compile_arrives_once(server, cache):
    (flit,) = served(server, small_wheel("flit_core", "3.9"))
    ctx, arrivals = place(cache, index_of(server)), Arrivals([flit.file.sha256])
    for _ in range(2):
        fetch(lock_of(flit), SourceOptions(), ctx, arrivals=arrivals)
    (arrived,) = arrivals.of([flit.file.sha256])
    assert arrived.done()


def test_fetch_ends_when_nothing_waits_for_it_any_more(server, cache):
    (numpy,) = served(server, small_wheel("numpy", "1.0"))
    arrivals = Arrivals([numpy.file.sha256])
    arrivals.stop()
    with pytest.raises(StoppedError):
        fetch(lock_of(numpy), SourceOptions(), place(cache, index_of(server)), arrivals=arrivals)
    assert not cache.has_file(numpy.file.sha256, numpy.file.name, numpy.file.size)


def test_fetch_error_names_the_lock_command_or_the_network_if_all_are_silent(server, mirrors, get_public):
    numpy = lock_of(locked(small_wheel("numpy", "1.0")))
    with refused(NetworkError, "the pypi channel and no public mirror gives it", "or lock again: ./build.py lock"):
        get_public(numpy)
    for one in (server, *mirrors):
        one.faults["/simple/numpy/"] = [Fault(status=503)] * 99
    with refused(NetworkError, "HTTP 503", "check the network of this machine"):
        get_public(numpy)


def test_busy_source_is_retried_if_no_other_has_the_file(server, mirrors, get_public):
    name, content = numpy = small_wheel("numpy", "1.0")
    server.simple("numpy", dict([numpy]))
    path = f"/files/{name}"
    server.faults = {place: [Fault(status=503)] * 4 for place in ("/simple/numpy/", path)}
    (file,) = get_public(lock_of(locked(numpy))).values()
    assert file.read_bytes() == content
    assert server.paths() == ["/simple/numpy/"] * 5 + [path] * 5
    assert [mirror.paths() for mirror in mirrors] == [["/simple/numpy/"]] * 2


def test_busy_source_is_asked_twice_if_another_has_the_file(server, mirrors, get_public):
    name, content = numpy = small_wheel("numpy", "1.0")
    server.simple("numpy", dict([numpy]))
    mirrors[1].simple("numpy", dict([numpy]))
    server.faults = {f"/files/{name}": [Fault(status=503)] * 9}
    (file,) = get_public(lock_of(locked(numpy))).values()
    assert file.read_bytes() == content
    assert server.paths() == ["/simple/numpy/", *[f"/files/{name}"] * 2]


def test_stalled_source_is_asked_last_for_other_files(server, mirrors, cache, progress, monkeypatch, get_public):
    monkeypatch.setattr("patienthttp.patience.SILENT_SECONDS", 0.1)
    monkeypatch.setattr(store, "THREADS", 1)
    made = [small_wheel(name, "1.0", content=b"1" * size) for name, size in (("numpy", 900), ("tqdm", 90), ("own", 9))]
    for one in made:
        server.simple(one[0].partition("-")[0], dict([one]))
    for one in made[:2]:
        mirrors[0].simple(one[0].partition("-")[0], dict([one]))
    server.faults["/simple/numpy/"] = [Fault(seconds=0.5)] * 9
    assert len(get_public(lock_of(*map(locked, made)))) == 3
    assert server.paths() == ["/simple/numpy/"] * 2 + ["/simple/own/", f"/files/{made[2][0]}"]


def test_unreachable_source_is_not_asked_for_other_files(mirrors, progress, monkeypatch, get_public):
    monkeypatch.setitem(addresses.ROOTS, Channel.PYTORCH, "http://127.0.0.1:1/whl")
    monkeypatch.setattr(store, "THREADS", 1)
    vision = small_wheel("torchvision", "0.15.2+cu118", tag=CP311)
    mirrors[1].pytorch("cu118", dict([TORCH, vision]))
    with mock.patch.object(Client, "request", autospec=True, side_effect=Client.request) as asked:
        get_public(lock_of(locked(TORCH, "pytorch"), locked(vision, "pytorch")))
    assert [call.args[2] for call in asked.mock_calls].count("http://127.0.0.1:1/whl/cu118/torch/") == 1
    assert not any("127.0.0.1:1/whl/cu118/torchvision" in call.args[2] for call in asked.mock_calls)


def test_yanked_locked_file_is_fetched(server, progress, get):
    """PEP 592: who names it exactly gets it."""
    name, content = numpy = small_wheel("numpy", "1.0")
    server.simple("numpy", dict([numpy]), yanked=(name,))
    (file,) = get(lock_of(locked(numpy))).values()
    assert (file.read_bytes(), progress.lines) == (content, [])


def test_locked_fetch_of_a_gone_file_is_a_locked_error_unless_servers_are_silent(server, get):
    numpy = locked(small_wheel("numpy", "1.0"))
    with refused(LockedError, "numpy-1.0-py3-none-any.whl is locked", "HTTP 404", "./build.py lock"):
        get(lock_of(numpy), locked=True)
    server.faults["/simple/numpy/"] = [Fault(status=503)] * 99
    with refused(NetworkError, "HTTP 503"):
        get(lock_of(numpy), locked=True)


def test_full_disk_is_an_error_before_and_during_a_download(server, monkeypatch, get):
    lock = lock_of(*served(server, small_wheel("numpy", "1.0")))
    monkeypatch.setattr(
        PartialDownload, "write", mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    )
    with pytest.raises(DiskFullError):
        get(lock)
    server.asked.clear()
    monkeypatch.setattr(Cache, "free_bytes", lambda self: 1000)
    with pytest.raises(DiskFullError, match="the download needs"):
        get(lock)
    assert server.asked == []


def test_concurrent_runs_on_a_cache_fetch_each_file_once(server, cache, torch_lock, progress, tmp_path):
    server.faults[TORCH_PATH] = [Fault(seconds=0.2)]
    second = Recorder()
    with contextlib.closing(Cache(tmp_path / "cache")) as other, ThreadPoolExecutor(2) as pool:
        ways = [place(cache, index_of(server), progress), place(other, index_of(server), second)]
        one, two = pool.map(lambda ctx: fetch(torch_lock, SourceOptions(), ctx), ways)
    assert one == two
    assert server.paths().count(TORCH_PATH) == 1
    assert progress.done == second.done == progress.total


def test_local_file_is_copied_whole_before_it_goes_to_the_disk(cache, tmp_path, monkeypatch):
    wheel, sizes = tmp_path / "own-1.0-py3-none-any.whl", []
    wheel.write_bytes(b"x" * 100)
    monkeypatch.setattr(os, "fsync", lambda descriptor: sizes.append(os.fstat(descriptor).st_size))
    storing.store_unhashed(Link(name=wheel.name, url=wheel.as_uri()), cache)
    assert sizes == [100]


def test_unreadable_local_file_is_a_host_error(cache, tmp_path):
    wheel = tmp_path / "torch-2.0.1-cp311-cp311-linux_x86_64.whl"
    wheel.mkdir()
    file, link = LockedFile(name=wheel.name, size=1, sha256="0" * 64), Link(name=wheel.name, url=wheel.as_uri(), size=1)
    for read in (lambda: storing.store(file, link.url, None, cache), lambda: storing.store_unhashed(link, cache)):
        with pytest.raises(HostError, match=r"torch-2.*: Is a directory") as caught:
            read()
        assert caught.value.next_step.startswith(f"ls -ld {wheel}")


def test_unreadable_local_wheel_is_a_host_error_and_looked_for_elsewhere_first(get, tmp_path, monkeypatch):
    own = small_wheel("own", "1.0")
    (tmp_path / own[0]).write_bytes(own[1])

    def refuse(path, *arguments, **options):
        if path == tmp_path / own[0]:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    opened = Path.open
    monkeypatch.setattr(Path, "open", refuse)
    with refused(HostError, "own-1.0-py3-none-any.whl: Permission denied", "This user may not", f"ls -ld {tmp_path}"):
        get(lock_of(locked(own, "local")), wheels=tmp_path)


# A file whose hash no page states

SILENT, BYTES = small_wheel("silent", "1.0", content=random.Random(0).randbytes(3 * CHUNK // 2))
TAG, DATE = '"abc"', "Wed, 21 Oct 2015 07:28:00 GMT"


@pytest.fixture
def silent(server, cache, progress):
    """Lock a file without a hash; what is asked for of it, and with which Range and If-Range."""
    server.put(f"/{SILENT}", BYTES)
    link = Link(name=SILENT, url=server.url(f"/{SILENT}"))

    def lock():
        server.asked.clear()
        with contextlib.suppress(NetworkError):
            file = storing.locked_file(link, Client({}, sleep=lambda _: None), cache, progress)
            assert file == file_of(SILENT, BYTES)
        return [(asked.method, asked.headers.get("range"), asked.headers.get("if-range")) for asked in server.asked]

    return lock


def cut(server):
    server.faults[f"/{SILENT}"] = [Fault(), Fault(cut_after=CHUNK + 1000), *[Fault(status=404)] * 99]


@pytest.mark.parametrize("validator", [TAG, DATE])
def test_file_without_a_hash_is_resumed_after_a_cut_and_not_fetched_twice(server, silent, validator):
    server.validators[f"/{SILENT}"] = validator
    cut(server)
    silent()
    del server.faults[f"/{SILENT}"]
    assert silent() == [("HEAD", None, None), ("GET", f"bytes={CHUNK}-", validator)]
    assert silent() == [("HEAD", None, None)]


@pytest.mark.parametrize(("before", "after"), [(TAG, '"other"'), ("", ""), ('W/"weak"', 'W/"weak"'), (TAG, "")])
def test_part_without_a_hash_of_a_file_that_may_be_another_is_thrown_away(server, silent, before, after):
    server.validators[f"/{SILENT}"] = before
    cut(server)
    silent()
    del server.faults[f"/{SILENT}"]
    server.validators[f"/{SILENT}"] = after
    (head, got) = silent()
    assert (head[0], got[:2]) == ("HEAD", ("GET", None))


def test_file_without_a_hash_that_left_the_cache_is_fetched_again(server, silent, cache):
    server.validators[f"/{SILENT}"] = TAG
    silent()
    cache.file(file_of(SILENT, BYTES).sha256, SILENT).unlink()
    assert silent() == [("HEAD", None, None), ("GET", None, TAG)]
