"""The documents of an image, byte for byte."""

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from graphcrate.model.errors import LayoutError
from graphcrate.model.plan import ConfigStep
from graphcrate.model.report import LayerRecord, Owner
from graphcrate.oci import spec
from graphcrate.oci.image import digest_of, make_image

LAYERS = tuple(
    LayerRecord(
        title=title,
        digest="sha256:" + digit * 64,
        diff_id="sha256:" + other * 64,
        size=10,
        unpacked_size=100,
        owners=(Owner(name=title, version="1", bytes=90),),
    )
    for title, digit, other in (("debian bookworm", "1", "a"), ("torch", "2", "b"))
)
CONFIG = ConfigStep(
    environment={"PATH": "/opt/venv/bin:/usr/bin", "LANG": "C.UTF-8"},
    labels={"org.opencontainers.image.title": "pyg", "ä": "ö"},
    command=("python",),
    working_folder="/work",
)


def test_the_documents_are_exactly_these():
    """Golden: a change of these bytes changes the digest of every image ever built."""
    image = make_image(LAYERS, CONFIG, 1682899200, {"PATH": "/usr/bin", "GPG_KEY": "x"})
    assert json.loads(image.config) == {
        "architecture": "amd64",
        "os": "linux",
        "created": "2023-05-01T00:00:00Z",
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "a" * 64, "sha256:" + "b" * 64]},
        "config": {
            "Env": ["PATH=/opt/venv/bin:/usr/bin", "GPG_KEY=x", "LANG=C.UTF-8"],
            "Cmd": ["python"],
            "WorkingDir": "/work",
            "Labels": {"org.opencontainers.image.title": "pyg", "ä": "ö"},
        },
        "history": [
            {"created": "2023-05-01T00:00:00Z", "created_by": "graphcrate: debian bookworm"},
            {"created": "2023-05-01T00:00:00Z", "created_by": "graphcrate: torch"},
        ],
    }
    assert json.loads(image.manifest) == {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest_of(image.config),
            "size": len(image.config),
        },
        "layers": [
            {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": "sha256:" + d * 64, "size": 10}
            for d in "12"
        ],
    }
    assert image.digest == "sha256:" + hashlib.sha256(image.manifest).hexdigest()
    assert image.digest == "sha256:83a59bc4836db6ea159e3054c0e0720aa4ffd73447dc93d2f9482b3143f16197"


def test_neither_owners_nor_sizes_of_the_tar_change_the_image():
    bare = [LayerRecord(title=x.title, digest=x.digest, diff_id=x.diff_id, size=10, unpacked_size=7) for x in LAYERS]
    assert make_image(bare, CONFIG, 0) == make_image(bare, CONFIG, 0, {})
    assert make_image(bare, CONFIG, 0).manifest == make_image(LAYERS, CONFIG, 0).manifest


def test_a_blob_that_occurs_twice_counts_once():
    image = make_image((LAYERS[0], LAYERS[0]), CONFIG, 0)
    assert image.size == 10 + len(image.config) + len(image.manifest)
    assert len(json.loads(image.manifest)["layers"]) == 2


def manifest(*types):
    """A manifest of layers of these types."""
    described = [
        spec.Descriptor(media_type=kind, digest=f"sha256:{number:064x}", size=1000 + number)
        for number, kind in enumerate((spec.CONFIG, *types))
    ]
    return spec.Manifest(schema_version=2, media_type=spec.MANIFEST, config=described[0], layers=tuple(described[1:]))


def test_dockers_form_is_what_it_was():
    golden = Path(__file__).parent / "golden" / "schema2" / "manifest.json"
    form = spec.docker_form(manifest(spec.LAYER_GZIP, spec.LAYER_TAR))
    assert form == golden.read_bytes().rstrip(b"\n")
    assert spec.docker_form(msgspec.json.decode(form, type=spec.Manifest)) == form


@pytest.mark.parametrize(
    "media_type", [spec.LAYER_ZSTD, "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "text/plain"]
)
def test_layers_that_dockers_form_does_not_have_are_refused(media_type):
    with pytest.raises(LayoutError, match="which Docker's manifest form does not have"):
        spec.docker_form(manifest(media_type))
