"""Layers that every reader has to understand alike, and layers that every reader has to refuse, in the same words."""

import copy

from tests.unit import tars
from tests.unit.tars import file, folder, hardlink, symlink

#: layers, lowest first → the image's tree: path → content of a file, target of a link, None for a folder
MEANING = {
    "layers lie over each other": (
        [
            [
                folder("etc"),
                file("etc/a", b"1"),
                file("etc/b", b"1"),
                symlink("lib", "usr/lib"),
                file("usr/lib/x", b"x"),
            ],
            [file("etc/b", b"2"), file("etc/c", b"2")],
            [file("etc/c", b"3"), file("opt/d", b"3")],
        ],
        {
            "etc": None,
            "etc/a": b"1",
            "etc/b": b"2",
            "etc/c": b"3",
            "lib": "usr/lib",
            "opt": None,
            "opt/d": b"3",
            "usr": None,
            "usr/lib": None,
            "usr/lib/x": b"x",
        },
    ),
    "whiteouts remove files, folders and links of layers below only": (
        [
            [file("a"), file("d/e/f"), symlink("l", "d"), file("keep", b"k")],
            [file(".wh.a"), file(".wh.d"), file(".wh.l"), file(".wh.never"), file("d/new", b"n"), file("gone/.wh.x")],
        ],
        {"d": None, "d/new": b"n", "keep": b"k"},
    ),
    "an opaque folder, marked first": (
        [[file("d/old"), file("d/sub/old"), file("k", b"k")], [folder("d"), file("d/.wh..wh..opq"), file("d/n", b"n")]],
        {"d": None, "d/n": b"n", "k": b"k"},
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
    "a hard link to a symbolic link links the link": (
        [[symlink("l", "/etc/passwd"), hardlink("m", "l")], [hardlink("n", "l")]],
        dict.fromkeys("lmn", "/etc/passwd"),
    ),
    "hard links to layers below outlive their target": (
        [
            [file("a", b"1"), hardlink("d/b", "a"), hardlink("c", "./d/b")],
            [hardlink("e", "/a"), hardlink("f", "e")],
            [file("a", b"2")],
        ],
        {"a": b"2", "c": b"1", "d": None, "d/b": b"1", "e": b"1", "f": b"1"},
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
_OUT = "/outside"  #: the tests' own folder takes its place
#: layers, lowest first, and what is said of them
REFUSED = [
    ([[file("../evil")]], "leaves the root"),
    ([[file("a/../../b")]], "leaves the root"),
    ([[file("/etc/passwd")]], "absolute"),
    ([[file("a"), file("a")]], "in it twice"),
    ([[folder("a"), folder("./a/")]], "in it twice"),
    ([[file("a"), file("a/b")]], "lies below a"),
    ([[symlink("a", "/"), file("a/b/c")]], "lies below a"),
    ([[symlink("l", _OUT), file("l/evil")]], "lies below l"),
    ([[symlink("l", _OUT)], [file("l/evil")]], "files below l"),
    ([[symlink("l", _OUT)], [file("l/sub/evil")]], "files below l"),
    ([[file("a/b"), file("a")]], "is a folder and no folder"),
    ([[file("./")]], "is a folder and no folder"),
    ([[symlink("l", _OUT)], [hardlink("x", "l/secret")]], "hard link to l/secret, which is not a file"),
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
_OVERLAPPING = {"GNU.sparse.map": "0,4,2,4", "GNU.sparse.size": "8", "GNU.sparse.name": "x"}
REFUSED_IN_DETAIL = [
    ([[tars.entry("x", b"Z")], []], "unknown type"),
    ([[file("x", mtime=1e30)]], "time"),
    ([[file("x", b"datadata", pax_headers=_OVERLAPPING)]], "map does not fit"),
]


def pointing(layers, outside):
    """The layers with links to this folder."""
    return [[(_pointing(member, outside), content) for member, content in layer] for layer in layers]


def _pointing(member, outside):
    member = copy.copy(member)
    member.linkname = member.linkname.replace(_OUT, str(outside))
    return member
