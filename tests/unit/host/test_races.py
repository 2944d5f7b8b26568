"""Two or more of a thing at once, for each thing whose state threads or processes share (`races.py`).

What processes share are files; threads with a `Cache` of their own each stand for them, as locks of files are of the
open file. RACES=10 makes each last so many seconds in place of a fraction of one, as `make fuzz` does.
"""

import contextlib
import io
import itertools
import os
import random
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.progress import Progress as Counted

from graphcrate.artifacts.conversion import unsquashed
from graphcrate.engines.embedded import run as embedded
from graphcrate.engines.embedded import unpacked_images
from graphcrate.host import progress
from graphcrate.host.disk import atomic, cleaning
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.sealed import kept_bytes
from graphcrate.host.net import Client
from graphcrate.model.errors import CacheError, UsageError
from graphcrate.model.lock import LockedFile
from graphcrate.model.report import SmokeReport, SuiteClaim
from graphcrate.publish.destinations import folder as destination
from graphcrate.resolve.sources import fetch
from graphcrate.smoke import memory
from ociregistry import upload
from tests.unit import races, small_layouts, tars

pytestmark = pytest.mark.fuzz
SECONDS = float(os.environ.get("RACES") or 0.3)
ROUNDS = 10**6
ONE, OTHER = b"one" * 40_000, b"other" * 30_000


def run(make, **options):
    return races.race(make, rounds=options.pop("rounds", ROUNDS), seconds=SECONDS, **options)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "cache"


@contextlib.contextmanager
def opened(root):
    found = Cache(root)
    try:
        yield found
    finally:
        found.close()


def nothing_temporary(root):
    """Nothing is left among what runs work with."""
    assert list((root / "tmp").iterdir()) == []


# host/cache, host/cleaning


def test_concurrent_cache_open_and_close_leaves_no_temporary_files(root):
    def once():
        with opened(root) as cache, cache.folder() as folder:
            (folder / "a").touch()

    run(lambda _: [once] * 4)
    nothing_temporary(root)


def test_concurrent_cache_keep_gives_whole_files(root):
    contents = {ONE, OTHER}

    def write(data):
        with opened(root) as cache:
            cache.keep(cache.path("records", "a"), data)

    def read():
        assert kept_bytes(root / "records" / "a") in {None, *contents}

    run(lambda _: [lambda: write(ONE), lambda: write(OTHER), read, read])
    nothing_temporary(root)


def test_concurrent_cache_adopt_keeps_one_whole_folder(root):
    def adopt(number, name):
        with opened(root) as cache, cache.folder() as folder:
            (folder / "made").mkdir()
            (folder / "made" / str(number)).touch()
            cache.adopt(folder / "made", cache.path("folders", name))

    def make(turn):
        return [lambda number=number: adopt(number, str(turn)) for number in range(3)]

    turns = run(make)
    assert [len(list((root / "folders" / str(turn)).iterdir())) for turn in range(len(turns))] == [1] * len(turns)
    nothing_temporary(root)


def test_cache_exclusively_admits_one_thread_at_a_time(root):
    inside = []

    def work():
        with opened(root) as cache, cache.exclusively("x"):
            inside.append(1)
            assert len(inside) == 1
            time.sleep(0)
            inside.pop()

    run(lambda _: [work] * 4)


def test_concurrent_cache_release_removes_no_file_in_use(root):
    def use():
        with opened(root) as cache:
            cache.write(cache.file("a" * 64, "x"), ONE)
            cleaning.measure(cache)
            assert cache.file("a" * 64, "x").read_bytes() == ONE

    def free():
        with opened(root) as cache, contextlib.suppress(CacheError):
            cleaning.release(cache, ["all"])

    run(lambda _: [use, use, free, free])
    nothing_temporary(root)


def test_concurrent_fetch_of_a_file_downloads_it_once(root, server):
    def make(turn):
        data = random.Random(turn).randbytes(200_000)
        server.put(f"/{turn}", data)
        file = LockedFile(name="a.whl", size=len(data), sha256=tars.sha256(data).removeprefix("sha256:"))

        def get():
            with opened(root) as cache:
                assert fetch.store(file, server.url(f"/{turn}"), Client({}), cache).read_bytes() == data
            return turn

        return [get] * 3

    turns = run(make)
    assert sum(one.path.count("/") == 1 for one in server.asked) == len(turns)
    assert list((root / "partial").iterdir()) == []


# host/atomic


def test_concurrent_write_file_gives_one_whole_content(tmp_path):
    path = tmp_path / "a" / "file"

    def read():
        with contextlib.suppress(FileNotFoundError):
            assert path.read_bytes() in (ONE, OTHER)

    run(lambda _: [lambda: atomic.write_file(path, ONE), lambda: atomic.write_file(path, OTHER), read])
    assert [one.name for one in path.parent.iterdir()] == ["file"]


def test_concurrent_atomic_link_points_to_one_target(tmp_path):
    path = tmp_path / "pyg" / "cu118"

    def read():
        with contextlib.suppress(FileNotFoundError):
            assert os.readlink(path) in ("one", "other")  # noqa: PTH115

    run(lambda _: [lambda: atomic.link(path, "one"), lambda: atomic.link(path, "other"), read])
    assert [one.name for one in path.parent.iterdir()] == ["cu118"]


def test_concurrent_folder_replacing_gives_one_whole_folder(tmp_path):
    target = tmp_path / "x" / "oci"

    def replace(name):
        with atomic.replacing(target) as folder:
            for number in range(3):
                (folder / str(number)).write_text(name)

    run(lambda _: [lambda: replace("one"), lambda: replace("other"), lambda: replace("third")])
    assert len({(target / str(number)).read_text() for number in range(3)}) == 1
    assert [one.name for one in target.parent.iterdir()] == ["oci"]


def test_replaced_folder_is_never_absent(tmp_path, monkeypatch):
    target, rename = tmp_path / "oci", Path.rename

    def slow(path, other):
        rename(path, other)
        time.sleep(0.0005)  # long enough to be seen between two renames

    monkeypatch.setattr(Path, "rename", slow)

    def replace(name):
        with atomic.replacing(target) as folder:
            (folder / "index.json").write_text(name)

    def look():
        for _ in range(50):
            target.stat()

    replace("first")
    run(lambda _: [lambda: replace("one"), lambda: replace("other"), look])


def test_concurrent_appearing_makes_the_folder_once(tmp_path):
    def appear(target):
        with atomic.appearing(target, "part") as folder:
            if folder is None:
                return False
            (folder / "part").mkdir()
            (folder / "part" / "a").touch()
            return True

    def make(turn):
        return [lambda: appear(tmp_path / "x" / str(turn))] * 4

    assert all(sum(made) == 1 for made in run(make))
    assert all((path / "a").is_file() for path in (tmp_path / "x").iterdir())


def test_concurrent_atomic_create_succeeds_once(tmp_path):
    def make(turn):
        return [lambda data=data: atomic.create(tmp_path / str(turn), data, 0o644) for data in (ONE, OTHER)]

    assert all(sorted(made) == [False, True] for made in run(make))
    assert {path.read_bytes() for path in tmp_path.iterdir()} <= {ONE, OTHER}


def test_temporary_folder_of_a_running_thread_is_not_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def work():
        with atomic.temporary_folder("x-") as folder:
            (folder / "a").touch()
            time.sleep(0)
            assert (folder / "a").is_file()

    run(lambda _: [work] * 4)
    assert list(tmp_path.iterdir()) == []


# host/progress


def screen():
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def test_progress_bars_of_many_threads_are_one_group(monkeypatch):
    seen, amounts, drawing = progress.Stderr(), progress._amounts, []
    monkeypatch.setitem(vars(seen), "_console", screen())

    def slow():
        time.sleep(0.0005)  # between "there are none" and the first ones
        return amounts()

    class Bars(Counted):
        def start(self):
            drawing.append(self)
            super().start()

        def stop(self):
            drawing.remove(self)
            super().stop()

    monkeypatch.setattr(progress, "_amounts", slow)
    monkeypatch.setattr("rich.progress.Progress", Bars)

    def work():
        with seen.task("fetching", 100) as task:
            task.advance(50)
            assert len(drawing) == 1
            seen.note("a line")

    run(lambda _: [work] * 3)
    assert (drawing, seen._bars, seen._open) == ([], None, 0)


def test_console_is_created_once_by_many_threads(monkeypatch):
    made = []

    def console(**_):
        time.sleep(0.0001)
        made.append(screen())
        return made[-1]

    monkeypatch.setattr(progress.streams, "console", console)

    def make(_):
        made.clear()
        seen = progress.Stderr()
        return [lambda: seen.note("a")] * 3

    run(make)
    assert len(made) == 1


# host/http, host/pool


def test_http_client_serves_many_threads(server):
    for number in range(4):
        server.put(f"/{number}", str(number).encode() * 1000)

    def make(_):
        client = Client({})
        return [
            lambda number=number: client.request("GET", server.url(f"/{number}")).body == str(number).encode() * 1000
            for number in range(4)
        ]

    assert all(itertools.chain(*run(make)))


# ociregistry.upload


class Slow(int):
    """A number that lets other threads run while it is counted or compared."""

    def __add__(self, other):
        time.sleep(0)
        return Slow(int(self) + other)

    def __gt__(self, other):
        time.sleep(0)
        return int(self) > other


def test_upload_request_size_counts_requests_of_all_threads():
    def counted(_):
        pace = upload.RequestSize(1 << 30)
        pace._arrived = Slow()

        def send():
            for _ in range(10):
                pace.arrived()
            return pace

        return [send] * 3

    for found in run(counted):
        assert found[0]._arrived == 30

    def refused(_):
        pace = upload.RequestSize(1 << 30)
        pace._most = Slow(pace._most)
        return [lambda length=1 << power: (pace.refused(length), pace)[1] for power in (22, 23, 24)]

    for found in run(refused):
        assert found[0]._most == 1 << 21


# smoke/memory


def test_concurrently_stored_pass_is_read_whole_or_absent(tmp_path):
    kind = {"version": "1", "device": "cpu", "driver": "", "runtime": "graphcrate", "runtime_version": "1"}
    claim = SuiteClaim(image=f"sha256:{'a' * 64}", suite="torch", **kind)
    passed = SmokeReport(suite="torch", status="passed", device="cpu", seconds=1.0)
    failed = SmokeReport(suite="torch", status="failed", device="cpu", seconds=1.0)

    def read():
        found = memory.recall(tmp_path / "p", claim)
        assert found is None or found.report == passed

    def settle(report):
        assert memory.store_result(tmp_path / "p", claim, report) == ""

    run(lambda _: [lambda: settle(passed), lambda: settle(failed), read, lambda: settle(passed)])


# engines/embedded, artifacts/conversion


def test_concurrent_runs_of_many_images_find_theirs_unpacked(root, tmp_path):
    layouts = [small_layouts.layout(tmp_path / str(number), [tars.file("a", b"%d" % number)]) for number in range(4)]

    def use(number):
        with opened(root) as cache, embedded.unpacked(layouts[number], cache=cache) as inside:
            assert (inside.rootfs / "a").read_bytes() == b"%d" % number

    run(lambda _: [lambda number=number: use(number) for number in (*range(4), 0)])
    nothing_temporary(root)


def test_unpacked_image_removed_by_another_run_is_skipped(root):
    """The listing of unpacked images, of which any may go at any moment."""
    with opened(root) as cache:

        def come_and_go():
            for number in range(30):
                place = root / unpacked_images.FOLDER / f"{number}" / "root"
                place.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(place.parent, ignore_errors=True)

        def prune():
            for _ in range(30):
                unpacked_images.prune(cache, progress.Progress(), 1)

        run(lambda _: [come_and_go, prune, prune])


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files their owners")
def test_concurrent_conversions_to_a_folder_wait(tmp_path, context):
    layout = small_layouts.layout(tmp_path / "dist/pyg/1.0", [tars.file("a", b"1" * 3000), tars.file("b/c", b"2")])
    base = tmp_path / "out"
    base.mkdir()

    def make(turn):
        job = SimpleNamespace(
            layout=layout,
            target=base / str(turn),
            layers_size=1,
            pull=lambda: None,
            ctx=SimpleNamespace(progress=progress.Progress()),
            request=SimpleNamespace(ref="x", force=False),
        )

        def write():
            with contextlib.suppress(UsageError):  # it is there already
                unsquashed.write_folder(job)
            assert (job.target / "b/c").read_bytes() == b"2"

        return [write] * 4

    run(make)
    assert [path.name for path in base.iterdir() if path.name.startswith(".")] == []


# publish/destinations/folder


@pytest.mark.parametrize("replace", [False, True])
def test_concurrent_publishers_to_a_shared_folder_leave_matching_checksums(tmp_path, progress, replace):
    """Two publishers of the same name: at the end no checksum is of other bytes."""
    sources = {}
    for data in (ONE, OTHER):
        sources[data] = tmp_path / str(len(data))
        sources[data].write_bytes(data)

    def make(turn):
        target, latest = tmp_path / "shared" / f"pyg-{turn}.sif", tmp_path / "shared" / "pyg.sif"

        def publish(data):
            try:
                sha256 = tars.sha256(data).removeprefix("sha256:")
                destination.publish(sources[data], sha256, target, latest, progress=progress, replace=replace)
            except UsageError:
                return "taken"
            return data

        return [lambda data=data: publish(data) for data in (ONE, OTHER, ONE)]

    for turn, told in enumerate(run(make)):
        target = tmp_path / "shared" / f"pyg-{turn}.sif"
        there = target.read_bytes()
        assert there in told
        if not replace:
            assert set(told) <= {there, "taken"}
        checksum = target.with_name(f"{target.name}.sha256")
        assert checksum.is_file() or replace
        if checksum.is_file():
            assert checksum.read_text().split()[0] == tars.sha256(there).removeprefix("sha256:")
    assert not [path for path in (tmp_path / "shared").iterdir() if path.name.endswith(".part")]
