"""Images of a registry and in tars, converted and inspected: what is brought, how results are named, refusals."""

import contextlib
import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from graphcrate.artifacts import layouts, saved
from graphcrate.artifacts.conversion.job import ConvertRequest
from graphcrate.artifacts.conversion.run import convert
from graphcrate.model.errors import DiskFullError, LayoutError, ResolutionError, UsageError
from graphcrate.model.platform import platform_named
from graphcrate.oci.layout import read_layout
from ocilayout import spec
from sifsquash import sif
from sifsquash.squashfs import Squashfs
from tests.made import refused
from tests.unit import small_layouts
from tests.unit.artifacts.test_tree_readers import CONFIG, docker_archive, oci_archive
from tests.unit.tars import file, folder, sha256, tar

LAYERS = ([folder("opt", mode=0o755), file("opt/a", b"a" * 70_000)], [file("opt/b", b"b")])
RUN = {"Env": ["PATH=/usr/bin", "A=1"], "Cmd": ["sh"]}


@pytest.fixture
def image(registry_server, tmp_path, monkeypatch, context):
    """An image on a registry as a reference without its digest; tmp_path is the working folder."""
    monkeypatch.chdir(tmp_path)
    registry_server.image("team/pyg", LAYERS, "1.0", run=RUN, types=(spec.LAYER_GZIP, spec.LAYER_ZSTD))
    return f"{registry_server.host}/team/pyg:1.0"


def converted(ref, context, to="sif", **more):
    return convert(ConvertRequest(ref=ref, to=to, **more), context)


def paths(squashed):
    """The files of an image in a squashfs, but those that start it."""
    with Squashfs(squashed, sif.root_offset(squashed) if squashed.suffix == ".sif" else 0) as opened:
        return {name for name, _, _ in opened.entries() if name.startswith("/opt/")}


@pytest.mark.parametrize("form", ["sif", "sqsh"])
def test_convert_of_a_registry_image_writes_name_and_tag_in_this_folder(form, image, context, tmp_path):
    made = converted(f"docker://{image}", context, form)
    assert made.path == str(tmp_path / f"pyg_1.0.{form}")
    assert paths(Path(made.path)) == {"/opt/a", "/opt/b"}
    assert converted(f"docker://{image}", context, form).unchanged


def test_convert_of_a_registry_image_by_digest_is_named_without_a_tag(image, context, tmp_path):
    layout = layouts.find(image, tmp_path, context).layout
    made = converted(f"{image.removesuffix(':1.0')}@{layout.digest}", context)
    assert (made.path, made.layout) == (str(tmp_path / "pyg.sif"), layout.digest)


def test_convert_of_a_registry_image_to_an_archive_gives_a_layout_of_one_digest(image, context, tmp_path):
    made = converted(image, context, "oci-archive")
    shutil.unpack_archive(made.path, tmp_path / "copy", "tar")
    layout = read_layout(tmp_path / "copy", "1.0")
    assert layout.digest == made.layout
    assert converted(f"{tmp_path}/copy", context, output=tmp_path / "a.sif").layout == converted(image, context).layout


def test_convert_of_a_registry_image_fetches_each_layer_once(image, context, registry_server):
    converted(image, context)
    asked = len(registry_server.seen("/blobs/"))
    converted(image, context, "sqsh")
    assert len(registry_server.seen("/blobs/")) == asked


def test_result_that_is_there_is_told_before_anything_is_pulled(image, context, registry_server, tmp_path):
    (tmp_path / "pyg_1.0.sif").touch()
    with pytest.raises(UsageError, match="exists already"):
        converted(image, context)
    with pytest.raises(UsageError, match="there is no folder"):
        converted(image, context, output=tmp_path / "missing/pyg.sif")
    layout = layouts.find(image, tmp_path, context).layout
    assert not [layer for layer in layout.layers if registry_server.seen(f"/blobs/{layer.digest}")]


def test_inspect_of_a_registry_image_fetches_no_layer(image, typed, context, registry_server):
    code, out, err = typed("inspect", image)
    assert (code, err) == (0, "")
    assert f"{image.removesuffix(':1.0')}:1.0@sha256:" in out
    assert ("compressed in 2 layers, on the registry" in out, "unpacked" in out) == (True, False)
    layers = json.loads(typed("inspect", image, "--json")[1])["layers"]
    assert [layer["digest"] for layer in layers if registry_server.seen(f"/blobs/{layer['digest']}")] == []


def test_convert_of_a_registry_image_for_another_platform_names_it(image, context):
    with pytest.raises(UsageError, match="is an image for linux/amd64, and linux/arm64 was asked for"):
        converted(image, context, platform=platform_named("linux/arm64"))


def test_convert_of_a_registry_image_with_a_foreign_layer_is_refused_before_it_is_pulled(registry_server, context):
    kind = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
    layer = registry_server.blob(b"?", kind, "team/windows")
    registry_server.image("team/windows", LAYERS, "1.0", more=[layer])
    with pytest.raises(ResolutionError, match=r"foreign.*may not be distributed"):
        converted(f"{registry_server.host}/team/windows:1.0", context)
    assert not registry_server.seen(f"/blobs/{layer['digest']}")


@pytest.mark.parametrize("command", ["why", "publish"])
def test_a_registry_image_where_a_build_is_meant_is_named_as_what_it_is(command, image, typed, context):
    more = ("--to", "registry.example/team") if command == "publish" else ()
    code, _, err = typed(command, image, *more)
    assert code == 2
    assert f"{image} is on a registry, and this takes an OCI layout" in err
    assert "there is no image" not in err


def test_inspect_of_a_layout_of_others_leaves_out_unknown_sizes(tmp_path, typed):
    small_layouts.layout(tmp_path / "other", *LAYERS)
    out = typed("inspect", str(tmp_path / "other"))[1]
    assert "layer 0" in out
    assert "unpacked" not in out


# --- images in tars ---------------------------------------------------------------------------------------------------


def configuration(layers=LAYERS, **more):
    """An image configuration with the digests of these layers."""
    return {**CONFIG, "rootfs": {"type": "layers", "diff_ids": [sha256(tar(layer)) for layer in layers]}, **more}


SAVED = {
    "docker": docker_archive(LAYERS, configuration()),
    "docker 25": docker_archive(LAYERS, configuration(), modern=True),
    "gzip": gzip.compress(docker_archive(LAYERS, configuration())),
    "oci": oci_archive(entries=LAYERS, config=configuration()),
    "oci zstd": oci_archive(spec.LAYER_ZSTD, entries=LAYERS, config=configuration()),
}


def in_folder(folder, data, monkeypatch, name="app.tar"):
    """Go to a folder with a tar in it, and return the tar's name."""
    monkeypatch.chdir(folder)
    (folder / name).write_bytes(data)
    return name


@pytest.mark.parametrize("data", SAVED.values(), ids=SAVED)
def test_convert_of_a_saved_image_writes_a_sif_beside_the_tar(data, tmp_path, context, monkeypatch):
    ref = in_folder(tmp_path, data, monkeypatch)
    made = converted(ref, context, kernel="3.10")
    assert (made.path, made.compression) == (str(tmp_path / "app.sif"), "gzip")
    assert paths(Path(made.path)) == {"/opt/a", "/opt/b"}
    assert converted(ref, context, kernel="3.10").unchanged


@pytest.mark.parametrize(
    ("name", "made"),
    [("a.tar.gz", "a.sif"), ("a.docker.tar", "a.sif"), ("a.oci.tar", "a.sif"), ("a.tgz", "a.sif"), ("a", "a.sif")],
)
def test_result_of_a_tar_is_named_as_the_tar_without_its_ending(name, made, tmp_path, context, monkeypatch):
    ref = in_folder(tmp_path, SAVED["docker"], monkeypatch, name)
    assert converted(ref, context).path == str(tmp_path / made)


def test_saved_image_has_one_digest_in_each_form_of_docker(tmp_path, context, monkeypatch):
    forms = ("docker", "docker 25", "gzip")
    refs = [in_folder(tmp_path, SAVED[form], monkeypatch, f"{form}.tar") for form in forms]
    assert len({layouts.find(ref, tmp_path, context).layout.digest for ref in refs}) == 1


def test_saved_image_to_an_archive_gives_a_whole_layout_with_its_configuration(tmp_path, context, monkeypatch):
    made = converted(in_folder(tmp_path, SAVED["docker"], monkeypatch), context, "oci-archive")
    shutil.unpack_archive(made.path, tmp_path / "copy", "tar")
    layout = read_layout(tmp_path / "copy")
    assert (layout.digest, layout.environment) == (made.layout, {"PATH": "/bin", "EMPTY": ""})
    assert [sha256(layout.blob(layer.digest).read_bytes()) for layer in layout.layers] == [
        layer.digest for layer in layout.layers
    ]


def test_inspect_of_a_saved_image_says_where_it_is_and_keeps_no_layer(tmp_path, context, monkeypatch, typed):
    ref = in_folder(tmp_path, SAVED["docker"], monkeypatch)
    assert re.match(r"app@sha256:[0-9a-f]{64}\n.*kB in 2 layers, in app\.tar\n", typed("inspect", ref)[1])
    code, out, _ = typed("inspect", ref, "--json")
    layers = json.loads(out)["layers"]
    assert (code, len(layers)) == (0, len(LAYERS))
    assert not [layer for layer in layers if context.cache.blob(layer["digest"]).exists()]


def test_tar_where_a_build_is_meant_is_named_as_an_archive(tmp_path, monkeypatch, typed):
    ref = in_folder(tmp_path, SAVED["docker"], monkeypatch)
    assert "app.tar is an archive" in typed("why", ref)[2]


def test_convert_of_a_saved_image_for_another_platform_names_it(tmp_path, context, monkeypatch):
    ref = in_folder(tmp_path, SAVED["docker"], monkeypatch)
    with pytest.raises(UsageError, match=r"app\.tar is an image for linux/amd64, and linux/arm64 was asked for"):
        converted(ref, context, platform=platform_named("linux/arm64"))


OTHERS = ([file("opt/other", b"x")], LAYERS[1])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (docker_archive(LAYERS, configuration(OTHERS)), "is damaged: its bytes hash to"),
        (docker_archive(LAYERS, configuration(LAYERS[:1])), "it has 2 layers, and its configuration tells of 1"),
        (oci_archive(spec.LAYER_TAR, entries=LAYERS, config=configuration(OTHERS)), "is damaged: its bytes hash to"),
        (SAVED["oci"].replace(b"+gzip", b"+oops"), "damaged"),
        (SAVED["docker"][:5000], "the tar ends"),
        (docker_archive(LAYERS, configuration(), images=2), "has 2 images"),
        (b"\x1f\x8bnothing", "broken"),
    ],
    ids=["another layer", "fewer layers", "another layer of OCI", "altered manifest", "cut off", "two images", "junk"],
)
def test_damaged_saved_image_is_refused_with_its_name_and_leaves_no_file(data, said, tmp_path, context, monkeypatch):
    ref = in_folder(tmp_path, data, monkeypatch)
    with refused(LayoutError, "app.tar: ", said):
        converted(ref, context)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("app")] == ["app.tar"]


def test_saved_image_larger_than_the_cache_disk_is_refused_before_it_is_read(tmp_path, context, monkeypatch):
    ref = in_folder(tmp_path, SAVED["docker"], monkeypatch)
    monkeypatch.setattr("graphcrate.host.disk.cache.Cache.free_bytes", lambda _: 10)
    with pytest.raises(DiskFullError, match=r"the layers of app\.tar needs"):
        converted(ref, context)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("pyg:1.0", "pyg_1.0"),
        ("pyg", "pyg"),
        ("host:5000/team/pyg", "pyg"),
        ("host:5000/team/pyg:2", "pyg_2"),
        ("team/pyg:1@sha256:ab", "pyg_1"),
    ],
)
def test_image_of_an_engine_is_named_without_its_registry(name, stem, tmp_path, context, monkeypatch):
    ref = in_folder(tmp_path, SAVED["docker"], monkeypatch)

    @contextlib.contextmanager
    def opened(image, ctx):
        yield saved.SavedTar(f"podman:{image.name}", [Path(ref).read_bytes()], 0, "")

    monkeypatch.setattr(saved, "opened", opened)
    assert converted(f"podman:{name}", context).path == str(tmp_path / f"{stem}.sif")


@pytest.fixture
def readings(monkeypatch):
    """Names of the tars that are read, in order."""
    names, read = [], saved.read

    def noted(tar, *rest):
        names.append(tar.name)
        return read(tar, *rest)

    monkeypatch.setattr(saved, "read", noted)
    return names


@pytest.mark.parametrize("data", SAVED.values(), ids=SAVED)
def test_saved_image_is_read_once_for_all_that_is_done_with_it(data, tmp_path, context, monkeypatch, readings):
    ref = in_folder(tmp_path, data, monkeypatch)
    made = converted(ref, context)
    first = layouts.find(ref, tmp_path, context)
    assert (converted(ref, context, "sqsh").layout, first.layout.digest) == (made.layout, made.layout)
    assert readings == ["app.tar"]


def test_saved_image_that_was_inspected_is_read_again_for_its_layers_alone(tmp_path, context, monkeypatch, readings):
    ref = in_folder(tmp_path, SAVED["oci zstd"], monkeypatch)
    measured = [layouts.find(ref, tmp_path, context, layers=False).layout for _ in range(2)]
    whole = layouts.find(ref, tmp_path, context).layout
    assert measured == [whole, whole]
    assert len(readings) == 2


@pytest.mark.parametrize("lost", ["layer", "configuration", "manifest"])
def test_saved_image_of_which_the_cache_lost_a_part_is_read_again(lost, tmp_path, context, monkeypatch, readings):
    ref = in_folder(tmp_path, SAVED["docker"], monkeypatch)
    layout = layouts.find(ref, tmp_path, context).layout
    parts = {"layer": layout.layers[0], "configuration": layout.manifest.config, "manifest": layout.descriptor}
    layout.blob(parts[lost].digest).unlink()
    assert layouts.find(ref, tmp_path, context).layout == layout
    assert layout.blob(parts[lost].digest).is_file()
    assert len(readings) == 2


def test_tar_with_another_image_of_the_same_size_is_read_again(tmp_path, context, monkeypatch, readings):
    ref = in_folder(tmp_path, SAVED["docker"], monkeypatch)
    before = layouts.find(ref, tmp_path, context).layout.digest
    other = ([folder("opt", mode=0o755), file("opt/a", b"z" * 70_000)], LAYERS[1])
    in_folder(tmp_path, docker_archive(other, configuration(other)), monkeypatch)
    assert layouts.find(ref, tmp_path, context).layout.digest != before
    assert len(readings) == 2
