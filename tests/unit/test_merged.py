"""Layers as one tar, compared with a simple model of what layers mean, and read by Python's own `tarfile`."""

import io
import tarfile

import pytest

from graphcrate.artifacts.formats.merged import Addition, read_merged, tar, with_additions
from graphcrate.model.errors import LayoutError
from graphcrate.oci import spec
from graphcrate.oci.entries import parents
from tests.unit.small_layouts import layout
from tests.unit.tars import entry, file, folder, hardlink, symlink


def merged(place, *layers, **more):
    return read_merged(layout(place, *layers, **more))


def members(image):
    """The tar's members and contents, in their order; each rule that squashfs-tools need is checked."""
    data = b"".join(tar(image))
    assert len(data) % 512 == 0
    seen = {}
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", errorlevel=2) as archive:
        for member in archive:
            assert member.name not in seen, "each path once"
            assert all(seen[parent][0].isdir() for parent in parents(member.name) if parent), (
                "folders before what is in them"
            )
            if member.islnk():
                assert seen[member.linkname][0].type in (tarfile.REGTYPE, tarfile.SYMTYPE), "after the first name"
            content = archive.extractfile(member).read() if member.isreg() else b""
            seen[member.name] = (member, content)
    return seen


def as_model(image):
    """As `Model.tree` has it."""
    found = {}
    for path, (member, content) in members(image).items():
        if member.isdir():
            found[path] = ("folder", member.mode)
        elif member.islnk():
            found[path] = found[member.linkname]
        elif member.issym():
            found[path] = ("symlink", member.linkname)
        else:
            found[path] = ("file", content)
    return found


def test_whiteouts_replaced_folders_and_opaque_ones_leave_no_content(tmp_path):
    image = merged(
        tmp_path,
        [file("a/gone", b"gone" * 999), file("b/old", b"old" * 999), file("c/below", b"below" * 999), file("d", b"d")],
        [file("a/.wh.gone", b""), file("b", b"now a file"), folder("c"), file("c/.wh..wh..opq", b""), folder("d")],
    )
    assert as_model(image) == {
        "a": ("folder", 0o755),
        "b": ("file", b"now a file"),
        "c": ("folder", 0o755),
        "d": ("folder", 0o755),
    }
    data = b"".join(tar(image))
    assert not any(word in data for word in (b"gonegone", b"oldold", b"belowbelow"))


def test_names_of_one_file_stay_one_file_across_layers(tmp_path):
    image = merged(
        tmp_path,
        [file("one", b"content"), hardlink("two", "one"), file("other", b"content")],
        [hardlink("three", "one"), file("one", b"new"), hardlink("four", "two")],
        [file(".wh.two", b"")],
    )
    found = members(image)
    assert found["one"][1] == b"new"
    assert found["other"][1] == b"content"
    assert "two" not in found
    assert found["four"][1] == b"content"
    # `three` links to the new `one`: links to layers below are made when the layer's own files are there
    assert found["three"][0].islnk()
    assert found["three"][0].linkname == "one"
    assert len({id(image.paths[name]) for name in ("one", "three")}) == 1
    assert len({id(image.paths[name]) for name in ("four", "other")}) == 2


def test_owners_modes_times_devices_pipes_and_attributes_pass(tmp_path):
    capability = "\x01\x00\x00\x02\udc80"
    image = merged(
        tmp_path,
        [
            folder("./", mode=0o750, mtime=7, uid=3, gid=4),
            file("su", b"x", mode=0o4755, uid=5, gid=1 << 30, mtime=9.75),
            file("old", b"x", mtime=-5),
            entry("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3, mode=0o666),
            entry("pipe", tarfile.FIFOTYPE, mode=0o600),
            file("ping", b"p", pax_headers={"SCHILY.xattr.security.capability": capability, "comment": "no"}),
            file("n\udcff\udcfe" + "long" * 60, b"name"),
        ],
    )
    found = members(image)
    su = found["su"][0]
    assert (su.mode, su.uid, su.gid, su.mtime) == (0o4755, 5, 1 << 30, 9)
    assert found["old"][0].mtime == 0
    null = found["dev/null"][0]
    assert (null.type, null.devmajor, null.devminor, null.mode) == (tarfile.CHRTYPE, 1, 3, 0o666)
    assert found["pipe"][0].isfifo()
    assert found["ping"][0].pax_headers["SCHILY.xattr.security.capability"] == capability
    assert "comment" not in found["ping"][0].pax_headers
    assert found["n\udcff\udcfe" + "long" * 60][1] == b"name"
    root = image.paths[""]
    assert (root.mode, root.mtime, root.uid, root.gid) == (0o750, 7, 3, 4)
    assert "" not in found
    assert "." not in found


def test_a_sparse_file_has_its_holes(tmp_path):
    """GNU's sparse format 1.0: the map stands before the data, and the header says the true name and size."""
    data = b"1\n1000000\n4\n".ljust(512, b"\0") + b"tail"
    sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "sparse"}
    member = file("sparse", data, pax_headers={**sparse, "GNU.sparse.realsize": "1000004"})
    found = members(merged(tmp_path, [member]))
    assert found["sparse"][1] == bytes(1_000_000) + b"tail"


@pytest.mark.parametrize("media_type", [spec.LAYER_TAR, spec.LAYER_GZIP, spec.LAYER_ZSTD])
def test_every_compression_is_read(tmp_path, media_type):
    assert as_model(merged(tmp_path, [file("a", b"a" * 70_000)], media_type=media_type)) == {
        "a": ("file", b"a" * 70_000)
    }


def test_its_size_is_known_before(tmp_path):
    image = merged(tmp_path, [file("a", b"a" * 700), file("b", b""), hardlink("c", "a"), folder("d")])
    # the root, which has no entry, is counted
    assert image.tar_size - 512 == len(b"".join(tar(image)))
    assert image.size == 700


def blob_of(written, number=0):
    path = written.blob(written.layers[number].digest)
    path.chmod(0o644)
    return path


def test_an_altered_layer_is_named_by_its_digest(tmp_path):
    written = layout(tmp_path, [file("a", b"a" * 3000)], media_type=spec.LAYER_TAR)
    path = blob_of(written)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"aaaa", b"aaab", 1))
    with pytest.raises(LayoutError, match=f"{written.layers[0].digest} is damaged") as caught:
        read_merged(written)
    assert "build the image again" in caught.value.next_step


def test_a_layer_cut_short_or_broken_is_named(tmp_path):
    written = layout(tmp_path, [file("a", b"a" * 3000)])
    path = blob_of(written)
    data = path.read_bytes()
    path.write_bytes(data[:-9])
    with pytest.raises(LayoutError, match=written.layers[0].digest):
        read_merged(written)
    path.write_bytes(data[:30] + b"\xff" * (len(data) - 30))
    with pytest.raises(LayoutError, match=f"layer {written.layers[0].digest}: "):
        read_merged(written)


def test_additions_replace_or_keep_what_is_there(tmp_path):
    image = merged(
        tmp_path,
        [folder("etc", mode=0o700, mtime=3), file("etc/hosts", b"h", uid=9), file("kept", b"k"), symlink("var", "x")],
    )
    added = with_additions(
        image,
        [
            Addition("etc"),
            Addition("etc/hosts", 0o644, b""),
            Addition("kept", content=b"other", keep=True),
            Addition("new/deep", 0o700, b"script"),
            Addition("var", link="y"),
        ],
        mtime=5,
    )
    found = members(added)
    assert (found["etc"][0].mode, found["etc"][0].mtime) == (0o700, 3)
    assert (found["etc/hosts"][1], found["etc/hosts"][0].uid) == (b"", 0)
    assert found["kept"][1] == b"k"
    assert (found["new/deep"][1], found["new/deep"][0].mode, found["new/deep"][0].mtime) == (b"script", 0o700, 5)
    assert (found["new"][0].mode, found["new"][0].mtime) == (0o755, 5)
    assert found["var"][0].linkname == "y"
    assert image.paths["etc/hosts"].size == 1, "the image itself is as it was"


@pytest.mark.parametrize(
    ("addition", "message"),
    [(Addition("a", content=b""), "/a is a folder"), (Addition("file/b"), "/file is no folder")],
)
def test_additions_that_cannot_be_are_refused(tmp_path, addition, message):
    with pytest.raises(LayoutError, match=message):
        with_additions(merged(tmp_path, [folder("a"), file("file")]), [addition], 0)
