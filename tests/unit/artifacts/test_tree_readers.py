"""One tree in each form: layers, archives, folders; unreadable ones say why."""

import dataclasses
import gzip
import hashlib
import json
import os
import re
import tarfile
import uuid
from contextlib import ExitStack, contextmanager

import msgspec
import pytest
import zstandard

from graphcrate.artifacts.locate import Located
from graphcrate.artifacts.tree import archives, filesystems
from graphcrate.artifacts.tree.compare import is_kept
from graphcrate.artifacts.tree.layers import read_layout
from graphcrate.artifacts.tree.opening import compare
from graphcrate.artifacts.tree.reader import Selection, Tools, owners_known
from graphcrate.host.disk.cache import Cache
from graphcrate.model.contract import Settings
from graphcrate.model.errors import HostError, LayoutError
from graphcrate.model.tree import Entry
from ocilayout import spec
from sifsquash import sif
from tests.made import place, refused
from tests.unit import small_layouts
from tests.unit.artifacts.test_rootfs import unpacked
from tests.unit.tars import compressed, entry, file, folder, hardlink, overwrite, sha256, symlink, tar

PYC = "/lib/module/__pycache__/module.cpython-311.pyc"
#: what layers mean is compared in test_layer_cases
LAYERS = (
    [
        folder("./", mode=0o755),
        file("etc/passwd", b"root", mode=0o600, uid=1, gid=2),
        file("old", b"gone"),
        entry("dev/null", tarfile.CHRTYPE, mode=0o666, devmajor=1, devminor=3),
        entry("pipe", tarfile.FIFOTYPE, mode=0o600),
    ],
    [
        file(".wh.old", b""),
        file("bin/tool", b"#!tool", mode=0o4755),
        hardlink("bin/same", "etc/passwd"),
        symlink("sh", "bin/tool"),
        file(PYC[1:], b"bytecode"),
    ],
)


def content(data, mode=0o644, uid=0, gid=0):
    return Entry("file", mode, uid, gid, len(data), hashlib.sha256(data).hexdigest())


TREE = {
    "/": Entry("folder", 0o755),
    "/etc": Entry("folder", 0o755),
    "/etc/passwd": content(b"root", 0o600, 1, 2),
    "/dev": Entry("folder", 0o755),
    "/dev/null": Entry("device", 0o666, link="c 1:3"),
    "/pipe": Entry("fifo", 0o600),
    "/bin": Entry("folder", 0o755),
    "/bin/tool": content(b"#!tool", 0o4755),
    "/bin/same": content(b"root", 0o600, 1, 2),
    "/sh": Entry("symlink", 0o777, link="bin/tool"),
    "/lib": Entry("folder", 0o755),
    "/lib/module": Entry("folder", 0o755),
    "/lib/module/__pycache__": Entry("folder", 0o755),
    PYC: content(b"bytecode"),
}
CONFIG = {
    "architecture": "amd64",
    "os": "linux",
    "rootfs": {"type": "layers", "diff_ids": []},
    "config": {"Env": ["PATH=/bin", "EMPTY="], "Cmd": ["sh"], "Labels": {"who": "me"}, "WorkingDir": "/"},
}
SETTINGS = Settings(environment=("PATH=/bin", "EMPTY="), command=("sh",), labels={"who": "me"}, working_folder="/")


@contextmanager
def tools_in(directory, keep=is_kept):
    with ExitStack() as stack:
        yield Tools(place(Cache(directory / "cache")), stack, Selection(keep=keep))


@pytest.fixture
def tools(tmp_path):
    with tools_in(tmp_path) as made:
        yield made


def read_archive(ref, path, tools):
    return archives.read_saved(Located(ref=ref, form="archive", name=path.name, path=path), tools)


def docker_archive(entries=LAYERS, config=CONFIG, *, modern=False, images=1):
    """An archive as of `docker save`: 20.10 with a folder per layer, 25 and later with blobs."""
    form = "blobs/sha256/{}" if modern else "{}/layer.tar"
    tars = {form.format(sha256(data)[7:]): data for data in map(tar, entries)}
    manifest = {"Config": "config.json", "RepoTags": ["a:b"], "Layers": list(tars)}
    documents = {"config.json": config, "manifest.json": [manifest] * images}
    return tar([file(name, data) for name, data in tars.items()] + as_files(documents))


def as_files(documents):
    return [file(name, json.dumps(document).encode()) for name, document in documents.items()]


def oci_archive(media_type=spec.LAYER_GZIP, *, nested=False, entries=LAYERS, config=CONFIG):
    """An archive as skopeo writes for oci-archive."""
    blobs = {}

    def add(data, kind):
        blobs[sha256(data)] = data
        return {"mediaType": kind, "digest": sha256(data), "size": len(data)}

    layers = [add(compressed(tar(layer), media_type), media_type) for layer in entries]
    listed = add(json.dumps(config).encode(), spec.CONFIG)
    manifest = add(json.dumps({"schemaVersion": 2, "config": listed, "layers": layers}).encode(), spec.MANIFEST)
    if nested:
        ours = {**manifest, "platform": {"os": "linux", "architecture": "amd64"}}
        others = {**manifest, "platform": {"os": "unknown", "architecture": "unknown"}}
        manifest = add(json.dumps({"schemaVersion": 2, "manifests": [others, ours]}).encode(), spec.INDEX)
    index = json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode()
    files = [file(f"blobs/{digest.replace(':', '/')}", data) for digest, data in blobs.items()]
    return tar([file("index.json", index), file("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'), *files])


ARCHIVES = {
    "docker": docker_archive(),
    "docker 25": docker_archive(modern=True),
    "gzip": gzip.compress(docker_archive()),
    "zstd": zstandard.ZstdCompressor().compress(docker_archive()),
    "oci": oci_archive(),
    "oci zstd": oci_archive(spec.LAYER_ZSTD),
    "oci plain": oci_archive(spec.LAYER_TAR),
    "oci nested": oci_archive(nested=True),
}


@pytest.mark.parametrize("archive", ARCHIVES.values(), ids=ARCHIVES)
def test_an_archive_is_read_in_one_pass(tmp_path, tools, archive):
    (tmp_path / "image.tar").write_bytes(archive)
    opened = read_archive("image.tar", tmp_path / "image.tar", tools)
    assert opened.entries == TREE
    assert opened.settings == SETTINGS
    assert opened.owners
    assert opened.read(PYC) == b"bytecode"


def test_linked_layer_in_a_docker_archive_is_read(tmp_path, tools):
    manifest = [{"Config": "c.json", "RepoTags": None, "Layers": ["one/layer.tar", "two/layer.tar"]}]
    layers = [file("one/layer.tar", tar([file("a", b"a")])), symlink("two/layer.tar", "../one/layer.tar")]
    (tmp_path / "image.tar").write_bytes(tar([*layers, *as_files({"c.json": CONFIG, "manifest.json": manifest})]))
    assert read_archive("x", tmp_path / "image.tar", tools).entries["/a"] == content(b"a")


def itself():
    """An index that lists itself, which it can under a false digest alone."""
    entry = {"mediaType": spec.INDEX, "digest": f"sha256:{'0' * 64}", "size": 2}
    index = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    return tar([file("index.json", index), file(f"blobs/sha256/{'0' * 64}", index)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(itself(), "damaged", marks=pytest.mark.timeout(20)),
        (tar([file("etc/hosts")]), "neither manifest.json nor index.json"),
        (docker_archive(images=2), "2 images"),
        (docker_archive(images=0), "0 images"),
        (tar([file("manifest.json", b'[{"Config": "c", "Layers": []}]')]), "c is missing"),
        (tar([file("manifest.json", b'[{"Config": 5}]')]), "malformed"),
        (docker_archive()[:3000], "the tar ends"),
        (b"nothing", "broken header"),
        (gzip.compress(docker_archive())[:500], "broken"),
    ],
)
def test_file_that_is_no_image_is_a_layout_error_with_its_name(tmp_path, tools, data, message):
    (tmp_path / "image.tar").write_bytes(data)
    with pytest.raises(LayoutError, match=message) as caught:
        read_archive("the name", tmp_path / "image.tar", tools)
    assert str(caught.value).startswith("the name: ")


def test_a_folder_is_read_without_following_links(tmp_path, tools):
    files = [file("etc/file", b"content", mode=0o4711), entry("pipe", tarfile.FIFOTYPE, mode=0o600)]
    links = [symlink("link", "/etc"), symlink("loop", ".")]
    root = unpacked(tmp_path, [folder("./", mode=0o755), folder("etc", mode=0o750), *files, *links])
    (root / "etc/file").chmod(0o4711)  # which nothing that we unpack has
    tree = filesystems.read_folder("root", root, tools)
    assert {path: msgspec.structs.replace(seen, uid=0, gid=0) for path, seen in tree.entries.items()} == {
        "/": Entry("folder", 0o755),
        "/etc": Entry("folder", 0o750),
        "/etc/file": content(b"content", 0o4711),
        "/link": Entry("symlink", 0o777, link="/etc"),
        "/loop": Entry("symlink", 0o777, link="."),
        "/pipe": Entry("fifo", 0o600),
    }
    assert not tree.owners, "one owner of all says nothing"
    assert owners_known({"/": Entry("folder", 0o755), "/a": Entry("file", 0o644, 0, 8)})


def test_unreadable_folder_is_a_host_error_with_sudo(tmp_path, tools, monkeypatch):
    def forbidden(path):
        raise PermissionError(13, "Permission denied", f"{path}/secret")

    monkeypatch.setattr(os, "scandir", forbidden)
    with refused(HostError, "secret may not be read", "sudo"):
        filesystems.read_folder("root", tmp_path, tools)


@pytest.mark.parametrize(("release", "is_known"), [("1.5.0", True), ("1.5.0-1.el9", True), ("1.5.1", False)])
def test_broken_sif_of_apptainer_1_5_0_is_explained(tmp_path, tools, release, is_known):
    labels = {"org.label-schema.usage.apptainer.version": release}
    about = json.dumps({"data": {"attributes": {"labels": labels}}}, separators=(",", ":")).encode()
    blobs = [sif.DataObject(sif.TYPE_JSON, "metadata", about)]
    front = sif.front(blobs, 4096, "amd64", uuid.UUID(int=1), 0)
    (tmp_path / "a.sif").write_bytes(front + bytes(4096))  # mksquashfs writes its first block last
    with pytest.raises(LayoutError) as caught:
        filesystems.read_squashed("sif", "a.sif", [tmp_path / "a.sif"], tools)
    assert ("Apptainer 1.5.0 wrote it" in caught.value.cause, "1.5.1" in caught.value.next_step) == (is_known, is_known)


def asking(tools, name):
    return dataclasses.replace(tools, selection=dataclasses.replace(tools.selection, name=name))


@pytest.mark.parametrize("layers", [[[symlink("a", "b")], [file("a/file")]], [[entry("a", b"Z")]]])
def test_broken_layout_gives_its_configuration_and_is_not_compared(tmp_path, tools, layers):
    written = small_layouts.layout(tmp_path, *layers)
    found = read_layout("x", written, tools)
    assert (found.entries, found.config) == ({}, written.config)
    with pytest.raises(LayoutError, match=re.escape(found.broken.what)):
        compare(str(written.path), str(written.path), tools.ctx, [])


@pytest.mark.parametrize("make", [docker_archive, oci_archive])
def test_broken_layers_of_an_archive_are_all_named(tmp_path, tools, make):
    path, count = tmp_path / "image.tar", len(LAYERS)
    layers = [[entry(f"x{number}", b"Z")] for number in range(count)]
    path.write_bytes(make(layers) if make is docker_archive else make(entries=layers))
    found = read_archive("x", path, tools)
    assert (found.entries, len(found.unread), found.settings) == ({}, count, SETTINGS)
    assert all(f"x{number} is of an unknown type" in unread for number, unread in enumerate(found.unread))
    with refused(LayoutError, f"{count} faults: layer "):
        compare(str(path), str(path), tools.ctx, [])


def test_broken_tar_outside_the_manifest_is_ignored(tmp_path, tools):
    documents = as_files({"c.json": CONFIG, "manifest.json": [{"Config": "c.json", "Layers": ["layer.tar"]}]})
    layers = [file("other.tar", b"no tar at all" * 100), file("layer.tar", tar([file("a", b"a")]))]
    (tmp_path / "image.tar").write_bytes(tar([*layers, *documents]))
    assert read_archive("x", tmp_path / "image.tar", tools).entries["/a"] == content(b"a")


def flip(blob):
    """Damage a gzip where its content stays whole: the time in its header."""
    data = bytearray(blob.path.read_bytes())
    data[4] ^= 1
    overwrite(blob.path, bytes(data))


def test_broken_and_contradicting_layers_of_a_layout_are_all_named(tmp_path, tools):
    written = small_layouts.layout(tmp_path, *([file(name)] for name in "abcde"))
    for blob in written.layer_blobs[:4]:
        flip(blob)
    overwrite(written.layer_blobs[4].path, b"no gzip at all")
    found = read_layout("x", written, tools)
    pairs = zip(written.layer_blobs, found.unread, strict=True)
    assert all(blob.path.name in unread for blob, unread in pairs)
    assert found.broken.what.startswith("5 faults: ")
    layers = [symlink("a", "x"), symlink("b", "x")], [file("a/file"), file("b/file")]
    found = read_layout("x", small_layouts.layout(tmp_path / "other", *layers), tools)
    assert ("files below a" in found.broken.what, "files below b" in found.broken.what) == (True, True)


def test_layer_with_a_wrong_digest_is_not_cached(tmp_path, tools):
    named = asking(tools, "reader-1")
    whole = small_layouts.layout(tmp_path / "whole", *LAYERS)
    other = small_layouts.layout(tmp_path / "other", *LAYERS)
    for blob in other.layer_blobs:
        overwrite(blob.path, compressed(tar([file("evil")]), spec.LAYER_GZIP))
    assert read_layout("x", other, named).entries == {}
    assert read_layout("x", whole, named).entries == TREE


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"", lambda data: b"x" + data, bytes.upper])
def test_layer_record_is_cached_per_reader_and_read_again_if_damaged(tmp_path, tools, damage):
    written, named = small_layouts.layout(tmp_path, *LAYERS), asking(tools, "reader-1")
    blobs = {blob.path: blob.path.read_bytes() for blob in written.layer_blobs}

    def check(content):
        for path in blobs:
            path.chmod(0o644)
            path.write_bytes(content or blobs[path])
        found = read_layout("x", written, named)
        assert found.entries == TREE
        assert found.read(PYC) == b"bytecode"

    check(b"")
    check(b"broken")
    assert read_layout("x", written, asking(tools, "reader-2")).broken
    records = list(tools.ctx.cache.path("trees", "x").parent.iterdir())
    assert len(records) == len(blobs), "none of the reader that failed"
    for path in records:
        path.write_bytes(damage(path.read_bytes()))
    check(b"")
    check(b"broken")
