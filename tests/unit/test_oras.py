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


@pytest.fixture
def image(tmp_path):
    """What begins like a SIF, and random bytes."""
    path = tmp_path / "any name.sif"
    path.write_bytes(bytes(sif.MAGIC_OFFSET) + sif.MAGIC + random.Random(1).randbytes(500_000))
    return path


@pytest.fixture
def send(registry, monkeypatch):
    """A function that pushes a SIF."""
    monkeypatch.setattr(upload, "SMALLEST", 64 << 10)

    def run(path, **annotations):
        where = reference.parse(f"{registry.host}/team/pyg:1.2")
        target = Repository(Client({}, sleep=lambda _: None), where, writes=True)
        return oras.push_sif(path, where, target, Silent(), annotations)

    return run


def test_the_manifest_is_what_apptainer_asks_for_and_nothing_is_sent_twice(image, send, registry):
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


@pytest.mark.parametrize("content", [b"", b"not one", b"hsqs" + bytes(100)])
def test_anything_but_a_sif_is_refused(tmp_path, send, registry, content):
    (tmp_path / "x.sif").write_bytes(content)
    with pytest.raises(UsageError, match="not a SIF"):
        send(tmp_path / "x.sif")
    assert registry.asked == []


def test_a_file_that_changes_meanwhile_gets_no_manifest(image, send, registry, monkeypatch):
    def other(path, advance):
        digest = tars.sha256(path.read_bytes()).removeprefix("sha256:")
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        return digest

    monkeypatch.setattr(oras, "_sha256", other)
    with pytest.raises(LayoutError):
        send(image)
    assert registry.documents == {}
