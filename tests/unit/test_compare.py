"""Trees are compared in every aspect; what may differ is listed, and nothing else may."""

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from graphcrate.artifacts.tree import wording
from graphcrate.artifacts.tree.allowances import ALLOWANCES
from graphcrate.artifacts.tree.compare import compiled, differences, judge
from graphcrate.model.tree import Allowance, Difference, Entry, Tree

SITE = "/opt/venv/lib/python3.11/site-packages"
HASHES = ["0" * 64, "1" * 64]
names = st.sampled_from(["/a", "/b", "/b/c", "/b-c", "/b/c/d", "/opt/venv/bin/pip", "/caf\udce9"])
modes = st.sampled_from([0o644, 0o755, 0o4755])
ids = st.sampled_from([0, 8])
entries = st.one_of(
    st.builds(Entry, st.just("file"), modes, ids, ids, st.just(3), st.sampled_from(HASHES)),
    st.builds(Entry, st.just("folder"), modes, ids, ids),
    st.builds(Entry, st.just("symlink"), st.just(0o777), ids, ids, st.just(0), st.just(""), names),
)
settings_ = st.one_of(st.none(), st.dictionaries(st.sampled_from(["environment A", "command"]), st.text(max_size=2)))
trees = st.builds(
    Tree,
    name=st.just("x"),
    form=st.sampled_from(["layout", "docker", "folder"]),
    entries=st.dictionaries(names, entries),
    owners=st.booleans(),
    settings=settings_,
)


def tree(form="layout", owners=True, settings=None, **more):
    """A tree of these `entries`."""
    return Tree(name=form, form=form, owners=owners, settings=settings, **more)


def never(form, path):
    raise AssertionError(f"{path} was compared as {form}")


@given(trees, trees)
def test_equal_is_equal_in_everything_that_both_know(one, other):
    same_owners = one.owners and other.owners

    def seen(tree):
        return {
            path: entry if same_owners else msgspec.structs.replace(entry, uid=0, gid=0)
            for path, entry in tree.entries.items()
        }

    assert judge(one, one, ALLOWANCES, never).unexpected == ()
    same_settings = None in (one.settings, other.settings) or one.settings == other.settings
    assert (not list(differences(one, other))) == (seen(one) == seen(other) and same_settings)


@given(trees, st.data())
def test_every_single_change_is_found_where_it_is(one, data):
    assume(one.entries)
    path = data.draw(st.sampled_from(sorted(one.entries)))
    entry = one.entries[path]
    changes = {"mode": {"mode": entry.mode ^ 0o022}, "owner": {"gid": entry.gid + 1}, "kind": {"kind": "fifo"}}
    changes |= {"content": {"sha256": "2" * 64}} if entry.kind == "file" else {}
    aspect = data.draw(st.sampled_from(["only in the first", *changes]))
    other = dict(one.entries)
    del other[path]
    if aspect in changes:
        other[path] = msgspec.structs.replace(entry, **changes[aspect])
    found = list(differences(one, msgspec.structs.replace(one, entries=other)))
    seen = [] if aspect == "owner" and not one.owners else [(path, aspect)]
    assert [(difference.path, difference.aspect) for difference in found] == seen


@given(trees, trees)
def test_lines_can_be_written_and_name_every_path_but_those_in_folders_that_are_missing(one, other):
    comparison = judge(one, other, (), never)
    text = "\n".join(wording.lines(comparison, everything=True))
    text.encode()
    for difference in comparison.unexpected:
        parents = [found.path for found in comparison.unexpected if "folder" in (found.first, found.second)]
        below = any(difference.path.startswith(f"{parent}/") for parent in parents)
        assert below or difference.path in text


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("/dev/*", "/dev/null", True),
        ("/dev/*", "/dev/pts/0", False),
        ("/x/**", "/x", False),
        ("/x/**", "/x/y/z", True),
        ("/x/**", "/xy/z", False),
        ("/x/**/*.pyc", "/x/a.pyc", True),
        ("/x/**/*.pyc", "/x/y/z/a.pyc", True),
        ("/x/**/*.pyc", "/x/y/z/a.py", False),
        ("/a.b", "/aXb", False),
        ("/pip3.*", "/pip3.11\n", True),
        ("/pip3.*", "/pip3", False),
    ],
)
def test_patterns(pattern, path, expected):
    assert bool(compiled((pattern,)).fullmatch(path)) is expected


def unexpected(path, aspect, form, same=lambda *_: True):
    """What is not allowed of one difference between a layout and such an artifact."""
    file = Entry("file", 0o644, size=1, sha256=HASHES[0])
    other = {
        "mode": msgspec.structs.replace(file, mode=0o755),
        "owner": msgspec.structs.replace(file, uid=1),
        "content": msgspec.structs.replace(file, sha256=HASHES[1]),
        "kind": Entry("device", 0o644),
        "absent": None,
    }[aspect]
    one = tree(entries={path: file})
    return judge(one, tree(form, entries={} if other is None else {path: other}), ALLOWANCES, same).unexpected


@pytest.mark.parametrize(
    ("path", "aspect", "form", "may"),
    [
        ("/.singularity.d/labels.json", "absent", "sif", True),
        ("/environment", "absent", "sif", True),
        ("/etc/resolv.conf", "content", "sif", True),
        ("/etc/hosts", "absent", "podman", True),
        ("/dev/null", "kind", "sif", True),
        (f"{SITE}/six-1.17.0.dist-info/INSTALLER", "content", "docker", True),
        (f"{SITE}/six-1.17.0.dist-info/REQUESTED", "absent", "docker", True),
        (f"{SITE}/six-1.17.0.dist-info/RECORD", "content", "docker", True),
        (f"{SITE}/torch/__pycache__/hub.cpython-311.pyc", "content", "docker", True),
        ("/opt/venv/bin/torchrun", "content", "docker", True),
        ("/opt/venv/bin/pip3.11", "absent", "docker", True),
        ("/etc/resolv.conf", "content", "docker", False),  # nobody but Apptainer and podman touches it
        ("/dev/null", "absent", "docker", False),
        (f"{SITE}/torch/hub.py", "content", "docker", False),
        (f"{SITE}/torch/__pycache__/hub.cpython-311.pyc", "absent", "docker", False),
        (f"{SITE}/torch/__pycache__/hub.cpython-311.pyc", "mode", "docker", False),
        (f"{SITE}/six-1.17.0.dist-info/RECORD", "absent", "docker", False),
        (f"{SITE}/six-1.17.0.dist-info/METADATA", "content", "docker", False),
        ("/opt/venv/bin/torchrun", "absent", "docker", False),
        ("/opt/venv/.lock", "absent", "docker", False),
    ],
)
def test_what_may_differ(path, aspect, form, may):
    assert (not unexpected(path, aspect, form)) is may


@pytest.mark.parametrize(
    ("path", "form"),
    [
        (f"{SITE}/torch/__pycache__/hub.cpython-311.pyc", "bytecode"),
        (f"{SITE}/six-1.17.0.dist-info/RECORD", "record"),
        ("/opt/venv/bin/torchrun", "launcher"),
    ],
)
def test_some_contents_may_differ_only_in_their_wording(path, form):
    asked = []

    def differs(*arguments):
        asked.append(arguments)
        return False

    assert unexpected(path, "content", "docker", differs)
    assert asked == [(form, path)]


def test_settings_are_compared_where_both_have_them():
    one = tree(entries={}, settings={"environment A": "1", "label io.buildah.version": "1.28", "user": "me"})
    other = tree("podman", entries={}, settings={"environment A": "2"})
    comparison = judge(one, other, ALLOWANCES, never)
    assert comparison.unexpected == (
        Difference("environment A", "setting", "'1'", "'2'"),
        Difference("user", "setting", "'me'", ""),
    )
    assert [difference.path for _, (difference,) in comparison.allowed] == ["label io.buildah.version"]
    assert comparison.compared == ("owners", "settings")
    assert judge(one, tree(entries={}), (), never).compared == ("owners",)


def test_the_words():
    one = tree(entries={"/b": Entry("folder", 0o755), "/b-c": Entry("fifo", 0o600), "/b/c": Entry("fifo", 0o600)})
    other = tree("docker", entries={"/new\x1b[31m": Entry("symlink", 0o777, link="x")})
    allowance = Allowance(reason="because", patterns=("/b-c",), aspects=("only in the first",))
    assert list(wording.lines(judge(one, other, (allowance,), never), everything=True)) == [
        "first   layout, 3 paths",
        "second  docker, 1 paths",
        "compared: paths, kinds, modes, contents, links, owners",
        "",
        "only in the first: /b (folder and 1 below it)",
        "only in the second: /new\\x1b[31m (symlink to x)",
        "",
        "what may differ:",
        "     1 because",
        "       only in the first: /b-c (fifo)",
    ]
    comparison = judge(one, other, (allowance,), never)
    assert wording.summary(comparison) == "3 differences: 2 only in the first, 1 only in the second"
    assert list(wording.lines(judge(one, one, (), never)))[-1] == "identical"
    assert list(wording.lines(judge(one, tree(entries=dict(list(one.entries.items())[::2])), (allowance,), never)))[
        -2:
    ] == ["equal but for what may differ:", "     1 because"]
