"""An image's files, packed by layer and written as a squashfs: compared with what layers mean, read by our reader."""

import contextlib
import hashlib
import random
import tarfile
import threading

import msgspec
import pytest

from graphcrate.artifacts.formats import packed
from graphcrate.artifacts.formats.merged import Addition, with_additions
from graphcrate.artifacts.formats.packed import read_packed
from graphcrate.artifacts.formats.translated import layout_errors
from graphcrate.host.disk.cache import Cache
from graphcrate.model.errors import CacheError, LayoutError
from layertar.entries import Entries
from ocilayout import spec
from sifsquash.packer import BLOCKS
from sifsquash.squashfs import Squashfs
from sifsquash.values import Compression, Entry
from sifsquash.writer import write
from tests.unit.small_layouts import layout
from tests.unit.tars import entry, file, folder, hardlink, overwrite, symlink


def squash(place, written, compression=Compression.GZIP, change=lambda merged: merged):
    """The image as a squashfs behind other bytes, and its files."""
    merged, layers = read_packed(written, compression, Cache(place / "cache"), lambda _: None)
    path = place / f"{compression}.squashfs"
    with path.open("wb") as stream:
        stream.write(bytes(99))
        with layout_errors():
            write(stream, change(merged), layers, compression, 5, lambda _: None)
    return path, merged


def members(path):
    """Entry and content of each path but the root's."""
    with Squashfs(path, 99) as image:
        return {
            name[1:]: (entry, b"".join(image.chunks(content)) if content else b"")
            for name, entry, content in image.entries()
            if name != "/"
        }


def as_model(path):
    """As `Model.tree` has it."""
    values = {"folder": lambda entry, _: entry.mode, "symlink": lambda entry, _: entry.link}
    return {
        name: (entry.kind, values.get(entry.kind, lambda _, content: content)(entry, content))
        for name, (entry, content) in members(path).items()
    }


def test_layer_that_an_image_has_twice_is_packed_once(tmp_path, monkeypatch):
    """Each of two threads removed what the other had just packed: no such file, index.json."""
    begun, load, made = threading.Barrier(2), packed._load, []

    def loaded(folder, number):
        with contextlib.suppress(threading.BrokenBarrierError):
            begun.wait(0.2)  # both find that it is not there
        return load(folder, number)

    def pack(blob, digest, *rest):
        made.append(digest)
        return done(blob, digest, *rest)

    done = packed._pack
    monkeypatch.setattr(packed, "default_jobs", lambda: 2)
    monkeypatch.setattr(packed, "_load", loaded)
    monkeypatch.setattr(packed, "_pack", pack)
    written = layout(tmp_path / "layout", [file("a", b"a")], [file("a", b"a")], types=(spec.LAYER_GZIP,))
    path, _ = squash(tmp_path, written)
    assert len(made) == 1
    assert members(path)["a"][1] == b"a"


def test_squashfs_has_no_blocks_of_removed_files(tmp_path):
    large = [file("kept", b"k"), file("gone", bytes(range(256)) * 4096)]
    first, _ = squash(tmp_path / "1", layout(tmp_path / "1", [file("kept", b"k")]))
    second, _ = squash(tmp_path / "2", layout(tmp_path / "2", large, [file(".wh.gone", b"")]))
    assert second.stat().st_size == first.stat().st_size


def test_squashfs_keeps_hard_links_across_layers(tmp_path):
    written = layout(
        tmp_path,
        [file("one", b"content"), hardlink("two", "one"), file("other", b"content")],
        [hardlink("three", "one"), file("one", b"new"), hardlink("four", "two")],
        [file(".wh.two", b"")],
    )
    path, image = squash(tmp_path, written)
    contents = {name: content for name, (_, content) in members(path).items()}
    # `three` links to the new `one`: links to layers below are made when the layer's own files are there
    assert contents == {"one": b"new", "three": b"new", "four": b"content", "other": b"content"}
    assert len({id(image[name]) for name in ("one", "three")}) == 1
    assert len({id(image[name]) for name in ("four", "other")}) == 2


def test_squashfs_keeps_owners_modes_devices_fifos_and_odd_names(tmp_path):
    odd = "n\udcff\udcfe" + "long" * 60
    entries = [
        folder("./", mode=0o750, mtime=7, uid=3, gid=4),
        file("su", b"x", mode=0o4755, uid=5, gid=1 << 30, mtime=9.75),
        file("old", b"x", mtime=-5),
        entry("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=300, mode=0o666),
        entry("pipe", tarfile.FIFOTYPE, mode=0o600),
        file(odd, b"name"),
    ]
    path, image = squash(tmp_path, layout(tmp_path, entries))
    found = members(path)
    assert found["su"][0] == Entry("file", 0o4755, 5, 1 << 30, 1, mtime=9)
    assert found["dev/null"][0] == Entry("device", 0o666, link="c 1:300")
    assert found["pipe"][0] == Entry("fifo", 0o600)
    assert found[odd][1] == b"name"
    assert (image["su"].mtime, image["old"].mtime) == (9, 0)
    root = image[""]
    assert (root.mode, root.mtime, root.uid, root.gid) == (0o750, 7, 3, 4)


def test_squashfs_keeps_supported_extended_attributes(tmp_path):
    """The reader does not read them: their bytes are looked for, and unsquashfs reads them in the engines' tests."""
    attributes = {"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\udc80", "SCHILY.xattr.system.posix_acl": "no"}
    written = layout(tmp_path, [file("ping", b"p", pax_headers={**attributes, "comment": "no"}), file("x", b"y")])
    path, image = squash(tmp_path, written)
    assert image["ping"].xattrs == tuple(attributes.items())
    assert b"\x02\x00\x0a\x00capability\x05\x00\x00\x00\x01\x00\x00\x02\x80" in path.read_bytes()
    assert members(path)["ping"][1] == b"p"


def test_squashfs_of_sparse_files_stays_small(tmp_path):
    """GNU's sparse format 1.0: the map stands before the data, and the header says the true name and size."""
    data = b"1\n100000000\n4\n".ljust(512, b"\0") + b"tail"
    sparse = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "sparse"}
    member = file("sparse", data, pax_headers={**sparse, "GNU.sparse.realsize": "100000004"})
    path, _ = squash(tmp_path, layout(tmp_path, [member, file("zeros", bytes((3 << 18) + 1))]))
    found = members(path)
    assert found["sparse"][1] == bytes(100_000_000) + b"tail"
    assert found["zeros"][1] == bytes((3 << 18) + 1)
    assert path.stat().st_size < 8192
    # Golden: an inode says how many of its bytes are holes, which our reader has no use for.
    golden = "14ea819f8d00d8a533755b210eb663b043f9efcf311ae3b50fec3d4fe229347f"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == golden


@pytest.mark.parametrize(("blocks", "more"), [(0, 0), (0, 1), (1, -1), (1, 0), (1, 1), (5, 0), (5, 7)])
@pytest.mark.parametrize("compression", list(Compression))
def test_squashfs_keeps_files_of_all_block_sizes(tmp_path, compression, blocks, more):
    size = blocks * BLOCKS[compression] + more
    content = (b"%09d" * (size // 9 + 1) % tuple(range(size // 9 + 1)))[:size]
    noise = random.Random(size).randbytes(size)  # no compressor makes it smaller
    entries = [file("a", content), file("b", noise), file("c", b"c")]
    found = members(squash(tmp_path, layout(tmp_path, entries), compression)[0])
    assert [found[name][1] for name in "abc"] == [content, noise, b"c"]


def test_squashfs_folder_of_3000_names_is_read_back(tmp_path):
    """It needs an index, several headers, and inodes in many blocks."""
    names = [f"{number:04}{'x' * (number % 40)}" for number in range(3000)]
    path, _ = squash(tmp_path, layout(tmp_path, [folder("d"), *(file(f"d/{name}", name.encode()) for name in names)]))
    found = {name: content for name, (_, content) in members(path).items() if name != "d"}
    assert found == {f"d/{name}": name.encode() for name in names}


def test_squashfs_bytes_do_not_depend_on_jobs_or_cache(tmp_path, monkeypatch):
    written = layout(tmp_path, [file(f"{n}", bytes([n]) * n * 3000) for n in range(200)], [file("b", b"b")])
    found = set()
    for jobs in (1, 7, 7):  # the last one from the cache
        monkeypatch.setattr("graphcrate.artifacts.formats.packed.default_jobs", lambda jobs=jobs: jobs)
        found.add(squash(tmp_path / str(jobs), written)[0].read_bytes())
    assert len(found) == 1


@pytest.mark.parametrize(
    ("compression", "sha256"),
    [
        (Compression.GZIP, "44903e7d05fc9234adb7124abe79c36053b522521e70c174ac7a2b49a8077e40"),
        (Compression.ZSTD, "afa2f652a9f51b46bfc0856d4b2722ce841f5c3d0686d59ac2331700b0018f61"),
    ],
)
def test_squashfs_has_its_golden_digest(tmp_path, compression, sha256):
    """For a change of the bytes, `FORMAT` is raised: it is part of the cache's keys and of a SIF's identity."""
    text = b"".join(b"%d lines of text\n" % number for number in range(60_000))
    entries = [folder("d"), file("d/text", text), file("d/small", b"small"), symlink("link", "d")]
    path, _ = squash(tmp_path, layout(tmp_path, [*entries, hardlink("e", "d/text")]), compression)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256


def test_packed_layer_in_the_cache_replaces_the_layer_until_damaged(tmp_path):
    written = layout(tmp_path, [file("a", bytes(range(256)) * 5000)])
    one = squash(tmp_path, written)[0].read_bytes()
    blob = written.blob(written.layers[0].digest)
    overwrite(blob, b"x" * blob.stat().st_size)
    assert squash(tmp_path, written)[0].read_bytes() == one
    (data,) = (tmp_path / "cache").rglob("data")
    data.write_bytes(b"\0" + data.read_bytes()[1:])
    with pytest.raises(CacheError, match="was damaged, and is removed"):
        squash(tmp_path, written)
    with pytest.raises(LayoutError, match="compressed data is broken"):
        squash(tmp_path, written)


def test_entries_of_cached_layers_are_read_by_the_names_they_were_written_with():
    cached = {"found": {"a": 1}, "folders": [], "implied": [], "removed": ["b"], "emptied": [], "links_below": {}}
    entries = msgspec.convert(cached, Entries[int])
    assert (entries.by_path, entries.removed) == ({"a": 1}, {"b"})
    assert msgspec.to_builtins(entries) == cached


def test_squashfs_additions_replace_files_and_keep_folders(tmp_path):
    entries = [folder("etc", mode=0o700, mtime=3), file("etc/hosts", b"h", uid=9), symlink("var", "x")]
    additions = [Addition("etc"), Addition("etc/hosts", 0o644, b""), Addition("var", link="y")]
    additions += [Addition("new/deep", 0o700, b"script")]
    written = layout(tmp_path, entries)
    path, image = squash(tmp_path, written, change=lambda merged: with_additions(merged, additions, mtime=5))
    found, added = members(path), with_additions(image, additions, mtime=5)
    assert found["etc"][0].mode == 0o700
    assert (found["etc/hosts"][1], found["etc/hosts"][0].uid) == (b"", 0)
    assert (found["new/deep"][1], found["new/deep"][0].mode, found["new"][0].mode) == (b"script", 0o700, 0o755)
    assert [added[name].mtime for name in ("etc", "new/deep", "new")] == [3, 5, 5]
    assert found["var"][0].link == "y"
    assert image["etc/hosts"].size == 1, "the image itself is as it was"
    for addition, message in ((Addition("etc", content=b""), "/etc is a folder"), (Addition("var/b"), "/var is no")):
        with pytest.raises(LayoutError, match=message):
            with_additions(image, [addition], 0)
