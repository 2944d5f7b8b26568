"""One tag for images of several platforms: what it holds after each publish, what is refused, and who reads what."""

import json
import shutil

import pytest

from graphcrate.artifacts import locate
from graphcrate.assembly.pipeline import build_image
from graphcrate.cli import options
from graphcrate.compat.facts import addresses
from graphcrate.host.net import Client
from graphcrate.model.codec import decode as json_of
from graphcrate.model.errors import GateError, LayoutError, NetworkError, UsageError
from graphcrate.model.lock import encode
from graphcrate.model.platform import AMD64, ARM64, DEFAULT
from graphcrate.model.report import SmokeReport
from graphcrate.oci import index, platform_index, reference
from graphcrate.oci.registry import Repository
from graphcrate.publish import policy, publication, shared_tag, verify
from ocilayout import spec
from tests.made import refused
from tests.unit import small_layouts, tars
from tests.unit.publish.test_publishing import ctx, small_lock
from tests.unit.smoke.test_gate import audit, contract

__all__ = ("ctx",)  # fixtures
LABELS = {
    "org.opencontainers.image.title": "torch",
    "graphcrate.cuda": "11.7",
    "graphcrate.torch": "2.0.1",
}
OTHER = ARM64 if DEFAULT == AMD64 else AMD64


@pytest.fixture
def pair(key_pairs):
    """A private and a public key."""
    return key_pairs[0]


@pytest.fixture
def built(tmp_path):
    """A function that makes an image's folder as a build leaves it, for a platform."""

    def make(platform, word="a", suite="torch", device="Tesla V100", **labels):
        folder = tmp_path / f"dist/torch/2.0-cu117{platform.suffix}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        entries = [tars.file(word)], [tars.file(platform.architecture)]
        layout = small_layouts.layout(folder, *entries, tag=folder.name, platform=platform, labels={**LABELS, **labels})
        about = {"image": layout.digest, "device": device, "driver": "" if device.startswith("cpu") else "535.54.03"}
        ran = SmokeReport(suite=suite, status="passed", seconds=1.0, **about)
        about = {"smoke": ran, "suites": (ran,), "contracts": (contract("pass"),), "build_key": "key-1"}
        (folder / "report.json").write_bytes(encode(small_layouts.report(layout, **about)))
        (folder / "audit.json").write_bytes(encode(audit(layout.digest)))
        (folder / "lock.json").write_bytes(small_lock())
        return folder

    return make


@pytest.fixture
def publish(ctx, registry, built):
    """A function that builds an image for a platform and publishes it under one tag."""

    def run(platform, *, tag="1.0", key=None, replace=False, form=None, tags=(), allow_emulated=False, **image):
        folder = built(platform, **image)
        request = policy.PublishRequest(
            ref=str(folder / "oci"), key=key, replace=replace, form=form, tags=tags, allow_emulated=allow_emulated
        )
        return publication.publish(request, ctx, f"{registry.host}/team/torch:{tag}")

    return run


def held(registry, tag="1.0"):
    """Media type and document of a tag."""
    media_type, data = registry.documents[f"team/torch/manifests/{tag}"]
    return media_type, json.loads(data)


def platforms(registry, tag="1.0"):
    """Platform → digest, of the index that a tag holds."""
    found = held(registry, tag)[1]["manifests"]
    return {f"{one['platform']['os']}/{one['platform']['architecture']}": one["digest"] for one in found}


def test_second_platform_under_a_tag_makes_it_an_index_of_both(registry, publish):
    first = publish(AMD64)
    assert held(registry)[0] == spec.DOCKER_MANIFEST, "one platform alone: its manifest, as ever"
    assert (first.index, first.platform) == ("", AMD64.name)
    second = publish(ARM64)
    assert platforms(registry) == {AMD64.name: first.digest, ARM64.name: second.digest}
    media_type, data = registry.documents["team/torch/manifests/1.0"]
    assert (media_type, second.index) == (spec.DOCKER_INDEX, tars.sha256(data))


def test_tag_of_two_platforms_on_alibabas_registry_is_warned_of_as_never_accelerated(
    registry, publish, capsys, monkeypatch
):
    publish(ARM64)
    assert "accelerated" not in capsys.readouterr().err, "another registry"
    monkeypatch.setattr(addresses, "accelerates", lambda host: host == registry.host)
    made = publish(AMD64)
    (warned,) = [line for line in capsys.readouterr().err.splitlines() if "accelerated" in line]
    assert f"--to {registry.host}/team/torch:1.0-amd64 gives" in warned
    assert "pai-accelerated" not in made.lines


def test_index_of_a_tag_is_signed_once_each_time(registry):
    target = Repository(Client({}, sleep=lambda _: None), reference.parse(f"{registry.host}/team/torch"), writes=True)
    registry.image("team/torch", [[tars.file("a")]], "1.0", platform="linux/amd64")
    own = registry.image("team/torch", [[tars.file("b")]], platform="linux/arm64")
    document = target.manifest(own["digest"])
    config = index.read_config(json_of(document.data, spec.Manifest), target.config)
    signed = []
    for _ in range(2):
        held_now = shared_tag.put(
            target, "1.0", shared_tag.TaggedImage(document, ARM64, config), signed.append, replace=False
        )
        assert {*held_now.images.platforms} == {AMD64.name, ARM64.name}
    assert [one.digest for one in signed] == [held_now.digest] * 2, "once each time that it is published"


@pytest.mark.parametrize("form", ["docker", "oci"])
def test_index_has_the_same_bytes_whichever_platform_came_first(registry, publish, form):
    for tag, order in (("ab", (AMD64, ARM64)), ("ba", (ARM64, AMD64))):
        for platform in order:
            publish(platform, tag=tag, form=form)
    assert held(registry, "ab") == held(registry, "ba")
    assert held(registry, "ab")[0] == {"docker": spec.DOCKER_INDEX, "oci": spec.INDEX}[form]


def test_index_of_docker_and_oci_manifests_is_an_oci_one(registry, publish):
    publish(AMD64, form="docker")
    publish(ARM64, form="oci")
    assert held(registry)[0] == held(registry)[1]["mediaType"] == spec.INDEX


def test_newer_image_replaces_that_of_its_platform_and_keeps_the_other(registry, publish):
    for platform in (AMD64, ARM64):
        publish(platform)
    newer = publish(AMD64, word="b")
    found = platforms(registry)
    assert found[AMD64.name] == newer.digest
    assert set(found) == {AMD64.name, ARM64.name}
    again = publish(AMD64, word="b")
    assert (again.index, platforms(registry)) == (newer.index, found), "the same image again changes nothing"


def test_newer_image_of_the_one_platform_leaves_the_tag_a_manifest(registry, publish):
    publish(AMD64)
    newer = publish(AMD64, word="b")
    assert held(registry)[0] == spec.DOCKER_MANIFEST
    assert tars.sha256(registry.documents["team/torch/manifests/1.0"][1]) == newer.digest


def test_replace_leaves_the_tag_with_the_new_image_alone(registry, publish):
    for platform in (AMD64, ARM64):
        publish(platform)
    publish(AMD64, word="b", replace=True)
    assert held(registry)[0] == spec.DOCKER_MANIFEST


@pytest.mark.parametrize("label", ["org.opencontainers.image.title", "graphcrate.cuda"])
def test_image_of_another_stack_may_not_join_a_tag_and_nothing_is_sent(registry, publish, label):
    publish(AMD64)
    before = dict(registry.documents)
    with refused(UsageError, "holds torch for CUDA 11.7 for linux/amd64", "--replace"):
        publish(ARM64, **{label: "other"})
    assert registry.documents == before
    publish(ARM64, replace=True, **{label: "other"})
    assert held(registry)[0] == spec.DOCKER_MANIFEST


def test_foreign_image_under_the_tag_is_not_joined(registry, publish):
    registry.image("team/torch", [[tars.file("x")]], "1.0", platform=OTHER.name)
    with refused(UsageError, f"holds another image for {OTHER.name}", "--replace"):
        publish(DEFAULT)


def test_another_torch_beside_it_is_said(publish, capsys):
    publish(AMD64)
    assert "beside torch" not in capsys.readouterr().err
    publish(ARM64, **{"graphcrate.torch": "2.1.0"})
    assert "keeps torch 2.0.1 for linux/amd64 beside torch 2.1.0 for linux/arm64" in capsys.readouterr().err


def test_foreign_fields_stay_and_statements_about_a_replaced_image_go(registry, publish):
    mine, other = publish(AMD64), publish(ARM64)
    media_type, document = held(registry)
    about = {"mediaType": spec.MANIFEST, "digest": f"sha256:{'1' * 64}", "size": 3}
    unknown = {"os": "unknown", "architecture": "unknown"}
    document["annotations"] = {"theirs": "yes"}
    document["manifests"] += [
        {**about, "platform": unknown, "annotations": {"vnd.docker.reference.digest": digest}, "theirs": 1}
        for digest in (mine.digest, other.digest)
    ]
    document["manifests"][1]["platform"]["os.features"] = ["kept"]
    registry.put("team/torch", document, media_type, "1.0")
    publish(AMD64, word="b")
    after = held(registry)[1]
    assert after["annotations"] == {"theirs": "yes"}
    statements = [one for one in after["manifests"] if one["platform"] == unknown]
    assert [one["annotations"]["vnd.docker.reference.digest"] for one in statements] == [other.digest]
    assert statements[0]["theirs"] == 1
    assert after["manifests"][1]["platform"]["os.features"] == ["kept"]


@pytest.mark.parametrize("entry", [{}, {"mediaType": spec.MANIFEST, "digest": "sha256:../x", "size": 1}, 7])
def test_malformed_index_under_the_tag_is_an_error_and_stays(registry, publish, entry):
    document = {"schemaVersion": 2, "mediaType": spec.INDEX, "manifests": [entry]}
    registry.put("team/torch", document, spec.INDEX, "1.0")
    with pytest.raises(LayoutError, match=r"torch:1\.0 holds a malformed index"):
        publish(AMD64)
    assert held(registry)[1] == document
    publish(AMD64, replace=True)
    assert held(registry)[0] == spec.DOCKER_MANIFEST


def test_damaged_image_under_the_tag_is_replaced(registry, publish):
    image = registry.image("team/torch", [[tars.file("x")]], "1.0", platform=OTHER.name)
    config = held(registry)[1]["config"]["digest"]
    registry.homes["team/torch"].discard(config)
    assert publish(DEFAULT).digest != image["digest"]
    assert held(registry)[0] == spec.DOCKER_MANIFEST


# Two publish at once


def meanwhile(registry, method, times, write):
    """Call `write` after the first `times` requests of a kind for the tag, as another publisher would write then."""
    left = [times]

    def mood(answers):
        if left[0] and answers.command == method and answers.path.endswith("/manifests/1.0"):
            left[0] -= 1
            registry.moods.remove(mood)
            try:
                {"GET": answers.do_GET, "PUT": answers.do_PUT}[method]()
            finally:
                if left[0]:
                    registry.moods.append(mood)
            write()
            return True
        return False

    registry.moods.append(mood)


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("times", [1, 2])
def test_concurrent_publishers_of_two_platforms_lose_neither(registry, publish, method, times):
    """Another one sets the tag to its image alone, just after this one has read it, or written it."""
    theirs = publish(ARM64, tag="theirs")
    alone = registry.documents["team/torch/manifests/theirs"]

    def write():
        registry.documents["team/torch/manifests/1.0"] = alone

    meanwhile(registry, method, times, write)
    mine = publish(AMD64)
    assert platforms(registry) == {AMD64.name: mine.digest, ARM64.name: theirs.digest}


def test_another_publishers_newer_image_is_not_overwritten(registry, publish):
    """Another one renews the other platform's image while this one writes its index: that stays in what it sets."""
    publish(ARM64)
    newer = publish(ARM64, tag="theirs", word="b")
    renewed = registry.documents["team/torch/manifests/theirs"]

    def mood(answers):
        if (
            answers.command == "PUT"
            and answers.headers["Content-Type"] == spec.DOCKER_INDEX
            and "sha256:" in answers.path
        ):
            registry.documents["team/torch/manifests/1.0"] = renewed
        return False

    registry.moods.append(mood)
    mine = publish(AMD64)
    assert platforms(registry) == {AMD64.name: mine.digest, ARM64.name: newer.digest}


def test_tag_that_others_set_all_the_time_is_a_network_error(registry, publish):
    publish(ARM64, tag="theirs")
    alone = registry.documents["team/torch/manifests/theirs"]

    def write():
        registry.documents["team/torch/manifests/1.0"] = alone

    meanwhile(registry, "PUT", 99, write)
    with pytest.raises(NetworkError, match=f"was set by others {shared_tag.TRIES} times"):
        publish(AMD64)


# Signatures


def verified(ctx, registry, platform, public=None):
    request = verify.VerifyRequest(ref=f"{registry.host}/team/torch:1.0", key=public, platform=platform)
    found = verify.run(request, ctx, build_image)
    return found, {check.what: (check.ok, check.said) for check in found.checks}


def test_each_platform_verifies_and_the_index_is_signed_too(ctx, registry, publish, pair):
    private, public = pair
    digests = {platform: publish(platform, key=private).digest for platform in (AMD64, ARM64)}
    for platform, digest in digests.items():
        found, told = verified(ctx, registry, platform, public)
        assert (found.digest, found.platform) == (digest, platform.name)
        assert all(ok for ok, _ in told.values()), told
    index = tars.sha256(registry.documents["team/torch/manifests/1.0"][1])
    assert f"team/torch/manifests/{index.replace(':', '-')}.sig" in registry.documents
    assert f"team/torch/manifests/{index.replace(':', '-')}.att" not in registry.documents


def test_index_of_before_is_signed_when_a_key_comes_with_the_same_image(registry, publish, pair):
    private, _ = pair
    publish(AMD64, key=private)
    publish(ARM64)
    index = tars.sha256(registry.documents["team/torch/manifests/1.0"][1])
    assert f"team/torch/manifests/{index.replace(':', '-')}.sig" not in registry.documents
    publish(ARM64, key=private)
    assert f"team/torch/manifests/{index.replace(':', '-')}.sig" in registry.documents


def test_index_with_an_image_that_the_key_has_not_signed_is_not_signed(registry, publish, pair):
    private, _ = pair
    publish(AMD64)
    before = dict(registry.documents)
    with refused(GateError, "an image for linux/amd64 that this key has not signed", "publish that one with the same"):
        publish(ARM64, key=private)
    assert registry.documents == before
    publish(AMD64, key=private)  # as the message says
    publish(ARM64, key=private)
    assert set(platforms(registry)) == {AMD64.name, ARM64.name}


# Files, which are for one platform


def test_files_of_two_platforms_in_a_folder_keep_links_of_their_own(ctx, built, tmp_path):
    for platform in (AMD64, ARM64):
        request = policy.PublishRequest(ref=str(built(platform) / "oci"), forms=("oci-archive",))
        publication.publish(request, ctx, str(tmp_path / "shared"))
    links = {path.name: str(path.readlink()) for path in (tmp_path / "shared").iterdir() if path.is_symlink()}
    assert links == {
        "torch.oci.tar": "torch-2.0-cu117.oci.tar",
        "torch-arm64.oci.tar": "torch-2.0-cu117-arm64.oci.tar",
    }


def test_short_tag_of_a_sif_ends_in_its_platform_and_that_of_an_image_does_not(ctx, registry, built):
    for platform in (AMD64, ARM64):
        request = policy.PublishRequest(ref=str(built(platform) / "oci"), short_tag=True)
        assert publication.publish(request, ctx, f"oras://{registry.host}/sifs").tags[1] == f"cu117{platform.suffix}"
        assert publication.publish(request, ctx, f"{registry.host}/team").tags[1] == "cu117"
    assert set(platforms(registry, "cu117")) == {AMD64.name, ARM64.name}


# What an emulator has tried


EMULATED = {"suite": "emulated", "device": f"cpu (emulating {OTHER.title})"}


@pytest.mark.parametrize("allowed", [False, True])
def test_emulated_proof_publishes_only_where_the_user_says_so_and_is_recorded(ctx, registry, publish, allowed):
    if not allowed:
        with refused(GateError, "an emulator alone has tried", "--allow-emulated"):
            publish(OTHER, **EMULATED)
        assert registry.documents == {}
        return
    published = publish(OTHER, allow_emulated=True, **EMULATED)
    assert (published.emulated, published.cpu_only) == (True, True)
    _, told = verified(ctx, registry, OTHER)
    assert "an emulator alone has tried this image" in told["smoke suites"][1]
    statements = [json.loads(data) for data in registry.blobs.values() if b'"urn:graphcrate:smoke:1"' in data]
    (statement,) = [one for one in statements if "predicate" in one]
    assert statement["predicate"]["emulatedAllowed"] is True
    assert [suite["device"] for suite in statement["predicate"]["suites"]] == [EMULATED["device"]]


def test_allow_emulated_does_not_stand_for_suites_that_failed_to_run(publish):
    """It is for what an emulator has tried: an image without any test is refused as ever."""
    with refused(GateError, "the suite torch has not passed"):
        publish(OTHER, suite="ops", allow_emulated=True)


def test_image_that_passed_its_suites_is_not_marked_as_emulated(publish):
    assert not publish(AMD64, allow_emulated=True).emulated


def test_image_for_another_processor_is_refused_before_it_is_built(tmp_path, monkeypatch):
    request = policy.PublishRequest(ref="torch", output=tmp_path)
    monkeypatch.setattr(policy.gpu, "is_here", lambda: True)
    with refused(GateError, f"runs no suite of an image for {OTHER.title}", "ALLOW_EMULATED=yes"):
        policy.refuse_early(request, "torch", "13.0", OTHER)
    policy.refuse_early(request, "torch", "13.0", DEFAULT)
    allowed = policy.PublishRequest(ref="torch", output=tmp_path, allow_emulated=True)
    policy.refuse_early(allowed, "torch", "13.0", OTHER)


# Which one a command reads


@pytest.fixture
def both(tmp_path):
    """A layout whose index.json lists images for two platforms, as `skopeo copy --all` leaves it."""
    ones = {
        platform: small_layouts.layout(tmp_path / platform.architecture, [tars.file("a")], platform=platform)
        for platform in (AMD64, ARM64)
    }
    target = tmp_path / "both"
    shutil.copytree(ones[AMD64].path, target)
    shutil.copytree(ones[ARM64].path / "blobs", target / "blobs", dirs_exist_ok=True)
    entries = [json.loads((layout.path / "index.json").read_text())["manifests"][0] for layout in ones.values()]
    inner = json.dumps({"schemaVersion": 2, "mediaType": spec.INDEX, "manifests": entries}).encode()
    (target / "blobs/sha256" / tars.sha256(inner)[7:]).write_bytes(inner)
    entry = {"mediaType": spec.INDEX, "digest": tars.sha256(inner), "size": len(inner)}
    (target / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return target, ones


def test_layout_for_two_platforms_gives_the_one_asked_for_else_this_machines(both, tmp_path, monkeypatch):
    path, ones = both
    for platform in (AMD64, ARM64):
        found, _ = locate.find_image(str(path), tmp_path, platform)
        assert found.digest == ones[platform].digest
        monkeypatch.setattr(locate, "this_machine", lambda platform=platform: platform)
        assert locate.find_image(str(path), tmp_path)[0].digest == ones[platform].digest


def test_single_image_for_another_platform_than_asked_for_is_refused(both, tmp_path):
    _, ones = both
    with refused(UsageError, "is an image for linux/amd64, and linux/arm64 was asked for"):
        locate.find_image(str(ones[AMD64].path), tmp_path, ARM64)


def test_platform_of_a_name_is_the_end_of_its_tag(built, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    built(AMD64), built(ARM64)
    named = {text: options.named("torch:2.0-cu117", tmp_path / "dist", text) for text in ("", "linux/arm64")}
    assert named == {"": "torch:2.0-cu117", "linux/arm64": "torch:2.0-cu117-arm64"}
    assert options.named("torch:2.0-cu117-arm64", tmp_path / "dist", "linux/arm64") == "torch:2.0-cu117-arm64"


def test_index_says_its_platforms_in_order():
    entry = spec.Descriptor(media_type=spec.MANIFEST, digest=f"sha256:{'0' * 64}", size=1)
    index = platform_index.EMPTY.with_image(entry, ARM64).with_image(entry, AMD64)
    assert index.platforms == (AMD64.name, ARM64.name)
    assert [one.digest for one in index.others(AMD64)] == [entry.digest]


def test_another_stack_replaces_what_a_tag_holds_where_the_user_says_so_and_each_tag_is_set_once(registry, publish):
    publish(AMD64)
    label = "graphcrate.cuda"
    published = publish(OTHER, tags=("1.0", "x", "x"), replace=True, **{label: "12.1"})
    assert published.tags == ("1.0", "x")
    assert held(registry) == held(registry, "x")
