"""The documents of an image, byte for byte."""

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from graphcrate.model.errors import LayoutError
from graphcrate.model.plan import ConfigStep
from graphcrate.model.report import LayerRecord, PackageBytes
from graphcrate.oci.image import make_image, writing_errors
from ocilayout import spec
from ocilayout.image import digest_of


def layer(title, digit, other, **more):
    digest, diff_id = f"sha256:{digit * 64}", f"sha256:{other * 64}"
    return LayerRecord(title=title, digest=digest, diff_id=diff_id, size=10, **{"unpacked_size": 100, **more})


NAMES = (("debian bookworm", "1", "a"), ("torch", "2", "b"))
LAYERS = tuple(layer(*one, owners=(PackageBytes(name=one[0], version="1", bytes=90),)) for one in NAMES)
CONFIG = ConfigStep(
    environment={"PATH": "/opt/venv/bin:/usr/bin", "LANG": "C.UTF-8"},
    labels={"org.opencontainers.image.title": "pyg", "ä": "ö"},
    command=("python",),
    working_folder="/work",
)


def test_image_documents_have_their_golden_bytes():
    """Golden: a change of these bytes changes the digest of every image ever built."""
    image = make_image(LAYERS, CONFIG, 1682899200, {"PATH": "/usr/bin", "GPG_KEY": "x"})
    config, manifest = json.loads(image.documents.config), json.loads(image.documents.manifest)
    assert config["config"]["Env"] == ["PATH=/opt/venv/bin:/usr/bin", "GPG_KEY=x", "LANG=C.UTF-8"]
    assert config["rootfs"]["diff_ids"] == ["sha256:" + "a" * 64, "sha256:" + "b" * 64]
    assert manifest["config"]["digest"] == digest_of(image.documents.config)
    assert [layer["digest"] for layer in manifest["layers"]] == [f"sha256:{digit * 64}" for digit in "12"]
    assert image.digest == "sha256:" + hashlib.sha256(image.documents.manifest).hexdigest()
    assert image.digest == "sha256:83a59bc4836db6ea159e3054c0e0720aa4ffd73447dc93d2f9482b3143f16197"


def test_image_manifest_does_not_depend_on_package_owners_or_tar_sizes():
    bare = [layer(*one, unpacked_size=7) for one in NAMES]
    assert make_image(bare, CONFIG, 0).digest == make_image(LAYERS, CONFIG, 0).digest


def manifest(*types):
    """A manifest of layers of these types."""
    config, *layers = (
        spec.Descriptor(media_type=kind, digest=f"sha256:{number:064x}", size=1000 + number)
        for number, kind in enumerate((spec.CONFIG, *types))
    )
    return spec.Manifest(schema_version=2, media_type=spec.MANIFEST, config=config, layers=tuple(layers))


def test_docker_manifest_form_has_its_golden_bytes():
    golden = Path(__file__).parent.parent / "golden" / "schema2" / "manifest.json"
    form = spec.docker_form(manifest(spec.LAYER_GZIP, spec.LAYER_TAR))
    assert form == golden.read_bytes().rstrip(b"\n")
    assert spec.docker_form(msgspec.json.decode(form, type=spec.Manifest)) == form


@pytest.mark.parametrize("kind", [spec.LAYER_ZSTD, "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"])
def test_layer_type_without_a_docker_form_is_refused(kind):
    with pytest.raises(LayoutError, match="which Docker's manifest form does not have"), writing_errors():
        spec.docker_form(manifest(kind))
