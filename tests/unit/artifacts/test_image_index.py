"""From an index to the manifest of a platform: by the walk alone, and alike in a layout, an archive and a registry."""

import json
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.artifacts import pull
from graphcrate.host.context import Context
from graphcrate.model.errors import GraphcrateError, LayoutError
from graphcrate.model.platform import AMD64, ARM64
from graphcrate.oci import access, index, reference
from graphcrate.oci.layout import read_layout
from ocilayout import spec
from tests.made import refused
from tests.unit.artifacts.test_tree_readers import read_archive, tools_in
from tests.unit.registry_server import RegistryServer
from tests.unit.tars import file, sha256, tar

WINDOWS = {"os": "windows", "architecture": "amd64"}
ATTESTATION = {"os": "unknown", "architecture": "unknown"}


class Documents:
    """Documents by digest. `image`, `index` and `nested` add one, and return its descriptor."""

    def __init__(self):
        self.blobs = {}

    def add(self, document, kind, platform=None):
        data = json.dumps(document).encode()
        self.blobs[sha256(data)] = data
        return {
            "mediaType": kind,
            "digest": sha256(data),
            "size": len(data),
            **({"platform": platform} if platform else {}),
        }

    def image(self, platform=None, *, architecture="amd64", number=0):
        rootfs = {"type": "layers", "diff_ids": []}
        config = {"architecture": architecture, "os": "linux", "rootfs": rootfs, "created": f"{number}"}
        manifest = {"schemaVersion": 2, "config": self.add(config, spec.CONFIG), "layers": []}
        return self.add(manifest, spec.MANIFEST, platform)

    def index(self, *entries, platform=None):
        return self.add({"schemaVersion": 2, "manifests": entries}, spec.INDEX, platform)

    def nested(self, entry, depth):
        for _ in range(depth):
            entry = self.index(entry)
        return entry

    def read(self, descriptor):
        return self.blobs[descriptor.digest]


def named(architecture, variant=""):
    return {"os": "linux", "architecture": architecture, **({"variant": variant} if variant else {})}


@pytest.fixture
def documents():
    return Documents()


def by_layout(documents, root, folder):
    (folder / "oci/blobs/sha256").mkdir(parents=True)
    (folder / "oci/oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "oci/index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [root]}))
    for digest, data in documents.blobs.items():
        (folder / "oci/blobs" / digest.replace(":", "/")).write_bytes(data)
    layout = read_layout(folder / "oci")
    return layout.manifest, layout.index


def by_archive(documents, root, folder):
    blobs = [file(f"blobs/{digest.replace(':', '/')}", data) for digest, data in documents.blobs.items()]
    listed = file("index.json", json.dumps({"schemaVersion": 2, "manifests": [root]}).encode())
    (folder / "image.tar").write_bytes(tar([*blobs, listed]))
    with tools_in(folder) as tools:
        opened = read_archive("image.tar", folder / "image.tar", tools)
    return opened.manifest, opened.index


def by_registry(documents, root, folder):
    with RegistryServer() as server:
        name = reference.parse(f"{server.host}/team/image:1")
        for digest, data in documents.blobs.items():
            kind = spec.INDEX if b'"manifests"' in data else spec.MANIFEST
            server.documents[f"team/image/manifests/{digest}"] = kind, data
            server.blobs[digest] = data
        server.documents["team/image/manifests/1"] = root["mediaType"], documents.blobs[root["digest"]]
        ctx = Context(root=folder, environment={"GRAPHCRATE_CACHE": str(folder / "cache")})
        source = access.repository(name, ctx)
        image = pull.find_manifest(source, name, ctx.cache)
        pull.documents(source, image.descriptor.digest, ctx.cache)
        ctx.cache.close()
    return image.manifest, image.index


CARRIERS = pytest.mark.parametrize("carrier", [by_layout, by_archive, by_registry])


def config_of(documents, image):
    return msgspec.json.decode(documents.blobs[image["digest"]])["config"]["digest"]


@CARRIERS
def test_image_of_platform_is_found_in_nested_index(documents, carrier, tmp_path):
    ours = documents.image(named("amd64"))
    others = documents.image(named("arm64"), number=1), documents.image(ATTESTATION, number=2)
    root = documents.nested(documents.index(*others, ours), index.MAX_DEPTH - 1)
    manifest, entries = carrier(documents, root, tmp_path)
    assert manifest.config.digest == config_of(documents, ours)
    assert len(entries) == 3


@CARRIERS
def test_single_image_without_platform_is_taken(documents, carrier, tmp_path):
    image = documents.image()
    manifest, entries = carrier(documents, documents.index(image), tmp_path)
    assert (manifest.config.digest, len(entries)) == (config_of(documents, image), 1)


@CARRIERS
@pytest.mark.timeout(60)
def test_depth_of_indexes_is_limited(documents, carrier, tmp_path):
    with pytest.raises(GraphcrateError, match="index of indexes"):
        carrier(documents, documents.nested(documents.image(named("amd64")), index.MAX_DEPTH + 1), tmp_path)


@CARRIERS
def test_index_without_the_platform_says_which_it_has(documents, carrier, tmp_path):
    root = documents.index(documents.image(named("arm64")), documents.image(ATTESTATION, number=1))
    with refused(GraphcrateError, "has no image for linux/amd64", "It is for linux/arm64."):
        carrier(documents, root, tmp_path)


@CARRIERS
@pytest.mark.parametrize("damage", ["bytes", "size"])
@pytest.mark.parametrize("what", ["index", "manifest", "config"])
def test_document_with_other_bytes_is_refused(documents, carrier, damage, what, tmp_path):
    image = documents.image()
    inner = documents.index(image)
    digest = {"index": inner["digest"], "manifest": image["digest"], "config": config_of(documents, image)}[what]
    data = documents.blobs[digest]
    root = documents.index(inner)
    documents.blobs[digest] = data.replace(b": 2", b": 3").replace(b'"created": "0"', b'"created": "1"')
    if damage == "size":
        documents.blobs[digest] = data + b" "
    with refused(GraphcrateError, digest):
        carrier(documents, root, tmp_path)


@pytest.mark.parametrize(
    ("platform", "number"), [(AMD64, 2), (ARM64, 3), (msgspec.structs.replace(ARM64, architecture="riscv64"), 5)]
)
def test_entry_is_chosen_by_platform(documents, platform, number):
    variants = named("amd64", "v3"), WINDOWS, named("amd64"), named("arm64", "v8"), named("amd64"), named("riscv64")
    entries = [documents.image(variant, number=at) for at, variant in enumerate(variants)]
    root = msgspec.convert(documents.index(*entries), spec.Descriptor)
    found = index.find_manifest(root, documents.read, platform)
    assert found.descriptor.digest == entries[number]["digest"]
    with refused(
        index.NoImageError, "no image for linux/another", "linux/amd64, linux/arm64, linux/riscv64, windows/amd64"
    ):
        index.find_manifest(root, documents.read, msgspec.structs.replace(platform, architecture="another"))


def test_several_images_without_platform_are_refused(documents):
    root = documents.index(documents.image(), documents.image(number=1))
    with refused(index.NoImageError, "no image for linux/amd64", "It is for no platform."):
        index.find_manifest(msgspec.convert(root, spec.Descriptor), documents.read, AMD64)


def test_document_that_is_not_a_manifest_is_refused_with_its_type(documents):
    root = msgspec.convert(documents.add({}, "x/y"), spec.Descriptor)
    with refused(index.NoImageError, "is of type x/y"):
        index.find_manifest(root, documents.read, AMD64)
    chart = SimpleNamespace(config=SimpleNamespace(media_type="application/vnd.cncf.helm.config.v1+json"))
    with refused(index.NoImageError, "helm", "not a container image"):
        index.read_config(chart, documents.read)


def root_of(*entries, tag="", platform=AMD64, **document):
    listed = msgspec.convert({"schemaVersion": 2, **document, "manifests": entries}, spec.ImageIndex)
    return index.root_entry(listed, "index.json", platform, tag).digest


def test_root_is_the_only_entry_or_the_one_of_the_tag_and_platform(documents):
    amd, arm = documents.image(named("amd64")), documents.image(named("arm64"), number=1)
    tagged = {**arm, "annotations": {spec.REF_NAME: "a"}}
    assert root_of(arm) == arm["digest"], "its configuration says what it is for"
    assert root_of(amd, arm) == amd["digest"]
    assert root_of(amd, arm, platform=ARM64) == arm["digest"]
    assert root_of(amd, tagged, tag="a") == arm["digest"]
    for entries, words in (((), "0 images in it"), ((amd, amd), "2 images in it")):
        with refused(index.NoImageError, words):
            root_of(*entries)
    with refused(index.NoImageError, "0 images are tagged 'b'", "(untagged), a"):
        root_of(amd, tagged, tag="b")
    with refused(LayoutError, "schema version 2"):
        root_of(amd, mediaType="text/plain")
