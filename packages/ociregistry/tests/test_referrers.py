"""Referrers of an image: the registry's own list, and the index that stands in for it, which others write, too."""

import json

import msgspec
import pytest

from ocilayout import spec
from ociregistry import reference, referrers
from ociregistry.repository import PAGES, Repository
from patienthttp.client import Client
from patienthttp.errors import HttpError
from tests.unit import tars
from tests.unit.registry_server import RegistryServer

IMAGE = "sha256:" + "1" * 64
PLACE = f"team/torch/manifests/{referrers.tag(IMAGE)}"
#: somebody else's, with fields that this program does not know
THEIRS = {"mediaType": spec.MANIFEST, "digest": "sha256:" + "a" * 64, "size": 7, "artifactType": "x/y", "urls": ["u"]}


def entry(number):
    return spec.Descriptor(
        media_type=spec.MANIFEST, digest=f"sha256:{number:064x}", size=7, artifact_type="a/b", annotations={"n": "1"}
    )


@pytest.fixture
def target(registry):
    where = reference.parse(f"{registry.host}/team/torch")
    return Repository(Client({}, sleep=lambda _: None), where, writes=True)


def manifest(number, subject=IMAGE):
    """A referrer whose blobs the registry has, as bytes."""
    empty = spec.Descriptor(media_type=spec.EMPTY, digest=tars.sha256(b"{}"), size=2)
    about = spec.Descriptor(media_type=spec.MANIFEST, digest=subject, size=9)
    made = spec.ArtifactManifest(
        artifact_type="a/b", config=empty, layers=(empty,), subject=about, annotations={"n": number}
    )
    return msgspec.json.encode(made)


def index(registry):
    return json.loads(registry.documents[PLACE][1])


def test_referrers_api_is_read_to_its_end_without_an_index_tag(registry, target):
    registry.lists = True
    registry.home("team/torch", b"{}")
    sent = [manifest(number) for number in "abcde"]
    assert [referrers.put(target, one) for one in (*sent, manifest("f", "sha256:" + "2" * 64))] == [""] * 6
    found = list(referrers.listed(target, IMAGE))
    assert {one.digest for one in found} == {tars.sha256(one) for one in sent}
    assert {one.artifact_type for one in found} == {"a/b"}
    assert referrers.add(target, IMAGE, found) == ""
    assert PLACE not in registry.documents


@pytest.mark.parametrize("scheme", ["http://", "//", "http://user@"])
def test_next_page_of_referrers_on_another_host_is_not_asked_for(registry, target, scheme):
    """A registry, or a server in its place, would choose what this machine fetches, and with which login."""
    theirs = json.dumps({"schemaVersion": 2, "mediaType": spec.INDEX, "manifests": [THEIRS]}).encode()
    with RegistryServer() as other:

        def lead_away(answers):
            if "/referrers/" not in answers.path:
                return False
            link = f'<{scheme}{other.host}/v2/team/torch/referrers/{IMAGE}>; rel="next"'
            answers.answer(200, theirs, {"Content-Type": spec.INDEX, "Link": link})
            return True

        registry.moods.append(lead_away)
        assert [one.digest for one in referrers.listed(target, IMAGE)] == [THEIRS["digest"]]
        assert other.asked == []


def test_endless_list_of_referrers_is_left(registry, target):
    asked = []

    def go_round(answers):
        asked.append(answers.path)
        document = json.dumps({"schemaVersion": 2, "mediaType": spec.INDEX, "manifests": [THEIRS]}).encode()
        answers.answer(200, document, {"Content-Type": spec.INDEX, "Link": f'<{answers.path}>; rel="next"'})
        return True

    registry.moods.append(go_round)
    assert len(list(referrers.listed(target, IMAGE))) == len(asked) == PAGES


def test_registry_without_referrers_api_gets_an_index_tag(registry, target):
    assert list(referrers.listed(target, IMAGE)) == []
    assert referrers.add(target, IMAGE, [entry(1), entry(2)]) == ""
    assert list(referrers.listed(target, IMAGE)) == [entry(1), entry(2)]
    assert index(registry)["mediaType"] == registry.documents[PLACE][0] == spec.INDEX
    written = len(registry.order)
    assert referrers.add(target, IMAGE, [entry(2), entry(1)]) == ""
    assert len(registry.order) == written, "nothing is written where all of it is there"


def test_foreign_entries_of_the_referrers_index_are_kept(registry, target):
    notes = {"annotations": {"theirs": "yes"}}
    registry.put(
        "team/torch", {"schemaVersion": 2, "mediaType": spec.INDEX, "manifests": [THEIRS], **notes}, spec.INDEX
    )
    registry.documents[PLACE] = (spec.INDEX, registry.documents.popitem()[1][1])
    referrers.add(target, IMAGE, [entry(1)])
    document = index(registry)
    assert (document["manifests"][0], document["annotations"]) == (THEIRS, {"theirs": "yes"})
    assert document["manifests"][1]["artifactType"] == "a/b"


@pytest.mark.parametrize("times", [1, referrers.TRIES])
def test_concurrent_writers_of_the_referrers_index_lose_no_entry(registry, target, times):
    """Another writer read the index before ours was there, and writes its own over it; so often."""
    left = [times]

    def late(answers):
        if answers.command == "GET" and answers.path.endswith(referrers.tag(IMAGE)) and PLACE in registry.documents:
            known = [one["digest"] for one in index(registry)["manifests"]]
            if left[0] and entry(1).digest in known:
                left[0] -= 1
                theirs = {"schemaVersion": 2, "mediaType": spec.INDEX, "manifests": [THEIRS]}
                registry.documents[PLACE] = (spec.INDEX, json.dumps(theirs).encode())
        return False

    registry.moods.append(late)
    said = referrers.add(target, IMAGE, [entry(1)])
    known = {one["digest"] for one in index(registry)["manifests"]}
    if times == 1:
        assert (said, known) == ("", {THEIRS["digest"], entry(1).digest})
    else:
        assert "changed by others" in said


@pytest.mark.parametrize("data", [b"[]", b"nothing", b'{"manifests": 1}', b'{"schemaVersion": 2}'])
def test_referrers_tag_with_another_document_is_not_overwritten(registry, target, data):
    kind = spec.MANIFEST if data == b'{"schemaVersion": 2}' else spec.INDEX
    registry.documents[PLACE] = (kind, data)
    assert list(referrers.listed(target, IMAGE)) == []
    assert "something else than a list" in referrers.add(target, IMAGE, [entry(1)])
    assert registry.documents[PLACE] == (kind, data)


def test_referrers_tag_with_the_image_of_cosign_copy_is_replaced(registry, target):
    image = registry.put("team/torch", {"schemaVersion": 2, "mediaType": spec.MANIFEST}, spec.MANIFEST)["digest"]
    place = f"team/torch/manifests/{referrers.tag(image)}"
    registry.documents[place] = registry.documents[f"team/torch/manifests/{image}"]
    assert list(referrers.listed(target, image)) == []
    assert referrers.add(target, image, [entry(1)]) == ""
    assert list(referrers.listed(target, image)) == [entry(1)]


def test_invalid_entries_of_a_referrers_index_are_skipped(registry, target):
    document = {"schemaVersion": 2, "manifests": [7, {"digest": 1}, THEIRS], "mediaType": spec.INDEX}
    registry.documents[PLACE] = (spec.INDEX, json.dumps(document).encode())
    assert [one.digest for one in referrers.listed(target, IMAGE)] == [THEIRS["digest"]]


@pytest.mark.parametrize("status", [400, 403, 404, 405, 406, 501])
def test_referrers_request_refused_with_4xx_or_501_falls_back_to_the_index_tag(registry, target, status):
    registry.faults["/referrers/"] = [status] * 3
    assert referrers.add(target, IMAGE, [entry(1)]) == ""
    assert PLACE in registry.documents


def test_referrers_request_with_500_is_an_http_error(registry, target):
    registry.faults["/referrers/"] = [500] * 99
    with pytest.raises(HttpError):
        referrers.add(target, IMAGE, [entry(1)])
    assert PLACE not in registry.documents


def test_refused_referrers_manifest_gives_a_note(registry, target):
    registry.home("team/torch", b"{}")

    def refuse(answers):
        if answers.command == "PUT":
            answers.leave(400, {"errors": [{"code": "MANIFEST_INVALID"}]})
            return True
        return False

    registry.moods.append(refuse)
    assert "HTTP 400: MANIFEST_INVALID" in referrers.put(target, manifest("a"))
