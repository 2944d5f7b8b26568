"""Conversions up to the program that writes a squashfs: what it is told, what is refused, what errors become."""

import hashlib
import json
import os
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from typer.testing import CliRunner

from graphcrate.artifacts import convert as converting
from graphcrate.artifacts.convert import Request, convert
from graphcrate.artifacts.formats import sif
from graphcrate.artifacts.formats.packed import Compression
from graphcrate.artifacts.formats.squashfs import Squashfs
from graphcrate.cli import main
from graphcrate.host.cache import Cache
from graphcrate.host.progress import Silent
from graphcrate.model.errors import DiskFullError, HostError, LayoutError, UsageError
from graphcrate.oci import spec
from graphcrate.oci.layout import read_layout
from graphcrate.oci.validate import validate
from tests.unit import small_layouts
from tests.unit.tars import file, folder

PLACE = SimpleNamespace(progress=Silent(), environment={}, cache=None)
FORMS = [form for form in converting.SUFFIXES if form != "rootfs"]


def names(path, offset=None):
    """The paths in a SIF or a squashfs."""
    with Squashfs(Path(path), sif.root_offset(Path(path)) if offset is None else offset) as image:
        return {name.lstrip("/") for name, _, _ in image.entries()}


@pytest.fixture
def image(tmp_path):
    """A layout below dist/, as `image` writes it."""
    labels = {"org.opencontainers.image.title": "pyg"}
    layers = ([folder("./", mode=0o755, mtime=3), file("a", b"a" * 70_000)], [file("b", b"b"), file(".wh.a", b"")])
    return small_layouts.layout(tmp_path / "dist" / "pyg" / "1.0", *layers, labels=labels)


def converted(tmp_path, to="sif", **more):
    PLACE.cache = Cache(tmp_path / "cache")
    return convert(Request(**{"ref": "pyg:1.0", "to": to, "images": tmp_path / "dist", **more}), PLACE)


def squashed(tmp_path):
    """Layers that were compressed: the work was begun."""
    return list(tmp_path.glob("cache/squashed/*"))


def leftovers(tmp_path):
    return [path for path in tmp_path.rglob(".*") if path.name != ".oci.lock"] + squashed(tmp_path)


def test_a_sif_lies_beside_the_layout(tmp_path, image):
    result = converted(tmp_path, hashed=True)
    path = tmp_path / "dist/pyg/1.0/pyg.sif"
    assert result.path == str(path)
    assert (result.compression, result.layout, result.unchanged) == ("gzip", image.digest, False)
    assert result.size == path.stat().st_size
    assert result.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.stat().st_mode & 0o777 == 0o755
    assert path.read_bytes()[sif.root_offset(path) :][:4] == b"hsqs"
    assert {"b", ".singularity.d/runscript", "singularity"} <= names(path)
    assert "a" not in names(path)


@pytest.mark.parametrize("to", FORMS)
def test_the_same_layout_gives_the_same_bytes(tmp_path, image, to):
    one, other = (Path(converted(tmp_path, to, output=tmp_path / name).path).read_bytes() for name in "ab")
    assert one == other


def test_an_unchanged_sif_is_not_written_again(tmp_path, image):
    first = converted(tmp_path)
    shutil.rmtree(tmp_path / "cache")
    again = converted(tmp_path)
    assert again == msgspec.structs.replace(first, unchanged=True, seconds=again.seconds)
    assert converted(tmp_path, force=True).unchanged
    assert not squashed(tmp_path)
    with pytest.raises(UsageError, match="exists already"):
        converted(tmp_path, compression=Compression.ZSTD)
    assert not converted(tmp_path, compression=Compression.ZSTD, force=True).unchanged


@pytest.mark.parametrize("to", ["docker", "oci-archive", "sqsh"])
def test_an_unchanged_archive_is_not_written_again_and_another_file_is_refused(tmp_path, image, to):
    first = converted(tmp_path, to)
    assert converted(tmp_path, to).unchanged
    assert converted(tmp_path, to, force=True).unchanged
    whole, path = Path(first.path).read_bytes(), Path(first.path)
    for other in (whole[: len(whole) // 2], b"", b"text", converted_other(tmp_path, to)):
        path.write_bytes(other)
        with pytest.raises(UsageError, match="exists already"):
            converted(tmp_path, to)
    assert not converted(tmp_path, to, force=True).unchanged
    assert path.read_bytes() == whole


def converted_other(tmp_path, to):
    """An archive of another image with the same name."""
    small_layouts.layout(tmp_path / "other" / "pyg" / "1.0", [file("c", b"c")])
    return Path(converted(tmp_path, to, images=tmp_path / "other").path).read_bytes()


@pytest.mark.parametrize("to", converting.SUFFIXES)
def test_what_is_there_is_refused(tmp_path, image, monkeypatch, to):
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # else nobody but root gets so far with a rootfs
    there = tmp_path / "there"
    there.mkdir()
    with pytest.raises(UsageError, match="folder that is there already") as caught:
        converted(tmp_path, to, output=there, force=True)
    assert "never replaced" in caught.value.cause
    if to != "rootfs":
        there.rmdir()
        there.write_text("mine")
        with pytest.raises(UsageError, match="exists already"):
            converted(tmp_path, to, output=there)
        assert (squashed(tmp_path), there.read_text()) == ([], "mine")
        converted(tmp_path, to, output=there, force=True)
        assert there.read_bytes() != b"mine"


def test_a_link_leads_to_the_result_and_what_is_in_its_way_is_told_before_the_work(tmp_path, image, monkeypatch):
    monkeypatch.chdir(tmp_path)
    link = tmp_path / "pyg.sif"
    with pytest.raises(UsageError, match="the link and what it leads to"):
        converted(tmp_path, link=link, output=tmp_path / "dist" / ".." / "pyg.sif")
    link.mkdir()
    with pytest.raises(HostError, match="exists and is not a link") as caught:
        converted(tmp_path, link=link)
    assert caught.value.next_step == f"mv {link} {link}.old"
    assert not squashed(tmp_path)
    link.rmdir()
    for _ in range(2):
        converted(tmp_path, link=link)
        assert str(link.readlink()) == "dist/pyg/1.0/pyg.sif"


def test_the_kernel_chooses_the_compression(tmp_path, image):
    kernels = (None, "3.10", "4.13.16", "4.14", "5.4.0-1-amd64", "10.0")
    assert [converting.choose_compression(kernel) for kernel in kernels] == ["gzip"] * 3 + ["zstd"] * 3
    with pytest.raises(UsageError, match="'latest' is not a kernel's version"):
        converted(tmp_path, kernel="latest")
    with pytest.raises(UsageError, match=r"Linux 3\.10 cannot mount a SIF with zstd"):
        converted(tmp_path, kernel="3.10", compression=Compression.ZSTD)


@pytest.mark.parametrize(
    ("more", "compression", "noted"),
    [
        ({"kernel": "5.14"}, "zstd", False),
        ({"kernel": "3.10"}, "zstd", True),
        ({"kernel": "3.10", "compression": Compression.ZSTD}, "zstd", False),
        ({"kernel": "5.14", "compression": Compression.GZIP}, "gzip", False),
    ],
)
def test_no_kernel_mounts_enroots_image(tmp_path, image, monkeypatch, more, compression, noted):
    notes = []
    monkeypatch.setattr(PLACE.progress, "note", notes.append)
    result = converted(tmp_path, "sqsh", **more)
    assert (result.path.rpartition("/")[2], result.compression) == ("pyg.sqsh", compression)
    assert [("unsquashfs" in note, "--compression gzip" in note) for note in notes] == [(True, True)] * noted
    assert {"b", "etc/rc", "etc/environment", "etc/fstab", "etc/rc.local"} <= names(result.path, 0)


def test_what_a_form_has_no_use_for_is_said(tmp_path, image):
    for to in ("docker", "oci-archive", "rootfs"):
        for option in ({"kernel": "3.10"}, {"compression": Compression.GZIP}):
            with pytest.raises(UsageError, match=f"--{next(iter(option))} does not apply to {to}"):
                converted(tmp_path, to, **option)


def test_no_room_is_said_before_the_work(tmp_path, image, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    for to in FORMS:
        with pytest.raises(DiskFullError, match="are free under"):
            converted(tmp_path, to, output=tmp_path / "new" / "file")
    assert not squashed(tmp_path)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("result", [DiskFullError, KeyboardInterrupt])
@pytest.mark.parametrize(
    ("to", "function"),
    [
        ("sif", "packed.Packer.finish"),
        ("sqsh", "squashfs_writer._copy_run"),
        ("oci-archive", "docker_archive.write_oci"),
    ],
)
def test_a_disk_that_fills_up_and_an_interrupt_leave_nothing(tmp_path, image, monkeypatch, to, function, result):
    def fail(*_):
        raise OSError(28, "No space left on device") if result is DiskFullError else result

    monkeypatch.setattr(f"graphcrate.artifacts.formats.{function}", fail)
    with pytest.raises(result):
        converted(tmp_path, to)
    assert not [*tmp_path.rglob("*.s??*"), *tmp_path.rglob("*.oci.tar")]
    assert bool(leftovers(tmp_path)) == (to == "sqsh"), "compressed layers stay in the cache"


@pytest.mark.parametrize("to", converting.SUFFIXES)
def test_an_altered_layout_is_named_by_its_digest(tmp_path, image, to):
    if to == "rootfs" and os.geteuid() != 0:
        pytest.skip("root alone gets so far")
    digest = image.layers[0].digest
    path = image.blob(digest)
    path.chmod(0o644)
    data = path.read_bytes()
    path.write_bytes(data[:9] + b"\x07" + data[10:])  # the operating system in the gzip header: the tar is the same
    with pytest.raises(LayoutError, match=f"{digest} is damaged") as caught:
        converted(tmp_path, to)
    assert "build it again" in caught.value.next_step
    path.write_bytes(data[:-1])
    with pytest.raises(LayoutError, match=f"{digest} has"):
        converted(tmp_path, to)
    assert not [path for path in leftovers(tmp_path) if not path.name.startswith(image.layers[1].digest[7:])]


def test_what_is_no_layout_is_said_by_name(tmp_path, image):
    made = converted(tmp_path)
    (tmp_path / "x.sqsh").write_bytes(b"hsqs")
    (tmp_path / "x.tar").write_bytes(b"\x1f\x8b")
    for path, what in ((made.path, "a SIF"), ("x.sqsh", "a squashfs"), ("x.tar", "an archive")):
        with pytest.raises(UsageError, match=f"is {what}.*, and a conversion begins with an OCI layout"):
            converted(tmp_path, ref=str(tmp_path / path))
    with pytest.raises(UsageError, match="there is no image 'pyg:2'"):
        converted(tmp_path, ref="pyg:2")


def extracted(path):
    """Contents of the files in a tar, by name."""
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}


def test_an_oci_archive_is_the_layout(tmp_path, image):
    for name, content in extracted(converted(tmp_path, "oci-archive").path).items():
        (tmp_path / "again" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "again" / name).write_bytes(content)
    again = read_layout(tmp_path / "again", "1.0")
    assert validate(again) == ()
    assert again.digest == image.digest


@pytest.mark.parametrize("media_type", [spec.LAYER_GZIP, spec.LAYER_ZSTD])
def test_an_archive_for_docker_names_its_parts_and_has_no_zstd(tmp_path, media_type):
    layers = [file("a", b"a" * 5000)], [file("b", b"b")], [file("a", b"a" * 5000)]  # the first comes twice
    written = small_layouts.layout(tmp_path / "dist/pyg/1.0", *layers, types=(media_type,))
    path = converted(tmp_path, "docker", ref=str(written.path), output=tmp_path / "pyg.tar").path
    found = extracted(path)
    (saved,) = json.loads(found["manifest.json"])
    assert saved["RepoTags"] == ["oci:1.0"]
    assert json.loads(found[saved["Config"]])["rootfs"]["diff_ids"] == list(written.config.rootfs.diff_ids)
    digests = [f"sha256:{hashlib.sha256(found[name]).hexdigest()}" for name in saved["Layers"]]
    compressed = tuple(layer.digest for layer in written.layers)
    assert tuple(digests) == (compressed if media_type == spec.LAYER_GZIP else written.config.rootfs.diff_ids)
    with tarfile.open(path) as archive:
        assert sorted(member.name for member in archive if member.isfile()) == sorted(found)
    assert found.keys() == {"manifest.json", saved["Config"], *saved["Layers"]}


def test_docker_gets_names_that_it_takes():
    names = [converting.docker_name(*one) for one in (("pyg", "1.0"), ("pyg", ""), ("My image", "1"))]
    assert names == ["pyg:1.0", "pyg:latest", None]


def test_a_folder_is_for_root_and_faithful(tmp_path, image, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HostError, match="owners") as caught:
        converted(tmp_path, "rootfs")
    assert "unshare" in caught.value.next_step
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(HostError, match=r"cannot be unpacked faithfully here: .*not permitted"):
        converted(tmp_path, "rootfs")
    assert not list((tmp_path / "dist/pyg/1.0").glob("*rootfs*"))


def refuse(*_, **__):
    raise PermissionError(1, "Operation not permitted")


def test_the_command_prints_the_path_or_all(tmp_path, image, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    plain = runner.invoke(main.app, ["convert", "pyg:1.0", "--to", "sif"], catch_exceptions=False)
    assert plain.stdout == f"{tmp_path}/dist/pyg/1.0/pyg.sif\n"
    told = runner.invoke(main.app, ["convert", "pyg:1.0", "--to", "sqsh", "--compression", "zstd", "--json"])
    found = json.loads(told.stdout)
    assert set(found) >= {"path", "size", "sha256", "seconds", "compression"}
    assert found["compression"] == "zstd"
    assert runner.invoke(main.app, ["convert", "pyg:1.0", "--to", "qcow2"]).exit_code == 2


def test_times_are_unix_seconds_as_far_as_a_squashfs_holds_them(image):
    for created, seconds in {
        "2023-11-14T23:13:20+01:00": 1_700_000_000,
        "2023-11-14T22:13:20": 1_700_000_000,
        **dict.fromkeys((None, "yesterday", "1901-01-01T00:00:00Z"), 0),
    }.items():
        config = msgspec.structs.replace(image.config, created=created)
        assert converting.created_of(SimpleNamespace(config=config)) == seconds
