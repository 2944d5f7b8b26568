"""Finding the image that a user names, and its kind."""

import os
from pathlib import Path

import pytest

from graphcrate.artifacts.locate import locate
from graphcrate.model.errors import UsageError
from graphcrate.model.lock import encode
from graphcrate.oci.layout import read_layout
from tests.unit import small_layouts
from tests.unit.smoke.test_gate import suite


@pytest.fixture
def images(tmp_path, monkeypatch):
    """A folder with an image of each kind, as the working folder."""
    monkeypatch.chdir(tmp_path)
    small_layouts.layout(tmp_path / "dist/pyg/1.0")
    small_layouts.layout(tmp_path / "made").path.rename(tmp_path / "copy")
    contents = {"a.sif": b"\0" * 32 + b"SIF_MAGIC\0", "a.sqsh": b"hsqs", "a.tar.gz": b"\x1f\x8b", "a.txt": b"?"}
    for path, content in contents.items():
        (tmp_path / path).write_bytes(content)
    for folder in ("root/usr/bin", "dist/torch/2.0/docker"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("ref", "form", "name", "path"),
    [
        ("pyg:1.0", "layout", "pyg:1.0", "dist/pyg/1.0/oci"),
        ("dist/pyg/1.0", "layout", "oci", "dist/pyg/1.0/oci"),
        ("copy", "layout", "copy", "copy"),
        ("oci:copy", "layout", "copy", "copy"),
        ("copy:1.0", "layout", "copy", "copy"),
        ("torch:2.0", "layout", "torch:2.0", "dist/torch/2.0/oci"),
        ("a.sif", "sif", "a.sif", "a.sif"),
        ("a.sqsh", "squashfs", "a.sqsh", "a.sqsh"),
        ("a.tar.gz", "archive", "a.tar.gz", "a.tar.gz"),
        ("docker-archive:a.tar.gz", "archive", "a.tar.gz", "a.tar.gz"),
        ("root", "folder", "root", "root"),
        ("docker:pyg:1.0", "docker", "pyg:1.0", "."),
        ("podman:pyg", "podman", "pyg", "."),
        ("docker://pyg:1.0", "registry", "pyg:1.0", "."),
        ("registry.example/team/pyg:1.0", "registry", "registry.example/team/pyg:1.0", "."),
        ("registry.example#team/pyg:1.0", "registry", "registry.example/team/pyg:1.0", "."),
    ],
)
def test_locate_finds_an_image_by_name_or_path(images, ref, form, name, path):
    found = locate(ref, images / "dist")
    assert (found.form, found.name) == (form, name)
    assert found.path.resolve() == (images / path).resolve()
    assert found.has_layout == ((images / path / "index.json").is_file() and form == "layout")


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        ("pyg:1.1", "there is no image 'pyg:1.1'; there are pyg:1.0"),
        ("elsewhere/pyg", "there is no image"),
        ("a.sif/pyg:1.0", "there is no image"),
        ("a.txt", "a.txt is not an image: neither a tar nor a SIF nor a squashfs"),
        (f"pyg:1.0@sha256:{'0' * 64}", "and sha256:0000"),
        ("oras://registry.example/pyg:1.0", "is an address of a file, and an image on a registry is named without"),
        ("library://team/pyg:1.0", "is an address of a file"),
        ("https://site.example/pyg.sif", "is an address of a file"),
    ],
)
def test_locate_of_a_missing_image_lists_existing_ones(images, ref, words):
    with pytest.raises(UsageError, match=words):
        locate(ref, images / "dist")


def test_locate_of_a_name_gives_the_newest_passed_image_or_the_link_target(images):
    older = small_layouts.layout(images / "dist/pyg/0.9", tag="0.9")
    newer = read_layout(images / "dist/pyg/1.0/oci")
    for layout, when in ((older, 1), (newer, 2)):
        report = small_layouts.report(layout, name="pyg", suites=(suite(),))
        path = layout.path.parent / "report.json"
        path.write_bytes(encode(report))
        os.utime(path, (when, when))
    (images / "dist/pyg/mine").symlink_to("0.9")
    assert locate("pyg", Path("dist")).name == "pyg:1.0"
    assert locate("pyg:mine", Path("dist")).path == Path("dist/pyg/mine/oci")
    with pytest.raises(UsageError, match="no image 'glt'"):
        locate("glt", Path("dist"))


@pytest.mark.parametrize(
    ("ref", "step"),
    [
        ("pyg:none", "make image CUDA=11.8"),
        ("torch:cu128", "make image STACK=torch CUDA=12.8"),
        ("glt:cu121", "make image STACK=glt CUDA=12.1"),
        ("torch:cpu", "make image STACK=torch CUDA=cpu"),
        ("mine:1", "make image STACK=mine"),
        ("A/b:c", "make image CUDA=11.8"),
    ],
)
def test_missing_image_has_the_command_that_builds_what_its_name_says(ref, step, tmp_path):
    with pytest.raises(UsageError, match="there is no image") as caught:
        locate(ref, tmp_path)
    assert caught.value.next_step.partition("    ")[0] == step
