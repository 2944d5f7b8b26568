"""Downloads: resumed, checked, and what happens to their parts."""

import errno
import hashlib

import pytest

from graphcrate.host.connections import HttpError
from graphcrate.host.http import Client, Part
from graphcrate.model.errors import IntegrityError
from tests.unit.wheel_server import Fault

CONTENT = bytes(range(256)) * 20_000  # 5 MB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def client():
    return Client({}, sleep=lambda _: None)


class Counter:
    def __init__(self):
        self.total = 0

    def __call__(self, amount):
        self.total += amount


def test_download(server, client, tmp_path):
    server.put("/file", CONTENT)
    done = Counter()
    client.download(server.url("/file"), tmp_path / "part", size=len(CONTENT), sha256=SHA256, advance=done)
    assert (tmp_path / "part").read_bytes() == CONTENT
    assert done.total == len(CONTENT)
    assert server.asked[0].headers["accept-encoding"] == "identity"  # or the hash would be of other bytes


def test_download_without_a_known_size(server, client, tmp_path):
    server.put("/file", CONTENT)
    client.download(server.url("/file"), tmp_path / "part", size=None, sha256=SHA256, advance=Counter())
    assert (tmp_path / "part").read_bytes() == CONTENT


def test_download_goes_on_where_an_earlier_run_stopped(server, client, tmp_path):
    server.put("/file", CONTENT)
    (tmp_path / "part").write_bytes(CONTENT[:1_234_567])
    done = Counter()
    client.download(server.url("/file"), tmp_path / "part", size=len(CONTENT), sha256=SHA256, advance=done)
    assert server.asked[0].headers["range"] == "bytes=1234567-"
    assert (tmp_path / "part").read_bytes() == CONTENT
    assert done.total == len(CONTENT)


def test_a_complete_part_needs_no_request(server, client, tmp_path):
    (tmp_path / "part").write_bytes(CONTENT)
    client.download(server.url("/file"), tmp_path / "part", size=len(CONTENT), sha256=SHA256, advance=Counter())
    assert server.asked == []


def test_a_server_without_ranges_starts_over(server, client, tmp_path):
    server.ranges = False
    server.put("/file", CONTENT)
    (tmp_path / "part").write_bytes(CONTENT[:1000])
    done = Counter()
    client.download(server.url("/file"), tmp_path / "part", size=len(CONTENT), sha256=SHA256, advance=done)
    assert (tmp_path / "part").read_bytes() == CONTENT
    assert done.total == len(CONTENT)


def test_another_range_than_was_asked_for_is_not_appended(server, client, tmp_path):
    """Of a file whose hash nobody promised, as on PyG's older pages, nothing else would tell."""
    server.shift = 500
    server.put("/file", CONTENT)
    server.faults["/file"] = [Fault(cut_after=2_000_000)]
    found = client.download(server.url("/file"), tmp_path / "part", size=None, sha256=None, advance=Counter())
    assert found == SHA256
    assert [bool(asked.headers.get("range")) for asked in server.asked] == [False, True, False]


def test_cut_connections_cost_only_the_rest(server, client, tmp_path):
    server.put("/file", CONTENT)
    server.faults["/file"] = [Fault(cut_after=2_000_000) for _ in range(2)]
    done = Counter()
    client.download(server.url("/file"), tmp_path / "part", size=len(CONTENT), sha256=SHA256, advance=done)
    assert (tmp_path / "part").read_bytes() == CONTENT
    starts = [int(asked.headers.get("range", "bytes=0-")[6:-1]) for asked in server.asked]
    assert starts == sorted(starts)
    assert 0 < starts[1] <= 2_000_000
    assert done.total == len(CONTENT)


def test_a_download_that_never_succeeds_keeps_its_part(server, client, tmp_path):
    server.put("/file", CONTENT)
    server.faults["/file"] = [Fault(cut_after=1_500_000)] + [Fault(status=503)] * 9
    with pytest.raises(HttpError):
        client.download(server.url("/file"), tmp_path / "part", size=len(CONTENT), sha256=SHA256, advance=Counter())
    kept = (tmp_path / "part").read_bytes()
    assert kept
    assert CONTENT.startswith(kept)


def test_wrong_bytes_are_refused_and_removed(server, client, tmp_path):
    server.put("/torch.whl", CONTENT)
    server.faults["/torch.whl"] = [Fault(wrong=True)]
    with pytest.raises(IntegrityError, match=r"torch\.whl from 127\.0\.0\.1 has sha256"):
        client.download(
            server.url("/torch.whl"), tmp_path / "part", size=len(CONTENT), sha256=SHA256, advance=Counter()
        )
    assert not (tmp_path / "part").exists()


def test_a_spoilt_part_is_fetched_again_from_its_start(server, client, tmp_path):
    server.put("/file", CONTENT)
    (tmp_path / "part").write_bytes(b"?" * 4096)
    done = Counter()
    client.download(server.url("/file"), tmp_path / "part", size=len(CONTENT), sha256=SHA256, advance=done)
    assert (tmp_path / "part").read_bytes() == CONTENT
    assert done.total == len(CONTENT)


@pytest.mark.parametrize("promised", [len(CONTENT) - 1, len(CONTENT) + 1])
def test_a_file_of_another_size_is_refused(server, client, tmp_path, promised):
    server.put("/file", CONTENT)
    with pytest.raises(IntegrityError):
        client.download(server.url("/file"), tmp_path / "part", size=promised, sha256=SHA256, advance=Counter())


def test_a_part_longer_than_the_file_is_thrown_away(server, client, tmp_path):
    server.put("/file", CONTENT)
    (tmp_path / "part").write_bytes(CONTENT + b"more")
    done = Counter()
    client.download(server.url("/file"), tmp_path / "part", size=len(CONTENT), sha256=SHA256, advance=done)
    assert (tmp_path / "part").read_bytes() == CONTENT
    assert done.total == len(CONTENT)


def test_a_full_disk_is_not_a_network_fault(server, client, tmp_path, monkeypatch):
    def full(self, chunk):
        raise OSError(errno.ENOSPC, "No space left on device")

    server.put("/file", CONTENT)
    monkeypatch.setattr(Part, "write", full)
    with pytest.raises(OSError, match="No space left"):
        client.download(server.url("/file"), tmp_path / "part", size=len(CONTENT), sha256=SHA256, advance=Counter())


def test_a_part_that_nobody_wants_is_closed(tmp_path):
    def refuse(_):
        raise RuntimeError("stopped")

    part = Part(tmp_path / "part", refuse)
    with pytest.raises(RuntimeError), part:
        pass
    assert part._file.closed
