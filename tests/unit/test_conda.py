"""Conda's environments: what is taken, what is the stack's, what is said of the rest."""

import pytest

from graphcrate.compat import conda, own
from graphcrate.model.errors import UsageError

#: as torchmd/torchmd-net's environment.yml, rewritten, with what others have besides
ENVIRONMENT = """\
name: mine
channels: [conda-forge]
dependencies:
  - python=3.9
  - cudatoolkit=11.8
  - h5py
  - matplotlib-base
  - conda-forge::rdkit=2023.03
  - nnpops==0.5
  - pip
  - pytorch==2.0.*
  - pytorch_geometric==2.3.1
  - pydantic<2
  - numpy[version='>=1.20,<2']
  - pandas 1.5.3
  - libgcc-ng=13.2.0=h807b86a_3
  - gxx
  - graph-tool
  - pip:
    - -f https://data.pyg.org/whl/torch-2.0.0+cu118.html
    - torch-scatter
    - einops==0.7  # pinned
    - -r more.txt
variables:
  A: b
"""


@pytest.fixture
def read(tmp_path):
    (tmp_path / "more.txt").write_text("wandb\n")

    def reader(text, name="environment.yml"):
        (tmp_path / name).write_text(text)
        return own.given([], [tmp_path / name])

    return reader


def test_conda_environment_gives_packages(read):
    found = read(ENVIRONMENT)
    assert found.packages == (
        *("h5py", "matplotlib", "rdkit==2023.03.*", "torch==2.0.*", "torch-geometric==2.3.1", "pydantic<2"),
        *("numpy<2,>=1.20", "pandas==1.5.3.*", "torch-scatter", "einops==0.7", "wandb"),
    )
    assert [(one.name, one.specifier) for one in found.expected if not one.binding] == [
        ("python", "==3.9.*"),
        ("cuda", "==11.8.*"),
    ]
    assert [one.where.rpartition("/")[2] for one in found.channels] == ["environment.yml:20"]
    notes = "\n".join(found.notes)
    for told in ("python, cudatoolkit, pytorch", "libgcc-ng is a package", "APT=g++", "nnpops (line 9", "variables"):
        assert told in notes
    assert "python3-graph-tool" in notes


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        (
            "# platform: linux-64\nnumpy=1.26.4=py311h64a7726_0\neinops=0.7.0=pypi_0\n",
            ("numpy==1.26.4.*", "einops==0.7.0"),
        ),
        ("# $ conda create --name x --file y\n_libgcc_mutex=0.1=main\ntqdm=4.66.1=pyhd8ed1ab_0\n", ("tqdm==4.66.1.*",)),
    ],
)
def test_conda_list_gives_packages(read, text, packages):
    assert read(text, "requirements.txt").packages == packages


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: [", "environment.yml:1: not YAML"),
        ("services: {}\n", "is not an environment of conda: it has no list of `dependencies`"),
        ("dependencies: numpy\n", "it has no list of `dependencies`"),
        ("dependencies:\n- conda: [a]\n", "environment.yml:2: neither a package nor a list under `pip:`"),
        ("dependencies:\n- '%%'\n", "environment.yml:2: '%%' is not a package of conda's"),
        ("dependencies:\n- pip:\n  - a b\n", "environment.yml:3: 'a b' is not a package"),
        ("a: 1\n---\nb: 2\n", "environment.yml:2: not YAML"),
        ("[" * 5000, "is not YAML: lists within lists without end"),
        ("dependencies: []\n", "environment.yml has no packages"),
        ("\0", "is not YAML"),
        ("!!python/object/apply:os.system ['true']\n", "it has no list of `dependencies`"),
    ],
)
def test_invalid_conda_environment_is_a_usage_error_with_its_line(read, text, what):
    with pytest.raises(UsageError) as caught:
        read(text)
    assert what in str(caught.value)


def test_explicit_conda_list_is_refused_with_conda_env_export(read):
    with pytest.raises(UsageError, match="conda env export --from-history"):
        read("@EXPLICIT\nhttps://host.example/linux-64/numpy-1.26.4.conda\n", "spec.txt")


def test_nested_yaml_aliases_are_not_expanded(read):
    """A billion laughs: as values these would be 10^9 texts."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    found = read("\n".join([*lines, "dependencies:", "- numpy"]))
    assert found.packages == ("numpy",)


def test_conda_names_are_unique_and_normalised():
    names = conda._names()
    parts = [names.stack, names.index, names.same, names.debian, names.none]
    every = [name for part in parts for name in part]
    assert len(every) == len(set(every))
    assert every == [name.lower().replace("_", "-").replace(".", "-") for name in every]
