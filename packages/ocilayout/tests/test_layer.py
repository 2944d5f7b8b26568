"""Layers: any input is read back by tarfile, gzip and zlib; damaged streams are refused."""

import contextlib
import gzip
import hashlib
import io
import tarfile
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocilayout.errors import LayerError
from ocilayout.layer import GATHER, LAYER_FORMAT, LayerWriter, inflate

MTIME = 1_600_000_000
FEWER = 2 * settings.default.max_examples // 5  #: of examples that are whole layers, up to megabytes
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=120).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
CONTENTS = st.one_of(
    st.binary(max_size=2000), st.integers(0, 5000).map(bytes), st.integers(0, 3).map(lambda n: b"ab" * n * 400_000)
)


def raw_deflate(content: bytes, level: int = 6) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, -15)
    return compressor.compress(content) + compressor.flush()


def cut(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


def write(entries, *, chunk: int = 1000):
    """Entries of (path, content, spliced, mode) as a layer: (bytes, record). Large contents come in 1000 pieces."""
    out = io.BytesIO()
    writer = LayerWriter(out, MTIME)
    for path, content, spliced, mode in entries:
        if spliced:
            writer.deflated(path, len(content), zlib.crc32(content), cut(raw_deflate(content), chunk), mode)
        else:
            writer.stream(path, len(content), cut(content, max(chunk, len(content) // 1000)), mode)
    record = writer.finish()
    return out.getvalue(), record


@settings(max_examples=FEWER, deadline=None)
@given(
    st.dictionaries(PATHS, st.tuples(CONTENTS, st.booleans(), st.sampled_from((0o644, 0o755)))), st.integers(1, 9000)
)
def test_written_layer_is_read_back_by_tarfile(files, chunk):
    paths = sorted(files)
    free = [p for p in paths if not any(other.startswith(p + "/") for other in paths)]
    entries = [(path, *files[path]) for path in free]
    blob, record = write(entries, chunk=chunk)

    tar = gzip.decompress(blob)
    assert record.digest == "sha256:" + hashlib.sha256(blob).hexdigest()
    assert record.diff_id == "sha256:" + hashlib.sha256(tar).hexdigest()
    assert (record.size, record.unpacked_size) == (len(blob), len(tar))

    with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
        members = archive.getmembers()
        found = {member.name: member for member in members if member.isfile()}
        assert list(found) == free
        for path, content, _, mode in entries:
            assert archive.extractfile(found[path]).read() == content
            assert found[path].mode == mode
    assert all((m.uid, m.gid, m.uname, m.gname, m.mtime) == (0, 0, "", "", MTIME) for m in members)
    folders = [member.name for member in members if member.isdir()]
    assert len(folders) == len(set(folders))
    names = [member.name for member in members]
    for name in names:
        parent = name.rpartition("/")[0]
        assert not parent or names.index(parent) < names.index(name)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 3 * GATHER), st.integers(1, GATHER * 2))
def test_layer_bytes_do_not_depend_on_chunk_size(size, chunk):
    content = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    assert write([("a", content, False, 0o644)], chunk=chunk) == write([("a", content, False, 0o644)], chunk=70_000)


def test_layer_gzip_members_have_a_fixed_header():
    blob, _ = write([("a", b"x" * 5000, True, 0o644), ("b", b"y" * (GATHER + 5), False, 0o644)])
    members = 0
    while blob:
        assert blob[:10] == b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
        decompressor = zlib.decompressobj(31)
        decompressor.decompress(blob)
        assert decompressor.eof
        blob = decompressor.unused_data
        members += 1
    assert members == 4  # header of a; a; b's first block; its rest


def test_layer_writer_writes_links_folders_and_modes():
    out = io.BytesIO()
    writer = LayerWriter(out, MTIME)
    writer.folder("/srv/data", 0o1777)
    writer.folder("srv/data", 0o1777)
    writer.data("/root/.profile", b"# hello\n")
    writer.data("/usr/bin/tool", b"#!/bin/sh\n", 0o755)
    writer.symlink("/usr/bin/alias", "tool")
    writer.symlink("long", "ü" + "t" * 120)
    writer.finish()
    with tarfile.open(fileobj=io.BytesIO(out.getvalue()), mode="r:gz") as archive:
        modes = {member.name: member.mode for member in archive if not member.issym()}
        usual = dict.fromkeys(("srv", "usr", "usr/bin", "usr/bin/tool"), 0o755)
        assert modes == {**usual, "srv/data": 0o1777, "root": 0o700, "root/.profile": 0o644}
        assert archive.getmember("usr/bin/alias").linkname == "tool"
        assert archive.getmember("long").linkname == "ü" + "t" * 120


@pytest.mark.parametrize(("folder", "mode"), [("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700), ("srv", 0o755)])
def test_layer_keeps_the_modes_of_base_folders(folder, mode):
    """Its entry in a layer sets the mode: a closed /var/tmp breaks programs of plain users."""
    blob, _ = write([(f"{folder}/mine/data", b"1", False, 0o644)])
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob))) as archive:
        assert archive.getmember(folder).mode == mode
        assert archive.getmember(f"{folder}/mine").mode == 0o755


def test_raw_tar_is_copied_into_a_layer():
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        member = tarfile.TarInfo("etc/os-release")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"Linux"))
    entries = tar.getvalue()[:1024]
    out = io.BytesIO()
    writer = LayerWriter(out, MTIME)
    writer.raw_tar(cut(entries, 333))
    writer.finish()
    assert gzip.decompress(out.getvalue()) == entries + bytes(1024)
    with pytest.raises(LayerError, match="cut off"):
        LayerWriter(io.BytesIO(), MTIME).raw_tar([entries[:-1]])


@pytest.mark.parametrize("path", ["", "/", "..", "a/../b", "a//b", "./a", "a/.", "a\0b", "//a", "a/"])
def test_layer_path_outside_the_root_is_refused(path):
    with pytest.raises(LayerError):
        LayerWriter(io.BytesIO(), MTIME).data(path, b"")


@pytest.mark.parametrize(
    ("write_more", "words"),
    [
        (lambda writer: writer.data("a/b", b"2"), "a/b"),
        (lambda writer: writer.data("a", b"2"), "a"),
        (lambda writer: writer.data("a/b/c", b"2"), "a/b"),
        (lambda writer: (writer.symlink("l", "a"), writer.data("l/b", b"2")), "l/b"),
        (lambda writer: writer.folder("a", 0o700), "mode 755 and again 700"),
        (lambda writer: writer.stream("c", 4, [b"abc"]), "3 bytes where 4"),
    ],
)
def test_contradicting_layer_entries_or_sizes_are_refused(write_more, words):
    writer = LayerWriter(io.BytesIO(), MTIME)
    writer.data("a/b", b"1")
    with pytest.raises(LayerError, match=words):
        write_more(writer)


CONTENT = b"graph " * 200_000
RAW = raw_deflate(CONTENT)


@pytest.mark.parametrize(
    ("raw", "size", "crc", "words"),
    [
        (RAW[:-1], len(CONTENT), zlib.crc32(CONTENT), "does not end where"),
        (RAW + b"\0", len(CONTENT), zlib.crc32(CONTENT), "does not end where|follow the end"),
        (RAW, len(CONTENT) + 1, zlib.crc32(CONTENT), "does not end where"),
        (RAW, len(CONTENT) - 1, zlib.crc32(CONTENT), "holds more than"),
        (RAW, len(CONTENT), zlib.crc32(CONTENT) ^ 1, "CRC-32"),
        (b"", 0, 0, "does not end where"),
        (b"\xff" * 100, 100, 0, "damaged"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_damaged_deflate_stream_is_refused(raw, size, crc, words, chunk):
    with pytest.raises(LayerError, match=f"^a: .*({words})"):
        LayerWriter(io.BytesIO(), MTIME).deflated("a", size, crc, cut(raw, chunk))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(RAW) - 1), st.integers(0, 255), st.integers(1, 5000))
def test_inflate_detects_any_changed_byte(position, byte, chunk):
    changed = RAW[:position] + bytes([byte]) + RAW[position + 1 :]
    pieces = inflate("a", len(CONTENT), zlib.crc32(CONTENT), cut(changed, chunk))
    with contextlib.suppress(LayerError):
        assert b"".join(pieces) == CONTENT


def test_inflate_of_a_bomb_yields_pieces_of_at_most_1_mib():
    bomb = raw_deflate(bytes(300_000_000))
    largest = max(len(piece) for piece in inflate("bomb", 300_000_000, zlib.crc32(bytes(300_000_000)), [bomb]))
    assert largest <= 1 << 20


def test_layer_has_its_golden_digest():
    """A new release of libdeflate, another Python or CPU that gives other bytes must not pass unseen.

    When it is meant, raise LAYER_FORMAT and put the new hash here.
    """
    text = "".join(f"{number * number} graphs, {number:x} nodes\n" for number in range(150_000)).encode()
    blob, record = write([("text", text, False, 0o644), ("ü/" + "n" * 120, b"\0" * 5000, False, 0o755)])
    assert LAYER_FORMAT == 1
    assert record.diff_id == "sha256:b4efef16fa071ee991cc6048aae41ca9d4b8500620ca3eb3a23dc426d939340c"
    assert hashlib.sha256(blob).hexdigest() == "d2b46f76e1bbb9b38622166418790af0183dde629c44fa789230f40c66039549"
