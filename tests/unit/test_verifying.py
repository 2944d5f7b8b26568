"""verify against what others put beside an image, and what went amiss there."""

import json

import msgspec
import pytest

from graphcrate.oci import spec
from graphcrate.publish.attest import keys, provenance, signing, statement
from graphcrate.publish.attest.statement import Subject
from tests.unit.test_publishing import checks, ctx, folder, publish

__all__ = ("ctx", "folder", "publish")  # fixtures
OTHER = f"sha256:{'0' * 64}"
NOTHING = (False, "nothing of the kind is attached to this image")
GITHUB = {"buildType": "https://actions.github.io/buildtypes/workflow/v1", "externalParameters": {"workflow": {}}}


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """The pair's private and public file, and the key that signs. One for all: its password is hashed for a second."""
    private, public = keys.make_pair(tmp_path_factory.mktemp("key"), "canary")
    return private, public, keys.read_private(private, {"COSIGN_PASSWORD": "canary"}, lambda _: None)


def where(published):
    """Path of the manifest of statements on the registry."""
    return f"team/torch/manifests/{signing.attestation_tag(published.digest)}"


def layers_of(registry, published):
    return msgspec.json.decode(registry.documents[where(published)][1], type=spec.Manifest).layers


def attach(registry, published, digest, kind, predicate, key=None):
    """Put a statement about `digest`, signed with a key or by nobody, in the place of those of this type."""

    def stays(layer):
        notes = layer["annotations"]
        return kind not in (notes.get(signing.PREDICATE), notes.get(signing.UNSIGNED_PREDICATE))

    change(registry, published, lambda layers: list(filter(stays, layers)))
    made = statement.make(Subject(name="torch", tag="x", digest=digest), kind, predicate)
    tagged = signing.attestations(published.digest, [made], key, layers_of(registry, published))
    registry.blobs |= tagged.blobs
    registry.homes["team/torch"] |= set(tagged.blobs)
    registry.documents[where(published)] = (spec.MANIFEST, tagged.manifest)


def change(registry, published, changed):
    media_type, data = registry.documents[where(published)]
    manifest = json.loads(data)
    manifest["layers"] = changed(manifest["layers"])
    registry.documents[where(published)] = (media_type, json.dumps(manifest).encode())


def test_what_others_attach_is_not_read(ctx, registry, publish):
    published = publish()
    theirs = {"mediaType": "text/spdx", "digest": OTHER, "size": 1 << 30, "annotations": {}}
    change(registry, published, lambda layers: [*layers, theirs])
    assert all(ok for ok, _ in checks(ctx, published.reference).values())
    assert not [one for one in registry.asked if OTHER in one.path]
    for data in (b"[]", b"[" * 100_000, b"{}"):  # a document in the manifest's place
        registry.documents[where(published)] = (spec.MANIFEST, data)
        assert set(checks(ctx, published.reference).values()) == {NOTHING}


@pytest.mark.parametrize("with_key", [True, False])
def test_another_builders_provenance_is_none_of_ours(ctx, registry, publish, key, with_key):
    private, public, signer = key if with_key else (None, None, None)
    published = publish(key=private)
    ours = registry.documents[where(published)]
    attach(registry, published, published.digest, statement.PROVENANCE, {"buildDefinition": GITHUB}, signer)
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
    ],
)
def test_a_provenance_that_lacks_what_to_build_from(ctx, registry, publish, definition):
    published = publish()
    ours = {"buildDefinition": {"buildType": provenance.BUILD_TYPE, **definition}}
    attach(registry, published, published.digest, statement.PROVENANCE, ours)
    results = checks(ctx, published.reference, rebuild=True)
    assert results["provenance"][0]
    assert (results["rebuild"][0], "does not say what to build from" in results["rebuild"][1]) == (False, True)
