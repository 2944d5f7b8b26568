import json
import os
import stat

import pytest

from graphcrate.model.errors import HostError, LayoutError
from graphcrate.model.plan import ConfigStep
from graphcrate.oci.image import make_image
from graphcrate.oci.layout import check_presence, is_whole, read_layout, write_layout
from tests.made import refused
from tests.unit import tars

CONFIG = ConfigStep(environment={"A": "b"}, labels={"l": "m"}, command=("sh",))


@pytest.fixture
def image(tmp_path):
    """Makes an image of layers with these titles; their blobs are in `cache`."""
    (tmp_path / "cache").mkdir()

    def make(*titles):
        files = [(title, [tars.file(title, title.encode() * 100)]) for title in titles]
        return make_image([tars.record(tmp_path / "cache", title, entries) for title, entries in files], CONFIG, 0)

    return make


@pytest.fixture
def cached(tmp_path):
    """The file of a layer's digest."""
    return lambda digest: tmp_path / "cache" / digest.removeprefix("sha256:")


@pytest.fixture
def write(tmp_path, cached):
    """Writes an image as a layout at `oci`."""
    return lambda image, tag="t": write_layout(tmp_path / "oci", image, cached, tag)


def test_written_layout_is_read_back_and_not_rewritten_if_unchanged(tmp_path, image, write):
    one = image("one", "two", "one")
    written = write(one, "v1")
    index = tmp_path / "oci" / "index.json"
    before, read = index.stat(), read_layout(tmp_path / "oci")
    assert read.digest == written.digest == one.digest
    blobs = {layer.digest: layer.size for layer in one.layers}  # one that occurs twice counts once
    assert (read.tag, read.size) == ("v1", sum(blobs.values()) + sum(map(len, one.documents)))
    assert (read.environment, read.labels) == ({"A": "b"}, {"l": "m"})
    assert [layer.digest for layer in read.layers] == [layer.digest for layer in one.layers]
    titles = [(layer.title, layer.diff_id) for layer in one.layers]
    assert [(record.title, record.diff_id) for record in read.records] == titles
    platform = json.loads(index.read_bytes())["manifests"][0]["platform"]
    assert platform == {"architecture": "amd64", "os": "linux"}
    assert written.records == write(one, "v1").records == one.layers
    assert os.path.samestat(before, index.stat())


@pytest.mark.parametrize("error", [0, 18, 1, 31])  # none, EXDEV, EPERM, EMLINK
def test_layout_blobs_are_read_only_hard_links_or_copies(monkeypatch, error, image, write, cached):
    def refuse(self, target):
        raise OSError(error, os.strerror(error))

    if error:
        monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    one = image("one")
    blob, source = write(one).blob(one.layers[0].digest), cached(one.layers[0].digest)
    assert blob.samefile(source) is not bool(error)
    assert blob.read_bytes() == source.read_bytes()
    assert stat.S_IMODE(blob.stat().st_mode) == 0o444


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o177])
def test_layout_modes_do_not_depend_on_umask(tmp_path, umask, image, write):
    one = image("one")
    before = os.umask(umask)
    try:
        write(one)
    finally:
        os.umask(before)
    for path in [tmp_path / "oci", *(tmp_path / "oci").rglob("*")]:
        mode = 0o755 if path.is_dir() else 0o444 if path.parent.name == "sha256" else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == mode, path


def test_layout_is_replaced_and_kept_after_a_failure(tmp_path, image, write, cached):
    first, second, third = image("one"), image("two"), image("three")
    write(first)
    write(second)
    assert is_whole(tmp_path / "oci", second.digest)
    # as after kill -9 between the two renames
    (tmp_path / "oci").rename(tmp_path / ".oci.old")
    (tmp_path / ".oci.partial" / "blobs").mkdir(parents=True)
    cached(third.layers[0].digest).unlink()
    with pytest.raises(HostError, match="No such file"):
        write(third)
    assert is_whole(tmp_path / "oci", second.digest)
    assert len(list((tmp_path / "oci" / "blobs" / "sha256").iterdir())) == 3
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["cache", "oci"]


def test_is_whole_is_false_for_missing_or_truncated_blobs(tmp_path, image, write):
    one = image("one")
    layout = write(one)
    assert is_whole(layout.path, one.digest)
    assert not is_whole(layout.path, "sha256:" + "0" * 64)
    assert not is_whole(tmp_path / "elsewhere", one.digest)
    blob = layout.blob(one.layers[0].digest)
    tars.overwrite(blob, blob.read_bytes()[:-1])
    with pytest.raises(LayoutError, match="its descriptor says"):
        check_presence(layout)
    blob.unlink()
    with pytest.raises(LayoutError, match="is missing"):
        check_presence(layout)
    assert not is_whole(layout.path, one.digest)
    assert is_whole(write(one).path, one.digest)  # mends it


def change_document(path, change):
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("oci-layout", lambda d: d.update(imageLayoutVersion="2.0.0"), "layout version"),
        ("oci-layout", lambda d: d.clear(), "layout version"),
        ("index.json", lambda d: d.update(manifests=[]), "0 images"),
        ("index.json", lambda d: d.update(manifests=d["manifests"] * 2), "2 images"),
        ("index.json", lambda d: d.update(schemaVersion=1), "schema version 2"),
        ("index.json", lambda d: d.update(mediaType="text/plain"), "not an image index"),
        ("index.json", lambda d: d.pop("manifests"), "malformed"),
        ("index.json", lambda d: d["manifests"][0].update(mediaType="x/y"), "not an image manifest"),
        ("index.json", lambda d: d["manifests"][0].update(digest="sha256:../../../../etc/passwd"), "a digest such as"),
        ("index.json", lambda d: d["manifests"][0].update(digest="sha256:" + "0" * 64), "is missing"),
        ("index.json", lambda d: d["manifests"][0].update(size=1), "damaged"),
    ],
)
def test_malformed_layout_is_a_layout_error(tmp_path, file, change, message, image, write):
    write(image("one"))
    change_document(tmp_path / "oci" / file, change)
    with pytest.raises(LayoutError, match=message):
        read_layout(tmp_path / "oci")


def test_folder_or_file_without_oci_layout_is_a_layout_error(tmp_path):
    (tmp_path / "file").write_text("x")
    for name in (".", "missing", "file"):
        with pytest.raises(LayoutError, match="is missing"):
            read_layout(tmp_path / name)
    (tmp_path / "oci-layout").write_bytes(b"\xff{")
    with pytest.raises(LayoutError, match="malformed"):
        read_layout(tmp_path)


def nested(path, entries):
    """Put an index with these further entries between the layout's own and the manifest, as buildx does."""
    index = json.loads((path / "index.json").read_bytes())
    data = json.dumps({"schemaVersion": 2, "mediaType": tars.spec.INDEX, "manifests": [*index["manifests"], *entries]})
    digest = tars.sha256(data.encode())
    (path / "blobs" / "sha256" / digest[7:]).write_text(data)
    entry = {"mediaType": tars.spec.INDEX, "digest": digest, "size": len(data), "annotations": {"name": "outer"}}
    (path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))


def test_nested_index_in_a_layout_gives_the_image_of_the_platform(tmp_path, image, write):
    one = image("one")
    write(one)
    other = {"mediaType": tars.spec.MANIFEST, "digest": f"sha256:{'0' * 64}", "size": 3}
    arm = {**other, "platform": {"architecture": "arm64", "os": "linux"}}
    attestation = {**other, "platform": {"architecture": "unknown", "os": "unknown"}}
    nested(tmp_path / "oci", [arm, attestation])
    layout = read_layout(tmp_path / "oci")
    assert layout.digest == one.digest
    assert [entry.platform.architecture for entry in layout.index] == ["amd64", "arm64", "unknown"]
    assert layout.descriptor.annotations["name"] == "outer"


def test_layout_without_the_platform_is_refused(tmp_path, image, write):
    index = write(image("one")).path / "index.json"
    index.write_text(index.read_text().replace("amd64", "arm64"))
    nested(tmp_path / "oci", [])
    with pytest.raises(LayoutError, match="has no image for linux/amd64"):
        read_layout(tmp_path / "oci")


def test_read_layout_finds_an_image_by_tag(image, write):
    layout = write(image("one"))
    other = {"org.opencontainers.image.ref.name": "u"}
    change_document(
        layout.path / "index.json", lambda d: d["manifests"].append({**d["manifests"][0], "annotations": other})
    )
    assert read_layout(layout.path, "u").tag == "u"
    with refused(LayoutError, "tagged 'w'", "t, u"):
        read_layout(layout.path, "w")
