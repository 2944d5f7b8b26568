"""Conversions up to the program that writes a squashfs: what it is told, what is refused, what errors become."""

import hashlib
import itertools
import json
import os
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest

from graphcrate.artifacts.conversion.compression import choose_compression
from graphcrate.artifacts.conversion.job import SUFFIXES, ConvertRequest, created_of
from graphcrate.artifacts.conversion.run import convert
from graphcrate.artifacts.conversion.unsquashed import docker_name
from graphcrate.artifacts.formats import packed
from graphcrate.host.disk.cache import Cache
from graphcrate.host.progress import Progress
from graphcrate.model.errors import DiskFullError, HostError, LayoutError, UsageError
from graphcrate.model.lock import encode
from graphcrate.model.report import BuildParameters
from graphcrate.oci.layout import read_layout
from graphcrate.oci.validate import Validation, validate
from ocilayout import spec
from sifsquash import sif
from sifsquash.squashfs import Squashfs
from sifsquash.values import Compression
from tests import ROOT
from tests.made import refused
from tests.unit import small_layouts
from tests.unit.tars import file, folder, overwrite, sha256

PLACE = SimpleNamespace(progress=Progress(), environment={}, cache=None, root=ROOT)
#: where each is written in the end
WRITERS = {
    "sif": "sifsquash.packer.Packer.finish",
    "sqsh": "sifsquash.writer._copy_run",
    "oci-archive": "graphcrate.artifacts.formats.docker_archive.write_oci",
}
FORMS = [form for form in SUFFIXES if form not in ("rootfs", "delta")]


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
    return convert(ConvertRequest(**{"ref": "pyg:1.0", "to": to, "images": tmp_path / "dist", **more}), PLACE)


def squashed(tmp_path):
    """Layers that were compressed: the work was begun."""
    return list(tmp_path.glob("cache/squashed/*"))


def leftovers(tmp_path):
    """Hidden files and folders. `walk` goes on where a cache that is closed meanwhile removes its temporary folder."""
    found = [Path(folder, name) for folder, *names in os.walk(tmp_path) for name in itertools.chain(*names)]
    return [path for path in found if path.name.startswith(".")] + squashed(tmp_path)


def test_sif_is_written_beside_the_layout(tmp_path, image):
    result, path = converted(tmp_path, hashed=True), tmp_path / "dist/pyg/1.0/pyg.sif"
    assert (result.path, result.size, result.unchanged) == (str(path), path.stat().st_size, False)
    assert (result.compression, result.layout) == ("zstd", image.digest)
    assert result.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.stat().st_mode & 0o777 == 0o755
    assert path.read_bytes()[sif.root_offset(path) :][:4] == b"hsqs"
    assert {"b", ".singularity.d/runscript", "singularity"} <= names(path)
    assert "a" not in names(path)


@pytest.mark.parametrize("to", FORMS)
def test_unchanged_conversion_is_kept_and_another_file_refused(tmp_path, image, to):
    first = converted(tmp_path, to)
    shutil.rmtree(tmp_path / "cache")
    for force in (False, True):
        again = converted(tmp_path, to, force=force)
        assert again == msgspec.structs.replace(first, unchanged=True, seconds=again.seconds)
    path = Path(first.path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"text"):
        path.write_bytes(content)
        with refused(UsageError, "exists already"):
            converted(tmp_path, to)
    assert (squashed(tmp_path), path.read_bytes()) == ([], b"text")
    assert not converted(tmp_path, to, force=True).unchanged
    assert path.read_bytes() == whole, "the same bytes as the first time"
    small_layouts.layout(tmp_path / "other" / "pyg" / "1.0", [file("c", b"c")])
    other = converted(tmp_path, to, images=tmp_path / "other").path
    path.write_bytes(Path(other).read_bytes())
    with refused(UsageError, "exists already"):
        converted(tmp_path, to)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"inodes": [], "fragments": [{"start": -1}]}', '{"inodes": 1}'])
def test_packed_layer_with_a_damaged_record_is_packed_again(tmp_path, image, text):
    whole = Path(converted(tmp_path).path).read_bytes()
    for record in tmp_path.glob("cache/squashed/*/index.json"):
        record.write_text(text)
    Path(tmp_path / "dist/pyg/1.0/pyg.sif").unlink()
    assert Path(converted(tmp_path).path).read_bytes() == whole


def test_sif_of_another_compression_needs_force(tmp_path, image):
    converted(tmp_path)
    with refused(UsageError, "exists already"):
        converted(tmp_path, compression=Compression.GZIP)
    assert not converted(tmp_path, compression=Compression.GZIP, force=True).unchanged


@pytest.mark.parametrize("to", [*FORMS, "rootfs"])
def test_existing_output_folder_of_convert_is_refused(tmp_path, image, monkeypatch, to):
    monkeypatch.setattr(os, "geteuid", lambda: 0)  # else nobody but root gets so far with a rootfs
    with refused(UsageError, "folder that is there already", "never replaced"):
        converted(tmp_path, to, output=tmp_path, force=True)


def test_convert_link_points_to_the_result_and_obstacles_are_refused_first(tmp_path, image, monkeypatch):
    monkeypatch.chdir(tmp_path)
    link = tmp_path / "pyg.sif"
    with refused(UsageError, "the link and what it leads to"):
        converted(tmp_path, link=link, output=tmp_path / "dist" / ".." / "pyg.sif")
    link.mkdir()
    with refused(HostError, "exists and is not a link", f"mv {link} {link}.old"):
        converted(tmp_path, link=link)
    assert not squashed(tmp_path)
    link.rmdir()
    for _ in range(2):
        converted(tmp_path, link=link)
        assert str(link.readlink()) == "dist/pyg/1.0/pyg.sif"


def test_convert_compression_follows_the_kernel(tmp_path, image):
    kernels = (None, "3.10", "4.13.16", "4.14", "5.4.0-1-amd64", "10.0")
    assert [choose_compression(kernel) for kernel in kernels] == ["zstd"] + ["gzip"] * 2 + ["zstd"] * 3
    with refused(UsageError, "'latest' is not a kernel's version"):
        converted(tmp_path, kernel="latest")
    with refused(UsageError, "Linux 2.6.32-754.el6 runs no program of an image", "3.2 or newer", "--kernel 3.10"):
        converted(tmp_path, kernel="2.6.32-754.el6")
    with refused(UsageError, "Linux 3.10 cannot mount a SIF with zstd"):
        converted(tmp_path, kernel="3.10", compression=Compression.ZSTD)


@pytest.mark.parametrize(
    ("target", "more", "compression", "words"),
    [
        ("", {}, "zstd", ("zstd, for FUSE and Linux from 4.14 on", "KERNEL=3.10")),
        ("dgx2", {}, "gzip", ("gzip: Linux mounts zstd from 4.14 on, and this is 3.10",)),
        ("dgx2", {"kernel": "5.14"}, "zstd", ("zstd, which Linux 5.14 mounts",)),
        ("gone", {}, "zstd", ("for FUSE",)),
        ("./mine.toml", {}, "zstd", ("for FUSE",)),
    ],
)
def test_sif_is_compressed_for_the_machine_that_the_image_was_built_for(
    tmp_path, image, monkeypatch, target, more, compression, words
):
    asked = BuildParameters(recipe="pyg", variant="11.8", target=target)
    report = small_layouts.report(image, name="pyg", asked=asked)
    (tmp_path / "dist/pyg/1.0/report.json").write_bytes(encode(report))
    notes = []
    monkeypatch.setattr(PLACE.progress, "note", notes.append)
    assert converted(tmp_path, **more).compression == compression
    assert [all(word in note for word in words) for note in notes] == [True], notes


@pytest.mark.parametrize(
    ("more", "compression", "noted"),
    [
        ({}, "zstd", True),
        ({"kernel": "3.10"}, "zstd", True),
        ({"kernel": "3.10", "compression": Compression.ZSTD}, "zstd", False),
        ({"kernel": "5.14", "compression": Compression.GZIP}, "gzip", False),
    ],
)
def test_sqsh_without_a_compression_notes_zstd_and_unsquashfs(tmp_path, image, monkeypatch, more, compression, noted):
    notes = []
    monkeypatch.setattr(PLACE.progress, "note", notes.append)
    result = converted(tmp_path, "sqsh", **more)
    assert (result.path.rpartition("/")[2], result.compression) == ("pyg.sqsh", compression)
    assert [("unsquashfs" in note, "--compression gzip" in note) for note in notes] == [(True, True)] * noted
    assert {"b", "etc/rc", "etc/environment", "etc/fstab", "etc/rc.local"} <= names(result.path, 0)


@pytest.mark.parametrize("to", ["docker", "oci-archive", "rootfs"])
def test_convert_option_without_use_for_the_form_is_refused(tmp_path, image, to):
    for name, value in {"kernel": "3.10", "compression": Compression.GZIP}.items():
        with refused(UsageError, f"--{name} does not apply to {to}"):
            converted(tmp_path, to, **{name: value})


def test_convert_without_disk_space_is_refused_first(tmp_path, image, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10))
    for to in FORMS:
        with refused(DiskFullError, "are free under"):
            converted(tmp_path, to, output=tmp_path / "file")
    assert (squashed(tmp_path), (tmp_path / "file").exists()) == ([], False)


@pytest.mark.parametrize("to", SUFFIXES)
def test_convert_to_a_missing_folder_is_refused_with_mkdir(tmp_path, image, to):
    with refused(UsageError, f"there is no folder {tmp_path / 'new'}", f"mkdir -p {tmp_path / 'new'}"):
        converted(tmp_path, to, output=tmp_path / "new" / "file")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("to", FORMS)
def test_convert_to_an_unwritable_folder_is_refused_first(tmp_path, image, monkeypatch, to):
    def refuse(dir):
        raise PermissionError(13, "Permission denied", f"{dir}/tmpx")

    monkeypatch.setattr(packed, "read_packed", lambda *_: pytest.fail("layers were compressed"))
    monkeypatch.setattr("graphcrate.host.disk.atomic.tempfile.TemporaryFile", refuse)
    with refused(HostError, f"{tmp_path}: Permission denied"):
        converted(tmp_path, to, output=tmp_path / "file")


@pytest.mark.parametrize(("error", "kind"), [(OSError(28, "No space left"), DiskFullError), (KeyboardInterrupt,) * 2])
@pytest.mark.parametrize(("to", "function"), WRITERS.items())
def test_failed_or_interrupted_convert_leaves_no_output(tmp_path, image, monkeypatch, to, function, error, kind):
    monkeypatch.setattr(function, Mock(side_effect=error))
    with pytest.raises(kind):
        converted(tmp_path, to)
    assert not [*tmp_path.rglob("*.s??*"), *tmp_path.rglob("*.oci.tar")]
    assert bool(leftovers(tmp_path)) == (to == "sqsh"), "compressed layers stay in the cache"


@pytest.mark.parametrize("to", [*FORMS, "rootfs"])
def test_convert_of_an_altered_layout_names_its_digest(tmp_path, image, to):
    if to == "rootfs" and os.geteuid() != 0:
        pytest.skip("root alone gets so far")
    digest = image.layers[0].digest
    data = image.blob(digest).read_bytes()
    same_tar = data[:9] + b"\x07" + data[10:]  # the operating system in the gzip header
    for content, words in ((same_tar, "is damaged"), (data[:-1], "has")):
        overwrite(image.blob(digest), content)
        with refused(LayoutError, f"{digest} {words}", "build it again"):
            converted(tmp_path, to)
    assert not [path for path in leftovers(tmp_path) if not path.name.startswith(image.layers[1].digest[7:])]


@pytest.mark.parametrize("to", ["sif", "sqsh"])
def test_result_that_an_older_format_packed_is_not_taken_for_the_same(tmp_path, image, monkeypatch, to):
    first = Path(converted(tmp_path, to).path).read_bytes()
    monkeypatch.setattr(packed, "FORMAT", packed.FORMAT + 1)
    with refused(UsageError, "exists already", "--force replaces it"):
        converted(tmp_path, to)
    made = converted(tmp_path, to, force=True)
    assert (made.unchanged, Path(made.path).read_bytes() == first) == (False, False)


def test_convert_of_a_sif_or_squashfs_is_refused_by_its_kind(tmp_path, image):
    made = converted(tmp_path)
    (tmp_path / "x.sqsh").write_bytes(b"hsqs")
    for path, what in ((made.path, "a SIF"), ("x.sqsh", "a squashfs")):
        with refused(UsageError, f"is {what}", ", and this takes an OCI layout"):
            converted(tmp_path, ref=str(tmp_path / path))
    with refused(UsageError, "there is no image 'pyg:2'"):
        converted(tmp_path, ref="pyg:2")


def extracted(path):
    """Contents of the files in a tar, by name, which is in it once."""
    with tarfile.open(path) as archive:
        members = [member for member in archive if member.isfile()]
        found = {member.name: archive.extractfile(member).read() for member in members}
    assert len(found) == len(members)
    return found


def test_oci_archive_unpacks_to_the_layout(tmp_path, image):
    for name, content in extracted(converted(tmp_path, "oci-archive").path).items():
        (tmp_path / "again" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "again" / name).write_bytes(content)
    again = read_layout(tmp_path / "again", "1.0")
    assert validate(again) == Validation()
    assert again.digest == image.digest


@pytest.mark.parametrize("media_type", [spec.LAYER_GZIP, spec.LAYER_ZSTD])
def test_docker_archive_has_a_manifest_and_no_zstd_layers(tmp_path, media_type):
    layers = [file("a", b"a" * 5000)], [file("b", b"b")], [file("a", b"a" * 5000)]  # the first comes twice
    written = small_layouts.layout(tmp_path / "dist/pyg/1.0", *layers, types=(media_type,))
    found = extracted(converted(tmp_path, "docker", ref=str(written.path), output=tmp_path / "pyg.tar").path)
    (saved,) = json.loads(found["manifest.json"])
    assert saved["RepoTags"] == ["oci:1.0"]
    assert json.loads(found[saved["Config"]])["rootfs"]["diff_ids"] == list(written.config.rootfs.diff_ids)
    compressed = tuple(layer.digest for layer in written.layers)
    expected = compressed if media_type == spec.LAYER_GZIP else written.config.rootfs.diff_ids
    assert tuple(sha256(found[name]) for name in saved["Layers"]) == expected
    assert found.keys() == {"manifest.json", saved["Config"], *saved["Layers"]}


def test_docker_name_is_valid_or_none():
    images = ("pyg", "1.0"), ("pyg", ""), ("My image", "1")
    assert [docker_name(*one) for one in images] == ["pyg:1.0", "pyg:latest", None]


def test_rootfs_conversion_needs_root_and_owners(tmp_path, image, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with refused(HostError, "owners", "unshare"):
        converted(tmp_path, "rootfs")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", Mock(side_effect=PermissionError(1, "Operation not permitted")))
    with refused(HostError, "cannot be unpacked faithfully here: ", "not permitted"):
        converted(tmp_path, "rootfs")
    assert not list((tmp_path / "dist/pyg/1.0").glob("*rootfs*"))


def test_convert_command_prints_the_path_or_json(tmp_path, image, monkeypatch, typed):
    monkeypatch.chdir(tmp_path)
    assert typed("convert", "pyg:1.0", "--to", "sif")[1] == f"{tmp_path}/dist/pyg/1.0/pyg.sif\n"
    found = json.loads(typed("convert", "pyg:1.0", "--to", "sqsh", "--compression", "zstd", "--json")[1])
    assert set(found) >= {"path", "size", "sha256", "seconds", "compression"}
    assert found["compression"] == "zstd"
    assert typed("convert", "pyg:1.0", "--to", "qcow2")[0] == 2


def test_created_time_becomes_unix_seconds_in_squashfs_range(image):
    times = {"2023-11-14T23:13:20+01:00": 1_700_000_000, "2023-11-14T22:13:20": 1_700_000_000}
    times |= dict.fromkeys((None, "yesterday", "1901-01-01T00:00:00Z"), 0)
    for created, seconds in times.items():
        config = msgspec.structs.replace(image.config, created=created)
        assert created_of(SimpleNamespace(config=config)) == seconds
