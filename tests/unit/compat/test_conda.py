"""Conda's environments: what is taken, what is the stack's, what is said of the rest."""

import pytest

from graphcrate.compat.requirements import conda, own_typed
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
        return own_typed.given([], [tmp_path / name])

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
    for told in (
        "python, cudatoolkit, pip, pytorch",
        "libgcc-ng is a package",
        "APT=g++",
        "nnpops (line 9",
        "variables",
    ):
        assert told in notes
    assert "python3-graph-tool" in notes


@pytest.mark.parametrize(
    ("spec", "package"),
    [
        ("scipy=1.10|1.11", "scipy>=1.10,<1.12"),
        ("pandas>=1.5,<2|>=2.1", "pandas>=1.5,!=2.0.*"),
        ("'pandas >=1.5, <2 | >= 2.1'", "pandas>=1.5,!=2.0.*"),
        ("scipy[version='=1.10|=1.12']", "scipy>=1.10,<1.13,!=1.11.*"),
        ("'scipy <1|>=1.10'", "scipy!=1.0.*,!=1.1.*,!=1.2.*,!=1.3.*,!=1.4.*,!=1.5.*,!=1.6.*,!=1.7.*,!=1.8.*,!=1.9.*"),
        ("scipy ==1.10|==1.10", "scipy==1.10"),
        ("scipy=1.10|*", "scipy"),
        ("scipy=1.10*", "scipy==1.10.*"),
        ("scipy>=1.10.*", "scipy>=1.10"),
        ("scipy!=1.10*", "scipy!=1.10.*"),
        ("scipy=1.10=py311h_0", "scipy==1.10.*"),
        ("scipy 1.10 py311h_0", "scipy==1.10.*"),
        ("scipy>=1.10=py311h_0", "scipy>=1.10"),
        ("dgl=1.1.1.cu118", "dgl==1.1.1"),
    ],
)
def test_conda_version_is_a_pep_440_specifier(read, spec, package):
    assert read(f"dependencies:\n- {spec}\n").packages == (package,)


@pytest.mark.parametrize(
    ("spec", "said", "step"),
    [
        ("scipy==1.10|==1.12", "has alternatives that no one requirement can say", "scipy==1.10 or scipy==1.12"),
        ("scipy=1.10|>=2.1", "has alternatives that no one requirement can say", "scipy==1.10.* or scipy>=2.1"),
        ("pytz=2023c", "is not a version that the package index can have", "change line 3"),
        ("scipy=^1.*$", "is not a version that the package index can have", "change line 3"),
        ("scipy=(1.10|1.11)", "is not a version that the package index can have", "change line 3"),
        ("scipy=1.10|", "is not a version that the package index can have", "change line 3"),
        ("pytorch=2.0b", "is not a version that the package index can have", "change line 3"),
        (
            "python==3.9.1|==3.12.1",
            "has alternatives that no one requirement can say",
            "python==3.9.1 or python==3.12.1",
        ),
    ],
)
def test_conda_version_that_pep_440_cannot_say_is_refused_with_its_line(read, spec, said, step):
    with pytest.raises(UsageError) as caught:
        read(f"dependencies:\n- numpy\n- {spec}\n")
    assert f"environment.yml:3: {spec.partition('=')[0]} " in str(caught.value)
    assert said in str(caught.value)
    assert step in caught.value.next_step


def test_what_an_index_has_no_word_for_is_said(read):
    found = read(
        "name: x\nchannels: [pytorch, nodefaults]\nplatforms: [linux-64]\ndependencies:\n"
        "- pytorch=2.0.1=py3.10_cuda11.8_cudnn8.7.0_0\n- numpy=1.26=py311_0\n- conda-forge::einops[md5=ab]\n"
        "- setuptools<60\n- cudnn=8.2\n- python 3.8|3.9\n- jax=0.4=*_cuda\n"
    )
    assert found.packages == ("torch==2.0.1.*", "numpy==1.26.*", "einops", "jax==0.4.*")
    assert [(each.name, each.specifier) for each in found.expected if not each.binding] == [
        ("cuda", "==11.8.*"),
        ("python", ">=3.8,<3.10"),
    ]
    assert [note.partition("environment.yml")[2] for note in found.notes] == [
        ": pytorch, cudnn=8.2 and python are the stack's",
        ": setuptools<60 is a package of conda's own system, and passed over",
        ": builds of conda's are not looked at: numpy py311_0, einops md5=ab and jax *_cuda",
        ": conda's channels (pytorch and conda-forge) are not asked: the package index is",
        ":3: `platforms` is passed over",
    ]


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
        ("[" * 1000, "is not YAML: lists within lists without end"),
        ("dependencies: []\n", "environment.yml has no packages"),
        ("dependencies:\n- a\ndependencies:\n- b\n", "environment.yml:3: 'dependencies' is there twice"),
        ("dependencies:\n- pip:\n  - a: b\n", "environment.yml:3: not a line of pip's"),
        ("dependencies:\n- pip: [a]\n  other: [b]\n", "environment.yml:2: neither a package nor a list"),
        ("dependencies:\n- numpy[version=1.2\n", "environment.yml:2: 'numpy[version=1.2' is not a package of conda's"),
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


def test_dgl_for_cuda_is_not_taken_as_the_one_for_the_cpu():
    found = conda.sorted_out([("environment.yml:2", "dglteam::dgl-cuda11.8")], "environment.yml")
    assert found.lines == []
    assert any(
        "dgl-cuda11.8 is not taken: the index has DGL for the CPU alone (WITH=dgl)" in note for note in found.notes
    )


def test_alias_of_a_list_does_not_multiply_it(read):
    """1 MB of YAML could name 2.4 billion packages so."""
    bomb = "dependencies:\n- pip: &a\n" + "".join(f"  - p{number}\n" for number in range(5_000)) + "- pip: *a\n" * 100
    with pytest.raises(UsageError, match="more than 20000 packages"):
        read(bomb)


def test_tools_of_cuda_are_of_condas_own_system(read):
    notes = read("dependencies:\n- cuda-gdb=12.1\n- nsight-compute=2023.1\n- einops\n").notes
    assert any("cuda-gdb and nsight-compute are packages of conda's own system" in note for note in notes)
