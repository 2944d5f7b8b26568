"""Downloads: resumed, checked, and what happens to their parts."""

import hashlib

import pytest

from graphcrate.host.http import Client
from graphcrate.model.errors import IntegrityError
from tests.unit.wheel_server import Fault

CONTENT = bytes(range(256)) * 20_000  # 5 MB
SIZE = len(CONTENT)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def download(server, tmp_path):
    """Downloads CONTENT over a part that is there; returns its hash, what is there then, and the bytes counted."""
    server.put("/torch.whl", CONTENT)

    def run(there=None, *, size=SIZE, sha256=SHA256, faults=()):
        part, counted = tmp_path / "part", []
        if there is not None:
            part.write_bytes(there)
        server.faults["/torch.whl"] = list(faults)
        client = Client({}, sleep=lambda _: None)
        found = client.download(server.url("/torch.whl"), part, size=size, sha256=sha256, advance=counted.append)
        return found, part.read_bytes(), sum(counted)

    return run


@pytest.mark.parametrize(
    ("there", "size", "ranges", "asked"),
    [
        (None, SIZE, True, [None]),
        (None, None, True, [None]),
        (CONTENT[:1_234_567], SIZE, True, ["bytes=1234567-"]),
        (CONTENT, SIZE, True, []),
        (CONTENT[:1000], SIZE, False, ["bytes=1000-"]),
        (b"?" * 4096, SIZE, True, ["bytes=4096-", None]),
        (CONTENT + b"more", SIZE, True, [None]),
    ],
    ids=["new", "of unknown size", "resumed", "complete", "without ranges", "a spoilt part", "too long a part"],
)
def test_a_download_is_whole_whatever_was_there(server, download, there, size, ranges, asked):
    server.ranges = ranges
    assert download(there, size=size) == (SHA256, CONTENT, SIZE)
    assert [one.headers.get("range") for one in server.asked] == asked
    assert {one.headers["accept-encoding"] for one in server.asked} <= {"identity"}, "or the hash is of other bytes"


def test_another_range_than_was_asked_for_is_not_appended(server, download):
    """Of a file whose hash nobody promised, as on PyG's older pages, nothing else would tell."""
    server.shift = 500
    assert download(size=None, sha256=None, faults=[Fault(cut_after=2_000_000)])[0] == SHA256
    assert [bool(asked.headers.get("range")) for asked in server.asked] == [False, True, False]


def test_cut_connections_cost_only_the_rest(server, download):
    assert download(faults=[Fault(cut_after=2_000_000) for _ in range(2)]) == (SHA256, CONTENT, SIZE)
    starts = [int(asked.headers.get("range", "bytes=0-")[6:-1]) for asked in server.asked]
    assert starts == sorted(starts)
    assert 0 < starts[1] <= 2_000_000


@pytest.mark.parametrize(
    ("size", "faults", "message"),
    [
        (SIZE, [Fault(wrong=True)], r"torch\.whl from 127\.0\.0\.1 has sha256"),
        (SIZE - 1, [], f"instead of {SIZE - 1}"),
        (SIZE + 1, [], f"instead of {SIZE + 1}"),
    ],
)
def test_other_bytes_than_promised_are_refused_and_removed(download, tmp_path, size, faults, message):
    with pytest.raises(IntegrityError, match=message):
        download(size=size, faults=faults)
    assert not (tmp_path / "part").exists()
