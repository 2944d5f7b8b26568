"""Projects and their locks: pyproject.toml, uv.lock, pylock.toml, poetry.lock."""

import re

import pytest

from graphcrate.compat.requirements import own_packages, own_typed
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
wheels = [{{ path = "einops-0.7.0-py3-none-any.whl", hashes = {{ sha256 = "{SHA}" }} }}]
[[packages]]
name = "nvidia-cublas-cu12"
version = "12.1"
sdist = {{ path = "nvidia_cublas_cu12-12.1.tar.gz", hashes = {{ sha256 = "{SHA}" }} }}
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
        return own_typed.given([], [tmp_path / name])

    return reader


def test_pyproject_gives_dependencies_extras_and_groups(read):
    found = read(PROJECT)
    assert found.packages == ("torch>=2.2.0", "e3nn>=0.5.6,<0.6.0")
    assert [(one.name, one.specifier) for one in found.expected if not one.binding] == [("python", ">=3.10")]
    assert [one.location for one in found.channels] == ["https://own.example/simple"]
    more = read(PROJECT, "pyproject.toml[full,test]").packages[2:]
    assert more == ("scipy", "pytest", "ruff", "yacs", "huggingface_hub")


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


GROUPS = """\
lock-version = "1.0"
created-by = "pdm"
requires-python = ">=3.9.2"
extras = ["gpu"]
dependency-groups = ["default", "dev"]
default-groups = ["default"]
""" + "".join(
    f"""\
[[packages]]
name = "{name}"
version = "1"
marker = {marker!r}
wheels = [{{ path = "{name}-1-py3-none-any.whl", hashes = {{ sha256 = "{SHA}" }} }}]
"""
    for name, marker in {
        "einops": '"default" in dependency_groups',
        "rich": '"default" in dependency_groups and python_version < "3.11"',
        "cupy": '"gpu" in extras',
        "pytest": '"dev" in dependency_groups',
        "twine": '"dev" in dependency_groups and sys_platform == "win32"',
        "colorama": 'sys_platform == "win32"',
        "tqdm": 'platform_machine == "x86_64"',
    }.items()
)
OLD = " or ".join(
    f"python_version == '3.{n}' and platform_machine == '{m}'" for n in (10, 9) for m in ("aarch64", "x86_64")
)


@pytest.mark.parametrize(
    ("asked", "packages"),
    [
        ("", ["einops", "rich", "tqdm"]),
        ("[gpu]", ["einops", "rich", "cupy", "tqdm"]),
        ("[dev, gpu]", ["einops", "rich", "cupy", "pytest", "tqdm"]),
    ],
)
def test_pylock_gives_default_groups_and_what_was_asked_for(read, asked, packages):
    found = read(GROUPS, f"pylock.toml{asked}")
    assert [own_packages.name_of(package) for package in found.packages] == packages
    assert found.packages[:2] == ("einops==1", f"rich==1 ; {OLD}")
    assert found.packages[-1] == 'tqdm==1 ; platform_machine == "x86_64"'
    notes = [note.rpartition("pylock.toml: ")[2] for note in found.notes]
    assert notes[0] == "for other systems, and left out: colorama"
    left = {"": "cupy, pytest and twine", "[gpu]": "pytest and twine", "[dev, gpu]": "twine"}[asked]
    assert f" of extras and groups that were not asked for: {left}; " in found.notes[1]


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (GROUPS, "pylock.toml[docs]", "has no extra or group 'docs'; it has default, dev and gpu"),
        (GROUPS.replace(">=3.9.2", "<3.5"), "pylock.toml", "is for no image: python_full_version"),
        (
            GROUPS.replace("extras = ", "environments = [\"sys_platform == 'win32'\"]\nextras = "),
            "pylock.toml",
            "no image",
        ),
        (GROUPS.replace('"gpu" in extras', '"gpu" in nothing'), "pylock.toml", "is not a lock of PEP 751"),
        (GROUPS + GROUPS[GROUPS.index("[[") :], "pylock.toml", "Multiple packages with the name 'einops'"),
        (GROUPS.replace("1.0", "2.0"), "pylock.toml", "pylock version 2.0 is not supported"),
    ],
)
def test_pylock_that_cannot_be_taken_is_refused(read, text, name, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        read(text, name)


@pytest.mark.parametrize("marker", ['"gpu" in extras', "'dev' in dependency_groups", "python_version ~= 'x'"])
def test_marker_that_is_none_of_a_requirement_is_refused_with_its_line(read, tmp_path, marker):
    with pytest.raises(UsageError, match=r"requirements\.txt:2: the marker of rich cannot be evaluated"):
        read(f"einops\nrich ; {marker}\n", "requirements.txt")
    with pytest.raises(UsageError, match="the marker of rich cannot be evaluated"):
        own_typed.given([f"rich ; {marker}"], [])


def test_requirements_that_are_left_out_are_said(read):
    found = read(
        "einops --config-settings=a=b\npywin32 ; sys_platform == 'win32'\nrich ; extra == 'x'\n"
        "https://download.pytorch.org/whl/cu118/torch-2.0.1-cp311-cp311-win_amd64.whl ; sys_platform == 'win32'\n"
        f"tqdm --hash=md5:{'0' * 32}\n",
        "requirements.txt",
    )
    assert found.packages == ("einops", "tqdm")
    assert [note.rpartition("requirements.txt")[2] for note in found.notes] == [
        ":1: --config-settings is passed over (docs/compiling.md)",
        ":5: its --hash is not compared: it is not a sha256",
        ": for other systems, and left out: pywin32, rich and torch",
    ]


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
        ("pylock.toml", "a = 1\n", "is not a lock of PEP 751: Missing required value in 'lock-version'"),
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
        ("^0.6 || ^0.7", ">=0.6,<0.8"), (">=12 <14", ">=12,<14"), (">= 12, < 14", ">=12,<14"),
        ("^1.2 !=1.3", ">=1.2,<2,!=1.3"),
        ("^3.8 || ^3.11", ">=3.8,<4"), (">=3.9,<3.13 || 3.14.*", ">=3.9,<3.15,!=3.13.*"), ("^1 | ^3", "<4,!=0.*,!=2.*"),
        ("1.*", "==1.*"), ("==1.2.*", "==1.2.*"), ("!=1.5", "!=1.5"), ("~=1.4", "~=1.4"),
        ("^2.0.0rc1", ">=2.0.0rc1,<3"),
        ("3.10.x", "==3.10.*"),
        ("v1.2", "==1.2"),
        ("^v1.2", ">=1.2,<2"),
        ("^1.2.3-beta", ">=1.2.3-beta,<2"),
        ("^0.6.17+pt113cpu", ">=0.6.17,<0.7"),
        (">=2,<1 || ^3", ">=3,<4"), ("1.2 || *", ""), ("= 1.2", "==1.2"),
    ],
)  # fmt: skip
def test_poetry_version_is_a_pep_440_specifier(read, version, specifier):
    table = f'[tool.poetry.dependencies]\npython = ">=3.9 <3.13"\neinops = "{version}"\n'
    found = read(table)
    assert found.packages == (f"einops{specifier}",)
    assert [(each.name, each.specifier) for each in found.expected] == [("python", ">=3.9,<3.13")]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        *[(version, "is not a version of Poetry's") for version in ("^", "abc", "", "^1 ||", "^1.2.*", "1 2 x")],
        *[(version, "is not a requirement that") for version in (">=2,<1", "1.2 || 1.4", "^1.2 || 1.0.1")],
    ],
)
@pytest.mark.parametrize("key", ["einops", "python"])
def test_poetry_version_that_pep_440_cannot_say_is_refused_with_its_line(read, key, version, said):
    with pytest.raises(UsageError) as caught:
        read(f'[tool.poetry.dependencies]\nrich = "*"\n{key} = "{version}"\n')
    assert f"pyproject.toml:3: {key} {version!r} {said}" in str(caught.value)


def test_poetry_table_keys_are_taken_or_refused(read, tmp_path):
    table = "[tool.poetry.dependencies]\npython = { version = '^3.10' }\n"
    sources = "[[tool.poetry.source]]\nname = 'own'\nurl = 'https://own.example/simple'\n"
    found = read(
        f"{table}a = {{ version = '^1', python = '<3.11', markers = \"os_name == 'posix'\" }}\n"
        f"b = {{ git = 'https://git.example/b', platform = 'darwin' }}\n"
        f"c = {{ version = '^1', source = 'own' }}\n{sources}"
        "[tool.poetry.dev-dependencies]\npytest = '^7 || ^8'\n",
        "pyproject.toml[dev]",
    )
    assert found.packages == (
        "a>=1,<2 ; (os_name == 'posix') and (python_version < '3.11')",
        "c>=1,<2",
        "pytest>=7,<9",
    )
    assert [(each.name, each.specifier) for each in found.expected] == [("python", ">=3.10,<4")]
    assert [each.location for each in found.channels] == ["https://own.example/simple"]
    assert [note.rpartition(": ")[2] for note in found.notes] == ["b"]
    with pytest.raises(UsageError, match=r"pyproject\.toml:3: d is given by an address"):
        read(f"{table}d = {{ url = 'https://files.example/d-1-py3-none-any.whl' }}\n")
    found = read(f"{table}e = {{ git = 'https://git.example/e', tag = 'v1', subdirectory = 'x' }}\n")
    assert found.packages == ("git+https://git.example/e@v1#subdirectory=x",)
    with pytest.raises(UsageError, match=r"pyproject\.toml:3: e is in a folder of its archive"):
        read(f"{table}e = {{ url = 'https://files.example/e.zip', subdirectory = 'x' }}\n")


def test_folder_of_a_project_in_a_repository_comes_along_from_locks(read, tmp_path):
    address = "https://git.example/other?subdirectory=python%2Fpkg&rev=main#0123456789"
    found = read(UV.replace("https://git.example/other?rev=main#0123456789", address), "uv.lock")
    assert "git+https://git.example/other@0123456789#subdirectory=python/pkg" in found.packages
    vcs = 'commit-id = "0123"'
    found = read(PYLOCK.replace(vcs, f'{vcs}, subdirectory = "python"'), "pylock.toml")
    assert "git+https://git.example/mine@0123#subdirectory=python" in found.packages
    with pytest.raises(UsageError, match="not a folder below the repository"):
        read(PYLOCK.replace(vcs, f'{vcs}, subdirectory = "../x"'), "pylock.toml")


PEP_735 = """\
[project]
name = "demo"
dependencies = ["einops"]
[project.optional-dependencies]
Lint = ["black"]
extra = ["demo[lint]"]
[dependency-groups]
test = ["pytest >= 7", { include-group = "LINT_" }, "demo[extra]"]
lint- = ["ruff ; python_version>'3.8'"]
"""


def test_group_of_a_project_has_what_it_includes_as_it_is_written(read):
    found = read(PEP_735.replace("LINT_", "lint-"), "pyproject.toml[test]").packages
    assert found == ("einops", "pytest >= 7", "ruff ; python_version>'3.8'", "black")
    assert read(PEP_735, "pyproject.toml[lint]").packages == ("einops", "black")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("", "Dependency group 'lint-' not found"),
        (('"LINT_"', '"test"'), "Cyclic dependency group include while resolving test: test includes itself"),
        (('{ include-group = "LINT_" }', '{ include = "lint" }'), "Invalid dependency group item"),
        (("lint-", "TEST"), "Duplicate dependency group names: test"),
        (("pytest >= 7", "pytest = 7"), "pyproject.toml:8: 'pytest = 7' has one = as conda writes it"),
    ],
)
def test_group_that_is_not_as_pep_735_has_it_is_refused(read, change, words):
    text = PEP_735.replace(*change) if change else PEP_735.replace("lint-", "style")
    if change:
        text = text.replace("LINT_", "lint-")
    with pytest.raises(UsageError) as caught:
        read(text, "pyproject.toml[test]")
    assert words in str(caught.value)


def test_uv_lock_gives_groups_and_refuses_unknown_ones(read):
    text = UV.replace(
        "requires-dist", 'requires-dev = { test = [{ name = "ruff", specifier = ">=0.4" }] }\nrequires-dist', 1
    )
    assert "ruff>=0.4" in read(text, "uv.lock[test]").packages
    found = read(text, "uv.lock")
    assert any(note.endswith("twice is locked at 1 and 2, which bounds nothing here") for note in found.notes)
    with pytest.raises(UsageError, match=r"uv\.lock has no extra or group 'docs'; it has dev and test"):
        read(text, "uv.lock[docs]")


def test_project_for_a_python_that_is_not_a_version_is_refused(read):
    with pytest.raises(UsageError, match=r"pyproject\.toml says that it is for Python '\^'"):
        read('[project]\nname = "a"\nrequires-python = "^"\n')


@pytest.mark.parametrize(
    "text",
    [
        '[tool.poetry.dependencies]\nx = "*"\n[[tool.poetry.source]]\nname = "s"\nurl = ""\n',
        '[project]\nname = "a"\ndependencies = ["x"]\n[[tool.uv.index]]\nurl = ""\n',
    ],
)
def test_empty_address_of_an_index_is_no_index(read, text):
    assert (read(text).packages, read(text).channels) == (("x",), ())


def test_empty_dependency_is_refused(read):
    with pytest.raises(UsageError, match="is not a package"):
        read('[project]\nname = "a"\ndependencies = [""]\n')


FORKED = """
[[package]]
name = "ipython"
version = "8.38.0"
source = { registry = "https://index.example/simple" }
resolution-markers = ["python_full_version < '3.11' and sys_platform == 'linux'", "python_full_version < '3.11'"]
[[package]]
name = "ipython"
version = "9.10.0"
source = { registry = "https://index.example/simple" }
resolution-markers = ["python_full_version >= '3.11'"]
[[package]]
name = "triton"
version = "3.1.0"
source = { registry = "https://index.example/simple" }
resolution-markers = ["python_full_version < '3.11'"]
[[package]]
name = "triton"
version = "3.2.0"
source = { registry = "https://index.example/simple" }
resolution-markers = ["python_full_version >= '3.11'"]
"""


def test_forked_package_of_uv_lock_is_bounded_by_its_markers(read):
    found = read(UV + FORKED, "uv.lock")
    assert [line for line in found.constraints if line.startswith("ipython")] == [
        "ipython==8.38.0 ; (python_full_version < '3.11' and sys_platform == 'linux')"
        " or (python_full_version < '3.11')",
        "ipython==9.10.0 ; (python_full_version >= '3.11')",
    ]
    assert any(note.endswith("triton is locked at 3.1.0 and 3.2.0, which bounds nothing here") for note in found.notes)


PIXI = """
[tool.pixi.workspace]
channels = ["conda-forge"]
platforms = ["linux-64", "osx-arm64"]
[tool.pixi.dependencies]
python = ">=3.11"
rdkit = ">=2024"
pytorch = { version = "2.0.*", channel = "pytorch" }
[tool.pixi.pypi-dependencies]
torch-ema = "*"
einops = ">=0.7"
jraph = { version = "==0.0.6", extras = ["x"] }
mine = { path = ".", editable = true }
other = { git = "https://git.example/other", rev = "v1" }
[tool.pixi.target.osx-arm64.dependencies]
onlymac = "*"
[tool.pixi.target.linux-64.pypi-dependencies]
onlylinux = "==1.0"
[tool.pixi.feature.train.pypi-dependencies]
wandb = "*"
[tool.pixi.feature.lint.dependencies]
ruff = "*"
"""
TAKEN = ("rdkit>=2024", "torch==2.0.*", "torch-ema", "einops>=0.7", "jraph[x]==0.0.6")


@pytest.mark.parametrize(
    ("file", "text"),
    [("pyproject.toml", PIXI), ("pixi.toml", PIXI.replace("[tool.pixi.", "["))],
)
def test_pixi_tables_are_taken_and_what_is_not_is_named(read, file, text):
    found = read(text, file)
    assert found.packages[:5] == TAKEN
    assert set(found.packages[5:]) == {"git+https://git.example/other@v1", "onlylinux==1.0"}
    assert ("python", ">=3.11") in [(each.name, each.specifier) for each in found.expected]
    notes = "\n".join(found.notes)
    assert "mine, the project itself, is not taken: WITH=./ is" in notes
    assert f"features of pixi's are not taken by themselves: train and lint; 'REQUIREMENTS={file}[train]'" in notes
    assert "wandb" in read(text, f"{file}[train]").packages


def test_pixi_tables_beside_a_project_are_taken_too(read):
    found = read('[project]\nname = "p"\ndependencies = ["tqdm"]\n' + PIXI)
    assert {"tqdm", "rdkit>=2024", "torch-ema"} <= set(found.packages)


def test_unknown_pixi_feature_is_refused(read):
    with pytest.raises(UsageError, match=r"pixi\.toml has no feature 'docs'; it has lint and train"):
        read(PIXI.replace("[tool.pixi.", "["), "pixi.toml[docs]")


FORKED_POETRY = """
[[package]]
name = "einops"
version = "0.7.1"
groups = ["main"]
markers = "python_version < '3.11'"
[[package]]
name = "einops"
version = "0.7.9"
groups = ["main", "dev"]
markers = { main = "python_version >= '3.11' or extra == 'log'", dev = "python_version >= '3.12'" }
[[package]]
name = "tqdm"
version = "4.66.1"
groups = ["main"]
[[package]]
name = "tqdm"
version = "4.66.2"
groups = ["main"]
[[package]]
name = "mine"
version = "1.0"
groups = ["main"]
[package.source]
type = "git"
url = "https://git.example/mine.git"
reference = "v1"
resolved_reference = "c0ffee"
"""


@pytest.mark.parametrize(("asked", "extra"), [("", "none"), ("[log]", "linux")])
def test_forked_package_of_poetry_lock_is_bounded_by_its_markers(read, tmp_path, asked, extra):
    (tmp_path / "pyproject.toml").write_text(POETRY)
    found = read(FORKED_POETRY, f"poetry.lock{asked}")
    assert found.constraints == (
        "einops==0.7.1 ; python_version < '3.11'",
        f"einops==0.7.9 ; (python_version >= '3.11' or sys_platform == '{extra}')",
    )
    assert any(note.endswith("tqdm is locked at 4.66.1 and 4.66.2, which bounds nothing here") for note in found.notes)
    assert "git+https://git.example/mine.git@c0ffee" in found.packages


PDM = """\
[project]
dependencies = ["einops>=0.6", "mine @ git+https://git.example/mine.git@main", "win ; sys_platform == 'win32'"]
[tool.pdm.dev-dependencies]
test = ["pytest>=7"]
[[tool.pdm.source]]
name = "own"
url = "https://own.example/simple"
"""
PDM_LOCK = f"""\
[metadata]
groups = ["default", "test"]
[[package]]
name = "einops"
version = "0.7.0"
marker = "python_version >= '3.11'"
files = [{{ file = "einops.whl", hash = "sha256:{SHA}" }}]
[[package]]
name = "einops"
version = "0.6.1"
marker = "python_version < '3.11'"
[[package]]
name = "ray"
version = "2.9.0"
[[package]]
name = "ray"
version = "2.9.0"
extras = ["default"]
[[package]]
name = "mine"
version = "1.0"
git = "https://git.example/mine.git"
ref = "main"
revision = "c0ffee"
[[package]]
name = "torch"
version = "2.0.1"
"""


def test_pdm_lock_gives_versions_hashes_and_commits(read, tmp_path):
    (tmp_path / "pyproject.toml").write_text(PDM)
    found = read(PDM_LOCK, "pdm.lock[test]")
    assert found.packages == ("einops>=0.6", "git+https://git.example/mine.git@c0ffee", "pytest>=7")
    assert found.constraints == (
        "einops==0.7.0 ; python_version >= '3.11'",
        "einops==0.6.1 ; python_version < '3.11'",
        "ray==2.9.0",
    )
    assert found.hashes == {"einops": (SHA,)}
    assert [channel.location for channel in found.channels] == ["https://own.example/simple"]
    assert "torch" in [each.name for each in found.expected]


def test_message_of_an_unknown_extra_names_no_group_that_is_not_there(read):
    with pytest.raises(UsageError, match=r"has no extra or group 'trian'; it has train\n"):
        read('[project]\n[project.optional-dependencies]\ntrain = ["wandb"]\n', "pyproject.toml[trian]")
