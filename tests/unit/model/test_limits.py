"""Bombs: small files that say, or inflate to, more than anybody packs. Each is refused early, with the number."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest
import zstandard

from graphcrate.artifacts import wheel_archive
from graphcrate.artifacts.formats.rootfs import unpack
from graphcrate.artifacts.wheel import open_wheel
from graphcrate.host.disk import inflating
from graphcrate.inputs.bases import deb
from graphcrate.inputs.wheels import sdist, sdist_archive
from graphcrate.model import limits
from graphcrate.model.errors import IntegrityError, LayoutError
from graphcrate.model.limits import Gauge, Limits
from graphcrate.oci import blob
from graphcrate.oci.validate import inspect_layer
from ocilayout import spec
from ocilayout.spec import LayerBlob
from tests.unit import tars
from tests.unit.inputs import test_debian
from tests.unit.wheelmaker import wheel_bytes
from wheelread import archive

SMALL = Limits("thing", members=3, names=40, size=1 << 40, ratio=10, free=1 << 20)
ZEROS = bytes(8 << 20)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The same rules with small numbers."""
    for name, place in (("LAYER", blob), ("WHEEL", wheel_archive), ("PACKAGE", deb), ("SOURCES", sdist_archive)):
        monkeypatch.setattr(place, name, SMALL._replace(what=getattr(place, name).what, members=100, names=1000))


def test_archive_limits_exceed_measured_archives():
    """Measured on 2026-11-25, in all wheels, packages and layers of the project's stacks."""
    for one, members, size, ratio in (
        (limits.LAYER, 60_000, 30 << 30, 22),
        (archive.WHEEL, 12_602, 2 << 30, 9),
        (limits.PACKAGE, 20_000, 4 << 30, 11),
    ):
        assert one.members >= 50 * members
        assert one._replace(free=0).ratio >= 5 * ratio
        assert limits.Gauge(one, "x", packed=size // ratio)._allowed >= size


def test_gauge_raises_an_error_of_ours_and_never_the_librarys():
    with pytest.raises(IntegrityError, match=r"x\.tar: inflates to more than 1 MiB"):
        Gauge(SMALL, "x.tar", packed=10).inflated(2 << 20)
    with pytest.raises(LayoutError, match=r"more than 1 MiB; it has"):
        Gauge(SMALL, "", LayoutError, packed=10).inflated(2 << 20)


def zeros(kind):
    """A layer with a file of zeros, as it says."""
    data = tars.tar([tars.file("zeros", ZEROS)])
    return zstandard.compress(data) if kind == spec.LAYER_ZSTD else gzip.compress(data)


def lies(kind):
    """A layer whose entry says 64 GiB, and has nothing."""
    member = tarfile.TarInfo("zeros")
    member.size = 64 << 30
    data = member.tobuf(tarfile.GNU_FORMAT)
    return zstandard.compress(data) if kind == spec.LAYER_ZSTD else gzip.compress(data)


@pytest.mark.parametrize("kind", [spec.LAYER_GZIP, spec.LAYER_ZSTD])
@pytest.mark.parametrize(("bomb", "said"), [(zeros, "8 MiB"), (lies, "64 GiB")])
def test_layer_bomb_is_refused_at_its_header_by_every_reader(tmp_path, kind, bomb, said):
    path = tmp_path / "layer"
    path.write_bytes(bomb(kind))
    layer, read = LayerBlob(path=path, media_type=kind), []
    for way in (
        lambda: inspect_layer(layer, read.append),
        lambda: unpack([layer], tmp_path / "root"),
    ):
        with pytest.raises(LayoutError, match=said):
            way()
    assert not (tmp_path / "root").exists()


def test_layer_that_inflates_beyond_its_headers_is_refused(tmp_path):
    path = tmp_path / "layer"
    path.write_bytes(gzip.compress(tars.tar([tars.file("a")]) + ZEROS))
    with pytest.raises(LayoutError, match="inflates to more than 1 MiB"):
        inspect_layer(LayerBlob(path=path, media_type=spec.LAYER_GZIP))


def test_sparse_file_in_a_layer_counts_with_its_full_size(tmp_path):
    sparse = {"GNU.sparse.map": "0,4", "GNU.sparse.size": str(1 << 40), "GNU.sparse.name": "sparse"}
    layer = tars.blob(tmp_path, [tars.file("sparse", b"data", pax_headers=sparse)], spec.LAYER_TAR)
    with pytest.raises(LayoutError, match="1024 GiB"):
        unpack([layer], tmp_path / "root")


def long_names(count, size):
    """Headers of headers: GNU's long names, one behind another."""
    block = tarfile.TarInfo("././@LongLink")
    block.type, block.size = tarfile.GNUTYPE_LONGNAME, size
    one = block.tobuf(tarfile.GNU_FORMAT) + bytes(size + -size % 512)
    return one * count + tars.tar([tars.file("a")])


@pytest.mark.parametrize(("count", "size"), [(3000, 1), (5, 12 << 20)])
def test_chained_tar_headers_are_refused(tmp_path, monkeypatch, count, size):
    monkeypatch.setattr(blob, "LAYER", SMALL._replace(free=1 << 40))
    path = tmp_path / "layer"
    path.write_bytes(long_names(count, size))
    with pytest.raises(LayoutError, match="headers"):
        inspect_layer(LayerBlob(path=path, media_type=spec.LAYER_TAR))


def test_extended_attributes_count_towards_the_name_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(blob, "LAYER", SMALL._replace(members=100, names=10_000))
    entries = [tars.file(str(number), pax_headers={"SCHILY.xattr.user.a": "x" * 3000}) for number in range(5)]
    with pytest.raises(LayoutError, match="10000 bytes of names and attributes"):
        inspect_layer(tars.blob(tmp_path, entries))


def test_wheel_bomb_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "pkg-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pkg/zeros", ZEROS)
    with pytest.raises(IntegrityError, match="its headers say 8 MiB"), open_wheel(path):
        pass


def test_wheel_with_an_oversized_zip_directory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "pkg-1.0-py3-none-any.whl"
    path.write_bytes(wheel_bytes("pkg", "1.0", {f"pkg/{number}.py": b"" for number in range(20)}))
    with open_wheel(path) as wheel:
        assert len(wheel.members) >= 20
    monkeypatch.setattr(wheel_archive, "DIRECTORY", 999)
    with pytest.raises(IntegrityError, match=r"directory has \d{4} bytes"), open_wheel(path):
        pass


@pytest.mark.parametrize("kind", [kind for kind in test_debian.PACKERS if kind])
def test_deb_bomb_is_refused_while_inflated(tmp_path, kind):
    package = test_debian.deb(tmp_path, "some", [tars.file("./zeros", ZEROS)], kind)
    with pytest.raises(IntegrityError, match=r"some_1_all\.deb: inflates to more than 1 MiB"):
        test_debian.extract(package, tmp_path)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_sdist_bomb_is_refused_by_every_reader(tmp_path, pack):
    path = tmp_path / "pkg-1.0.tar.gz"
    path.write_bytes(pack(tars.tar([tars.file("pkg-1.0/PKG-INFO"), tars.file("pkg-1.0/zeros.c", ZEROS)])))
    for way in (sdist_archive.check_sdist, sdist.read_sdist, lambda path, _: sdist.compiled_sources(path)):
        with pytest.raises(IntegrityError, match=r"pkg-1\.0\.tar\.gz.*8 MiB"):
            way(path, path.name)


def test_package_list_bomb_is_inflated_in_pieces_and_refused():
    packed = lzma.compress(ZEROS)
    gauge = Gauge(SMALL, "Packages.xz", packed=len(packed))
    seen = inflating.pieces("Packages.xz", ".xz", io.BytesIO(packed), gauge)
    assert len(next(seen)) <= 1 << 20
    with pytest.raises(IntegrityError, match=r"Packages\.xz: inflates to more than 1 MiB"):
        list(seen)
    for broken in (packed[:-8], packed[:40] + b"x" * 40, b"MZ", b""):
        with pytest.raises(IntegrityError, match=r"cannot be inflated|^$"):
            list(inflating.pieces("Packages.xz", ".xz", io.BytesIO(broken or b"\0"), Gauge(SMALL, "x")))
