"""An image of a registry that is converted and inspected: what is pulled, how the result is named, what is refused."""

import json
import shutil
from pathlib import Path

import pytest

from graphcrate.artifacts import layouts
from graphcrate.artifacts.conversion.job import ConvertRequest
from graphcrate.artifacts.conversion.run import convert
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.platform import platform_named
from graphcrate.oci.layout import read_layout
from ocilayout import spec
from sifsquash import sif
from sifsquash.squashfs import Squashfs
from tests.unit import small_layouts
from tests.unit.tars import file, folder

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
