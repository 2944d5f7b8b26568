"""Files of projects: each one of test-data with what is read of it, and formats made by hypothesis."""

import json
import os
import pickle
import shutil
import typing
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from projectfiles import environments, files, pyproject, requirements_txt
from projectfiles.__main__ import main
from projectfiles.alternatives import any_of
from projectfiles.conda_spec import conda_specifier, parse_spec
from projectfiles.errors import Kind, ProjectFileError
from projectfiles.poetry_versions import poetry_specifier
from projectfiles.values import Line, Note

DATA = Path(__file__).parent / "test-data"
PATHS = sorted(path for path in DATA.glob("*/*") if path.is_file() and not path.name.endswith(".read.json"))
MACHINES = [environments.linux(python, machine) for python in ("3.9", "3.11") for machine in ("x86_64", "aarch64")]


def needs(text, name="requirements.txt", *extras):
    return files.needs(Path(name), text, extras, Path.read_text, MACHINES)


def texts(found):
    return [line.text for line in found.lines]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_file_is_read_as_the_json_beside_it_says(path, tmp_path, capsys, monkeypatch):
    """`TITLE.NAME` is read as NAME, beside what the folder `TITLE` has. `READ=write` writes tables, to be read then."""
    title, _, name = path.name.partition(".")
    if (path.parent / title).is_dir():
        shutil.copytree(path.parent / title, tmp_path, dirs_exist_ok=True)
    shutil.copy(path, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    code = main(["--python", "3.11", name])
    said = capsys.readouterr()
    table = {"exit": code, "read": json.loads(said.out), "error": said.err.splitlines()}
    beside = path.with_name(f"{path.name}.read.json")
    if os.environ.get("READ") == "write":
        beside.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    assert table == json.loads(beside.read_text())


def test_each_json_has_its_file():
    tables = [str(path) for path in sorted(DATA.glob("*/*.read.json"))]
    assert tables == [f"{path}.read.json" for path in PATHS]


def test_folder_gives_all_files_that_are_known_and_goes_on_after_one_that_is_not_taken(tmp_path, capsys):
    (tmp_path / "pyproject.toml").write_text("[project\n")
    (tmp_path / "requirements.txt").write_text("-r more.txt\neinops --hash=sha256:ab\n")
    (tmp_path / "more.txt").write_text("-c requirements.txt\ntqdm\n")
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr()
    read = [(Path(entry["file"]).name, entry.get("constrains", False)) for entry in json.loads(said.out)]
    assert read == [("requirements.txt", False), ("more.txt", False), ("requirements.txt", True), ("more.txt", True)]
    assert "pyproject.toml is not TOML" in said.err


def test_folder_without_a_known_file_is_an_error(tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert "has none of uv.lock" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["/etc/hostname", "../outside.txt", "link.txt"])
def test_file_out_of_the_folder_is_not_read(tmp_path, name):
    (tmp_path / "outside.txt").write_text("secret\n")
    home = tmp_path / "home"
    home.mkdir()
    (home / "link.txt").symlink_to(tmp_path / "outside.txt")
    (home / "requirements.txt").write_text(f"-r {name}\n")
    with pytest.raises(ProjectFileError, match="is not in the folder") as caught:
        files.read(home / "requirements.txt", MACHINES)
    assert "secret" not in str(caught.value)


def test_lines_of_pip_are_joined_and_have_no_comments():
    lines = list(requirements_txt.logical_lines("a \\\n  # no\n b # no\n#c\n\nd#e\n-r f\\"))
    assert lines == [(1, "a"), (3, "b"), (6, "d#e"), (7, "-r f")]  # a comment ends a line that goes on, as in pip


def test_package_is_split_from_what_pip_takes_behind_it():
    line = "a==1 --hash=sha256:ab --hash sha512:cd --config-settings=x=y --global-option=z"
    options = ("--config-settings", "--global-option")
    assert requirements_txt.package(line) == ("a==1", ("sha256:ab", "sha512:cd"), options)
    assert requirements_txt.split("a -f https://a.example") == ("a", ["-f https://a.example"])


def test_options_of_a_line_have_values_but_for_flags():
    found = [*requirements_txt.options("--pre -i https://a.example -rb.txt --no-binary=:all: -q --odd", "f:1")]
    assert found == [
        ("--pre", None),
        ("-i", "https://a.example"),
        ("-r", "b.txt"),
        ("--no-binary", ":all:"),
        ("-q", None),
        ("--odd", ""),
    ]
    with pytest.raises(ProjectFileError) as caught:
        requirements_txt.options("-r 'a", "f:3")
    assert (caught.value.kind, caught.value.file, caught.value.line) == ("syntax", "f", 3)


def test_extra_takes_those_that_it_includes():
    text = (
        '[project]\nname = "My_Project"\ndependencies = ["a"]\n[project.optional-dependencies]\n'
        'x = ["b"]\nfull = ["c", "my-project[x]"]\n'
        '[dependency-groups]\ntest = ["d", {include-group = "lint"}]\nlint = ["e"]\n'
    )
    assert texts(needs(text, "pyproject.toml")) == ["a"]
    assert texts(needs(text, "pyproject.toml", "full", "test")) == ["a", "c", "d", "e", "b"]
    with pytest.raises(ProjectFileError, match="it has full, lint, test and x") as caught:
        needs(text, "pyproject.toml", "docs")
    assert (caught.value.kind, caught.value.text) == ("extra", "docs")


def test_dependency_for_other_systems_is_a_line_with_its_marker_whatever_its_source():
    text = '[tool.poetry.dependencies]\nx = { path = "../x", markers = "sys_platform == \'win32\'" }\n'
    assert texts(needs(text, "pyproject.toml")) == ["x ; (sys_platform == 'win32')"]


def test_environment_has_lines_of_both_kinds_and_notes_on_the_rest():
    text = "name: a\nchannels: [conda-forge, nodefaults]\ndependencies:\n- numpy=1.26\n- pip:\n  - einops # b\n"
    text += "odd: 1\nvariables: {}\n"
    found = needs(text, "environment.yml")
    assert found.lines == [Line("environment.yml:4", "numpy=1.26", "conda"), Line("environment.yml:6", "einops")]
    assert found.channels == ["conda-forge"]
    assert found.notes == [Note("variables", "environment.yml"), Note("key", "environment.yml:7", ("odd",))]


PYLOCK = """
lock-version = "1.0"
created-by = "mine"
extras = ["gpu"]
[[packages]]
name = "a"
version = "1.0"
wheels = [{ name = "a-1.0-py3-none-any.whl", url = "https://a.example/a.whl", hashes = { sha256 = "ab" } }]
[[packages]]
name = "b"
version = "2.0"
wheels = [{ name = "b-2.0-py3-none-any.whl", url = "https://a.example/b.whl", hashes = { sha256 = "cd" } }]
marker = "python_version >= '3.10' and platform_machine == 'x86_64' and ('gpu' in extras)"
[[packages]]
name = "w"
version = "1"
wheels = [{ name = "w-1-py3-none-any.whl", url = "https://a.example/w.whl", hashes = { sha256 = "ef" } }]
marker = "sys_platform == 'win32'"
"""


def test_pylock_gives_what_each_machine_gets():
    assert texts(needs(PYLOCK, "pylock.toml")) == ["a==1.0"]
    marker = "python_version == '3.11' and platform_machine == 'x86_64'"
    assert texts(needs(PYLOCK, "pylock.toml", "gpu")) == ["a==1.0", f"b==2.0 ; {marker}"]
    notes = needs(PYLOCK, "pylock.toml").notes
    assert notes == [Note("systems", "pylock.toml", ("w",)), Note("extras", "pylock.toml", ("b",), ("gpu",))]


@pytest.mark.parametrize(
    ("name", "text", "kind", "line"),
    [
        ("pyproject.toml", "[project", "syntax", 0),
        ("pyproject.toml", "[project]\ndependencies = 1", "form", 0),
        ("pyproject.toml", "[tool.x]\n", "needs", 0),
        ("pyproject.toml", '[project]\ndynamic = ["dependencies"]\n', "dynamic", 0),
        ("pyproject.toml", '[tool.poetry.dependencies]\na = "^x"\n', "version", 2),
        ("pyproject.toml", '[tool.poetry.dependencies]\na = {url = "b", subdirectory = "c"}\n', "subdirectory", 2),
        ("environment.yml", "a: [", "syntax", 1),
        ("environment.yml", "a: 1\na: 2\n", "form", 2),
        ("environment.yml", "a: 1\n", "needs", 0),
        ("list.txt", "@EXPLICIT\nhttps://a.example/b.conda\n", "addresses", 0),
        ("uv.lock", "version = 1\n", "needs", 0),
        ("pylock.toml", "a = 1\n", "form", 0),
        ("pylock.toml", PYLOCK.replace("extras =", "requires-python = '>=4'\nextras ="), "machines", 0),
        ("absent/poetry.lock", "", "beside", 0),
        ("Pipfile", "", "format", 0),
    ],
)
def test_file_that_is_not_taken_is_an_error_with_kind_and_place(name, text, kind, line):
    with pytest.raises(ProjectFileError) as caught:
        needs(text, name)
    error = caught.value
    assert (error.kind, error.file, error.line) == (kind, name, line)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.kind, again.where, again.text) == (str(error), kind, error.where, error.text)


@pytest.mark.parametrize("content", [b"\xff", b"a" * (files.LARGEST_FILE + 1), None])
def test_file_that_is_no_text_of_usual_size_is_an_error(content, tmp_path, capsys):
    path = tmp_path / "requirements.txt"
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 1
    absent = "there is no file " if content is None else ""
    assert capsys.readouterr().err.startswith(f"projectfiles: {absent}{path}")


def test_list_in_an_encoding_of_chinese_is_an_error_with_the_command_that_converts_it(tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_bytes("einops\n# \u4e2d\u6587\n".encode("gbk"))
    with pytest.raises(ProjectFileError, match="is not in UTF-8: line 2 has the byte 0xd6") as caught:
        files.read_text(path)
    assert caught.value.next_step.startswith(f"iconv -f gb18030 -t utf-8 {path} > {path}.utf8 && mv ")


def test_file_in_utf_16_is_read_as_pip_reads_it(tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_bytes("﻿einops==0.7\r\n".encode("utf-16-le"))
    assert texts(files.read(path, MACHINES)[0].needs) == ["einops==0.7"]


KINDS = typing.get_args(Kind)


def ending(read, file=""):
    """Return what is read, or the kind of error, which names the file."""
    try:
        return read()
    except ProjectFileError as error:
        if file and error.file != file:
            raise
        return [error.kind]


RELEASES = [f"{major}.{minor}" for major in range(4) for minor in range(4)] + ["1.2.3", "2.0.1", "1.2rc1"]
NUMBERS = st.sampled_from(["0", "1", "2", "0.3", "1.2", "1.2.3", "2.0"])
POETRY = st.builds("{}{}".format, st.sampled_from(["^", "~", ">=", "<", "==", "!=", ""]), NUMBERS)


@given(st.lists(POETRY, min_size=1, max_size=3))
@example(["^0.3", "^2"])
def test_alternatives_of_poetry_take_what_one_of_them_takes(versions):
    """Of final releases; where PEP 440 has no such requirement, it is an error."""
    texts = (" || ".join(versions), *versions)
    made, *each = ending(lambda: [SpecifierSet(poetry_specifier(text, "a", "p:1")) for text in texts])
    if str(made) in KINDS:
        return
    final = [release for release in RELEASES if not Version(release).is_prerelease]
    assert {one for one in final if one in made} == {one for one in final if any(one in part for part in each)}


@given(st.text("0123456789.*^~<>=!|, x+-rcpost", max_size=20))
@example("^*")
@example("~*")
@example("^1..2")
@example("~.1")
def test_versions_of_any_text_are_a_specifier_or_an_error(text):
    for read in (
        lambda: poetry_specifier(text, "a", "p:1"),
        lambda: conda_specifier(parse_spec(f"a {text}", "e:1"), "e:1"),
    ):
        assert ending(lambda read=read: [SpecifierSet(read())])


@given(st.lists(st.sampled_from([">=1", "<1", "==1.*", ">=1,<2", "==2.0.*", "!=1.5"]), min_size=1, max_size=4))
def test_any_of_specifiers_takes_what_one_takes(specifiers):
    made = any_of(specifiers)
    final = [release for release in RELEASES if not Version(release).is_prerelease]
    if made is not None:
        taken = {release for release in final if release in SpecifierSet(made)}
        assert taken == {one for one in final if any(one in SpecifierSet(part) for part in specifiers)}
    with pytest.raises(InvalidSpecifier):
        any_of(["nonsense"])


PIECES = (
    'name version dependencies "a>=1" "^1 || ^2" [project] [tool.poetry.dependencies] [[package]] source = { } [ ] , '
    "- : pip: "
    "numpy=1.26 conda-forge::x --hash=sha256:ab -r -c ; sys_platform == 'win32' git+https://a/b @ \\ # \" ' é \x1b"
)
WORDS = st.sampled_from([*PIECES.split(" "), "\n", "  "])


@given(st.lists(WORDS, max_size=40), st.sampled_from([*files.NAMES[:2], *files.NAMES[4:], "list.txt"]))
def test_random_texts_are_read_or_an_error(words, name):
    text = " ".join(words)
    found = ending(lambda: [needs(text, name)], name)[0]
    if found not in KINDS:
        ending(lambda: list(files.references(found.lines)), name)
        assert all(line.where.partition(":")[0] == name for line in found.lines)


TOML = st.recursive(
    st.text(max_size=5) | st.integers(0, 9) | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["project", "tool", "poetry", "dependencies", "a", "optional-dependencies", "url", "version"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(TOML)
@example({"project": {"dependencies": [""]}})
@example({"tool": {"poetry": {"dependencies": {"a": "*"}, "source": [{"url": ""}]}}})
def test_project_of_any_tables_is_read_or_an_error(value):
    tables = value if isinstance(value, dict) else {}
    text = "".join(f"{json.dumps(key)} = {inline(part)}\n" for key, part in tables.items())
    ending(lambda: [pyproject.read(text, "pyproject.toml", (), MACHINES)], "pyproject.toml")


def inline(value):
    """Write a value as TOML has it in a line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {inline(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    return json.dumps(value)
