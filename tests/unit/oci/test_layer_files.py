"""A layer's files written beside it: the tree that its bytes unpack to, for the tests, the audit and the compiler."""

import dataclasses
import errno
import os
import stat
import threading
import zlib
from pathlib import Path

import msgspec
import pytest

from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.artifacts.tree import layers
from graphcrate.artifacts.tree.binaries import selection
from graphcrate.artifacts.tree.layers import LayerTree, WrittenLayer, read_layer, read_unpacked
from graphcrate.checks import reading
from graphcrate.engines.backend import BuildOrder
from graphcrate.engines.embedded import build as embedded
from graphcrate.host.disk.hashing import file_digest
from graphcrate.inputs.extensions import compile as house
from graphcrate.model.errors import IntegrityError, LayoutError
from graphcrate.model.lock import Compilation, DebianBase
from graphcrate.model.plan import CompileStep, WheelsStep
from graphcrate.oci import layer_files
from graphcrate.oci.blob import open_blob
from graphcrate.oci.layer_files import LayerFiles
from ocilayout import spec
from ocilayout.layer import LayerWriter
from ocilayout.spec import LayerBlob
from tests.unit.conftest import Recorder
from tests.unit.elfmaker import make_elf
from tests.unit.engines.test_embedded_builder import BASE, planned, wheels, wheels_step
from tests.unit.engines.test_embedded_builder import compiled_here as compiled_here
from tests.unit.wheelmaker import make_wheel

MTIME = 1_700_000_000
TEXT = b"x = 1\n" * 50_000


def written(folder, *copies):
    """A layer with all that one of wheels may have: its blob, its files, and its record."""
    blob = folder / "blob"
    with blob.open("wb") as stream:
        beside = LayerFiles(folder / "files", MTIME)
        writer = LayerWriter(stream, MTIME, [beside, *copies])
        writer.folder("srv/closed", 0o500)
        writer.data("srv/closed/in", b"1", 0o600)
        writer.data("root/.config/x", b"")
        writer.stream("opt/a", 6, (b"abc", b"def"), 0o755)
        writer.symlink("opt/link", "../srv/nowhere")
        packed = zlib.compressobj(6, zlib.DEFLATED, -15)
        raw = packed.compress(TEXT) + packed.flush()
        writer.deflated("opt/large.py", len(TEXT), zlib.crc32(TEXT), [raw[:100], raw[100:]])
        binary = make_elf(needed=["libc.so.6"])
        writer.stream("opt/lib/libone.so", len(binary), [binary], 0o755)
        writer.data("opt/lib/libtwo.so", binary + bytes(1 << 17), 0o755)
        record = writer.finish()
        beside.finish()
    return LayerBlob(path=blob, media_type=spec.LAYER_GZIP), beside.root, record


def seen(root):
    """Everything at and below root: what it is, mode, time, content."""
    found = {}
    for at, folders, files in os.walk(root):
        for path in (Path(at), *(Path(at, name) for name in (*folders, *files))):
            status = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            link = str(path.readlink()) if stat.S_ISLNK(status.st_mode) else ""
            found[str(path.relative_to(root))] = (status.st_mode, status.st_mtime_ns, content, link)
    return found


def test_files_beside_a_layer_are_the_tree_that_it_unpacks_to(tmp_path):
    blob, files, record = written(tmp_path)
    unpack([blob], tmp_path / "whole")
    there, expected = seen(files), seen(tmp_path / "whole")
    del there["."], expected["."]  # of the root no layer of ours says anything
    assert there == expected
    assert record.digest == file_digest(blob.path)


def test_image_of_layers_that_are_unpacked_is_the_same_tree_and_shares_their_files(tmp_path):
    blob, files, _ = written(tmp_path)
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    for path, name in ((lower, "opt/a"), (upper, "opt/large.py")):
        with path.open("wb") as stream:
            writer = LayerWriter(stream, MTIME)
            writer.data(name, b"another")
            writer.finish()
    blobs = [LayerBlob(path=path, media_type=spec.LAYER_GZIP) for path in (lower, blob.path, upper)]
    counted = []
    unpack(blobs, tmp_path / "plain")
    unpack(blobs, tmp_path / "shared", unpacked={blob.path: files}, advance=counted.append)
    assert seen(tmp_path / "shared") == seen(tmp_path / "plain")
    assert sum(counted) == sum(one.path.stat().st_size for one in blobs)
    assert (tmp_path / "shared/opt/a").samefile(files / "opt/a")
    assert (files / "opt/large.py").read_bytes() == TEXT, "a layer above replaces it in the image alone"


def test_image_on_a_disk_without_hard_links_has_copies_of_the_files(tmp_path, monkeypatch):
    blob, files, _ = written(tmp_path)
    unpack([blob], tmp_path / "plain")

    def no_links(*_, **__):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    unpack([blob], tmp_path / "copied", unpacked={blob.path: files})
    assert seen(tmp_path / "copied") == seen(tmp_path / "plain")


def test_audit_reads_of_files_and_of_what_is_written_what_it_reads_of_the_layer(tmp_path):
    chosen = selection(tmp_path)
    watch = WrittenLayer(chosen, tmp_path)
    blob, files, _ = written(tmp_path, watch)
    with open_blob(blob) as stream:
        of_blob = read_layer(stream, chosen)
    of_files = read_unpacked(files, chosen)
    assert of_files.by_path == of_blob.by_path
    assert of_files.folders == of_blob.folders
    assert of_files.by_path["opt/lib/libone.so"].content
    assert (watch.tree.by_path, watch.tree.folders) == (of_blob.by_path, of_blob.folders)
    assert not (tmp_path / "file").exists()


def test_wheel_that_a_layer_has_is_linked_and_another_replaces_no_byte_of_it(tmp_path):
    layer, venv = tmp_path / "layer", tmp_path / "venv"
    shared = {"shared/x.py": b"the image's", "one/a.py": b"a", "one/lib.a": b"!<arch>"}
    image, tool = make_wheel(tmp_path, "one", files=shared), make_wheel(tmp_path, "tool", files={"shared/x.py": b"new"})
    house.unpack_wheel(lambda _: None, image, layer / "opt/venv", "3.11")
    (layer / "opt/venv/lib/python3.11/site-packages/one/a.py").write_bytes(b"as the layer has it")
    house.unpack_wheel(lambda _: None, image, venv, "3.11", [tmp_path / "other", layer])
    site = "lib/python3.11/site-packages"
    assert (venv / site / "one/a.py").samefile(layer / "opt/venv" / site / "one/a.py")
    assert not (venv / site / "one/lib.a").exists()
    house.unpack_wheel(lambda _: None, tool, venv, "3.11", [layer])
    assert (venv / site / "shared/x.py").read_bytes() == b"new"
    assert (layer / "opt/venv" / site / "shared/x.py").read_bytes() == b"the image's"
    assert not [path for path in venv.rglob("*") if path.name.startswith(".")]


def order(tmp_path, cache, contents, **more):
    packages, files = wheels(tmp_path, **contents)
    plan = planned(*(wheels_step(package.name, (package,)) for package in packages))
    given = {"plan": plan, "folder": tmp_path, "base": BASE, "files": files, "cache": cache, "environment": {}}
    return BuildOrder(**given, progress=Recorder(), **more)


def compile_step(package):
    base = DebianBase(suite="bookworm", packages=())
    compilation = Compilation(architectures=(), compiler="g++-11", base=base, tools=())
    package = msgspec.structs.replace(package, compiled=True)
    return CompileStep(title="ext", python="3.11", packages=(package,), against=(), compilation=compilation)


@pytest.mark.parametrize("unpacks", [False, True])
def test_layers_are_unpacked_while_they_are_written_where_that_is_asked_for(tmp_path, cache, compiled_here, unpacks):
    contents, places = {"one": {"one/x.py": b"1"}, "two": {"two/x.py": b"2"}}, []
    made = order(tmp_path, cache, contents, unpacks=unpacks)
    (package,) = made.plan.of(WheelsStep)[0].packages
    made = dataclasses.replace(
        made,
        plan=planned(*made.plan.of(WheelsStep), compile_step(package)),
        compiled=lambda unpacked: places.extend(unpacked()) or made.files,
    )
    *records, compiled = embedded.build_layers(made, 0)
    assert len(places) == (2 if unpacks else 0)
    for record, place in zip(records, places, strict=False):
        blob = LayerBlob(path=cache.blob(record.digest), media_type=record.media_type)
        unpack([blob], tmp_path / record.title)
        there, expected = seen(place), seen(tmp_path / record.title)
        assert place == layer_files.place(cache, record.digest)
        assert there.keys() == expected.keys()
        assert all(there[path] == expected[path] for path in there if path != ".")
    assert layer_files.place(cache, compiled.digest).is_dir() == unpacks
    assert embedded.build_layers(made, 0) == (*records, compiled)
    layer_files.drop(cache)
    assert not any(place.exists() for place in places)


@pytest.mark.parametrize("unpacks", [False, True])
def test_layer_is_read_for_the_checks_when_it_is_written_and_not_again(
    tmp_path, ctx, compiled_here, monkeypatch, unpacks
):
    made = order(tmp_path, ctx.cache, {"one": {"one/x.so": make_elf(), "one/x.py": b"1"}}, unpacks=unpacks)
    monkeypatch.setattr(embedded, "default_jobs", lambda: 0)
    layout = embedded.build_layout(dataclasses.replace(made, watch=reading.watch_layer))
    read = []
    for name in ("read_unpacked", "read_layer"):
        monkeypatch.setattr(layers, name, lambda *_: read.append(True) or LayerTree())
    image = reading.read_image(str(layout.path), ctx)
    assert not read
    assert [path for path in image.contents.binaries if path.endswith("/one/x.so")]


def test_layer_that_cannot_be_read_for_the_checks_is_left_to_them(tmp_path, cache, monkeypatch):
    def refuse(*_):
        raise LayoutError("no")

    (layer_files.place(cache, "sha256:00") / "a").mkdir(parents=True)
    monkeypatch.setattr(layers, "read_unpacked", refuse)
    with reading.watch_layer(cache, True) as watch:
        watch.remember("sha256:00")
        watch.remember("sha256:01")  # which was not unpacked
    assert not list((cache.root / "trees").glob("*"))


def test_compiling_that_waits_for_layers_ends_when_one_of_them_fails(tmp_path, cache, compiled_here, monkeypatch):
    made = order(tmp_path, cache, {"one": {"one/x.py": b"1"}})
    (package,) = made.plan.of(WheelsStep)[0].packages
    waiting, ended = threading.Event(), []

    def compiled(unpacked):
        waiting.set()
        try:
            return unpacked()
        finally:
            ended.append(True)

    def fail(*_):
        waiting.wait(60)
        raise IntegrityError("a wheel is damaged")

    monkeypatch.setattr(embedded, "make", fail)
    made = dataclasses.replace(made, plan=planned(compile_step(package)), compiled=compiled)
    with pytest.raises(IntegrityError, match="a wheel is damaged"):
        embedded.build_layers(made, 0)
    assert ended == [True]
