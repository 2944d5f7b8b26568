"""An image as its difference to another: an overlay of the two shows it whole."""

import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.artifacts.convert import OVER
from graphcrate.artifacts.formats.delta import WHITEOUT, Side, difference
from graphcrate.model.errors import UsageError
from graphcrate.oci.layout import read_layout
from sifsquash.squashfs import Squashfs
from sifsquash.values import Inode, Stored
from tests.made import refused
from tests.unit import small_layouts
from tests.unit.artifacts.test_convert import converted
from tests.unit.tars import file, folder

NAMES = ("a", "b", "c")


def made(kind, number):
    """A folder, a link or a file, with one of a few contents."""
    if kind == "file":
        return Inode(kind=tarfile.REGTYPE, mode=0o644, size=1, stored=Stored(start=number))
    return Inode(kind={"folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}[kind], mode=0o755, link=str(number))


@st.composite
def trees(draw, depth=3):
    """Paths of a tree with its root."""
    found = {"": made("folder", 0)}

    def grow(above, left):
        for name in draw(st.sets(st.sampled_from(NAMES))):
            path = f"{above}/{name}".lstrip("/")
            kind = draw(st.sampled_from(("file", "link", "folder") if left else ("file", "link")))
            found[path] = made(kind, draw(st.integers(0, 1)))
            if kind == "folder":
                grow(path, left - 1)

    grow("", depth)
    return found


def overlaid(lower, upper):
    """Return the tree that overlayfs shows of an upper folder over a lower one."""
    shown = dict(lower)
    for path in sorted(upper, key=lambda path: path.count("/") + bool(path)):
        inode = upper[path]
        if inode == WHITEOUT or not inode.is_folder:
            for below in [name for name in shown if name == path or name.startswith(f"{path}/")]:
                del shown[below]
        elif path in shown and not shown[path].is_folder:
            del shown[path]
        if inode != WHITEOUT:
            shown[path] = inode
    return shown


@given(trees(), trees())
def test_the_difference_over_the_base_shows_the_image(base, image):
    changed = difference(Side(base, ["x"]), Side(image, ["x"]))
    assert overlaid(base, changed) == image
    for path in changed:
        above = path.rpartition("/")[0]
        assert not path or (above in changed and changed[above].is_folder), "every folder above is there"


@given(trees())
def test_an_image_over_itself_is_no_difference(image):
    assert difference(Side(image, ["x"]), Side(image, ["x"])) == {}


def test_blocks_of_one_place_in_other_layers_are_another_file():
    image = {"": made("folder", 0), "a": made("file", 0)}
    assert sorted(difference(Side(image, ["x"]), Side(image, ["y"]))) == ["", "a"]


@pytest.fixture
def images(tmp_path):
    """A base, and an image of the same layer with another one on top."""
    labels = {"org.opencontainers.image.title": "pyg"}
    common = [
        folder("./", mode=0o755, mtime=3),
        file("kept", b"k" * 70_000),
        file("gone", b"g"),
        folder("old"),
        file("old/x", b"x"),
    ]
    top = [file("new", b"n"), file(".wh.gone", b""), file(".wh.old", b""), file("kept2", b"k")]
    small_layouts.layout(tmp_path / "dist" / "pyg" / "1.0", common, labels=labels)
    small_layouts.layout(tmp_path / "dist" / "pyg" / "1.0-mine", common, top, labels=labels, tag="1.0-mine")
    return tmp_path


def test_delta_has_new_files_and_whiteouts_alone_and_names_its_base(images):
    result = converted(images, "delta", ref="pyg:1.0-mine", over="pyg:1.0")
    assert result.path.endswith("/pyg.delta.sqsh")
    base = read_layout(images / "dist/pyg/1.0/oci")
    with Squashfs(images / "dist/pyg/1.0-mine/pyg.delta.sqsh") as squashed:
        entries = {path.lstrip("/"): (entry, content) for path, entry, content in squashed.entries()}
        content = {path: b"".join(squashed.chunks(content)) for path, (_, content) in entries.items() if content}
    assert {"new", "kept2", "gone", "old"} <= entries.keys()
    assert not {"kept", "old/x"} & entries.keys()
    assert [entries[path][0].link for path in ("gone", "old")] == ["c 0:0", "c 0:0"]
    assert content[OVER] == f"pyg:{base.tag}@{base.digest}\n".encode() if base.tag else content[OVER].endswith(b"\n")
    first = (images / "dist/pyg/1.0-mine/pyg.delta.sqsh").read_bytes()
    converted(images, "delta", ref="pyg:1.0-mine", over="pyg:1.0", force=True)
    assert (images / "dist/pyg/1.0-mine/pyg.delta.sqsh").read_bytes() == first


def test_delta_over_a_sif_finds_the_layout_beside_it(images):
    sif = converted(images, "sif", ref="pyg:1.0").path
    link = images / "pyg.sif"
    link.symlink_to(sif)
    assert converted(images, "delta", ref="pyg:1.0-mine", over=str(link)).size < 20_000


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ("", ("needs the image that it is to", "--over pyg.sif")),
        ("pyg:2.0", ("the layout that pyg:2.0 was made of is not here", "--over NAME:TAG")),
        ("pyg:1.0-mine", ("is that image itself",)),
        ("alone.sif", ("the layout that", "is not here")),
        ("dist/pyg/1.0/other.sif", ("was made of another image than the one beside it",)),
    ],
)
def test_delta_to_what_is_no_base_is_refused_before_anything_is_written(images, monkeypatch, over, words):
    monkeypatch.chdir(images)
    other = converted(images, "sif", ref="pyg:1.0-mine").path
    for name in ("alone.sif", "dist/pyg/1.0/other.sif"):
        (images / name).write_bytes(Path(other).read_bytes())
    with refused(UsageError, *words):
        converted(images, "delta", ref="pyg:1.0-mine", over=over)
    assert not (images / "dist/pyg/1.0-mine/pyg.delta.sqsh").exists()
