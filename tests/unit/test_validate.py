import hashlib
import json
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcrate.model.errors import LayoutError
from graphcrate.model.plan import ConfigStep
from graphcrate.oci import spec
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import read_layout, write_layout
from graphcrate.oci.spec import LayerBlob
from graphcrate.oci.validate import inspect_layer, validate
from tests.unit import tars

CONFIG = ConfigStep(environment={}, labels={}, command=("sh",))
TYPES = (spec.LAYER_TAR, spec.LAYER_GZIP, spec.LAYER_ZSTD)
GOOD = [
    [tars.folder("./"), tars.folder("./bin/"), tars.file("./bin/sh"), tars.symlink("sbin", "bin")],
    [tars.file("bin/.wh.zsh"), tars.hardlink("bin/bash", "bin/sh"), tars.hardlink("bin/dash", "/bin/bash")],
    [tars.file("a" * 200 + "/" + "b" * 150), tars.file("ünï")],
]


def written(tmp_path, layers, types=TYPES):
    folder = tmp_path / "cache"
    folder.mkdir(exist_ok=True)
    records = [
        tars.record(folder, str(number), layer, types[number % len(types)]) for number, layer in enumerate(layers)
    ]
    image = make_image(records, CONFIG, 0)
    return write_layout(tmp_path / "oci", image, lambda digest: folder / digest.removeprefix("sha256:"), "t")


@pytest.mark.parametrize("layers", [GOOD, []])
def test_a_good_layout_has_nothing_to_say(tmp_path, layers):
    assert validate(written(tmp_path, layers)) == ()


def test_what_belongs_to_nobody_is_a_warning(tmp_path):
    layout = written(tmp_path, GOOD)
    (layout.path / "blobs" / "sha256" / ("0" * 64)).write_text("x")
    assert validate(layout) == (f"blobs/sha256/{'0' * 64} belongs to no image of the layout",)


@pytest.mark.parametrize("number", range(3))
def test_one_flipped_bit_in_a_layer_is_found(tmp_path, number):
    layout = written(tmp_path, GOOD)
    blob = layout.layer_blobs[number].path
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.unlink()
    blob.write_bytes(data)
    with pytest.raises(LayoutError):
        validate(layout)


def test_a_layer_that_is_another_one_is_found_by_its_digest(tmp_path):
    layout = written(tmp_path, [[tars.file("a", b"1")], [tars.file("a", b"2")]], (spec.LAYER_TAR,))
    one, other = (blob.path for blob in layout.layer_blobs)
    other.unlink()
    other.write_bytes(one.read_bytes())
    with pytest.raises(LayoutError, match="its bytes hash to"):
        validate(layout)


def rewritten(layout, change):
    """The layout with other documents, their digests right."""
    config = json.loads(layout.blob(layout.manifest.config.digest).read_bytes())
    manifest = json.loads(layout.blob(layout.digest).read_bytes())
    index = json.loads((layout.path / "index.json").read_bytes())
    change(config, manifest, index)

    def put(document, descriptor):
        data = json.dumps(document).encode()
        descriptor.update(digest=tars.sha256(data), size=len(data))
        (layout.path / "blobs" / "sha256" / hashlib.sha256(data).hexdigest()).write_bytes(data)

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
def test_documents_that_disagree_are_refused(tmp_path, change, message):
    layout = written(tmp_path, GOOD)
    with pytest.raises(LayoutError, match=message):
        validate(rewritten(layout, change))


def test_empty_layers_in_the_history_do_not_count(tmp_path):
    layout = rewritten(
        written(tmp_path, GOOD), lambda c, m, i: c["history"].insert(1, {"created_by": "ENV", "empty_layer": True})
    )
    assert len(validate(layout)) == 2  # the two documents that were replaced


@pytest.mark.parametrize("media_type", TYPES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_layer_that_is_cut_off_is_never_whole(tmp_path, media_type, share):
    data = tars.compressed(tars.tar([tars.file("a", b"x" * 5000), tars.file("b", b"y" * 5000)]), media_type)
    path = tmp_path / "layer"
    path.write_bytes(data[: int(len(data) * share) // 512 * 512 + 100 if share else 0])
    try:
        facts = inspect_layer(LayerBlob(path=path, media_type=media_type))
    except LayoutError:
        return
    assert facts.digest != tars.sha256(data)


def test_a_tar_without_end_blocks_is_read_and_one_with_a_broken_header_is_not(tmp_path):
    plain = tars.tar([tars.file("a"), tars.file("b")])
    path = tmp_path / "layer"
    blob = LayerBlob(path=path, media_type=spec.LAYER_TAR)
    path.write_bytes(plain[: 4 * 512])
    assert set(inspect_layer(blob).entries.found) == {"a", "b"}
    path.write_bytes(b"")
    assert inspect_layer(blob).entries.found == {}
    damaged = bytearray(plain)
    damaged[2 * 512 + 3] ^= 1  # in the name of b: tarfile itself would end in silence
    path.write_bytes(damaged)
    with pytest.raises(LayoutError, match="broken header"):
        inspect_layer(blob)


WANTS_ALL = tarfile.TarInfo("././@PaxHeader")
WANTS_ALL.type, WANTS_ALL.size = tarfile.XHDTYPE, 1 << 40


@pytest.mark.parametrize(
    ("media_type", "content", "message"),
    [
        (spec.LAYER_TAR, WANTS_ALL.tobuf(tarfile.GNU_FORMAT) + bytes(1024), "header of"),
        (
            spec.LAYER_GZIP,
            tars.compressed(tars.tar([tars.file("a")]), spec.LAYER_GZIP) + b"garbage!" * 10,
            "compressed data is broken",
        ),
    ],
)
def test_a_hostile_layer_is_refused(tmp_path, media_type, content, message):
    (tmp_path / "layer").write_bytes(content)
    with pytest.raises(LayoutError, match=message):
        inspect_layer(LayerBlob(path=tmp_path / "layer", media_type=media_type))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_to_a_tar_is_a_layout_error_or_harmless(tmp_path_factory, data):
    """No exception of tarfile, struct or the decompressors comes through, whatever the bytes."""
    entries = [tars.file("a" * 120, b"x" * 700), tars.symlink("l", "a"), tars.file("ü", mtime=1.5), tars.folder("d")]
    media_type = data.draw(st.sampled_from(TYPES))
    format = data.draw(st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
    plain = bytearray(tars.tar(entries, format)[: 12 * 512])
    for _ in range(data.draw(st.integers(1, 3))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    content = bytearray(tars.compressed(bytes(plain), media_type))
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damage") / "layer"
    path.write_bytes(content)
    try:
        facts = inspect_layer(LayerBlob(path=path, media_type=media_type))
    except LayoutError:
        return
    assert facts.digest == tars.sha256(bytes(content))
    assert all(not name.startswith("/") and ".." not in name.split("/") for name in facts.entries.found)
