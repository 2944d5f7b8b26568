"""Layouts whose documents, layers and digests disagree are refused. Damaged bytes are in test_mutated."""

import json
import re
import tarfile

import pytest

from graphcrate.model.errors import LayoutError
from graphcrate.oci.layout import read_layout
from graphcrate.oci.validate import Validation, inspect_layer, validate
from layertar.entries import MAX_FAULTS
from ocilayout import spec
from ocilayout.spec import LayerBlob
from tests.unit import small_layouts, tars

TYPES = (spec.LAYER_TAR, spec.LAYER_GZIP, spec.LAYER_ZSTD)
GOOD = [
    [tars.folder("./"), tars.folder("./bin/"), tars.file("./bin/sh"), tars.symlink("sbin", "bin")],
    [tars.file("bin/.wh.zsh"), tars.hardlink("bin/bash", "bin/sh"), tars.hardlink("bin/dash", "/bin/bash")],
    [tars.file("a" * 200 + "/" + "b" * 150), tars.file("ünï")],
]


@pytest.fixture
def good(tmp_path):
    return small_layouts.layout(tmp_path, *GOOD, types=TYPES)


def test_unreferenced_blob_in_a_valid_layout_is_the_only_warning(good, tmp_path):
    assert validate(small_layouts.layout(tmp_path / "empty")) == Validation()
    assert validate(good) == Validation()
    (good.path / "blobs" / "sha256" / ("0" * 64)).write_text("x")
    assert validate(good) == Validation(warnings=(f"blobs/sha256/{'0' * 64} belongs to no image of the layout",))


def test_swapped_layer_is_a_digest_fault(tmp_path):
    layers = [[tars.file("a", b"1")], [tars.file("a", b"2")]]
    layout = small_layouts.layout(tmp_path, *layers, types=(spec.LAYER_TAR,))
    one, other = (blob.path for blob in layout.layer_blobs)
    tars.overwrite(other, one.read_bytes())
    (fault,) = validate(layout).faults
    assert "its bytes hash to" in fault


def rewritten(layout, change):
    """The layout with other documents, their digests right."""
    config = json.loads(layout.blob(layout.manifest.config.digest).read_bytes())
    manifest = json.loads(layout.blob(layout.digest).read_bytes())
    index = json.loads((layout.path / "index.json").read_bytes())
    change(config, manifest, index)

    def put(document, descriptor):
        data = json.dumps(document).encode()
        descriptor.update(digest=tars.sha256(data), size=len(data))
        layout.blob(descriptor["digest"]).write_bytes(data)

    put(config, manifest["config"])
    put(manifest, index["manifests"][0])
    (layout.path / "index.json").write_text(json.dumps(index))
    return read_layout(layout.path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, m, i: c["rootfs"]["diff_ids"].reverse(), "the configuration says"),
        (lambda c, m, i: c["rootfs"]["diff_ids"].pop(), "3 layers, the configuration 2 diff_ids"),
        (lambda c, m, i: c["rootfs"].update(type="other"), "diff_ids"),
        (lambda c, m, i: c["history"].append({"created_by": "x"}), "history tells of 4 layers"),
        (lambda c, m, i: c.update(architecture="arm64"), "linux/amd64"),
        (lambda c, m, i: c.update(os=""), "no architecture"),
        (lambda c, m, i: m.update(mediaType=spec.DOCKER_MANIFEST), "the manifest says it is"),
        (lambda c, m, i: m.update(schemaVersion=1), "schema version 1"),
        (lambda c, m, i: m["layers"][0].update(mediaType="x/y"), "unknown type x/y"),
        (lambda c, m, i: m["layers"][0].update(mediaType=spec.LAYER_ZSTD), "compressed data is broken|not a tar"),
    ],
)
def test_contradicting_documents_are_faults(good, change, message):
    faults = validate(rewritten(good, change)).faults
    assert faults
    assert all(re.search(message, fault) for fault in faults)


def test_document_and_layer_faults_are_all_reported_at_once(good):
    """Six at once: two of the documents, one of the index, and each of the three layers damaged in its own way."""

    def change(config, manifest, index):
        config["architecture"] = "arm64"
        config["history"].append({"created_by": "x"})
        manifest["schemaVersion"] = 1

    layout = rewritten(good, change)
    missing, cut, flipped = (blob.path for blob in layout.layer_blobs)
    missing.unlink()
    tars.overwrite(cut, cut.read_bytes()[:-1])
    data = bytearray(flipped.read_bytes())
    data[-1] ^= 1
    tars.overwrite(flipped, bytes(data))
    faults = validate(layout).faults
    expected = (
        "schema version 1",
        "history tells of 4 layers",
        "linux/arm64",
        f"the blob sha256:{missing.name} is missing",
        f"the blob sha256:{cut.name} has",
        flipped.name,
    )
    assert [next((fault for fault in faults if words in fault), "") for words in expected] == list(faults)


def test_invalid_tar_entries_are_each_reported_once(tmp_path):
    """Of two layers, and where they contradict each other."""
    below = [tars.file("a"), tars.file("a"), tars.file("a/b"), tars.file("../out"), tars.file("good")]
    above = [tars.file("good/c"), tars.hardlink("x", "absent"), tars.file("/abs"), tars.file(".wh.")]
    faults = validate(small_layouts.layout(tmp_path, below, above)).faults
    expected = (
        "in it twice",
        "is below a",
        "'../out' leaves",
        "absolute name",
        "removes nothing",
        "below good",
        "absent",
    )
    assert [next((fault for fault in faults if words in fault), "") for words in expected] == list(faults)


def test_layer_with_too_many_faults_is_read_no_further(tmp_path):
    faults = validate(small_layouts.layout(tmp_path, [tars.file("a")] * (MAX_FAULTS + 50))).faults
    assert len(faults) == 2, "the same is said once"
    faults = validate(small_layouts.layout(tmp_path / "other", [tars.file(f"/{n}") for n in range(300)])).faults
    assert (len(faults), "more than 100 faults" in faults[-1]) == (MAX_FAULTS + 1, True)


def test_history_entries_of_empty_layers_are_not_counted(good):
    layout = rewritten(good, lambda c, m, i: c["history"].insert(1, {"created_by": "ENV", "empty_layer": True}))
    assert validate(layout).faults == ()
    assert len(validate(layout).warnings) == 2  # the two documents that were replaced


PLAIN = tars.tar([tars.file("a"), tars.file("b")])
WANTS_ALL = tarfile.TarInfo("././@PaxHeader")
WANTS_ALL.type, WANTS_ALL.size = tarfile.XHDTYPE, 1 << 40
BROKEN = bytearray(PLAIN)
BROKEN[2 * 512 + 3] ^= 1  # in the name of b: tarfile itself would end in silence


@pytest.mark.parametrize(
    ("media_type", "content", "message"),
    [
        (spec.LAYER_TAR, BROKEN, "broken header"),
        (spec.LAYER_TAR, WANTS_ALL.tobuf(tarfile.GNU_FORMAT) + bytes(1024), "header of"),
        (spec.LAYER_GZIP, tars.compressed(PLAIN, spec.LAYER_GZIP) + b"garbage!" * 10, "compressed data is broken"),
    ],
)
def test_hostile_layer_is_refused_and_a_tar_without_end_blocks_is_read(tmp_path, media_type, content, message):
    layer = LayerBlob(path=tmp_path / "layer", media_type=media_type)
    layer.path.write_bytes(content)
    with pytest.raises(LayoutError, match=message):
        inspect_layer(layer)
    for plain, names in ((PLAIN[: 4 * 512], {"a", "b"}), (b"", set())):
        layer.path.write_bytes(tars.compressed(plain, media_type))
        assert inspect_layer(layer).entries.by_path.keys() == names


def test_disk_device_is_a_warning_and_dev_null_is_not(tmp_path):
    disk = tars.entry("dev/vda", tarfile.BLKTYPE, devmajor=254, mode=0o666)
    null = tars.entry("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3, mode=0o666)
    gone = tars.entry("dev/vdb", tarfile.BLKTYPE, devmajor=254, devminor=16)
    image = small_layouts.layout(tmp_path, [disk, null, gone], [tars.file("dev/.wh.vdb")])
    (warning,) = validate(image).warnings
    assert "/dev/vda (b 254:0)" in warning
    assert validate(small_layouts.layout(tmp_path / "other", [null])) == Validation()
