"""Layouts that are pushed, with their progress and with errors of ours. The uploads are `ociregistry`'s own tests'."""

import pytest

from graphcrate.host.net import Client
from graphcrate.model.errors import LayoutError, NetworkError
from graphcrate.oci import push, reference
from graphcrate.oci.registry import Repository
from ocilayout import spec
from tests.made import refused
from tests.unit import small_layouts, tars
from tests.unit.conftest import Recorder
from tests.unit.registry_server import RegistryServer


@pytest.fixture
def layout(tmp_path):
    return small_layouts.layout(tmp_path, [tars.file("a", bytes(range(256)) * 400)], [tars.file("b")])


def send(server, layout, form="oci", progress=None):
    target = Repository(
        Client({}, sleep=lambda _: None), reference.parse(f"{server.host}/team/image"), lambda: None, writes=True
    )
    return push.push_layout(target, layout, form, progress or Recorder())


@pytest.mark.parametrize(("form", "kind"), [("oci", spec.MANIFEST), ("docker", spec.DOCKER_MANIFEST)])
def test_layout_is_pushed_in_either_form_and_its_bytes_are_shown(registry, layout, form, kind):
    pushed = send(registry, layout, form, progress := Recorder())
    document = registry.documents[f"team/image/manifests/{pushed.digest}"]
    assert document == (pushed.media_type, push.manifest_of(layout, form)[0])
    assert pushed.media_type == kind
    assert progress.done == progress.total == sum(one.size for one in (*layout.layers, layout.manifest.config))


def test_push_of_a_layout_with_a_missing_blob_sends_nothing(registry, layout):
    layout.blob(layout.layers[1].digest).unlink()
    with pytest.raises(LayoutError, match="is missing"):
        send(registry, layout)
    assert registry.asked == []


def test_push_of_a_changed_layer_is_a_layout_error_with_a_step(registry, layout):
    changed = layout.blob(layout.layers[1].digest)
    tars.overwrite(changed, b"x" * changed.stat().st_size)
    with refused(LayoutError, "other bytes", "remove the image's folder"):
        send(registry, layout)


def test_pause_of_a_push_is_noted_and_its_last_failure_is_a_network_error(layout):
    fault = {"Retry-After": "7"}

    def away(handler):
        handler.leave(503, headers=fault)
        return True

    with RegistryServer(strict=True, moods=[away]) as server:
        with refused(NetworkError, "503", "is overloaded or down", "what has arrived is not sent again"):
            send(server, layout, progress=(progress := Recorder()))
    assert "trying again in 7 s" in progress.lines[0]
