"""The manifest in Docker's form, byte for byte."""

from pathlib import Path

import msgspec
import pytest

from graphcrate.model.errors import LayoutError
from graphcrate.oci import spec

GOLDEN = Path(__file__).parent / "golden" / "schema2"


def described(media_type, number, **more):
    return spec.Descriptor(media_type=media_type, digest=f"sha256:{number:064x}", size=1000 + number, **more)


def manifest(*layers, config=spec.CONFIG):
    return spec.Manifest(schema_version=2, media_type=spec.MANIFEST, config=described(config, 0), layers=tuple(layers))


def test_the_form_is_what_it_was():
    layers = described(spec.LAYER_GZIP, 1), described(spec.LAYER_TAR, 2, annotations={"a": "b"})
    converted = spec.docker_form(manifest(*layers))
    assert converted == (GOLDEN / "manifest.json").read_bytes().rstrip(b"\n")


def test_blobs_stay_and_types_change():
    original = manifest(described(spec.LAYER_GZIP, 1), described(spec.LAYER_GZIP, 1))
    read = msgspec.json.decode(spec.docker_form(original), type=spec.Manifest)
    assert [one.digest for one in read.layers] == [one.digest for one in original.layers]
    assert [one.size for one in read.layers] == [1001, 1001]
    assert (read.config.digest, read.config.media_type) == (original.config.digest, spec.DOCKER_CONFIG)
    assert read.media_type == spec.DOCKER_MANIFEST
    assert {one.media_type for one in read.layers} == {"application/vnd.docker.image.rootfs.diff.tar.gzip"}


def test_what_is_in_that_form_stays():
    first = spec.docker_form(manifest(described(spec.LAYER_GZIP, 1)))
    assert spec.docker_form(msgspec.json.decode(first, type=spec.Manifest)) == first


@pytest.mark.parametrize(
    "media_type", [spec.LAYER_ZSTD, "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "text/plain"]
)
def test_layers_that_this_form_does_not_have_are_refused(media_type):
    with pytest.raises(LayoutError, match="which Docker's manifest form does not have"):
        spec.docker_form(manifest(described(media_type, 1)))
