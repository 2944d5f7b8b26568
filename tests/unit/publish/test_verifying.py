"""verify against what others put beside an image, and what went amiss there."""

import json

import msgspec
import pytest

from dssesign import bundles, signing, statement
from graphcrate.assembly.pipeline import build_image
from graphcrate.host.disk import key_files
from graphcrate.model.errors import IntegrityError
from graphcrate.model.lock import decode_lock
from graphcrate.model.report import BuildReport
from graphcrate.publish import predicates, provenance, verify
from ocilayout import spec
from ociregistry import referrers
from tests.unit.publish.test_publishing import TAG, checks, ctx, folder, publish

__all__ = ("ctx", "folder", "publish")  # fixtures
OTHER = f"sha256:{'0' * 64}"
NOTHING = (False, "nothing of the kind is attached to this image")
GITHUB = {"buildType": "https://actions.github.io/buildtypes/workflow/v1", "externalParameters": {"workflow": {}}}


@pytest.fixture
def key(key_pairs):
    """The pair's private and public file, and the key that signs."""
    private, public = key_pairs[0]
    return private, public, key_files.read_private(private, {"COSIGN_PASSWORD": "canary"}, lambda _: None)


def where(published):
    """Path of the manifest of statements on the registry."""
    return f"team/torch/manifests/{signing.attestation_tag(published.digest)}"


def layers_of(registry, published):
    return msgspec.json.decode(registry.documents[where(published)][1], type=spec.Manifest).layers


def attach(registry, published, digest, kind, predicate, key=None):
    """Put a statement about `digest`, signed with a key or unsigned, in the place of those of this type."""

    def stays(layer):
        notes = layer["annotations"]
        return kind not in (notes.get(signing.PREDICATE), notes.get(signing.UNSIGNED_PREDICATE))

    change(registry, published, lambda layers: list(filter(stays, layers)))
    made = statement.make("torch", digest, kind, predicate)
    tagged = signing.attestations(published.digest, [made], key, layers_of(registry, published))
    registry.blobs |= tagged.blobs
    registry.homes["team/torch"] |= set(tagged.blobs)
    registry.documents[where(published)] = (spec.MANIFEST, tagged.manifest)


def change(registry, published, changed):
    media_type, data = registry.documents[where(published)]
    manifest = json.loads(data)
    manifest["layers"] = changed(manifest["layers"])
    registry.documents[where(published)] = (media_type, json.dumps(manifest).encode())


def test_foreign_attachments_are_not_downloaded_and_verify_passes(ctx, registry, publish):
    published = publish()
    theirs = {"mediaType": "text/spdx", "digest": OTHER, "size": 1 << 30, "annotations": {}}
    change(registry, published, lambda layers: [*layers, theirs])
    assert all(ok for ok, _ in checks(ctx, published.reference).values())
    assert not [one for one in registry.asked if OTHER in one.path]
    for data in (b"[]", b"[" * 100_000, b"{}"):  # a document in the manifest's place
        registry.documents[where(published)] = (spec.MANIFEST, data)
        found = checks(ctx, published.reference)
        assert found.pop("name") == (True, "nobody signed as what it was published")
        assert set(found.values()) == {NOTHING}


@pytest.mark.parametrize("with_key", [True, False])
def test_provenance_of_another_builder_is_ignored(ctx, registry, publish, key, with_key):
    private, public, signer = key if with_key else (None, None, None)
    published = publish(key=private)
    ours = registry.documents[where(published)]
    registry.documents.pop(f"team/torch/manifests/{referrers.tag(published.digest)}", None)
    attach(registry, published, published.digest, predicates.PROVENANCE, {"buildDefinition": GITHUB}, signer)
    results = checks(ctx, published.reference, rebuild=True, key=public)
    assert results["provenance"] == NOTHING
    assert results["rebuild"] == (False, "no provenance holds that says what to build from")
    # beside ours it does no harm
    theirs = json.loads(registry.documents[where(published)][1])["layers"]
    registry.documents[where(published)] = ours
    change(registry, published, lambda layers: [*theirs, *layers])
    assert all(ok for ok, _ in checks(ctx, published.reference, key=public).values())


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"externalParameters": {"recipe": "torch"}, "resolvedDependencies": [{"digest": {"sha256": "0"}}]},
        {"externalParameters": {"recipe": "torch", "variant": "cpu"}, "resolvedDependencies": []},
        {"externalParameters": {"recipe": "torch", "variant": "cpu"}, "resolvedDependencies": [{"name": "lock"}]},
        *(
            {
                "externalParameters": {"recipe": "torch", "variant": "cpu", field: "every"},
                "resolvedDependencies": [{"name": "lock", "digest": {"sha256": "0"}}],
            }
            for field in ("extensions", "slim")
        ),
    ],
)
def test_provenance_without_a_build_definition_fails_rebuild_only(ctx, registry, publish, definition):
    published = publish()
    ours = {"buildDefinition": {"buildType": provenance.BUILD_TYPE, **definition}}
    attach(registry, published, published.digest, predicates.PROVENANCE, ours)
    results = checks(ctx, published.reference, rebuild=True)
    assert results["provenance"][0]
    assert (results["rebuild"][0], "does not say what to build from" in results["rebuild"][1]) == (False, True)


# Names, and where things are found


def place(registry, reference):
    """A reference's path on the registry."""
    name, _, tag = reference.removeprefix(f"{registry.host}/").rpartition(":")
    return f"{name}/manifests/{tag}"


def serve_as(registry, published, repository, tag):
    """An attacker puts all of a published image, signatures too, under another name."""
    for path, document in list(registry.documents.items()):
        name, _, what = path.partition("/manifests/")
        if name == "team/torch":
            registry.documents[f"{repository}/manifests/{what}"] = document
    registry.homes.setdefault(repository, set()).update(registry.homes["team/torch"])
    registry.documents[f"{repository}/manifests/{tag}"] = registry.documents[place(registry, published.reference)]
    return f"{registry.host}/{repository}:{tag}"


@pytest.mark.parametrize("lists", [False, True])
def test_replayed_or_copied_image_fails_the_name_check_and_a_mirror_passes(ctx, registry, publish, key, lists, typed):
    registry.lists = lists
    private, public, _ = key
    published = publish(key=private, tags=("cu117",))
    home = published.reference.rpartition(":")[0]
    for name in (published.reference, f"{home}:cu117", f"{home}@{published.digest}"):
        assert checks(ctx, name, key=public)["name"] == (
            True,
            f"published as {published.reference}, {home}:cu117".replace(", ", " and "),
        )
    replay = serve_as(registry, published, "team/torch", "9.9-new")
    copy = serve_as(registry, published, "evil/torch", "cu117")
    for name in (replay, copy, f"{registry.host}/evil/torch@{published.digest}"):
        for with_key in (public, None):
            found = checks(ctx, name, key=with_key)
            assert [what for what, (ok, _) in found.items() if not ok] == ["name"], found
            assert published.reference in found["name"][1]
    code, out, err = typed("verify", replay, "--key", public)
    assert (code, published.digest in out) == (17, True)
    assert f"--published-as {published.reference}" in err
    # a person says whose copy it is
    for name, original in ((replay, published.reference), (copy, home), (copy, f"{home}:cu117")):
        assert checks(ctx, name, key=public, published_as=original)["name"][0]
    assert not checks(ctx, copy, key=public, published_as=f"{home}:other")["name"][0]
    code, out, err = typed("verify", copy, "--key", public, "--published-as", home)
    assert (code, published.digest in out) == (0, True), err


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("gone", ["tags", "referrers"])
def test_statements_under_tags_alone_or_referrers_alone_verify(ctx, registry, publish, key, lists, gone):
    registry.lists = lists
    private, public, _ = key
    published = publish(key=private)
    for path, (_, data) in list(registry.documents.items()):
        is_tag = path.endswith((".sig", ".att"))
        is_referrer = "subject" in json.loads(data) or path.endswith(referrers.tag(published.digest))
        if is_tag if gone == "tags" else is_referrer:
            del registry.documents[path]
    found = checks(ctx, published.reference, key=public)
    assert (len(found), all(ok for ok, _ in found.values())) == (7, True), found


def test_second_publish_adds_tags_without_duplicate_statements(ctx, registry, publish, key):
    private, public, _ = key
    first = publish(key=private)
    before = dict(registry.documents)
    assert publish(key=private).proofs == first.proofs
    assert registry.documents == before
    publish(key=private, tags=("cu117",))
    assert publish(key=private, tags=("cu117",)).proofs != first.proofs
    listed = json.loads(registry.documents[f"team/torch/manifests/{referrers.tag(first.digest)}"][1])["manifests"]
    assert len(listed) == len({one["digest"] for one in listed}) == 2 + 5
    signatures = json.loads(registry.documents[f"team/torch/manifests/{signing.signature_tag(first.digest)}"][1])
    assert len(signatures["layers"]) == 2
    assert checks(ctx, f"{registry.host}/team/torch:cu117", key=public)["name"][0]


def test_signature_of_the_old_form_verifies_with_a_note_on_its_name(ctx, registry, publish, key, typed):
    """As graphcrate signed until then: the repository, no tag, no bundle."""
    _, public, signer = key
    published = publish()
    claim = json.loads(signing.claim(f"{registry.host}/team/torch", published.digest))
    old = signing.signatures(published.digest, [json.dumps({**claim, "optional": None}).encode()], signer)
    registry.blobs |= old.blobs
    registry.homes["team/torch"] |= set(old.blobs)
    registry.documents[f"team/torch/manifests/{old.tag}"] = (spec.MANIFEST, old.manifest)
    bill = json.loads(registry.documents[where(published)][1])["layers"][0]
    about = statement.decode(registry.blobs[bill["digest"]])
    sealed = signing.attestations(published.digest, [about], signer, layers_of(registry, published))
    registry.blobs |= sealed.blobs
    registry.homes["team/torch"] |= set(sealed.blobs)
    registry.documents[where(published)] = (spec.MANIFEST, sealed.manifest)
    assert checks(ctx, published.reference, key=public)["name"] == (
        True,
        f"published in {registry.host}/team/torch, where {TAG} is its own tag",
    )
    registry.documents["team/torch/manifests/cu117"] = registry.documents[place(registry, published.reference)]
    out = typed("verify", f"{registry.host}/team/torch:cu117", "--key", public)[1]
    assert f"no signature says whether cu117 is a tag of it; its own is {TAG}" in out
    assert [line.split()[0] for line in out.splitlines() if " name: " in line] == ["note"]
    copy = serve_as(registry, published, "evil/torch", TAG)
    assert not checks(ctx, copy, key=public)["name"][0]


def test_concurrent_write_of_the_referrers_index_loses_no_statement_of_publish(ctx, registry, publish, key):
    """Between statements and tag another client writes the index that it had read before."""
    private, public, _ = key
    theirs = {"mediaType": spec.MANIFEST, "digest": OTHER, "size": 7, "artifactType": "x/y"}

    def late(answers):
        if answers.command == "PUT" and answers.path.endswith(f"/manifests/{TAG}"):
            document = {"schemaVersion": 2, "mediaType": spec.INDEX, "manifests": [theirs]}
            (place,) = [path for path, (kind, _) in registry.documents.items() if kind == spec.INDEX and "-" in path]
            registry.documents[place] = (spec.INDEX, json.dumps(document).encode())
        return False

    registry.moods.append(late)
    published = publish(key=private)
    listed = json.loads(registry.documents[f"team/torch/manifests/{referrers.tag(published.digest)}"][1])["manifests"]
    assert [one["digest"] for one in listed] == [OTHER, *published.proofs[2:]]
    assert all(ok for ok, _ in checks(ctx, published.reference, key=public).values())


def test_bundles_above_the_limit_are_refused(ctx, registry, publish, monkeypatch):
    published = publish()
    entries = [{"mediaType": spec.MANIFEST, "digest": f"sha256:{n:064x}", "size": 7} for n in range(4)]
    listed = [{**one, "artifactType": bundles.BUNDLE} for one in entries]
    monkeypatch.setattr(verify, "MOST_BUNDLES", 3)
    place = f"team/torch/manifests/{referrers.tag(published.digest)}"
    for count in (3, 4):
        document = {"schemaVersion": 2, "mediaType": spec.INDEX, "manifests": listed[:count] + entries}
        registry.documents[place] = (spec.INDEX, json.dumps(document).encode())
        if count == 3:
            assert all(ok for ok, _ in checks(ctx, published.reference).values())
        else:
            with pytest.raises(IntegrityError, match="4 signatures and statements"):
                checks(ctx, published.reference)


def test_registry_that_refuses_subject_manifests_gets_tags_and_a_note(
    ctx, registry, publish, key, progress, monkeypatch
):
    monkeypatch.setattr(type(ctx), "progress", progress)
    private, public, _ = key

    def refuse(answers):
        if answers.command == "PUT" and "/manifests/" in answers.path:
            data = answers.rfile.peek(int(answers.headers["Content-Length"]))
            if b'"subject":{' in data:
                answers.leave(400, {"errors": [{"code": "MANIFEST_INVALID"}]})
                return True
        return False

    registry.moods.append(refuse)
    published = publish(key=private)
    assert any("takes no manifests that refer to an image" in line for line in progress.lines)
    assert (len(published.proofs), published.signed) == (2, "key")
    assert all(ok for ok, _ in checks(ctx, published.reference, key=public).values())


def test_nothing_that_the_given_key_did_not_sign_is_listed_as_verified(ctx, registry, publish, key_pairs):
    (private, own), (_, other) = key_pairs
    published = publish(key=private)
    for public, is_listed in ((own, True), (other, False)):
        done = verify.run(verify.VerifyRequest(ref=published.reference, key=public), ctx, lambda *_: None)
        assert (set(done.statements) == set(predicates.KINDS), bool(done.names)) == (is_listed, is_listed)
        assert is_listed or done.statements == ()


def test_smoke_results_of_another_image_fail_and_those_without_digests_pass(ctx, registry, publish, key):
    published = publish(key=key[0])
    for ran, ok in (({"manifest": OTHER, "config": OTHER}, False), (None, True), ({}, False)):
        predicate = {"suites": [], "cpuOnlyAllowed": False, **({} if ran is None else {"ran": ran})}
        attach(registry, published, published.digest, predicates.SMOKE, predicate, key[2])
        registry.documents = {path: one for path, one in registry.documents.items() if not is_bundle_of(path, one)}
        found, said = checks(ctx, published.reference, key=key[1])["smoke suites"]
        assert found is ok, said
        assert ok or f"the configuration {ran.get('config')}, and this one has sha256:" in said


def is_bundle_of(path, document):
    """Return whether it is a list of bundles: what is under the tags alone is to be read."""
    return b"sigstore.bundle" in document[1]


def test_verify_of_tag_and_digest_takes_the_digest(ctx, registry, publish, folder):
    """The image named by its digest is verified, wherever the tag leads by now."""
    published = publish()
    other = publish(form="oci")
    assert other.digest != published.digest
    for digest in (published.digest, other.digest):
        request = verify.VerifyRequest(ref=f"{published.reference}@{digest}")
        assert verify.run(request, ctx, build_image).digest == digest


def test_rebuild_from_another_lock_fails_even_with_equal_bytes(ctx, publish, folder):
    published = publish(form="oci")

    def build(request, ctx):
        known = msgspec.json.decode((folder / "report.json").read_bytes(), type=BuildReport)
        return msgspec.structs.replace(known, layout=str(folder / "oci"), lock_sha256=sha256)

    request = verify.VerifyRequest(ref=published.reference, rebuild=True)
    same = decode_lock((folder / "lock.json").read_bytes()).sha256
    for sha256, said in ((same, "built again, the same bytes"), ("f" * 64, "the lock here is ffffffffffff")):
        found = verify.run(request, ctx, build).checks[-1]
        assert (found.what, found.ok, said in found.said) == ("rebuild", sha256 == same, True), found
