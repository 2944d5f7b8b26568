"""A layer packed while it is written: the blocks that packing its blob would give, and where they go in a build."""

import dataclasses
import hashlib
import io
import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from graphcrate.artifacts.formats import packed
from graphcrate.artifacts.formats.packed import LayerBlocks
from graphcrate.engines.embedded import build as embedded
from graphcrate.host.disk.cache import Cache
from graphcrate.model.plan import WheelsStep
from graphcrate.oci import layer_files
from ocilayout import spec
from ocilayout.layer import LayerWriter
from ocilayout.spec import LayerBlob
from sifsquash.packer import BLOCKS
from sifsquash.values import Compression
from tests.unit.elfmaker import make_elf
from tests.unit.engines.test_embedded_builder import compiled_here as compiled_here
from tests.unit.oci.test_layer_files import order

MTIME = 1_700_000_000
BLOCK = BLOCKS[Compression.GZIP]
ENDINGS = some.sampled_from(["", ".py", ".pyc", ".so"])
SIZES = some.one_of(some.integers(0, 40), some.sampled_from([BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7]))
KINDS = some.sampled_from(["zeros", "noise", "text", "program"])


def content(kind, size, seed):
    """Bytes of a file of about this size."""
    if kind == "program":
        return make_elf(needed=["libc.so.6"]) + bytes(size)
    noise = random.Random(seed).randbytes(size if kind == "noise" else 64)
    return bytes(size) if kind == "zeros" else (noise * (size // len(noise) + 1))[:size] if size else b""


def pieces(data, seed):
    """The same bytes, cut anywhere."""
    cuts = sorted(random.Random(seed).randrange(len(data) + 1) for _ in range(3))
    return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def index(folder):
    """The index beside the blocks; the order of a set does not count."""
    kept = json.loads((folder / "index.json").read_text("ascii"))
    return {name: sorted(value) if name in ("folders", "implied") else value for name, value in kept.items()}


def write(folder, compression, files):
    """Write a layer, packing it beside; its blob and the packed layer."""
    out = io.BytesIO()
    blocks = LayerBlocks(folder / "beside", compression, MTIME, 2)
    writer = LayerWriter(out, MTIME, [blocks])
    writer.folder("srv/closed", 0o500)
    writer.symlink("srv/link", "../ä")
    for number, (ending, kind, size) in enumerate(files):
        data = content(kind, size, number)
        writer.stream(f"opt/venv/{number}{ending}", len(data), pieces(data, number), 0o755 if number % 2 else 0o644)
    writer.finish()
    blob = folder / "blob"
    blob.write_bytes(out.getvalue())
    return LayerBlob(path=blob, media_type=spec.LAYER_GZIP), blocks.finish()


@pytest.mark.parametrize("compression", list(Compression))
@settings(max_examples=30, deadline=None)
@given(files=some.lists(some.tuples(ENDINGS, KINDS, SIZES), max_size=8))
def test_layer_is_packed_while_it_is_written_as_it_is_from_its_blob(tmp_path_factory, compression, files):
    folder = tmp_path_factory.mktemp("layer")
    blob, beside = write(folder, compression, files)
    (later := folder / "later").mkdir()
    with ThreadPoolExecutor(2) as pool:
        digest = f"sha256:{hashlib.sha256(blob.path.read_bytes()).hexdigest()}"
        packed._pack(blob, digest, later, compression, pool, 4, lambda _: None)
    assert (beside / "data").read_bytes() == (later / "data").read_bytes()
    assert index(beside) == index(later)


def test_packed_layer_of_a_build_is_found_when_its_squashfs_is_made(tmp_path, cache, compiled_here, monkeypatch):
    made = order(tmp_path, cache, {"one": {"one/x.py": b"1" * 300_000}, "two": {"two/x.py": b"2"}})
    monkeypatch.setattr(embedded, "default_jobs", lambda: 0)
    layout = embedded.build_layout(dataclasses.replace(made, packs=Compression.ZSTD))
    assert not any(layer_files.place(cache, layer.digest).exists() for layer in layout.layers), "nobody wants files"
    read = []
    monkeypatch.setattr(packed, "_pack", lambda *_: read.append(True))
    merged, layers = packed.read_packed(layout, Compression.ZSTD, cache, lambda _: None)
    assert not read
    assert len(layers) == len(made.plan.of(WheelsStep))
    assert any(path.endswith("/one/x.py") for path in merged)


def test_packed_layer_that_is_there_stays_and_a_damaged_one_goes(tmp_path):
    _, first = write(tmp_path, Compression.GZIP, [(".py", "text", 9)])
    (second := tmp_path / "2").mkdir()
    _, other = write(second, Compression.GZIP, [(".py", "text", 9)])
    cache = Cache(tmp_path / "cache")
    packed.adopt(first, "sha256:00", Compression.GZIP, cache)
    (place,) = (cache.root / "squashed").iterdir()
    before = (place / "data").stat().st_ino
    packed.adopt(other, "sha256:00", Compression.GZIP, cache)
    assert (place / "data").stat().st_ino == before
    (place / "index.json").write_text("{")
    packed.adopt(other, "sha256:00", Compression.GZIP, cache)
    assert (place / "data").stat().st_ino != before


def test_layer_that_fails_leaves_no_packed_one(tmp_path, cache, compiled_here, monkeypatch):
    made = order(tmp_path, cache, {"one": {"one/x.py": b"1"}})

    def fail(*_):
        raise OSError("no")

    monkeypatch.setattr("graphcrate.inputs.wheels.layer._write_wheel", fail)
    with pytest.raises(OSError, match="no"):
        embedded.build_layers(dataclasses.replace(made, packs=Compression.GZIP), 0)
    assert not list((cache.root / "squashed").glob("*"))
