"""The meaning of layers: unpacked, as a squashfs and checked, compared with tables and with a simple model."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcrate.artifacts.tree.layers import read_layout
from graphcrate.model.errors import LayoutError
from graphcrate.oci.validate import Validation, validate
from tests.unit import tars
from tests.unit.artifacts.test_merged import as_model, squash
from tests.unit.artifacts.test_rootfs import tree, unpacked
from tests.unit.artifacts.test_tree_readers import tools_in
from tests.unit.small_layouts import layout
from tests.unit.tars import file, folder, hardlink, symlink

#: layers, lowest first → the image's tree: path → content of a file, target of a link, None for a folder
MEANING = {
    "whiteouts remove files, folders and links of layers below only": (
        [
            [file("a"), file("d/e/f"), symlink("l", "d"), file("keep", b"k")],
            [file(".wh.a"), file(".wh.d"), file(".wh.l"), file(".wh.never"), file("d/new", b"n"), file("gone/.wh.x")],
        ],
        {"d": None, "d/new": b"n", "keep": b"k"},
    ),
    "an opaque folder, marked last": (
        [[file("d/old"), file("d/sub/old"), file("k", b"k")], [folder("d"), file("d/n", b"n"), file("d/.wh..wh..opq")]],
        {"d": None, "d/n": b"n", "k": b"k"},
    ),
    "an opaque root": ([[file("a/b"), folder("c")], [file(".wh..wh..opq"), file("new", b"n")]], {"new": b"n"}),
    "a file becomes a folder, and a folder a file or a link": (
        [
            [file("a"), file("b/c"), symlink("l", "b"), folder("m/n")],
            [folder("a"), file("a/x", b"x"), file("b", b"b"), folder("l"), file("l/y", b"y"), symlink("m", "b")],
        ],
        {"a": None, "a/x": b"x", "b": b"b", "l": None, "l/y": b"y", "m": "b"},
    ),
    "leading slashes of links, long names, other letters": (
        [
            [folder("./"), folder("./bin/"), file("./bin/sh", b"s"), symlink("sbin", "bin")],
            [file("bin/.wh.sh"), file("bin/bash", b"b"), hardlink("bin/dash", "/bin/bash")],
            [file("a" * 200 + "/" + "b" * 150, b"long"), file("ünï", b"u")],
        ],
        {
            "bin": None,
            "bin/bash": b"b",
            "bin/dash": b"b",
            "sbin": "bin",
            "a" * 200: None,
            "a" * 200 + "/" + "b" * 150: b"long",
            "ünï": b"u",
        },
    ),
}
OUT = "/outside"  #: the tests' own folder takes its place
NO_OWNERS = ((1 << 32) - 1, 1 << 32, 1 << 70, -1)
#: layers, lowest first, and what is said of them
REFUSED = [
    ([[file("../evil")]], "leaves the root"),
    ([[file("a/../../b")]], "leaves the root"),
    ([[file("/etc/passwd")]], "absolute"),
    *(([[file("a", **{owner: number})]], "a is owned by ") for owner in ("uid", "gid") for number in NO_OWNERS),
    ([[file("a", pax_headers={"size": "-5"})]], "a has a size of -5 bytes"),
    ([[symlink("a", "b", uid=1 << 40)]], "a is owned by "),
    ([[file("a", pax_headers={"mtime": "1e300"})]], "a has no valid time"),
    ([[file("a", pax_headers={"mtime": "nan"})]], "a has no valid time"),
    ([[file("a"), file("a")]], "in it twice"),
    ([[folder("a"), folder("./a/")]], "in it twice"),
    ([[file("a"), file("a/b")]], "is below a"),
    ([[symlink("a", "/"), file("a/b/c")]], "is below a"),
    ([[symlink("l", OUT), file("l/evil")]], "is below l"),
    ([[symlink("l", OUT)], [file("l/evil")]], "files below l"),
    ([[symlink("l", OUT)], [file("l/sub/evil")]], "files below l"),
    ([[file("a/b"), file("a")]], "is a folder and no folder"),
    ([[file("./")]], "is a folder and no folder"),
    ([[symlink("l", OUT)], [hardlink("x", "l/secret")]], "hard link to l/secret, which is not a file"),
    ([[hardlink("x", "../secret")]], "leaves the root"),
    ([[hardlink("a", "b")]], "hard link to b, which is not a file"),
    ([[hardlink("a", "a")]], "hard link to a, which is not a file"),
    ([[hardlink("a", "b")], [file("b")]], "hard link to b, which is not a file"),
    ([[file("a")], [file(".wh.a"), hardlink("x", "a")]], "hard link to a, which is not a file"),
    ([[file("a")], [hardlink("x", "a/b")]], "hard link to a/b"),
    ([[folder("a")], [hardlink("x", "a")]], "hard link to a"),
    ([[hardlink("x", ".wh.y")]], "hard link to .wh.y"),
    ([[file(".wh.y"), hardlink("x", ".wh.y")]], "hard link to .wh.y"),
    ([[file(".wh.")]], "removes nothing"),
    ([[file(".wh...")]], "removes nothing"),
]
#: what only those refuse that take more from a layer than names
OVERLAPPING = {"GNU.sparse.map": "0,4,2,4", "GNU.sparse.size": "8", "GNU.sparse.name": "x"}
REFUSED_IN_DETAIL = [
    ([[tars.entry("x", b"Z")], []], "unknown type"),
    ([[file("x", mtime=1e30)]], "time"),
    ([[file("x", b"datadata", pax_headers=OVERLAPPING)]], "map does not fit"),
]
NAMES = ("a", "b", "c")
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
operations = st.tuples(st.sampled_from(["file", "folder", "symlink", "hardlink", "whiteout", "opaque"]), paths, paths)


def parents(path):
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


class Model:
    """The meaning of layers by the image specification: plain dictionaries."""

    def __init__(self):
        self.tree = {}
        self.contents = 0

    def drop(self, path):
        for known in [name for name in self.tree if name == path or name.startswith(f"{path}/")]:
            del self.tree[known]

    def layer(self, drawn):
        """Keep the operations that make a well-formed layer, apply them, and return its entries."""
        lower = dict(self.tree)
        added, marks, entries, implied, linked = {}, [], [], set(), set()
        for kind, path, other in drawn:
            # What a hard link of this layer needs from below stays.
            if any(path == target or (kind != "folder" and target.startswith(f"{path}/")) for target in linked):
                continue
            if kind in ("whiteout", "opaque"):
                where = path.rpartition("/")[0] if kind == "whiteout" else path
                above = [*parents(where), where] if where else []
                if any(added.get(p, ("folder",))[0] != "folder" or lower.get(p, ("",))[0] != "folder" for p in above):
                    continue
                name = path.rpartition("/")[2]
                entry = f"{where}/.wh.{name}".lstrip("/") if kind == "whiteout" else f"{path}/.wh..wh..opq"
                if (kind, path) not in marks:
                    marks.append((kind, path))
                    entries.append(file(entry, b""))
                    implied.update(above)
                continue
            if path in added or any(added.get(p, ("folder",))[0] != "folder" for p in parents(path)):
                continue
            if path in implied and kind != "folder":
                continue
            # Neither may a folder without an entry hide something else below it.
            if any(p not in added and lower.get(p, ("folder",))[0] != "folder" for p in parents(path)):
                continue
            if kind == "hardlink":
                target = added.get(other, lower.get(other, ("",)))
                removed = any(other == mark or other.startswith(f"{mark}/") for _, mark in marks)
                inside = other == path or other.startswith(f"{path}/") or path.startswith(f"{other}/")
                replaced = any(added.get(p, ("folder",))[0] != "folder" for p in parents(other))
                if target[0] not in ("file", "symlink") or removed or inside or replaced:
                    continue
                if other not in added:
                    linked.add(other)
                    added[other + "\0"] = target
            entries.append(self.entry(kind, path, other, added))
            implied.update(parents(path))
        self.apply(added, marks)
        return entries

    def entry(self, kind, path, other, added):
        if kind == "folder":
            mode = (0o755, 0o700, 0o775)[len(path) % 3]
            added[path] = ("folder", mode)
            return folder(path, mode=mode)
        if kind == "symlink":
            added[path] = ("symlink", other)
            return symlink(path, other)
        if kind == "hardlink":
            added[path] = added.pop(other + "\0", None) or added[other]
            return hardlink(path, other)
        self.contents += 1
        added[path] = ("file", str(self.contents).encode())
        return file(path, added[path][1])

    def apply(self, added, marks):
        for kind, path in marks:
            if kind == "whiteout":
                self.drop(path)
            else:
                for known in [name for name in self.tree if name.startswith(f"{path}/")]:
                    del self.tree[known]
        for path, node in added.items():
            for parent in parents(path):
                self.tree.setdefault(parent, ("folder", 0o755))
            if node[0] != "folder" or self.tree.get(path, ("folder",))[0] != "folder":
                self.drop(path)
            self.tree[path] = node


def meanings(place, *layers):
    """Each reader's tree of them, as `Model.tree` has it."""
    written = layout(place / "layout", *layers)
    assert validate(written) == Validation()
    kinds = {"link": "symlink"}
    yield {name: (kinds.get(value[0], value[0]), value[1]) for name, value in tree(unpacked(place, *layers)).items()}
    yield as_model(squash(place, written)[0])
    with tools_in(place, keep=lambda path, size: True) as tools:
        opened = read_layout("x", written, tools)
        values = {"folder": lambda _, entry: entry.mode, "symlink": lambda _, entry: entry.link}
        yield {
            path[1:]: (entry.kind, values.get(entry.kind, lambda path, _: opened.read(path))(path, entry))
            for path, entry in opened.entries.items()
            if path != "/"
        }


@settings(max_examples=2 * settings.default.max_examples // 5, deadline=None)  # of several layers each
@given(st.lists(st.lists(operations, max_size=8), min_size=1, max_size=5))
def test_random_layers_unpack_as_the_oci_model_says(tmp_path_factory, drawn):
    model = Model()
    layers = [model.layer(operations) for operations in drawn]
    for found in meanings(tmp_path_factory.mktemp("model"), *layers):
        assert found == model.tree


@pytest.mark.parametrize("case", MEANING)
def test_layer_cases_have_one_meaning_for_all_readers(tmp_path, case):
    layers, meaning = MEANING[case]
    for found in meanings(tmp_path, *layers):
        assert {path: None if value[0] == "folder" else value[1] for path, value in found.items()} == meaning


@pytest.mark.parametrize(("layers", "message"), [*REFUSED, *REFUSED_IN_DETAIL])
def test_hostile_layers_are_refused_by_all_readers_and_leave_nothing(tmp_path, layers, message):
    out, work, layers = tmp_path / "outside", tmp_path / "work", copy.deepcopy(layers)
    out.mkdir()
    work.mkdir()
    (out / "secret").write_text("secret")
    for member, _ in (entry for layer in layers for entry in layer):
        member.linkname = member.linkname.replace(OUT, str(out))
    with pytest.raises(LayoutError, match=message):
        unpacked(work, *layers)
    assert [path for path in work.iterdir() if path.is_dir()] == []
    assert [path.name for path in out.iterdir()] == ["secret"]
    if message not in [message for _, message in REFUSED_IN_DETAIL]:
        written = layout(tmp_path / "layout", *layers)
        assert any(message in fault for fault in validate(written).faults)
        with tools_in(tmp_path) as tools:
            assert message in read_layout("x", written, tools).broken.what
