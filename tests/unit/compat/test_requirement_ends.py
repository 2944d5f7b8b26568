"""No requirement of a file vanishes: it is asked for in its versions, compared with the stack, named, or refused."""

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from graphcrate.compat.requirements import own_typed
from graphcrate.model.errors import UsageError

#: what files name: unknown to all tables, of the stack, of torch, of conda's own system, of Debian, a back-end's
KNOWN = (
    *("torch", "torch-scatter", "torch_geometric", "nvidia-cublas-cu12", "triton", "numpy", "einops", "ogb", "scipy"),
    *("openssl", "graphviz", "pip", "setuptools", "wheel", "pkg-resources", "rdkit", "mpi4py", "cmake", "ninja"),
)
#: of conda's list, under whose names its packages are elsewhere
OTHERWISE = {"graphviz": ("graphviz", "python-graphviz"), "openssl": ("openssl",)}
SPECIFIERS = ("", "==1.5", ">=1.5", ">=1.5,<2", "!=1.7")
MARKERS = ("", "sys_platform == 'win32'", "python_version >= '3.8'", "python_version < '3.8'")


def line(asked):
    name, specifier, marker = asked
    return f"{name}{specifier}" + (f" ; {marker}" if marker else "")


def toml_list(asked):
    return "[" + ", ".join(f'"{line(one)}"' for one in asked) + "]"


def poetry_table(asked):
    rows = (
        f'"{name}" = {{ version = "{specifier or "*"}"' + (f', markers = "{marker}"' if marker else "") + " }"
        for name, specifier, marker in asked
    )
    return "[tool.poetry.dependencies]\n" + "\n".join(rows)


def versions_table(asked):
    return "\n".join(f'"{name}" = "{specifier or "*"}"' for name, specifier, _ in asked)


def locked(asked, more=""):
    return "".join(f'[[package]]\nname = "{name}"\nversion = "1.5"\n{more}' for name, _, _ in asked)


def uv_lock(asked):
    needs = ", ".join(
        f'{{ name = "{canonicalize_name(name)}", specifier = "{specifier}", marker = "{marker}" }}'
        for name, specifier, marker in asked
    )
    root = f'[[package]]\nname = "own"\nsource = {{ virtual = "." }}\n[package.metadata]\nrequires-dist = [{needs}]\n'
    return root + locked(
        [(canonicalize_name(name), "", "") for name, _, _ in asked], 'source = { registry = "https://i.example/" }\n'
    )


def pylock(asked):
    rows = "".join(
        f'[[packages]]\nname = "{canonicalize_name(name)}"\nversion = "1.5"\n'
        + (f'marker = "{marker}"\n' if marker else "")
        + 'sdist = { name = "a-1.5.tar.gz", url = "https://i.example/a-1.5.tar.gz", '
        + f'hashes = {{ sha256 = "{"ab" * 32}" }} }}\n'
        for name, _, marker in asked
    )
    return f'lock-version = "1.0"\ncreated-by = "x"\n{rows}'


def project(body):
    return f'[project]\nname = "own"\nversion = "1"\n{body}\n'


#: a kind of file → how it is given, its text for requirements, its pyproject.toml; and whether it has versions, markers
KINDS = {
    "requirements": ("requirements.txt", lambda asked: "\n".join(map(line, asked)), True, True),
    "constrained": (
        "requirements.txt",
        lambda asked: "\n".join(f"{line(one)} -f ./links" for one in asked),
        True,
        True,
    ),
    "included": ("requirements.txt", lambda asked: "-r more.txt\ntabulate\n", True, True),
    "project": ("pyproject.toml", lambda asked: project(f"dependencies = {toml_list(asked)}"), True, True),
    "dynamic": (
        "pyproject.toml",
        lambda asked: project(
            'dynamic = ["dependencies"]\n[tool.setuptools.dynamic]\ndependencies = { file = ["more.txt"] }'
        ),
        True,
        True,
    ),
    "extra": (
        "pyproject.toml[x]",
        lambda asked: project(f"[project.optional-dependencies]\nx = {toml_list(asked)}"),
        True,
        True,
    ),
    "group": (
        "pyproject.toml[x]",
        lambda asked: project(f'[dependency-groups]\nx = [{{ include-group = "y" }}]\ny = {toml_list(asked)}'),
        True,
        True,
    ),
    "pdm": (
        "pyproject.toml[x]",
        lambda asked: project(f"[tool.pdm.dev-dependencies]\nx = {toml_list(asked)}"),
        True,
        True,
    ),
    "poetry": ("pyproject.toml", poetry_table, True, True),
    "pixi": (
        "pyproject.toml",
        lambda asked: project(f"[tool.pixi.pypi-dependencies]\n{versions_table(asked)}"),
        True,
        False,
    ),
    "pixi of conda": ("pixi.toml", lambda asked: f"[dependencies]\n{versions_table(asked)}", False, False),
    "environment": (
        "environment.yml",
        lambda asked: "dependencies:\n" + "\n".join(f"- {name}{specifier}" for name, specifier, _ in asked),
        False,
        False,
    ),
    "pip of environment": (
        "environment.yml",
        lambda asked: "dependencies:\n- pip:\n" + "\n".join(f'  - "{line(one)}"' for one in asked),
        True,
        True,
    ),
    "list of conda": (
        "list.txt",
        lambda asked: "# platform: linux-64\n" + "\n".join(f"{name}=1.5=py_0" for name, _, _ in asked),
        False,
        False,
    ),
    "uv": ("uv.lock", uv_lock, True, True),
    "poetry.lock": ("poetry.lock", locked, True, True),
    "pdm.lock": ("pdm.lock", locked, True, True),
    "pylock": ("pylock.toml", pylock, False, True),
}
NAMES = st.sampled_from(KNOWN) | st.from_regex(r"[a-z]{3,5}[._-]q[0-9]{1,2}", fullmatch=True)
ASKED = st.lists(
    st.tuples(NAMES, st.sampled_from(SPECIFIERS), st.sampled_from(MARKERS)),
    min_size=1,
    max_size=5,
    unique_by=lambda one: canonicalize_name(one[0]),
)


def plain(text):
    return re.sub(r"[-_.]+", "-", text.lower())


def is_named(name, texts):
    words = rf"(?<![a-z0-9-]){re.escape(plain(name))}(?![a-z0-9-]|$)"
    return any(re.search(words, plain(text) + " ") for text in texts)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(asked=ASKED)
def test_requirement_of_a_file_is_asked_for_compared_named_or_refused(kind, asked):
    given_as, text_of, has_versions, has_markers = KINDS[kind]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "links").mkdir()
        (folder / "more.txt").write_text("\n".join(map(line, asked)))
        if given_as in ("poetry.lock", "pdm.lock"):
            (folder / "pyproject.toml").write_text(project(f"dependencies = {toml_list(asked)}"))
        (folder / given_as.partition("[")[0]).write_text(text_of(asked))
        try:
            found = own_typed.given([], [folder / given_as])
        except UsageError as error:  # the whole file, which is said
            said = [str(error), error.cause, error.next_step]
            assert any(is_named(one, said) for one, _, _ in asked) or "has no packages" in said[0], said
            return
    wanted = {str(canonicalize_name(Requirement(text).name)): Requirement(text) for text in found.packages}
    compared = {one.name for one in found.expected}
    for one, specifier, marker in asked:
        normal = str(canonicalize_name(one))
        assert normal in wanted or normal in compared or is_named(one, found.notes), (one, found)
        if normal in wanted and has_versions:
            assert wanted[normal].specifier == SpecifierSet(specifier)
        if normal in wanted and has_markers and marker:
            assert wanted[normal].marker is not None


@pytest.mark.parametrize(
    "named",
    [
        ("pytorch", "pytorch-cuda", "pyg", "pytorch-scatter", "pytorch-sparse", "pytorch-cluster", "torchvision"),
        ("openssl", "libgcc-ng", "ca-certificates", "ncurses", "readline", "zlib", "bzip2"),
        ("gcc", "gxx", "git", "graphviz", "cmake", "make", "curl"),
        ("a-q1", "a-q2", "a-q3", "a-q4", "a-q5", "a-q6", "a-q7"),
    ],
    ids=["of the stack", "of conda's system", "of Debian", "unknown"],
)
def test_each_of_many_packages_of_conda_is_named(named, tmp_path):
    path = tmp_path / "environment.yml"
    path.write_text("dependencies:\n" + "".join(f"- {name}\n" for name in named))
    found = own_typed.given([], [path])
    taken = {str(canonicalize_name(Requirement(text).name)) for text in found.packages}
    assert [name for name in named if name not in taken and not is_named(name, found.notes)] == []


def test_each_channel_build_and_feature_is_named(tmp_path):
    names = ("ase", "einops", "h5py", "lmdb", "numba", "pandas")
    (tmp_path / "environment.yml").write_text(
        "dependencies:\n" + "".join(f"- c-{name}::{name}=*=py_{name}\n" for name in names)
    )
    notes = own_typed.given([], [tmp_path / "environment.yml"]).notes
    assert [name for name in names if not is_named(f"c-{name}", notes) or not is_named(f"py-{name}", notes)] == []
    tables = "".join(f'[feature.f-{name}.dependencies]\n{name} = "*"\n' for name in names)
    (tmp_path / "pixi.toml").write_text(f'[dependencies]\ntqdm = "*"\n{tables}')
    notes = own_typed.given([], [tmp_path / "pixi.toml"]).notes
    assert [name for name in names if not is_named(f"f-{name}", notes)] == []
