"""A SIF in a registry: what is sent, in which order, and not twice."""

import json
import random

import pytest

from graphcrate.artifacts.formats import sif
from graphcrate.host.http import Client
from graphcrate.host.progress import Silent
from graphcrate.model.errors import LayoutError, UsageError
from graphcrate.oci import reference, registry
from graphcrate.publish.destinations import oras
from tests.unit import tars
from tests.unit.writable_registry import WritableRegistry


@pytest.fixture
def image(tmp_path):
    """What begins like a SIF, and random bytes."""
    path = tmp_path / "any name.sif"
    path.write_bytes(bytes(sif.MAGIC_OFFSET) + sif.MAGIC + random.Random(1).randbytes(500_000))
    return path


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(registry, "CHUNK", 64 << 10)


def push(server, image, **more):
    return oras.push_sif(
        image,
        reference.parse(f"{server.host}/team/pyg:1.2"),
        client=Client({}, sleep=lambda _: None),
        find_credential=lambda: None,
        progress=Silent(),
        **more,
    )


def test_the_manifest_is_what_apptainer_asks_for(image):
    with WritableRegistry() as server:
        pushed = push(server, image, annotations={"b": "2", "a": "1"})
    kind, data = server.documents["team/pyg/manifests/1.2"]
    told = json.loads(data)
    assert kind == told["mediaType"] == pushed.media_type == "application/vnd.oci.image.manifest.v1+json"
    assert told["config"] == {
        "mediaType": "application/vnd.sylabs.sif.config.v1+json",
        "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        "size": 2,
    }
    assert told["layers"] == [
        {
            "mediaType": "application/vnd.sylabs.sif.layer.v1.sif",
            "digest": tars.sha256(image.read_bytes()),
            "size": image.stat().st_size,
            "annotations": {"org.opencontainers.image.title": "pyg_1.2.sif"},
        }
    ]
    assert told["annotations"] == {"a": "1", "b": "2"}
    assert pushed.digest == pushed.reference.digest == tars.sha256(data)


def test_tags_come_last_and_name_the_same_manifest(image):
    with WritableRegistry() as server:
        push(server, image, tags=("latest", "1.2", "old"))
    assert set(server.order[:-3]) == {tars.sha256(image.read_bytes()), tars.sha256(b"{}")}
    assert server.order[-3:] == ["1.2", "latest", "old"]
    assert len({server.documents[f"team/pyg/manifests/{tag}"] for tag in server.order[-3:]}) == 1


def test_the_same_again_sends_nothing(image):
    with WritableRegistry() as server:
        first = push(server, image)
        received = server.received
        again = push(server, image)
    assert again.digest == first.digest
    assert received == image.stat().st_size + 2
    assert (again.bytes_sent, server.received) == (0, received)
    assert again.bytes_there == image.stat().st_size + 2


@pytest.mark.parametrize("content", [b"", b"not one", b"hsqs" + bytes(100)])
def test_anything_but_a_sif_is_refused(tmp_path, content):
    (tmp_path / "x.sif").write_bytes(content)
    with WritableRegistry() as server:
        with pytest.raises(UsageError, match="not a SIF"):
            push(server, tmp_path / "x.sif")
        assert server.asked == []


def test_a_file_that_changes_meanwhile_gets_no_tag(image, monkeypatch):
    def other(path, advance):
        digest = tars.sha256(path.read_bytes()).removeprefix("sha256:")
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        return digest

    monkeypatch.setattr(oras, "_sha256", other)
    with WritableRegistry() as server:
        with pytest.raises(LayoutError):
            push(server, image)
        assert server.documents == {}
