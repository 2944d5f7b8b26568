"""A SIF in a registry: what is sent, in which order, and not twice."""

import json
import random

import pytest

from graphcrate.artifacts.formats import sif
from graphcrate.host.http import Client
from graphcrate.host.progress import Silent
from graphcrate.model.errors import LayoutError, UsageError
from graphcrate.oci import reference, upload
from graphcrate.oci.registry import Repository
from graphcrate.publish.destinations import oras
from tests.unit import tars
from tests.unit.writable_registry import WritableRegistry


@pytest.fixture
def image(tmp_path):
    """What begins like a SIF, and random bytes."""
    path = tmp_path / "any name.sif"
    path.write_bytes(bytes(sif.MAGIC_OFFSET) + sif.MAGIC + random.Random(1).randbytes(500_000))
    return path


@pytest.fixture
def sent(monkeypatch):
    """A function that pushes a SIF to `server`."""
    monkeypatch.setattr(upload, "SMALLEST", 64 << 10)
    with WritableRegistry() as server:

        def run(sif, annotations=()):
            where = reference.parse(f"{server.host}/team/pyg:1.2")
            client = Client({}, sleep=lambda _: None)
            target = Repository(client, where, writes=True)
            return oras.push_sif(sif, where, target, Silent(), dict(annotations))

        run.server = server
        yield run


def test_the_manifest_is_what_apptainer_asks_for_and_nothing_is_sent_twice(image, sent):
    pushed = sent(image, {"a": "1"})
    kind, data = sent.server.documents[f"team/pyg/manifests/{pushed.digest}"]
    assert json.loads(data) == {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.sylabs.sif.config.v1+json",
            "digest": "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
            "size": 2,
        },
        "layers": [
            {
                "mediaType": "application/vnd.sylabs.sif.layer.v1.sif",
                "digest": tars.sha256(image.read_bytes()),
                "size": image.stat().st_size,
                "annotations": {"org.opencontainers.image.title": "pyg_1.2.sif"},
            }
        ],
        "annotations": {"a": "1"},
    }
    assert (kind, pushed.digest) == (pushed.media_type, tars.sha256(data))
    assert set(sent.server.order[:-1]) == {tars.sha256(image.read_bytes()), tars.sha256(b"{}")}
    received = sent.server.received
    again = sent(image, {"a": "1"})
    assert (again.digest, again.bytes_there, sent.server.received) == (pushed.digest, received, received)


@pytest.mark.parametrize("content", [b"", b"not one", b"hsqs" + bytes(100)])
def test_anything_but_a_sif_is_refused(tmp_path, sent, content):
    (tmp_path / "x.sif").write_bytes(content)
    with pytest.raises(UsageError, match="not a SIF"):
        sent(tmp_path / "x.sif")
    assert sent.server.asked == []


def test_a_file_that_changes_meanwhile_gets_no_manifest(image, sent, monkeypatch):
    def other(path, advance):
        digest = tars.sha256(path.read_bytes()).removeprefix("sha256:")
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        return digest

    monkeypatch.setattr(oras, "_sha256", other)
    with pytest.raises(LayoutError):
        sent(image)
    assert sent.server.documents == {}
