"""Requirements of a release, from beside its wheel or out of it."""

import contextlib
import os

import pytest

from graphcrate.compat.variants.request import SourceOptions
from graphcrate.model.errors import NetworkError
from graphcrate.model.recipe import Channel
from graphcrate.resolve.sources import metadata
from graphcrate.resolve.sources.metadata import MetadataReader, parse
from graphcrate.resolve.sources.offers import Offer
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Link
from tests.made import index_of
from tests.unit.wheel_server import Fault, sha256, small_wheel

WHEEL = small_wheel("demo", "1.0", requires=["tqdm>=4", 'torch; extra == "torch"'])


@pytest.fixture
def reader(server, cache):
    return MetadataReader(Sources(SourceOptions(), cache, index_of(server)))


def offered(url, name=WHEEL[0], **more):
    return Offer("demo", "1.0", Channel.PYPI, Link(name=name, url=url, **more))


def test_metadata_file_beside_a_wheel_is_read_once_and_cached(server, cache, reader):
    server.put("/files/demo.whl.metadata", b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\nRequires-Dist: tqdm\n")
    release = offered(server.url("/files/demo.whl"), sha256="ab" * 32, has_metadata=True)
    again = MetadataReader(Sources(SourceOptions(), cache, index_of(server)))
    assert [one.of(release).requires for one in (reader, reader, again)] == [("tqdm",)] * 3
    assert server.paths() == ["/files/demo.whl.metadata"]


def test_metadata_of_a_remote_wheel_is_fetched_by_range(server, cache, reader):
    name, content = small_wheel("demo", "1.0", requires=["tqdm>=4"], content=os.urandom(1 << 20))
    server.put(f"/files/{name}", content)
    release = offered(server.url(f"/files/{name}"), name, sha256=sha256(content))
    reader.prefetch([release])
    assert reader.of(release).requires == ("tqdm>=4",)
    assert not cache.file(sha256(content), name).exists()
    asked = [one.headers["range"].removeprefix("bytes=").split("-") for one in server.asked if "range" in one.headers]
    assert 0 < sum(int(last) - int(first) for first, last in asked) < len(content) // 4


def test_metadata_from_a_server_without_ranges_downloads_the_wheel(server, cache, reader):
    server.ranges = False
    server.put(f"/files/{WHEEL[0]}", WHEEL[1])
    release = offered(server.url(f"/files/{WHEEL[0]}"), sha256=sha256(WHEEL[1]))
    assert reader.of(release).requires == ("tqdm>=4", 'torch; extra == "torch"')
    assert cache.file(sha256(WHEEL[1]), WHEEL[0]).is_file()


def test_metadata_of_a_local_wheel_is_read_in_place(reader, tmp_path):
    path = tmp_path / WHEEL[0]
    path.write_bytes(WHEEL[1])
    assert reader.of(offered(path.as_uri())).requires[0] == "tqdm>=4"


@pytest.mark.parametrize("reason", ["large", "no hash", "no wheel", "damaged"])
def test_unreadable_metadata_requires_nothing(server, reader, monkeypatch, reason):
    broken = {"no wheel": b"no zip", "damaged": WHEEL[1][:-30]}
    content = broken.get(reason, WHEEL[1])
    server.ranges = reason in broken
    server.put(f"/files/{WHEEL[0]}", content)
    monkeypatch.setattr(metadata, "LARGEST", 10 if reason == "large" else 1 << 20)
    hashed = {} if reason == "no hash" else {"sha256": sha256(content)}
    assert reader.of(offered(server.url(f"/files/{WHEEL[0]}"), **hashed)).requires == ()


def test_metadata_with_404_is_a_network_error_and_not_cached(server, reader):
    server.put("/files/demo.whl.metadata", b"Requires-Dist: tqdm\n")
    server.faults["/files/demo.whl.metadata"] = [Fault(status=404)]
    release = offered(server.url("/files/demo.whl"), has_metadata=True)
    with pytest.raises(NetworkError, match="404"):
        reader.of(release)
    with contextlib.suppress(NetworkError):
        reader.prefetch([release])
    assert reader.of(release).requires == ("tqdm",)


def test_hostile_metadata_is_parsed_without_an_error():
    assert parse(b"\xff\x00" * 100).requires == ()
    assert parse(b"Requires-Dist: a\nRequires-Dist: \xff\n" * 3).requires[:1] in ((), ("a",))
