"""Tars that lie, break off or contradict each other: each is an error, of the class that the reader was given."""

import contextlib
import gzip
import io
import pickle
import tarfile

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from layertar import entries
from layertar.blob import open_blob
from layertar.errors import ArchiveError, BombError, TarError
from layertar.limits import LAYER, Gauge, Limits
from layertar.stream import Chunks, TarStream, content_of, members
from ocilayout import spec
from ocilayout.spec import LayerBlob
from tests.unit import tars

SMALL = Limits("thing", members=3, names=40, size=1 << 40, ratio=10, free=1 << 20)
PACKERS = {spec.LAYER_TAR: bytes, spec.LAYER_GZIP: gzip.compress, spec.LAYER_ZSTD: zstandard.compress}
OUTSIDE = "passwd"


class OurError(ArchiveError):
    """A program's own."""


def stream_of(data, error=TarError):
    return TarStream(io.BufferedReader(Chunks([data[:700], data[700:]])), Gauge(LAYER, ""), error=error)


def read(data, error=TarError):
    """The content of the files of a tar, by name."""
    stream = stream_of(data, error)
    return {member.name: b"".join(content_of(member, stream)) for member, _ in members(stream) if member.isreg()}


def header(name="a", kind=tarfile.REGTYPE, **fields):
    member = tarfile.TarInfo(name)
    member.type = kind
    for field, value in fields.items():
        setattr(member, field, value)
    return member.tobuf(tarfile.GNU_FORMAT)


def test_exceeded_archive_limit_is_named():
    def listing(count, name="a", size=0, more=0):
        gauge = Gauge(SMALL, "x.tar", packed=1000)
        for _ in range(count):
            gauge.member(name, size, more)

    listing(3, "a" * 13)
    for said, arguments in {
        "3 members": (4,),
        "40 bytes of names": (1, "a" * 41),
        "40 bytes of names and attributes": (1, "a", 0, 40),
        r"1\.5 GiB; it has 1000 bytes packed, and at most 10 times that, and 1 MiB of any": (1, "a", 3 << 29),
    }.items():
        with pytest.raises(BombError, match=rf"^x\.tar: .*{said}"):
            listing(*arguments)
    with pytest.raises(OurError, match=r"more than 1 MiB; it has"):
        Gauge(SMALL, "", OurError, packed=10).inflated(2 << 20)
    with pytest.raises(BombError, match="at most 1024 GiB are read of a thing"):
        Gauge(SMALL, "x").inflated(1 << 41)
    Gauge(SMALL, "x", packed=1 << 20).inflated(10 << 20)


def test_tar_in_pieces_gives_each_files_content():
    assert read(tars.tar([tars.file("a", b"1"), tars.file("b", b"22" * 999)])) == {"a": b"1", "b": b"22" * 999}
    assert read(tars.tar([])) == {}


END = bytes(1024)
FALSE_MAP = {"GNU.sparse.map": "9,4", "GNU.sparse.size": "8", "GNU.sparse.name": "a"}


@pytest.mark.parametrize(
    ("said", "data"),
    [
        ("ends in the middle of a file", header(size=9999) + bytes(512)),
        ("broken header at byte 512", header() + b"x" * 512 + END),
        ("broken header at byte 0", b"x" * 512 + END),
        ("no valid time", tars.tar([tars.file("a", pax_headers={"mtime": "1e99"})])),
        ("owners are numbers", tars.tar([tars.file("a", pax_headers={"uid": str(1 << 32)})])),
        ("map does not fit", tars.tar([tars.file("a", b"data", pax_headers=FALSE_MAP)])),
    ],
)
def test_tar_that_is_not_whole_or_lies_is_an_error_of_the_given_class(said, data):
    for error in (TarError, OurError):
        with pytest.raises(error, match=said):
            read(data, error)


def test_names_in_messages_break_no_line():
    with pytest.raises(TarError, match=r"evil\\n\\x1b\[2J has no valid time"):
        read(tars.tar([tars.file("evil\n\x1b[2J", pax_headers={"mtime": "1e99"})]))


@given(st.binary(max_size=2000))
def test_random_bytes_are_read_or_a_tar_error(data):
    with contextlib.suppress(TarError):
        read(data)


def layer(tmp_path, made, kind=spec.LAYER_GZIP):
    path = tmp_path / f"layer{len([*tmp_path.iterdir()])}"
    path.write_bytes(PACKERS[kind](tars.tar(made)))
    return LayerBlob(path=path, media_type=kind)


def entries_of(blob, **options):
    with open_blob(blob, **options) as stream:
        return entries.read_entries(stream, lambda path, member: f"{blob.path.name}:{path}")


@pytest.mark.parametrize("kind", PACKERS)
def test_layer_of_each_packing_has_its_entries(tmp_path, kind):
    found = entries_of(
        layer(tmp_path, [tars.folder("./bin/"), tars.file("bin/sh"), tars.hardlink("sh", "/bin/sh")], kind)
    )
    assert found.by_path == {"bin": "layer0:bin", "bin/sh": "layer0:bin/sh", "sh": "layer0:bin/sh"}
    assert found.folders == {"bin"}


def test_layer_that_is_missing_of_unknown_type_or_cut_off_is_an_error_of_the_given_class(tmp_path):
    whole = layer(tmp_path, [tars.file("a", b"1" * 9999)])
    cut = tmp_path / "cut"
    cut.write_bytes(whole.path.read_bytes()[:-20])
    for said, blob in {
        "there is no": LayerBlob(path=tmp_path / "no", media_type=spec.LAYER_TAR),
        "cannot be read": LayerBlob(path=whole.path, media_type="text/plain"),
        "compressed data is broken": LayerBlob(path=cut, media_type=spec.LAYER_GZIP),
    }.items():
        for error in (TarError, OurError):
            with pytest.raises(error, match=said):
                entries_of(blob, error=error)


def test_layer_beyond_its_limits_is_an_error_of_the_given_class(tmp_path):
    with pytest.raises(OurError, match="more than 3 members"):
        entries_of(layer(tmp_path, [tars.file(name) for name in "abcd"]), limits=SMALL, error=OurError)


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ("absolute name", [tars.file(f"/etc/{OUTSIDE}")]),
        ("leaves the root", [tars.file(f"../{OUTSIDE}")]),
        ("is in it twice", [tars.file("a"), tars.file("./a")]),
        ("is below a, which is not a folder", [tars.symlink("a", "/etc"), tars.file(f"a/{OUTSIDE}")]),
        ("is a folder and no folder", [tars.file("a/b"), tars.file("a")]),
        ("removes nothing that can be named", [tars.file(".wh...")]),
    ],
)
def test_name_that_breaks_a_rule_is_refused_and_the_rest_is_read(tmp_path, said, made):
    faults = entries.Faults()
    with open_blob(layer(tmp_path, [*made, tars.file("last")]), error=OurError) as stream:
        found = entries.read_entries(stream, lambda path, member: path, faults.add)
    (fault,) = faults.errors
    assert isinstance(fault, OurError)
    assert said in fault.what
    assert "last" in found.by_path


def test_layers_are_overlaid_with_whiteouts_and_links_to_those_below(tmp_path):
    below = [tars.folder("d"), tars.file("d/old"), tars.file("gone"), tars.file("kept")]
    above = [tars.file("d/.wh..wh..opq"), tars.file("d/new"), tars.file(".wh.gone"), tars.hardlink("link", "kept")]
    merged = entries.overlaid([entries_of(layer(tmp_path, made)) for made in (below, above)], "implied")
    assert merged == {
        "": "implied", "d": "layer0:d", "d/new": "layer1:d/new", "kept": "layer0:kept", "link": "layer0:kept",
    }  # fmt: skip


def test_layers_that_contradict_those_below_are_refused(tmp_path):
    layers = [
        entries_of(layer(tmp_path, [made]))
        for made in (tars.symlink("a", "b"), tars.file("a/x"), tars.hardlink("l", "no"))
    ]
    faults = entries.Faults()
    entries.overlaid(layers, "", faults.add, OurError)
    assert [type(fault) for fault in faults.errors] == [OurError, OurError]
    with pytest.raises(TarError, match="which is not a folder in the layers below"):
        entries.overlaid(layers, "")


def test_faults_without_end_end_the_reading():
    faults = entries.Faults()
    for _ in range(entries.MAX_FAULTS):
        faults.add(OurError("x"))
    with pytest.raises(OurError, match="the rest was not looked at"):
        faults.add(OurError("x"))


def test_error_says_cause_and_next_step_also_in_another_process():
    error = TarError("what", cause="cause", next_step="step")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "what\ncause: cause\nnext:  step"
