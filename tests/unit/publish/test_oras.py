"""A SIF in a registry: what is sent, in which order, and not twice."""

import json
import random

import pytest

from graphcrate.host.net import Client
from graphcrate.host.progress import Progress
from graphcrate.model.errors import LayoutError
from graphcrate.oci import reference
from graphcrate.oci.registry import Repository
from graphcrate.publish.destinations import oras
from ociregistry import upload
from sifsquash import sif
from tests.unit import tars


@pytest.fixture
def image(tmp_path):
    """A file that begins like a SIF, and random bytes."""
    path = tmp_path / "any name.sif"
    path.write_bytes(bytes(sif.MAGIC_OFFSET) + sif.MAGIC + random.Random(1).randbytes(500_000))
    return path


@pytest.fixture
def send(registry, monkeypatch):
    """A function that pushes a SIF."""
    monkeypatch.setattr(upload, "SMALLEST", 64 << 10)

    def run(path, sha256=None, **annotations):
        where = reference.parse(f"{registry.host}/team/pyg:1.2")
        target = Repository(Client({}, sleep=lambda _: None), where, writes=True)
        sha256 = sha256 or tars.sha256(path.read_bytes())[7:]
        return oras.push_sif(path, sha256, where, target, Progress(), annotations)

    return run


def test_oras_push_writes_apptainers_manifest_and_sends_blobs_once(image, send, registry):
    pushed, layer = send(image, a="1"), tars.sha256(image.read_bytes())
    kind, data = registry.documents[f"team/pyg/manifests/{pushed.digest}"]
    kinds = [f"application/vnd.sylabs.sif.{one}" for one in ("config.v1+json", "layer.v1.sif")]
    title = {"org.opencontainers.image.title": "pyg_1.2.sif"}
    assert json.loads(data) == {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": kinds[0], "digest": tars.sha256(b"{}"), "size": 2},
        "layers": [{"mediaType": kinds[1], "digest": layer, "size": image.stat().st_size, "annotations": title}],
        "annotations": {"a": "1"},
    }
    assert (kind, pushed.digest) == (pushed.media_type, tars.sha256(data))
    assert set(registry.order[:-1]) == {layer, tars.sha256(b"{}")}
    received = registry.received
    again = send(image, a="1")
    assert (again.digest, again.bytes_there, registry.received) == (pushed.digest, received, received)


def test_oras_push_of_a_changed_file_writes_no_manifest(image, send, registry):
    with pytest.raises(LayoutError):
        send(image, tars.sha256(image.read_bytes() + b"x")[7:])
    assert registry.documents == {}
