"""Bytes of others, mutated: each reader gives a value or the error that it says, and nothing else happens.

`make fuzz` tries many more. A failure prints the line to add to tests/unit/artifacts/mutated/TARGET.b85
(`mutated_corpus.py`), from where it is tried each time.
"""

import contextlib
import gzip
import io
import json
import os
import shutil
import stat
import struct
import tempfile
import uuid
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.artifacts.formats.translated import integrity_errors, layout_errors
from graphcrate.artifacts.tree.binaries import read_binary
from graphcrate.artifacts.wheel import open_wheel
from graphcrate.host.disk import documents
from graphcrate.inputs.bases import deb as debs
from graphcrate.model.errors import UNREADABLE, IntegrityError, LayoutError, RecipeError
from graphcrate.oci.index import decode_document
from graphcrate.oci.validate import inspect_layer
from graphcrate.resolve.sources import index
from ocilayout import spec
from ocilayout.spec import LayerBlob
from ociregistry import realms
from sifsquash import sif
from sifsquash.squashfs import Squashfs
from tests.unit import elfmaker, squashfs_samples, tars
from tests.unit.artifacts import mutated_corpus, mutated_words
from tests.unit.host import test_documents
from tests.unit.inputs import test_debian
from tests.unit.wheelmaker import wheel_bytes
from treeaudit import elf, fatbin
from treeaudit.elf import Extent

EXAMPLES = int(os.environ.get("FUZZ") or 25)  # the same in every run, beside the seeds: make fuzz tries other ones
WHEEL = "pkg-1.0-py3-none-any.whl"
CODE = {"pkg/a.py": b"a = 1\n" * 50, "pkg/b": b"b"}
COMPRESSIONS = (spec.LAYER_TAR, spec.LAYER_GZIP, spec.LAYER_ZSTD)
LAYER = [tars.folder("d"), tars.file("d/a", b"a" * 600), tars.symlink("l", "d"), tars.hardlink("h", "d/a")]
MANIFEST = {
    "schemaVersion": 2,
    "mediaType": spec.MANIFEST,
    "config": {"mediaType": spec.CONFIG, "digest": f"sha256:{'1' * 64}", "size": 2},
    "layers": [{"mediaType": spec.LAYER_GZIP, "digest": f"sha256:{'2' * 64}", "size": 3}],
}
PLATFORM = {"os": "linux", "architecture": "amd64"}
INDEX = {"schemaVersion": 2, "manifests": [{**MANIFEST["config"], "platform": PLATFORM}]}
CONFIG = {"os": "linux", "architecture": "amd64", "config": {"Env": ["A=b"]}}
CONFIG["rootfs"] = {"type": "layers", "diff_ids": []}
LINKS = b'<a href="a.whl#sha256=0">a</a><base href="//[">'
CHALLENGE = 'Bearer realm="https://auth.example/token",service="a, \\"b\\"",scope="repository:a:pull", Basic realm=x'


def at(place, name, data):
    path = place / name
    path.write_bytes(data)
    return path


def read_wheel(data, place):
    with open_wheel(at(place, WHEEL, data)) as wheel:
        for member in wheel.members:
            wheel.read(member)


def read_record(data, place):
    """RECORD alone is mutated: the archive is whole."""
    text = data.decode("utf-8", "surrogateescape")
    read_wheel(wheel_bytes("pkg", "1.0", CODE, record=lambda _: Surrogates(text)), place)


class Surrogates(str):
    def encode(self, *_):
        return super().encode("utf-8", "surrogateescape")


def read_squashfs(data, place, offset=0):
    with layout_errors(), Squashfs(at(place, "image", data), offset) as image:
        for _, _, content in image.entries():
            size = sum(map(len, image.chunks(content))) if content is not None else 0
            assert size < 1 << 30


def read_sif(data, place):
    with layout_errors():
        offset = sif.root_offset(at(place, "image", data))
    read_squashfs(data, place, offset)


def read_layer(data, place):
    """Compressed again, so that more than checksums is read; nothing may leave the root."""
    blob = at(place, "layer", gzip.compress(data, 1, mtime=0))
    before = sorted(path.name for path in place.iterdir())
    try:
        unpack([LayerBlob(path=blob, media_type=spec.LAYER_GZIP)], place / "root", advance=lambda _: None)
    finally:
        assert sorted({path.name for path in place.iterdir()} - {"root", ".root.lock"}) == before


def read_deb(data, place):
    """As root, too: files beside the tree stay as they are, and there is nothing new in the machine's root."""
    package, canary, root = at(place, "some_1_all.deb", data), at(place, "canary", b"secret"), place / "root"
    root.mkdir()
    (root / "link").symlink_to(place)
    (root / "etc").symlink_to("/")
    before = canary.stat(), sorted(place.iterdir()), sorted(Path("/").iterdir())
    try:
        debs.extract(place / "plain", debs.inflate_member(package, place / "plain"), root)
    finally:
        (place / "plain").unlink(missing_ok=True)
        assert (canary.stat(), sorted(place.iterdir()), sorted(Path("/").iterdir())) == before
        assert canary.read_bytes() == b"secret"
        made = [path.lstat().st_mode for path in root.rglob("*")]
        assert all(stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode) for mode in made)
        assert not any(stat.S_ISREG(mode) and mode & 0o6000 for mode in made)


def deb_seeds():
    names = ["./usr/a", "/abs", "./link/canary", "./etc/abs", "./d/../../canary"]
    entries = [tars.folder("./usr"), *(tars.file(name, b"a" * 600) for name in names)]
    entries += [tars.symlink("./usr/l", "/"), tars.file("./usr/l/x"), tars.hardlink("./h", "./link/canary")]
    with tempfile.TemporaryDirectory() as folder:
        return [test_debian.deb(Path(folder), "some", entries, kind).read_bytes() for kind in test_debian.PACKERS]


def read_blob(data, place):
    for kind in COMPRESSIONS:
        with contextlib.suppress(LayoutError):
            found = inspect_layer(LayerBlob(path=at(place, "layer", data), media_type=kind))
            assert found.digest == tars.sha256(data)
            assert not [name for name in found.entries.by_path if name.startswith("/") or ".." in name.split("/")]


def read_elf(stream, name):
    with integrity_errors():
        elf.read_stream(stream, name)


def read_code(data, _):
    with integrity_errors():
        found = fatbin.unloaded(io.BytesIO(data), Extent(0, len(data)), "a.so", ["7.0"])
    assert all(one.offset > 0 and one.offset + one.size <= len(data) for one in found.code)


def record():
    with zipfile.ZipFile(io.BytesIO(wheel_bytes("pkg", "1.0", CODE))) as archive:
        return archive.read("pkg-1.0.dist-info/RECORD")


def in_sif():
    squashed = squashfs_samples.sample("zstd")
    objects = (sif.DataObject(sif.TYPE_JSON, "oci-config.json", b"{}"),)
    return sif.front(objects, len(squashed), "amd64", uuid.UUID(int=1), 0) + squashed


def document(kind):
    return lambda data, _: decode_document(data, kind, "x")


def travelled(kind):
    """A lock, proof or report: sane and of one form, or refused with a sentence that a terminal can show."""

    def read(data, place):
        try:
            test_documents.read_sane(data, kind)
        except UNREADABLE:
            with pytest.raises(RecipeError) as caught:
                documents.read(at(place, "x.json", data), kind, "a document", "again")
            assert caught.value.what.isprintable()

    return read


#: name → seed or seeds, reader
TARGETS = {
    "wheel": (lambda: wheel_bytes("pkg", "1.0", CODE, entry_points="[console_scripts]\n"), read_wheel),
    "record": (record, read_record),
    "squashfs": (lambda: list(map(squashfs_samples.sample, squashfs_samples.COMPRESSIONS)), read_squashfs),
    "sif": (in_sif, read_sif),
    "elf": (lambda: elfmaker.WHOLE, lambda data, _: read_elf(io.BytesIO(data), "a.so")),
    "binary": (lambda: elfmaker.WHOLE, lambda data, _: read_binary([data], "a.so")),
    "fatbin": (lambda: elfmaker.WHOLE_CODE, read_code),
    "layer": (lambda: tars.tar(LAYER), read_layer),
    "blob": (lambda: [tars.compressed(tars.tar(LAYER), kind) for kind in COMPRESSIONS], read_blob),
    "deb": (deb_seeds, read_deb),
    "manifest": (lambda: json.dumps(MANIFEST).encode(), document(spec.Manifest)),
    "index": (lambda: json.dumps(INDEX).encode(), document(spec.ImageIndex)),
    "config": (lambda: json.dumps(CONFIG).encode(), document(spec.ImageConfig)),
    **{name: (lambda data=data: data, travelled(kind)) for name, (data, kind) in test_documents.SEEDS.items()},
    "challenge": (lambda: CHALLENGE.encode(), lambda data, _: realms.challenges(data.decode("latin-1"))),
    "links": (lambda: LINKS, lambda data, _: index.parse_html(data, "http://a/")),
}
TARGETS |= mutated_words.TARGETS
#: the errors that a reader may raise, unless it is IntegrityError
ERRORS = {"binary": (), "challenge": (), "links": ()} | mutated_words.ERRORS
NUMBERS = [struct.pack(form, number) for form in ("<I", "<Q", ">I") for number in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF)]
PIECES = st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from([*NUMBERS, b"../", b"\0", b'"', b"9" * 30]))
CHANGES = st.lists(
    st.tuples(st.sampled_from(["set", "insert", "delete", "copy", "cut"]), st.integers(0, 1 << 20), PIECES),
    min_size=1,
    max_size=6,
)


def mutated(seed, changes):
    """A seed after these changes."""
    data = bytearray(seed)
    for kind, number, piece in changes:
        place = number % (len(data) + 1)
        if kind == "set":
            data[place : place + len(piece)] = piece
        elif kind == "insert":
            data[place:place] = piece
        elif kind == "delete":
            del data[place : place + 4 * len(piece)]
        elif kind == "copy":
            data[place : place + 64] = data[number // 7 % (len(data) + 1) :][:64]
        elif not number % 5:
            del data[place:]
    return bytes(data)


def tried(name, data, place):
    place.mkdir()
    try:
        with contextlib.suppress(ERRORS.get(name, IntegrityError)):
            TARGETS[name][1](data, place)
    except BaseException as error:
        error.add_note(f"to tests/unit/artifacts/mutated/{name}.b85: {mutated_corpus.packed(data)}")
        raise
    finally:
        shutil.rmtree(place)


def seeds_of(name):
    """The inputs to mutate: whole ones, and those of the corpus."""
    made = TARGETS[name][0]()
    return [*(made if isinstance(made, list) else [made]), *mutated_corpus.inputs(name)]


@pytest.mark.fuzz
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", TARGETS)
def test_reader_of_mutated_bytes_gives_a_value_or_its_error(name, tmp_path):
    seeds = seeds_of(name)
    for seed in seeds:
        tried(name, seed, tmp_path / "x")

    @settings(max_examples=EXAMPLES, database=None)
    @given(st.sampled_from(seeds), CHANGES)
    def attempt(seed, changes):
        tried(name, mutated(seed, changes), tmp_path / "x")

    attempt()
