"""An image as its difference to another: an overlay of the two shows it whole."""

import dataclasses
import tarfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.artifacts import origin
from graphcrate.artifacts.formats.delta import WHITEOUT, Side, difference
from graphcrate.artifacts.formats.merged import Addition, with_additions
from graphcrate.artifacts.locate import locate
from graphcrate.artifacts.origin import OVER
from graphcrate.artifacts.tree import opening
from graphcrate.artifacts.tree.reader import Selection, Tools
from graphcrate.engines.trials.artifact import open_by
from graphcrate.model.errors import CacheError, LayoutError, UsageError
from graphcrate.oci.layout import read_layout
from graphcrate.render import job_image, jobs
from graphcrate.render.job import Job
from sifsquash import writer
from sifsquash.squashfs import Squashfs
from sifsquash.values import Compression, Inode, Stored
from tests.made import refused
from tests.unit import small_layouts
from tests.unit.artifacts.test_convert import PLACE, converted
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


@given(trees(), trees())
def test_the_difference_of_layers_made_anew_shows_the_image_by_files_that_changed(base, image):
    """`start` stands for the content here, as if it were compared."""
    changed = difference(Side(base, ["x"]), Side(image, ["y"]), lambda old, new: old.stored == new.stored)
    assert overlaid(base, changed) == image
    assert changed.keys() == difference(Side(base, ["x"]), Side(image, ["x"])).keys()


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
    assert content[OVER] == f"pyg:{base.tag}@{base.digest}\n".encode()
    assert base.digest[7:] in content[".singularity.d/env/00-over.sh"].decode()
    assert f".singularity.d/layouts/{base.digest[7:]}" not in entries, "its base's mark shows"
    first = (images / "dist/pyg/1.0-mine/pyg.delta.sqsh").read_bytes()
    converted(images, "delta", ref="pyg:1.0-mine", over="pyg:1.0", force=True)
    assert (images / "dist/pyg/1.0-mine/pyg.delta.sqsh").read_bytes() == first


LARGE, SMALL = bytes(range(256)) * 2000, b"".join(b"%d" % number for number in range(9000))


@pytest.mark.parametrize("compression", list(Compression))
def test_delta_of_a_layer_that_was_made_anew_has_its_changed_files_alone(tmp_path, monkeypatch, compression):
    """As where a package of the stack is replaced: the layer that it is in has many others."""
    same = [
        file("large", LARGE),
        file("small", SMALL),
        file("z", b"z"),
        folder("kept"),
        file("kept/zeros", bytes(600_000)),
    ]
    changed = [file("large", LARGE, mode=0o755), file("small", SMALL[1:] + b"x")]
    for tag, entries in (("1.0", same), ("1.0-mine", [*changed, file("a", b"a"), *same[2:]])):
        small_layouts.layout(
            tmp_path / "dist" / "pyg" / tag, entries, labels={"org.opencontainers.image.title": "pyg"}, tag=tag
        )
    monkeypatch.chdir(tmp_path)
    converted(tmp_path, "delta", ref="pyg:1.0-mine", over="pyg:1.0", compression=compression)
    with Squashfs(tmp_path / "dist/pyg/1.0-mine/pyg.delta.sqsh") as squashed:
        there = {path.lstrip("/") for path, entry, _ in squashed.entries() if entry.kind == "file"}
        content = squashed.content("/small")
    assert {path for path in there if not path.startswith(".singularity.d")} == {"large", "small", "a"}
    assert content == SMALL[1:] + b"x"


@pytest.mark.parametrize("compression", list(Compression))
def test_damaged_blocks_of_a_base_are_an_error_and_no_difference(tmp_path, compression):
    entries = [file("large", LARGE), file("small", SMALL)]
    for tag, more in (("1.0", []), ("1.0-mine", [file("a", b"a")])):
        small_layouts.layout(tmp_path / "dist" / "pyg" / tag, [*entries, *more], tag=tag)
    converted(tmp_path, "sqsh", ref="pyg:1.0", compression=compression)
    (data,) = tmp_path.glob("**/squashed/*/data")
    whole = data.read_bytes()
    data.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CacheError, match="damaged, and is removed"):
        converted(tmp_path, "delta", ref="pyg:1.0-mine", over="pyg:1.0", compression=compression)
    assert not (tmp_path / "dist/pyg/1.0-mine/pyg.delta.sqsh").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "pyg.delta.sqsh: zstd, for FUSE"),
        ({"kernel": "3.10"}, "pyg.delta.sqsh: gzip: Linux mounts zstd from 4.14 on, and this is 3.10"),
    ],
)
def test_delta_says_its_compression_and_why_in_one_line(images, monkeypatch, more, words):
    notes = []
    monkeypatch.setattr(PLACE.progress, "note", notes.append)
    converted(images, "delta", ref="pyg:1.0-mine", over="pyg:1.0", **more)
    assert [note.startswith(words) for note in notes] == [True], notes


def test_delta_for_a_kernel_that_does_not_mount_its_sif_is_refused(images):
    sif = converted(images, "sif", ref="pyg:1.0").path
    wanted = {"ref": "pyg:1.0-mine", "over": str(sif), "kernel": "3.10"}
    again = f"convert pyg:1.0 --to sif --force --output {sif} --kernel 3.10"
    with refused(UsageError, f"Linux 3.10 does not mount {sif}", "zstd") as caught:
        converted(images, "delta", **wanted)
    assert sorted(again.split()) == sorted(caught.value.next_step.partition("    ")[0].split()[1:])
    converted(images, "sif", ref="pyg:1.0", kernel="3.10", force=True)
    assert converted(images, "delta", **wanted).compression == "gzip"


def test_delta_over_a_sif_finds_the_layout_beside_it(images):
    sif = converted(images, "sif", ref="pyg:1.0").path
    link = images / "pyg.sif"
    link.symlink_to(sif)
    shown = images / "pyg.delta.sqsh"
    result = converted(images, "delta", ref="pyg:1.0-mine", over=str(link), link=shown)
    assert result.size < 20_000
    assert result.start == f"singularity run --nv --overlay {shown}:ro {link} python train.py"
    result = converted(images, "delta", ref="pyg:1.0-mine", over="pyg:1.0", force=True)
    assert result.start == f"singularity run --nv --overlay {result.path}:ro {sif} python train.py", "typed from here"


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ("", ("needs the image that it is to", "--over pyg.sif")),
        ("pyg:2.0", ("the layout that pyg:2.0 was made of is not here", "--over NAME:TAG")),
        ("pyg:1.0-mine", ("is that image itself",)),
        ("alone.sif", ("is that image itself",)),
        ("dist/pyg/1.0/other.sif", ("is that image itself",)),
        ("gone.sif", ("the layout that gone.sif was made of is not here", "--over NAME:TAG")),
        ("foreign.sif", ("does not say which image it was made of", "--over NAME:TAG")),
    ],
)
def test_delta_to_what_is_no_base_is_refused_before_anything_is_written(images, monkeypatch, over, words):
    monkeypatch.chdir(images)
    other = converted(images, "sif", ref="pyg:1.0-mine").path
    for name in ("alone.sif", "dist/pyg/1.0/other.sif"):
        (images / name).write_bytes(Path(other).read_bytes())
    (images / "gone.sif").write_bytes(Path(other).read_bytes().replace(b"From: pyg", b"From: gyp"))
    (images / "foreign.sif").write_bytes(b"foreign")
    with refused(UsageError, *words):
        converted(images, "delta", ref="pyg:1.0-mine", over=over)
    assert not (images / "dist/pyg/1.0-mine/pyg.delta.sqsh").exists()


@pytest.fixture
def pair(images):
    """A delta in a folder of its own, and its base's SIF, which is in none of those that are looked through."""
    base, delta, alone = images / "site" / "any.sif", images / "mine" / "pyg.delta.sqsh", images / "whole.sif"
    for path in (base, delta):
        path.parent.mkdir()
    converted(images, "sif", ref="pyg:1.0", output=base)
    converted(images, "sif", ref="pyg:1.0-mine", output=alone)
    converted(images, "delta", ref="pyg:1.0-mine", over=str(base), output=delta)
    return base, delta, alone


@pytest.mark.parametrize("place", ["beside", "bases", "named", "dist"])
def test_base_of_a_delta_is_found_by_its_digest(pair, images, place):
    base, delta, alone = pair
    (delta.parent / "pyg.sif").write_bytes(alone.read_bytes())  # another image by the likeliest name
    environment = {}
    if place == "named":
        environment = {origin.BASES: f"/nowhere:{base.parent}"}
    elif place == "dist":
        delta = delta.rename(images / "dist" / "pyg" / "1.0-mine" / "x.sqsh")
        base = base.rename(images / "dist" / "pyg" / "1.0" / "any.sif")
    else:
        folder = delta.parent / ("bases" if place == "bases" else "")
        folder.mkdir(exist_ok=True)
        base = base.rename(folder / "any.sif")
    assert locate(str(delta), images / "dist").form == "delta"
    assert origin.base_of(delta, environment) == base


def test_delta_without_its_base_is_refused_with_the_command_that_makes_it(pair, images):
    _, delta, alone = pair
    (delta.parent / "pyg.sif").write_bytes(alone.read_bytes())
    digest = read_layout(images / "dist/pyg/1.0/oci").digest
    words = ("goes over pyg:1.0, of which no SIF is here", "pyg.sif there: of other images")
    with refused(UsageError, *words, f"convert pyg:1.0@{digest} --to sif", "GRAPHCRATE_BASES=FOLDER"):
        origin.base_of(delta, {})


def test_delta_whose_path_would_part_apptainers_options_is_refused(pair):
    base, delta, _ = pair
    strange = delta.rename(delta.with_name("a:b.sqsh"))
    with refused(UsageError, "cannot be mounted over an image: ':'"):
        origin.base_of(strange, {origin.BASES: str(base.parent)})


@pytest.mark.parametrize("text", [b"pyg", b"pyg@sha256:5", f"../x@sha256:{'5' * 64}\n".encode(), b"a b@sha256:\n"])
def test_delta_with_strange_words_about_its_base_is_a_layout_error(images, text):
    path = images / "x.sqsh"
    tree = {"": made("folder", 0)}
    tree = with_additions(tree, [Addition(OVER, 0o644, text)], 1)
    with path.open("xb") as stream:
        writer.write(stream, tree, (), Compression.GZIP, 1, lambda _: None)
    assert origin.is_delta(path)
    with refused(LayoutError, "does not say which image it goes over"):
        origin.base_of(path, {})


def test_tree_of_a_pair_is_the_image_s(pair, ctx, images):
    base, delta, alone = pair
    environment = {**ctx.environment, origin.BASES: str(base.parent)}
    with ExitStack() as stack:
        tools = Tools(dataclasses.replace(ctx, environment=environment), stack, Selection(keep=lambda *_: True))
        shown = opening.opened(str(delta), tools, images / "dist", "all")
        whole = opening.opened(str(alone), tools, images / "dist", "all")
        assert (shown.form, shown.compression) == ("sif", whole.compression)
        own = {path for path in shown.entries if path not in whole.entries}
        assert {path.rpartition("/")[2] for path in own} == {"over", "00-over.sh", base_digest(images)}
        assert {path: shown.entries[path] for path in whole.entries} == dict(whole.entries)
        assert [shown.read(name) for name in ("/new", "/kept")] == [b"n", b"k" * 70_000]


def base_digest(images):
    return read_layout(images / "dist/pyg/1.0/oci").digest[7:]


def test_job_of_a_pair_mounts_the_delta_and_pyxis_is_refused(pair, images):
    base, delta, _ = pair
    environment = {origin.BASES: str(base.parent)}
    image = job_image.find_image(str(delta), "singularity", images / "dist")
    written = jobs.text(
        job_image.on_base(Job(runtime="singularity", name="x", image=image, command="true"), environment)
    )
    assert f"image={base}\n" in written
    assert f'singularity run --nv --overlay {delta}:ro "$image" true' in written
    with refused(UsageError, "over pyg:1.0 alone, and pyxis takes whole images", "convert NAME:TAG --to sqsh"):
        job_image.find_image(str(delta), "pyxis", images / "dist")


def test_runner_of_a_pair_is_apptainer_with_both_files(pair, ctx, images):
    base, delta, _ = pair
    place = dataclasses.replace(ctx, environment={origin.BASES: str(base.parent)})
    runner, artifact = open_by(locate(str(delta), images / "dist"), "auto", place)
    assert (runner, artifact.reference, artifact.overlay) == ("apptainer", str(base), str(delta))
    with refused(UsageError, "embedded cannot open"):
        open_by(locate(str(delta), images / "dist"), "embedded", place)
