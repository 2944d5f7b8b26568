"""What is attached to an image, by the registry's own list and by the tag that clients keep."""

import json

import pytest

from graphcrate.errors import IntegrityError, ResolutionError
from graphcrate.host.http import Client
from graphcrate.oci import push, reference, spec
from graphcrate.oci.referrers import Attachment, attach, fallback_tag, referrers
from tests.unit import tars
from tests.unit.writable_registry import WritableRegistry

SBOM = "application/vnd.cyclonedx+json"
REPORT = "application/vnd.example.report+json"


def opened(server):
    where = reference.parse(f"{server.host}/team/image")
    return push.repository(where, client=Client({}, sleep=lambda _: None), find_credential=lambda: None)


def subject(server):
    return server.image("team/image", [[tars.file("a")]], "v1")["digest"]


@pytest.mark.parametrize("api", [True, False])
def test_what_is_attached_is_listed(api):
    with WritableRegistry(referrers=api) as server:
        about, target = subject(server), opened(server)
        first = attach(target, about, SBOM, [Attachment(media_type=SBOM, data=b'{"a": 1}')], {"made": "now"})
        second = attach(target, about, REPORT, [])
        third = attach(target, about, REPORT, [Attachment(media_type="text/plain", data=b"x")])
        found = referrers(target, about)
        reports = referrers(target, about, REPORT)
        kind, data = server.documents[f"team/image/manifests/{first}"]
    assert {one.digest for one in found} == {first, second, third}
    assert {one.digest for one in reports} == {second, third}
    (sbom,) = [one for one in found if one.digest == first]
    assert (sbom.artifact_type, sbom.annotations, sbom.size) == (SBOM, {"made": "now"}, len(data))
    document = json.loads(data)
    assert kind == document["mediaType"] == spec.MANIFEST
    assert document["subject"]["digest"] == about
    assert document["config"]["mediaType"] == spec.EMPTY
    assert server.blobs[document["layers"][0]["digest"]] == b'{"a": 1}'
    assert (f"team/image/manifests/{fallback_tag(about)}" in server.documents) is not api


@pytest.mark.parametrize("api", [True, False])
def test_attached_twice_is_there_once(api):
    with WritableRegistry(referrers=api) as server:
        about, target = subject(server), opened(server)
        digests = {attach(target, about, REPORT, []) for _ in range(2)}
        assert [one.digest for one in referrers(target, about)] == [*digests]


@pytest.mark.parametrize("api", [True, False])
def test_nothing_is_attached_to_an_image_that_is_not_there(api):
    with WritableRegistry(referrers=api) as server:
        target = opened(server)
        assert referrers(target, f"sha256:{'0' * 64}") == ()
        with pytest.raises(ResolutionError):
            attach(target, f"sha256:{'0' * 64}", REPORT, [])
        assert server.order == []


def test_an_entry_that_another_client_overwrites_is_entered_again():
    with WritableRegistry(referrers=False) as server:
        about, target = subject(server), opened(server)
        tag = f"team/image/manifests/{fallback_tag(about)}"
        other = {"mediaType": spec.MANIFEST, "digest": f"sha256:{'1' * 64}", "size": 1, "artifactType": SBOM}
        left = ["write"]

        def overwrite(handler):
            """The other client read the list before we wrote, and writes after us."""
            if handler.command == "GET" and tag in handler.path and tag in server.documents and left:
                left.pop()
                index = {"schemaVersion": 2, "mediaType": spec.INDEX, "manifests": [other]}
                server.documents[tag] = (spec.INDEX, json.dumps(index).encode())
            return False

        server.moods = [overwrite]
        ours = attach(target, about, REPORT, [])
        assert {one.digest for one in referrers(target, about)} == {ours, other["digest"]}


def test_a_tag_that_is_something_else_is_not_overwritten():
    with WritableRegistry(referrers=False) as server:
        about, target = subject(server), opened(server)
        server.image("team/image", [[tars.file("b")]], fallback_tag(about))
        with pytest.raises(IntegrityError, match="no list"):
            attach(target, about, REPORT, [])
