"""Dockerfiles, definitions, scripts and pages: each file of test-data with what is read of it, and hostile texts."""

import json
import os
import pickle
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockerread import contents, definition, installers, shell, stages
from dockerread.__main__ import main
from dockerread.dockerfile import instructions
from dockerread.errors import ReadError

DATA = Path(__file__).parent / "test-data"
PATHS = sorted(path for path in DATA.glob("*/*") if path.suffix != ".json")


def read(text, name="Dockerfile", **arguments):
    return contents.read(text, name, arguments)


def packages(text, name="Dockerfile", **arguments):
    return [(one.program, *one.packages) for one in read(text, name, **arguments).installs]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_file_is_read_as_the_json_beside_it_says(path, capsys):
    """`READ=write` writes them, to be read then."""
    assert main([str(path)]) == 0
    printed = capsys.readouterr().out
    beside = path.with_name(f"{path.name}.json")
    if os.environ.get("READ") == "write":
        beside.write_text(printed)
    assert json.loads(printed) == json.loads(beside.read_text())


def test_each_json_has_its_file():
    assert {path.name.removesuffix(".json") for path in DATA.glob("*/*.json")} == {path.name for path in PATHS}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("RUN pip install a && pip3 install b; python -m pip install c", ["a", "b", "c"]),
        ("RUN sudo -H pip install 'a b' \"c d\" e\\ f", ["a b", "c d", "e f"]),
        ("RUN pip install a # b\n", ["a"]),
        ("RUN pip install a \\\n# no\n\n   b", ["a", "b"]),
        ("ARG A=x\nRUN pip install $A ${A}x ${B:-tqdm} ${A:+y}", ["x", "xx", "tqdm", "y"]),
        ("ENV V=2.0\nRUN pip install torch==${V}", ["torch==2.0"]),
        ("ENV V 2.0\nRUN uv pip install --system torch==${V}", ["torch==2.0"]),
        ('RUN ["pip", "install", "a"]', ["a"]),
        ("RUN <<EOF\npip install a\npip install b\nEOF", ["a", "b"]),
        ("RUN --mount=type=cache,target=/root/.cache pip install -e . a", [".", "a"]),
        ("RUN pip install a > /dev/null 2>&1", ["a"]),
        ("RUN conda run -n mine pip install a", ["a"]),
        ("RUN uv sync --frozen", ["."]),
        ("RUN bash -c 'pip install a && pip install b'", ["a", "b"]),
        ('RUN ["/bin/bash", "-lc", "pip install a"]', ["a"]),
        ("RUN sudo sh -c 'bash -c \"pip install a\"'", []),
        ("RUN bash -o pipefail -c 'pip install a'", []),
        ("ENV V=11.8\nRUN pip install a${V//./} b${V/./_} c${V%.*} d${V:0:2}", ["a118", "b11_8", "c11", "d11"]),
        ("ENV V=11.8\nRUN pip install a$(echo \"$V\" | sed 's/\\.//g') b$(echo ${V} | tr -d '.')", ["a118", "b118"]),
        ("ENV V=11.8\nRUN pip install a${V//[0-9]/}", []),
        ("RUN pip install a$(echo x | sed 's/./y/')", []),
        ('ARG P="a \\\n  b"\nARG E=\nRUN pip install $P $E ${P}c "$P"', ["a", "b", "a", "bc", "a  b"]),
        ('RUN A="a b" && B=$A && export C=$B && pip install $C', ["a", "b"]),
        ("RUN poetry run pip install a && tini -- pip install b", ["a", "b"]),
        ("RUN pip download a; pip list; echo pip install b", []),
    ],
)
def test_run_installs_its_packages(text, found):
    assert [name for one in read(f"FROM python:3.11\n{text}").installs for name in one.packages] == found


def test_bounds_of_an_install_are_no_list():
    (found,) = read("FROM a\nRUN pip install -c bounds.txt --constraint=more.txt einops").installs
    assert (found.lists, found.packages) == ((), ("einops",))
    assert found.flags == ("--constraint=bounds.txt", "--constraint=more.txt")


def test_flag_ends_where_its_line_goes_on():
    (step,) = instructions("RUN --mount=type=bind,target=/a \\\n  --mount=type=cache,target=/b \\\n  x", "Dockerfile")
    assert step.flags == (("mount", "type=bind,target=/a"), ("mount", "type=cache,target=/b"))
    assert step.flat == "x"


@pytest.mark.parametrize("text", ["LABEL a b c", "LABEL a = b c", 'LABEL a="b c"', "ENV a b c"])
def test_label_and_variable_of_the_old_form_have_one_value(text):
    (step,) = instructions(text, "Dockerfile")
    assert list(stages.pairs(step.flat, {})) == [("a", "b c")]


def test_options_of_an_install_are_lists_sources_and_flags():
    (found,) = read("FROM a\nRUN pip install -qr r.txt -rb.txt --index-url=https://a.example/ -f x --pre").installs
    assert (found.lists, found.sources, found.flags) == (("b.txt",), ("https://a.example/", "x"), ("-qr", "--pre"))
    (found,) = read("FROM a\nRUN mamba install -y -c conda-forge --file env.txt numpy").installs
    assert (found.program, found.packages, found.lists) == ("conda", ("numpy",), ("env.txt",))
    assert found.sources == ("conda-forge",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("if true; then pip install a; fi", "if takes one way or another"),
        ("( pip install a )", "takes one way or another"),
        ("f() { pip install a; }", "a function is known to the shell alone"),
        ("pip install $(cat a)", "known to the shell alone"),
        ("pip install `cat a`", "known to the shell alone"),
        ("pip install $UNSET", "UNSET is not known here"),
    ],
)
def test_command_that_only_a_shell_knows_is_left_with_its_reason(text, why):
    found = read(f"FROM a\nRUN {text}")
    assert found.installs == ()
    assert why in found.others[0].unknown


def test_variable_that_only_a_shell_knows_is_none_of_the_definitions():
    text = "Bootstrap: docker\nFrom: python:3.11\n%environment\n A=$(date) B=1\n export C=$(date)\n export D=two\n"
    assert read(text, "a.def").variables == {"D": "two"}


def test_stages_that_the_last_one_is_not_made_of_install_nothing():
    text = (
        "ARG V=3.11\nFROM python:$V AS base\nRUN pip install a\nFROM base AS unused\nRUN pip install b\n"
        "FROM debian AS built\nRUN pip install c\nFROM base\nCOPY --from=built /venv /venv\nRUN pip install d\n"
    )
    assert packages(text) == [("pip", "a"), ("pip", "c"), ("pip", "d")]
    assert read(text, V="3.12").bases == ("python:3.12", "debian")
    parsed = stages.split(instructions(text, "Dockerfile"), "Dockerfile")
    assert stages.needed(parsed.stages, lambda copy: False) == {0, 3}


def test_argument_that_is_given_replaces_its_default():
    assert packages("FROM a\nARG X=a\nRUN pip install $X", X="einops") == [("pip", "einops")]
    assert packages("Bootstrap: docker\nFrom: a\n%arguments\n X=a\n%post\n pip install {{ X }}", "a.def") == [
        ("pip", "a")
    ]


def test_lines_are_those_of_the_file():
    text = (
        "# escape=`\nFROM a\n\nRUN true `\n  # no\n  && pip install b `\n  c\nCOPY <<E /x\nFROM z\nE\nRUN pip install d"
    )
    parsed = instructions(text, "Dockerfile")
    assert [(step.keyword, step.line, step.end) for step in parsed] == [
        ("FROM", 2, 2),
        ("RUN", 4, 7),
        ("COPY", 8, 10),
        ("RUN", 11, 11),
    ]
    assert [(one.line, one.end) for one in read(text).installs] == [(6, 7), (11, 11)]


@pytest.mark.parametrize("break_", ["\f", "\v", "\x1c", "\x85", "\u2028", "\r"])
def test_character_that_ends_no_line_of_docker_begins_no_instruction(break_):
    assert packages(f"FROM a\n# no{break_}RUN pip install no\r\nRUN pip install a\r\n") == [("pip", "a")]
    assert packages(f"Bootstrap: docker\nFrom: a\n%post\n# no{break_}%post\n pip install a\n", "a.def") == [
        ("pip", "a")
    ]


def test_page_has_the_commands_of_its_blocks_alone():
    page = "pip install no\n```sh\n$ pip install a\n```\n```python\npip install no\n```\n"
    assert packages(page, "README.md") == [("pip", "a")]
    assert definition.commands_of_page(page).count("\n") == page.count("\n") - 1


@pytest.mark.parametrize("indent", [None, 1, 2])
def test_notebook_in_any_form_of_json_has_the_commands_of_its_code_alone(indent):
    code = [
        "import torch\n",
        "!pip install a\n",
        "%conda install b\n",
        "%load_ext no\n",
        "! {sys.executable} -m pip install c",
    ]
    cells = [{"cell_type": "markdown", "source": ["!pip install no"]}, {"cell_type": "code", "source": code}]
    cells += [{"cell_type": "code", "source": ["%%bash\n", "pip install d"]}, {"cell_type": "raw", "source": []}]
    notebook = json.dumps({"cells": cells, "nbformat": 4}, indent=indent)
    assert packages(notebook, "a.ipynb") == [("pip", "a"), ("conda", "b"), ("pip", "c"), ("pip", "d")]


def test_notebook_whose_source_is_one_text_has_its_commands():
    cells = [
        {"cell_type": "code", "source": "!pip install a\nx = 1\n!pip install b"},
        {"cell_type": "code", "source": 7},
    ]
    assert packages(json.dumps({"cells": cells}), "a.ipynb") == [("pip", "a"), ("pip", "b")]
    for other in ("[]", "7", '{"cells": {}}', '{"cells": [1]}'):
        assert packages(other, "a.ipynb") == []


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("Dockerfile.gpu", "", "dockerfile"),
        ("a.Containerfile", "", "dockerfile"),
        ("image", "# a\nFROM b\n", "dockerfile"),
        ("image", "# a\nBootstrap: docker\n", "definition"),
        ("Singularity", "", "definition"),
        ("README", "", "page"),
        ("a.ipynb", "", "notebook"),
        ("install", "", "script"),
        ("other", "pip install a", "script"),
    ],
)
def test_kind_is_known_by_name_or_first_lines(name, text, kind):
    assert contents.kind_of(name, text) == kind


@pytest.mark.parametrize(
    ("name", "text", "kind", "line"),
    [
        ("Dockerfile", "FROM a\nFROB b\n", "instruction", 2),
        ("Dockerfile", "RUN a\n", "stages", 0),
        ("Dockerfile", "FROM a\n" * (shell.MOST_COMMANDS + 1), "length", 0),
        ("Dockerfile", "FROM a\nRUN " + "a;" * (shell.MOST_COMMANDS + 1), "length", 0),
        ("a.def", "%post\n a\n", "bootstrap", 0),
        ("a.ipynb", "{", "notebook", 0),
        ("a.ipynb", "[" * 100_000, "notebook", 0),
    ],
)
def test_file_that_is_not_taken_is_an_error_with_kind_and_line(name, text, kind, line):
    with pytest.raises(ReadError) as caught:
        read(text, name)
    assert (caught.value.kind, caught.value.line) == (kind, line)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.kind, again.file) == (str(caught.value), kind, caught.value.file)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"FROM a\nFROB\n", None, b"a" * ((1 << 20) + 1)])
def test_command_says_why_it_takes_no_file(content, tmp_path, capsys):
    path = tmp_path / "Dockerfile"
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(f"dockerread: {path}")


@pytest.mark.parametrize(
    "text",
    [
        "RUN " + "(" * 20_000,
        "RUN " + "$(" * 20_000,
        "RUN " + "if " * 20_000,
        "RUN " + "{ " * 20_000,
        "RUN " + "${A:-" * 20_000,
        "RUN " + '"' * 20_001,
        "RUN " + "\\\n" * 20_000,
        "RUN A=x; " + "A=$A$A; " * 4_000 + "pip install $A",
        "RUN " + "a <<B " * 2_000,
        "CMD " + "[" * 20_000,
        "ENV " + "A=$A" * 5_000,
        "FROM " + "a" * 100_000,
    ],
)
def test_deep_and_long_texts_are_read_in_linear_time(text):
    """Each takes well under a second; quadratic reading takes minutes, and pytest ends it."""
    found = read(f"FROM python:3.11\n{text}")
    assert all(len(word) <= 4096 for one in found.installs for word in one.packages)


PIECES = (
    "FROM RUN COPY ENV ARG CMD pip install conda apt-get -r -f if fi case esac function { } ( ) && || ; | > < << EOF "
    "' \" ` $ ${ } $( ) \\ # = . a[b] --from=x \x1b é {{ }} %post %files"
)
WORDS = st.sampled_from([*PIECES.split(" "), "\n", "\\\n", "\t", "\r"])


@given(st.lists(WORDS, max_size=40), st.sampled_from(["Dockerfile", "a.def", "a.sh", "a.md"]))
def test_random_texts_are_read_or_an_error(words, name):
    begins = {"Dockerfile": "FROM python:3.11\n", "a.def": "Bootstrap: docker\nFrom: a\n%post\n"}
    text = f"{begins.get(name, '')}{' '.join(words)}"
    try:
        found = read(text, name)
    except ReadError:
        return
    last = text.count("\n") + 1
    assert all(1 <= one.line <= one.end <= last + 1 for one in (*found.installs, *found.others))


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1), min_size=1, max_size=6))
def test_quoted_words_are_the_words_that_were_quoted(words):
    (command,) = shell.commands(f"p {shlex.join(words)}", 1, {})
    assert (command.words[1:], command.unknown) == (tuple(words), "")


@given(
    st.lists(st.sampled_from(["-r", "-rx", "--index-url=y", "--index-url", "a", "-", "-q", "--pre", "="]), max_size=8)
)
def test_options_lose_no_word(words):
    found = installers.options(words, installers.WITH_VALUE["pip"])
    assert len(found.words) + len(found.flags) + len(found.values) <= len(words)
    assert len(found.words) + len(found.flags) + 2 * len(found.values) >= len(words)
