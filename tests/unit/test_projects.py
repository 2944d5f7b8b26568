"""Projects and their locks: pyproject.toml, uv.lock, pylock.toml, poetry.lock."""

import pytest

from graphcrate.compat import own, projects
from graphcrate.model.errors import UsageError

SHA = "ab" * 32
#: as mir-group/nequip's and pyg-team/pytorch_geometric's, rewritten and shortened
PROJECT = """\
[project]
name = "My_Project"
requires-python = ">=3.10"
dependencies = ["torch>=2.2.0", "e3nn>=0.5.6,<0.6.0"]
[project.optional-dependencies]
graphgym = ["yacs"]
full = ["scipy", "my-project[graphgym, modelhub]"]
modelhub = ["huggingface_hub"]
[dependency-groups]
test = ["pytest", { include-group = "lint" }]
lint = ["ruff"]
[[tool.uv.index]]
url = "https://own.example/simple"
"""
POETRY = """\
[tool.poetry.dependencies]
python = "^3.10"
numpy = "^1.21"
einops = "~0.7.1"
scipy = { version = ">=1.9", extras = ["x"] }
mine = { git = "https://git.example/mine.git", rev = "v1" }
wandb = { version = "*", optional = true }
tqdm = "4.66.1"
zero = "^0.2.3"
[tool.poetry.group.dev.dependencies]
pytest = "*"
[tool.poetry.extras]
log = ["wandb"]
"""
UV = f"""\
version = 1
requires-python = ">=3.11"
[[package]]
name = "mine"
version = "0.1"
source = {{ editable = "." }}
[package.metadata]
requires-dist = [
  {{ name = "einops", specifier = ">=0.6" }},
  {{ name = "torch", specifier = ">=2" }},
  {{ name = "pytest", marker = "extra == 'dev'" }},
  {{ name = "other" }},
  {{ name = "win", marker = "sys_platform == 'win32'" }},
]
[[package]]
name = "einops"
version = "0.7.0"
source = {{ registry = "https://index.example/simple" }}
wheels = [{{ url = "https://files.example/einops-0.7.0-py3-none-any.whl", hash = "sha256:{SHA}" }}]
[[package]]
name = "torch"
version = "2.4.1+cu121"
source = {{ registry = "https://download.pytorch.org/whl/cu121" }}
[[package]]
name = "other"
version = "1"
source = {{ git = "https://git.example/other?rev=main#0123456789" }}
[[package]]
name = "twice"
version = "1"
source = {{ registry = "https://index.example/simple" }}
[[package]]
name = "twice"
version = "2"
source = {{ registry = "https://index.example/simple" }}
"""
PYLOCK = f"""\
lock-version = "1.0"
created-by = "uv"
[[packages]]
name = "einops"
version = "0.7.0"
marker = "python_version >= '3.8'"
wheels = [{{ name = "einops-0.7.0-py3-none-any.whl", hashes = {{ sha256 = "{SHA}" }} }}]
[[packages]]
name = "nvidia-cublas-cu12"
version = "12.1"
[[packages]]
name = "mine"
vcs = {{ type = "git", url = "https://git.example/mine", commit-id = "0123" }}
"""
POETRY_LOCK = f"""\
[[package]]
name = "numpy"
version = "1.26.4"
files = [{{ file = "numpy.whl", hash = "sha256:{SHA}" }}]
"""


@pytest.fixture
def read(tmp_path):
    def reader(text, name="pyproject.toml"):
        (tmp_path / name.partition("[")[0]).write_text(text)
        return own.given([], [tmp_path / name])

    return reader


def test_pyproject_gives_dependencies_extras_and_groups(read):
    found = read(PROJECT)
    assert found.packages == ("torch>=2.2.0", "e3nn>=0.5.6,<0.6.0")
    assert [(one.name, one.specifier) for one in found.expected if not one.binding] == [("python", ">=3.10")]
    assert [one.location for one in found.channels] == ["https://own.example/simple"]
    more = read(PROJECT, "pyproject.toml[full,test]").packages[2:]
    assert more == ("scipy", "pytest", "yacs", "huggingface_hub", "ruff")


def test_pyproject_with_dynamic_dependencies_reads_their_files(read, tmp_path):
    (tmp_path / "reqs.txt").write_text("einops\n")
    found = read(
        '[project]\nname = "x"\ndynamic = ["dependencies"]\n'
        '[tool.setuptools.dynamic]\ndependencies = { file = ["reqs.txt"] }\n'
    )
    assert found.packages == ("einops",)


def test_poetry_table_gives_pep_440_requirements(read):
    assert read(POETRY).packages == (
        *("numpy>=1.21,<2", "einops>=0.7.1,<0.8", "scipy[x]>=1.9", "git+https://git.example/mine.git@v1"),
        *("tqdm==4.66.1", "zero>=0.2.3,<0.3"),
    )
    assert read(POETRY, "pyproject.toml[log,dev]").packages[-2:] == ("wandb", "pytest")


def test_uv_lock_gives_packages_constraints_and_hashes(read):
    found = read(UV, "uv.lock")
    assert found.packages == ("einops>=0.6", "torch>=2", "git+https://git.example/other@0123456789")
    assert found.constraints == ("einops==0.7.0",)
    assert found.hashes == {"einops": (SHA,)}
    assert [(one.name, one.specifier, one.build) for one in found.expected if not one.binding] == [
        ("torch", "==2.4.1", "cu121"),
        ("python", ">=3.11", ""),
    ]
    assert [one.location for one in found.channels] == [
        "https://index.example/simple",
        "https://download.pytorch.org/whl/cu121",
    ]
    assert "pytest ; sys_platform == 'linux'" in read(UV, "uv.lock[dev]").packages


def test_pylock_gives_packages_and_hashes(read):
    found = read(PYLOCK, "pylock.gpu.toml")
    assert found.packages == ("einops==0.7.0 ; python_version >= '3.8'", "git+https://git.example/mine@0123")
    assert found.hashes == {"einops": (SHA,)}
    assert [one.name for one in found.expected if not one.binding] == ["nvidia-cublas-cu12"]


def test_poetry_lock_needs_its_pyproject(read, tmp_path):
    with pytest.raises(UsageError, match=r"pyproject\.toml beside it"):
        read(POETRY_LOCK, "poetry.lock")
    (tmp_path / "pyproject.toml").write_text(POETRY)
    found = read(POETRY_LOCK, "poetry.lock")
    assert "numpy>=1.21,<2" in found.packages
    assert (found.constraints, found.hashes) == (("numpy==1.26.4",), {"numpy": (SHA,)})


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("pyproject.toml", "[build-system]\n", "has no [project]"),
        ("pyproject.toml", "[project\n", "is not TOML"),
        ("pyproject.toml", "[project]\ndependencies = 'a'\n", "Expected `array`, got `str`"),
        ("pyproject.toml", "[project]\ndynamic = ['dependencies']\n", "calls its dependencies dynamic"),
        ("pyproject.toml", "[project]\ndependencies = ['a b']\n", "pyproject.toml:2: 'a b' is not a package"),
        ("pyproject.toml", f"[project]\nx = {'9' * 5000}\n", "cannot be read"),
        ("pyproject.toml[x]", "[project]\ndependencies = ['a']\n", "has no extra or group 'x'"),
        ("uv.lock", "version = 1\n", "locks no project"),
        ("pylock.toml", "a = 1\n", "missing required field `packages`"),
        ("Pipfile.lock", "{}", "is not a file of requirements"),
        ("setup.py", "", "is not a file of requirements"),
    ],
)
def test_unsupported_project_file_is_a_usage_error(read, name, text, what):
    with pytest.raises(UsageError) as caught:
        read(text, name)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("version", "specifier"),
    [
        ("^1.2.3", ">=1.2.3,<2"), ("^0.2", ">=0.2,<0.3"), ("^0.0.3", ">=0.0.3,<0.0.4"), ("^0", ">=0,<1"),
        ("~1.2.3", ">=1.2.3,<1.3"), ("~1", ">=1,<2"), ("1.2", "==1.2"), ("*", ""), (">=1,<2", ">=1,<2"),
    ],
)  # fmt: skip
def test_poetry_caret_version_is_a_pep_440_specifier(version, specifier):
    assert "".join(projects._caret(version)) == specifier


@pytest.mark.parametrize("text", ['[project]\nname = "a"\nrequires-python = "^"\n', POETRY.replace("^3.10", "^")])
def test_project_for_a_python_that_is_no_version_is_refused(text):
    with pytest.raises(UsageError, match=r"pyproject\.toml says that it is for Python '\^'"):
        projects.pyproject(text, "pyproject.toml")


def test_poetry_alternatives_of_python_are_compared_with_none():
    assert projects.pyproject(POETRY.replace("^3.10", "^3.8 || ^3.11"), "pyproject.toml").expected == []
