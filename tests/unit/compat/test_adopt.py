"""Dockerfiles, definitions, scripts and pages adopted as recipes: dockerread's files with the tables
of tests/adopted, and hostile ones.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockerread import shell
from graphcrate.cli.adopt import adopt
from graphcrate.compat.adopt import written
from graphcrate.compat.adopt.draft import FATES, kinds, shortened
from graphcrate.compat.requirements import own
from graphcrate.compat.variants import recipes
from graphcrate.model.command import command
from graphcrate.model.errors import UsageError
from tests import ROOT
from tests.made import refused

TABLES = ROOT / "tests/adopted"
FILES = ROOT / "packages/dockerread/tests/test-data"
_TEMPORARY = tempfile.TemporaryDirectory(prefix="adopt-")  #: for as long as the tests run
BESIDE = Path(_TEMPORARY.name, "beside")  #: tests/adopted/beside, and a picture, which is no text
shutil.copytree(TABLES / "beside", BESIDE)
(BESIDE / "figures").mkdir()
(BESIDE / "figures/plot.png").write_bytes(b"\x89PNG")
KINDS = ("dockerfiles", "defs", "scripts")
PATHS = sorted(path for kind in KINDS for path in (FILES / kind).iterdir() if path.suffix != ".json")
RECIPES = [recipes.load(path) for path in sorted((ROOT / "recipes").glob("*.toml"))]


def adopted(text, name, context=BESIDE, **arguments):
    return written.adopt(text, Path(name), context, RECIPES, arguments)


def table(text, name="Dockerfile", context=BESIDE, **arguments):
    """Return each command with its fate."""
    return [(row.fate, row.text) for row in adopted(text, name, context, **arguments).rows]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_lines_of_a_file_become_what_the_table_beside_it_says(path, tmp_path):
    """And the recipe is one, with files that are there. `ADOPT=write` writes tables that are to be read then."""
    found = adopted(path.read_text(), path.name)
    rows = "".join(f"{row.lines}\t{row.fate}\t{row.what}\n" for row in found.rows).replace(str(BESIDE), "HERE")
    text = f"{found.extends} {found.cuda}\n{rows}"
    beside = TABLES / path.parent.name / f"{path.name}.expected"
    if os.environ.get("ADOPT") == "write":
        beside.write_text(text)
    assert text == beside.read_text()
    shutil.copytree(BESIDE, tmp_path / "here")
    (tmp_path / "here/mine.toml").write_text(found.recipe)
    recipe, _ = own.load(tmp_path / "here/mine.toml")
    assert (recipe.extends, recipe.cuda) == (found.extends, found.cuda)


def test_tables_have_their_files_and_both_are_enough():
    assert {path.name.removesuffix(".expected") for kind in KINDS for path in (TABLES / kind).glob("*.expected")} == {
        path.name for path in PATHS
    }
    counts = {kind: sum(path.parent.name == kind for path in PATHS) for kind in KINDS}
    assert all(counts[kind] >= least for kind, least in {"dockerfiles": 40, "defs": 15, "scripts": 15}.items())


def test_nine_of_ten_commands_of_usual_files_are_dealt_with():
    rows = [
        row
        for path in PATHS
        if not path.name.startswith("refused-")
        for row in adopted(path.read_text(), path.name).rows
    ]
    left = [row for row in rows if row.fate == "yours"]
    assert len(left) / len(rows) <= 0.1, [f"{row.text}: {row.what}" for row in left]


def test_list_with_a_folder_outside_is_adopted_where_the_user_trusts_it(tmp_path):
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for folder in (project, elsewhere):
        folder.mkdir()
    (elsewhere / "setup.py").touch()
    file = project / "requirements.txt"
    file.write_text(f"einops\n-e {elsewhere}\n")
    with refused(UsageError, "is not in the recipe's folder", "TRUST_PATHS=yes"):
        written.adopt(file.read_text(), file, project, RECIPES, {})
    trusted = written.adopt(file.read_text(), file, project, RECIPES, {}, trusts_paths=True)
    assert [row.fate for row in trusted.rows] == ["recipe"]


def test_adopting_starts_nothing_and_writes_nothing(tmp_path, monkeypatch):
    """The guard of unit tests refuses processes and connections; the folder is as it was."""
    shutil.copytree(BESIDE, tmp_path / "here")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "here").rglob("*")}
    monkeypatch.chdir(tmp_path)
    hostile = 'FROM $(touch a)\nRUN touch b; `touch c`\nRUN ["touch", "d"]\nCMD touch e\nCOPY $(touch f) /x\n'
    for path in PATHS:
        adopted(path.read_text(), path.name, tmp_path / "here")
    table(hostile, context=tmp_path / "here")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "here").rglob("*")} == before
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("RUN pip install a && pip install b; pip install c", ["pip install a", "pip install b", "pip install c"]),
        ("RUN pip install 'a b' \"c d\" e\\ f", ["pip install a b c d e f"]),
        ("RUN pip install a # b\n", ["pip install a"]),
        ("RUN pip install a \\\n# no\n\n   b", ["pip install a b"]),
        ("RUN A=einops && pip install $A ${A}x ${B:-tqdm}", ["A=einops", "pip install einops einopsx tqdm"]),
        ('RUN ["pip", "install", "a"]', ["pip install a"]),
        ("run pip install a > /dev/null 2>&1", ["pip install a"]),
        ("RUN pip install a 2>/dev/null", ["pip install a"]),
        ("RUN pip install 'a;b'", ["pip install a;b"]),
    ],
)
def test_commands_of_a_run_are_split_as_a_shell_does(text, rows):
    assert [text for _, text in table(f"FROM python:3.11\n{text}")[1:]] == rows


@pytest.mark.parametrize(
    ("text", "fate", "what"),
    [
        ("RUN if true; then pip install a; fi", "yours", "if takes one way or another"),
        ("RUN case $A in b) pip install a;; esac", "yours", "case takes one way or another"),
        ("RUN ( pip install a )", "yours", "takes one way or another"),
        ("RUN f() { pip install a; }", "yours", "a function is known to the shell alone"),
        ("RUN pip install $(cat a)", "yours", "is known to the shell alone"),
        ("RUN pip install $UNSET", "yours", "UNSET is not known here"),
        ("RUN pip install a || pip install b", "yours", "another command takes its place"),
        ("RUN pip install ./absent", "yours", "./absent is not a folder that is here"),
        ("RUN pip install -r absent.txt", "yours", "absent.txt is not in"),
        ("RUN pip install -f https://a.example/b.html dgl", "yours", "which a recipe does not name"),
        ("RUN pip install 'x @ https://a.example/x.whl'", "yours", "is given by an address"),
        ("RUN git clone --upload-pack='touch x' ext::sh", "yours", "not an address that git is given"),
        ("ENV PYTHONHOME=/x", "yours", "PYTHONHOME"),
        ("COPY ../x /opt/x", "yours", "../x is not in"),
        ("COPY /etc/passwd /opt/x", "yours", "/etc/passwd is not in"),
        ("LABEL graphcrate.torch=1", "yours", "says what the image is"),
        ("WORKDIR /opt/$(x)", "yours", "is known to the shell alone"),
        ("WORKDIR /opt/a\"b", "yours", "is not an absolute path"),
        ("CMD [\"/absent\"]", "yours", "/absent is not in the image"),
        ("CMD [\"bash\" \"--login\"]", "yours", "its list is not JSON"),
        ("CMD [\"--help\"]", "yours", "is an option, and the first word is a program"),
        ("LABEL --a=b", "yours", "'--a' is not a name of a label"),
        ("RUN frobnicate", "yours", "frobnicate is a program of its own"),
        ("RUN conda install openbabel", "yours", "openbabel is not taken: the index has its source alone"),
        ("RUN conda install opencv3=3.1", "yours", "opencv3=3.1: conda's, and no package that is known"),
    ],
)  # fmt: skip
def test_what_a_recipe_cannot_have_is_left_with_its_reason(text, fate, what):
    row = adopted(f"FROM python:3.11\n{text}", "Dockerfile").rows[1]
    assert (row.fate, what in row.what) == (fate, True), row


@pytest.mark.parametrize(
    ("lines", "stack"),
    [
        (["FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime"], ("torch", "11.7", ())),
        (["FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime", "RUN pip install torch_scatter"], ("pyg", "11.7", ())),
        (["FROM pytorch/pytorch:1.13.1-cuda11.6-cudnn8", "RUN pip install graphlearn-torch"], ("glt", "11.6", ())),
        (["FROM nvidia/cuda:12.6.0-base-ubuntu22.04"], ("torch", "12.6", ())),
        (["FROM me/torch:2.0.1-cuda11.7", "RUN pip install torch_geometric==2.3"], ("pyg", "11.7", ())),
        (["FROM a", "RUN conda install -c dglteam/label/cu117 pytorch=2.0.1"], ("torch", "11.7", ())),
        (["FROM a", "RUN conda install -c nvidia/label/cuda-11.7.0 pytorch=2.0.1"], ("torch", "11.7", ())),
        (["FROM a", "RUN uv pip install torch==2.0.1 --torch-backend=cu117"], ("torch", "11.7", ())),
        (["FROM a", "RUN pip install torch-scatter==latest+cu117 torch==2.0.1"], ("pyg", "11.7", ())),
        (
            ["FROM a", "RUN pip install torch==2.0.1+cu117 torch-geometric==1.7.2"],
            ("pyg", "11.7", ("PyG 1.7.2 became PyG 2.3.1",)),
        ),
        (
            ["FROM pytorch/pytorch:2.0.1-cuda11.7-cudnn8-devel", "RUN apt-get install -y cuda-nvcc-11-7 git"],
            ("torch", "11.7", ("nvcc and CUDA's headers (lines 1 and 2) are in images of FLAVOUR=devel alone",)),
        ),
        (["FROM python:3.11", "RUN pip install torch==2.3.1+cu121"], ("torch", "12.1", ())),
        (
            ["FROM python:3.11", "RUN conda install pytorch=2.3.1 cpuonly"],
            ("torch", "cpu", ("torch 2.3.1 became torch 2.12.1",)),
        ),
        (
            ["FROM python:3.12", "RUN pip install 'torch>=2.3' torch-geometric"],
            (
                "pyg",
                "12.1",
                ("no line says which torch or CUDA: another is `cuda`", "Python 3.12 became Python 3.11"),
            ),
        ),
        (
            ["FROM nvidia/cuda:11.8.0-base", "RUN pip install 'torch>=2.1'"],
            ("torch", "12.1", ("CUDA 11.8 became CUDA 12.1",)),
        ),
        (
            ["FROM python:3.8", "RUN pip install torch==1.9.0"],
            ("torch", "11.6", ("torch 1.9.0 and Python 3.8 became torch 1.13.1 and Python 3.11",)),
        ),
    ],
)  # fmt: skip
def test_stack_is_the_nearest_and_what_differs_is_said(lines, stack):
    found = adopted("\n".join(lines), "Dockerfile")
    assert (found.extends, found.cuda, found.differs) == stack


def test_variables_that_a_recipe_does_without_are_named_beside_those_that_it_has():
    rows = adopted("FROM python:3.11\nENV A=1 PIP_NO_CACHE_DIR=1 CUDA_HOME=/x B=2", "Dockerfile").rows
    assert rows[1].what == "env: A; env: B; without PIP_NO_CACHE_DIR and CUDA_HOME"


def test_variables_of_a_definition_that_a_shell_alone_knows_are_not_the_recipes():
    text = "Bootstrap: docker\nFrom: python:3.11\n%environment\n export A=$(hostname)\n C=$(date) D=1\n export B=two\n"
    found = adopted(text, "a.def")
    assert [row.fate for row in found.rows[2:]] == ["yours", "yours", "recipe"]
    assert [line for line in found.recipe.splitlines() if line.startswith("env.")] == ['env."B" = "two"  # 6']


def test_argument_of_a_script_has_its_default():
    text = 'ENV_NAME=${1:-gnn}\nconda create -n "$ENV_NAME" python=3.11\npip install ${2:-einops} $3'
    assert table(text, "install.sh") == [
        ("nothing", "ENV_NAME=gnn"),
        ("stack", "conda create -n gnn python=3.11"),
        ("yours", "pip install einops $3"),
    ]


def test_argument_that_is_given_replaces_its_default():
    text = "ARG TORCH=2.0.1\nFROM pytorch/pytorch:$TORCH-cuda12.1-cudnn8-runtime\nARG X=a\nRUN pip install $X"
    assert table(text, TORCH="2.3.1", X="einops")[-1] == ("recipe", "pip install einops")
    assert adopted(text, "Dockerfile", TORCH="2.3.1").cuda == "12.1"


def test_recipe_names_files_by_the_folder_that_it_is_in():
    text = "FROM python:3.11\nCOPY train.py /opt/\nCOPY . /src\nRUN pip install /src"
    found = written.adopt(text, Path("Dockerfile"), BESIDE, RECIPES, {}, "sub/code")
    assert 'files."/opt/train.py" = "sub/code/train.py"' in found.recipe
    assert '    "./sub/code",' in found.recipe
    with pytest.raises(UsageError, match="not below its folder"):
        written.adopt(text, Path("Dockerfile"), BESIDE, RECIPES, {}, None)


@pytest.mark.parametrize(
    ("started", "words"),
    [
        ('["conda", "run", "--no-capture-output", "-n", "mine", "python", "train.py"]', ("python", "train.py")),
        ('["uv", "run", "--frozen", "train.py"]', ("python", "train.py")),
        ('["/usr/local/bin/_entrypoint.sh", "python", "-u", "train.py"]', ("python", "-u", "train.py")),
        ('["/usr/bin/tini", "-g", "--", "poetry", "run", "python", "train.py"]', ("python", "train.py")),
        ('bash -c "python train.py"', ("python", "train.py")),
        ('["dumb-init", "--"]', ()),
        ('["/usr/local/bin/start.sh", "x"]', ()),
    ],
)
def test_command_of_an_environment_that_no_image_has_starts_without_it(started, words):
    text = f"FROM python:3.11\nWORKDIR /opt/mine\nCOPY train.py .\nENTRYPOINT {started}"
    parsed = own.parse(adopted(text, "Dockerfile").recipe, "mine.toml")
    assert parsed.command == words


def test_first_process_and_command_are_one_command():
    text = 'FROM python:3.11\nENTRYPOINT ["tini", "--"]\nCMD ["python", "-V"]'
    assert own.parse(adopted(text, "Dockerfile").recipe, "mine.toml").command == ("python", "-V")


@pytest.mark.parametrize(
    ("typed", "lists"),
    [
        ("poetry install --with dev", ("pyproject.toml[dev]",)),
        ("uv sync --extra dev --frozen", ("pyproject.toml[dev]",)),
        ("poetry install -E 'dev'", ("pyproject.toml[dev]",)),
        ("uv pip install -r pyproject.toml --extra dev", ("pyproject.toml[dev]",)),
        ("poetry install --without dev --no-root", ("pyproject.toml",)),
    ],
)
def test_extras_and_groups_of_a_project_come_with_it(typed, lists):
    found = adopted(f"{typed}\n", "install.sh")
    assert own.parse(found.recipe, "mine.toml").requirements == lists


@pytest.mark.parametrize(
    ("typed", "what"),
    [
        ("poetry install --with absent", "has no extra or group 'absent'"),
        ("uv sync --all-extras", "--all-extras is not taken: name them"),
        ("pip install --group dev", "'REQUIREMENTS=pyproject.toml[dev]' takes a group"),
        ("pip install -c bounds.txt einops", "put `-c bounds.txt` into a requirements file"),
        ("CC=clang-15 MPICC=/opt/mpi/bin/mpicc MAX_JOBS=2 pip install -c bounds.txt mpi4py", "build_env: MPICC"),
    ],
)  # fmt: skip
def test_what_an_install_says_besides_is_left_with_what_takes_it(typed, what):
    (row,) = adopted(f"{typed}\n", "install.sh").rows
    assert (row.fate, what in row.what) == ("yours", True), row


def test_variables_before_an_install_are_those_to_compile_with():
    text = "env HOROVOD_GPU_OPERATIONS=NCCL pip install horovod\nHOROVOD_WITH_MPI=1 FORCE_CUDA=1 pip install rich\n"
    found = adopted(text, "install.sh")
    parsed = own.parse(found.recipe, "mine.toml")
    assert parsed.build_env == {"HOROVOD_GPU_OPERATIONS": "NCCL", "HOROVOD_WITH_MPI": "1"}
    assert [row.what for row in found.rows] == [
        "horovod; build_env: HOROVOD_GPU_OPERATIONS",
        "rich; build_env: HOROVOD_WITH_MPI; without FORCE_CUDA",
    ]


def test_passwords_and_settings_of_a_machine_are_in_no_recipe():
    text = "FROM a\nENV WANDB_API_KEY=0123 MY_TOKEN=4567\nENV DB_PASSWORD 89ab\nCOPY requirements.txt /etc/pip.conf\n"
    found = adopted(text, "Dockerfile")
    assert [row.fate for row in found.rows[1:]] == ["yours"] * 3
    assert not any(secret in found.recipe for secret in ("0123", "4567", "89ab"))
    parsed = own.parse(found.recipe, "mine.toml")
    assert (parsed.env, parsed.files) == ({}, {})


def test_package_of_a_list_that_no_image_gets_is_left_with_what_takes_it(tmp_path):
    (tmp_path / "environment.yml").write_text("dependencies:\n- python=3.11\n- dgl-cuda11.8\n- hhsuite\n- einops\n")
    found = adopted("conda env create -f environment.yml", "install.sh", tmp_path)
    assert [(row.fate, row.what.partition(":")[0]) for row in found.rows] == [
        ("yours", "environment.yml"),
        ("yours", "environment.yml"),
        ("recipe", "requirements"),
    ]
    assert "dgl-cuda11.8 is not taken" in found.recipe
    assert "hhsuite (line 4)" in found.recipe


def test_mount_of_a_file_is_read_and_one_of_another_folder_is_not():
    text = "FROM python:3.11\nRUN --mount=type=bind,source={},target=/l.txt pip install -r /l.txt\n"
    assert adopted(text.format("requirements.txt"), "Dockerfile").rows[1].what == "requirements: requirements.txt"
    assert adopted(text.format("../requirements.txt"), "Dockerfile").rows[1].fate == "yours"


def test_script_of_the_project_that_is_run_names_the_command_that_reads_it():
    text = "FROM python:3.11\nCOPY entrypoint.sh /setup/all.sh\nRUN bash /setup/all.sh"
    row = adopted(text, "Dockerfile").rows[2]
    reads = command("adopt", "entrypoint.sh", plan=True)
    assert (row.fate, row.what) == ("yours", f"{reads} says what that script installs")


@pytest.mark.parametrize("name", ["reqs-gpu.txt", "needs.in", "setup.py", "setup.cfg", "Pipfile", "Pipfile.lock"])
def test_file_that_lists_packages_is_no_script(name, tmp_path):
    (tmp_path / name).write_text("einops\n")
    if name.endswith((".txt", ".in")):
        assert adopted("einops\n", tmp_path / name, tmp_path).rows[0].what == f"requirements: {name}"
        return
    with pytest.raises(UsageError, match="is not a file of requirements"):
        adopted("einops\n", tmp_path / name, tmp_path)


def test_summary_counts_every_command():
    found = adopted("FROM python:3.11\nRUN pip install a\nRUN apt-get update\nRUN frobnicate", "Dockerfile")
    *rows, summary, stack = written.lines(found, "Dockerfile")
    assert summary == ("Dockerfile: 4 commands: 1 recipe, 1 the stack's already, 1 mean nothing here, 1 left to you")
    assert stack.startswith("stack: torch, CUDA 11.8; no line says which torch or CUDA")
    assert rows[3].startswith("4  left to you         frobnicate: because frobnicate is a program of its own")
    assert "# 4: frobnicate (frobnicate is a program of its own, and a recipe runs none)" in found.recipe


@pytest.mark.parametrize("name", ["Dockerfile", "a.def", "install.sh", "README.md", "environment.yml"])
def test_file_without_commands_is_a_usage_error(name):
    with pytest.raises(UsageError):
        adopted("", name)


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
        "COPY " + "*" * 10_000 + " /x",
        "FROM " + "a" * 100_000,
        "RUN " + "a*" * 50_000,
    ],
)  # fmt: skip
def test_deep_and_long_texts_are_read_in_linear_time(text):
    """Each takes well under a second; quadratic reading takes minutes, and pytest ends it."""
    assert adopted(f"FROM python:3.11\n{text}", "Dockerfile").rows


def test_more_commands_than_anybody_writes_are_a_usage_error():
    with pytest.raises(UsageError, match="more than 5000"):
        adopted("FROM a\nRUN " + "a;" * (shell.MOST_COMMANDS + 1), "Dockerfile")


def test_texts_of_rows_have_neither_control_characters_nor_passwords():
    row = adopted("FROM python:3.11\nRUN git clone https://me:secret@a.example/x\x1b[2J", "Dockerfile").rows[1]
    assert "secret" not in row.text
    assert "\x1b" not in row.text
    assert len(shortened("a" * 10_000)) == 200


PIECES = (
    "FROM RUN COPY ENV ARG CMD WORKDIR LABEL pip install conda apt-get -r -f git clone cd mkdir chmod if fi { } ( ) "
    "&& || ; | > < << EOF ' \" ` $ ${ } $( ) \\ # = . / /opt .. torch==2.0 a[b] [ ] --from=x 755 \x1b é"
)
WORDS = st.sampled_from([*PIECES.split(" "), "\n", "\\\n", "\t"])


@given(st.lists(WORDS, max_size=40), st.sampled_from(["Dockerfile", "a.def", "a.sh", "a.md"]))
def test_random_texts_become_recipes_or_usage_errors(words, name):
    begins = {"Dockerfile": "FROM python:3.11\n", "a.def": "Bootstrap: docker\nFrom: a\n%post\n"}
    begin = begins.get(name, "pip install a\n")
    try:
        found = adopted(f"{begin}{' '.join(words)}", name)
    except UsageError:
        return
    assert {row.fate for row in found.rows} <= FATES.keys()
    own.parse(found.recipe, "mine.toml")


def test_kinds_have_a_reader_or_a_reason():
    assert [row.patterns[0] for row in kinds().commands if bool(row.reader) == bool(row.why)] == []


def test_command_writes_the_recipe_once_and_replaces_no_other(tmp_path, capsys):
    (tmp_path / "Dockerfile").write_text("FROM python:3.11\nRUN pip install einops\n")
    given = {"context": None, "build_arg": None, "as_json": False, "quiet": False}
    mine = tmp_path / "mine.toml"
    adopt(tmp_path / "Dockerfile", mine, plan=True, force=False, **given)
    assert "1 recipe, 1 the stack's already" in capsys.readouterr().out
    assert not mine.exists()
    for _ in range(2):
        adopt(tmp_path / "Dockerfile", mine, plan=False, force=False, **given)
        assert capsys.readouterr().out == f"{mine}\n"
    mine.write_text("extends = 'pyg'\n")
    with pytest.raises(UsageError, match=r"mine.toml is there, and is another recipe"):
        adopt(tmp_path / "Dockerfile", mine, plan=False, force=False, **given)
    adopt(tmp_path / "Dockerfile", mine, plan=False, force=True, **given)
    assert 'extends = "torch"' in mine.read_text()
    with pytest.raises(UsageError, match="is not a name of a recipe"):
        adopt(tmp_path / "Dockerfile", tmp_path / "mine.txt", plan=False, force=False, **given)
