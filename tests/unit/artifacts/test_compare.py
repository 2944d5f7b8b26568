"""Trees are compared in every aspect; what may differ is listed, and nothing else may."""

import dataclasses
import importlib.util
import itertools

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from graphcrate.artifacts.tree import compare
from graphcrate.artifacts.tree.compare import ALLOWANCES, AllowedDifference, Difference, differences, judge_differences
from graphcrate.artifacts.tree.reader import OpenedTree
from graphcrate.model.contract import Settings
from graphcrate.model.tree import Entry

SITE = "/opt/venv/lib/python3.11/site-packages"
HASHES = ["0" * 64, "1" * 64]
names = st.sampled_from(["/a", "/b", "/b/c", "/b-c", "/b/c/d", "/opt/venv/bin/pip", "/caf\udce9"])
attributes = (st.sampled_from([0o644, 0o755, 0o4755]), *(st.sampled_from([0, 8]),) * 2)  # mode, uid, gid
entries = st.one_of(
    st.builds(Entry, st.just("file"), *attributes, st.just(3), st.sampled_from(HASHES)),
    st.builds(Entry, st.just("folder"), *attributes),
    st.builds(Entry, st.just("symlink"), *attributes, st.just(0), st.just(""), names),
)
trees = st.builds(
    OpenedTree,
    name=st.just("x"),
    form=st.sampled_from(["layout", "docker", "folder"]),
    entries=st.dictionaries(names, entries),
    owners=st.booleans(),
    settings=st.none() | st.builds(Settings, environment=st.sampled_from([(), ("A=1",)]), user=st.sampled_from("ab")),
    read=st.just({}.__getitem__),
)


def tree(form="layout", contents=None, **more):
    """A tree of these `entries`. None but these contents may be read."""
    return OpenedTree(name=form, form=form, read=(contents or {}).__getitem__, **more)


@given(trees, trees)
def test_equal_trees_have_no_differences(one, other):
    owned = {} if one.owners and other.owners else {"uid": 0, "gid": 0}
    seen, others = (
        {path: msgspec.structs.replace(entry, **owned) for path, entry in tree.entries.items()} for tree in (one, other)
    )
    same_settings = None in (one.settings, other.settings) or one.settings == other.settings
    assert (not list(differences(one, other))) == (seen == others and same_settings)
    assert judge_differences(one, one, ALLOWANCES).unexpected == ()


@given(trees, st.data())
def test_changed_tree_entry_is_found_at_its_path(one, data):
    assume(one.entries)
    path = data.draw(st.sampled_from(sorted(one.entries)))
    entry = one.entries[path]
    changes = {"mode": {"mode": entry.mode ^ 0o022}, "owner": {"gid": entry.gid + 1}, "kind": {"kind": "fifo"}}
    changes |= {"content": {"sha256": "2" * 64}} if entry.kind == "file" else {}
    aspect = data.draw(st.sampled_from(["only in the first", *changes]))
    changed = {path: msgspec.structs.replace(entry, **changes[aspect])} if aspect in changes else {}
    rest = {other: kept for other, kept in one.entries.items() if other != path}
    found = differences(one, dataclasses.replace(one, entries={**rest, **changed}))
    seen = [] if aspect == "owner" and not one.owners else [(path, aspect)]
    assert [(difference.path, difference.aspect) for difference in found] == seen


def test_difference_patterns_match_globs():
    for pattern, covered, others in (
        ("/dev/*", ["/dev/null"], ["/dev/pts/0"]),
        ("/x/**", ["/x/y/z"], ["/x", "/xy/z"]),
        ("/x/**/*.pyc", ["/x/a.pyc", "/x/y/z/a.pyc"], ["/x/y/z/a.py"]),
        ("/a.b", ["/a.b"], ["/aXb"]),
        ("/pip3.*", ["/pip3.11\n"], ["/pip3"]),
    ):
        assert list(filter(compare.compiled((pattern,)).fullmatch, [*covered, *others])) == covered


BYTECODE = importlib.util.MAGIC_NUMBER + b"\1\0\0\0source!!"
HUB = f"{SITE}/torch/__pycache__/hub.cpython-311.pyc"
INFO = f"{SITE}/six-1.17.0.dist-info"
BIN = "/opt/venv/bin"


def unexpected(path, aspect, form="docker", contents=(b"", b""), size=1):
    """The forbidden part of one difference between a layout and such an artifact."""
    file = Entry("file", 0o644, size=size, sha256=HASHES[0])
    change = {"mode": {"mode": 0o755}, "content": {"sha256": HASHES[1]}, "kind": {"kind": "device"}, "absent": {}}[
        aspect
    ]
    others = {} if aspect == "absent" else {path: msgspec.structs.replace(file, **change)}
    one, two = ({path: content} for content in contents)
    second = tree(form, two, entries=others)
    return judge_differences(tree(contents=one, entries={path: file}), second, ALLOWANCES).unexpected


MAY = (
    *(("/.singularity.d/labels.json", "absent", "sif"), ("/environment", "absent", "sif")),
    *(("/etc/resolv.conf", "content", "sif"), ("/etc/hosts", "absent", "podman"), ("/dev/null", "kind", "sif")),
    *(
        (f"{INFO}/INSTALLER", "content"),
        (f"{INFO}/RECORD", "content"),
        (f"{INFO}/REQUESTED", "absent"),
        (f"{BIN}/pip3.11", "absent"),
    ),
)
MAY_NOT = (
    *(("/etc/resolv.conf", "content"), ("/dev/null", "absent")),  # nobody but Apptainer and podman touches it
    *((f"{SITE}/torch/hub.py", "content"), (HUB, "absent"), (HUB, "mode"), (f"{INFO}/RECORD", "absent")),
    *((f"{INFO}/METADATA", "content"), (f"{BIN}/torchrun", "absent"), ("/opt/venv/.lock", "absent")),
)


@pytest.mark.parametrize("difference", [*MAY, *MAY_NOT])
def test_difference_is_allowed_only_for_its_path_aspect_and_form(difference):
    assert (not unexpected(*difference)) is (difference in MAY)


HEAD = b"#!/opt/venv/bin/python\n%simport sys\nfrom tqdm.cli import main\nif __name__ == %s__main__%s:\n"
OURS = HEAD % (b"# -*- coding: utf-8 -*-\nimport re\n", b'"', b'"')
OURS += b"""    sys.argv[0] = re.sub(r"(-script\\.pyw|\\.exe)?$", "", sys.argv[0])\n    sys.exit(main())\n"""
PIPS = HEAD % (b"", b"'", b"'") + b"    sys.argv[0] = sys.argv[0].removesuffix('.exe')\n    sys.exit(main())\n"
UVS = HEAD % (b"# -*- coding: utf-8 -*-\n", b'"', b'"')
UVS += b"""    if sys.argv[0].endswith("-script.pyw"):
        sys.argv[0] = sys.argv[0][:-11]
    elif sys.argv[0].endswith(".exe"):
        sys.argv[0] = sys.argv[0][:-4]
    sys.exit(main())
"""
#: path → contents that say the same, and what may not take the place of what in the last
WORDED = {
    HUB: (
        (BYTECODE + b"N", BYTECODE + b"\xce"),  # other reference marks
        # of another source; by another Python; no code
        [(b"e!!", b"e!?"), (BYTECODE[:4], b"\x55\r\r\n"), (b"\xce", b"")],
    ),
    f"{BIN}/tqdm": (
        (OURS, PIPS, UVS),
        [
            (b"/opt/venv/bin/python", b"/usr/bin/python"),
            (b"tqdm.cli", b"tqdm.cl"),
            (b"import main", b"import main2"),
            (b"main())", b"main.run())"),
            (b"import sys\n", b"import sys\nimport os\n"),
            (b"    sys.exit", b"    print()\n    sys.exit"),
            (b"[:-4]", b"[:-4] + evil()"),
            (b"sys.exit(main())\n", b"sys.exit(main())\nmain()\n"),
        ],
    ),
}


@pytest.mark.parametrize("path", WORDED)
def test_worded_files_may_differ_in_wording_only(path):
    same, changes = WORDED[path]
    for contents in itertools.pairwise(same):
        assert not unexpected(path, "content", contents=contents)
    assert unexpected(path, "content", contents=same[:2], size=1 << 25), "too large to be looked at"
    for old, new in changes:
        assert old in same[-1]
        assert unexpected(path, "content", contents=(same[0], same[-1].replace(old, new)))


def test_malformed_worded_files_are_compared_by_bytes():
    forms = {HUB: (b"", BYTECODE), f"{BIN}/tqdm": (b"\xff", b"#!/bin/sh\necho 1\n")}
    for path, contents in forms.items():
        for content in contents:
            assert unexpected(path, "content", contents=(content, content)), (path, content)


def test_compare_keeps_contents_of_small_worded_files():
    kept = {HUB: 5, f"{BIN}/tqdm": 300}
    others = {f"{INFO}/RECORD": 5, f"{BIN}/ninja": 300_000, "/a/b.py": 5}
    assert [path for path, size in (kept | others).items() if compare.is_kept(path, size)] == list(kept)
    assert not compare.is_kept(HUB, 1 << 25)
    assert [len(compare.distil(path, 27, [b"0" * 9] * 3)) for path in kept] == [17, 27]


def test_settings_known_to_both_trees_are_compared():
    one = tree(entries={}, settings=Settings(environment=("A=1",), labels={"io.buildah.version": "1.28"}, user="me"))
    other = tree("podman", entries={}, settings=Settings(environment=("A=2",), working_folder="/"))
    comparison = judge_differences(one, other, ALLOWANCES)
    variable = Difference("environment A", "setting", "'1'", "'2'")
    assert comparison.unexpected == (variable, Difference("user", "setting", "'me'", ""))
    assert [difference.path for _, (difference,) in comparison.allowed] == ["label io.buildah.version"]
    assert comparison.compared == ("owners", "settings")
    assert judge_differences(one, tree(entries={}), ()).compared == ("owners",)


WORDS = """\
first   layout, 3 paths
second  docker, 1 paths
compared: paths, kinds, modes, contents, links, owners

only in the first: /b (folder and 1 below it)
only in the second: /new\\x1b[31m\\xe9 (symlink to x)

what may differ:
     1 because
       only in the first: /b-c (fifo)"""


def test_comparison_lines_escape_paths_and_name_allowances():
    one = tree(entries={"/b": Entry("folder", 0o755), "/b-c": Entry("fifo", 0o600), "/b/c": Entry("fifo", 0o600)})
    other = tree("docker", entries={"/new\x1b[31m\udce9": Entry("symlink", 0o777, link="x")})
    allowance = AllowedDifference(reason="because", patterns=("/b-c",), aspects=("only in the first",))
    comparison = judge_differences(one, other, (allowance,))
    assert "\n".join(compare.lines(comparison, everything=True)) == WORDS
    assert compare.summary(comparison) == "3 differences: 2 only in the first, 1 only in the second"
    assert list(compare.lines(judge_differences(one, one, ())))[-1] == "identical"
    without = tree(entries={path: entry for path, entry in one.entries.items() if path != "/b-c"})
    told = list(compare.lines(judge_differences(one, without, (allowance,))))
    assert told[-2:] == ["equal but for what may differ:", "     1 because"]
