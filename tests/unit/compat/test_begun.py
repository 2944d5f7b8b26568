"""A recipe begun from a project's imports, and edited as text: what it says is read again, comments stay."""

import json
import tomllib
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from graphcrate.assembly import pipeline
from graphcrate.compat.requirements import begun
from graphcrate.compat.requirements.begun import Imports
from graphcrate.host.sandbox import gpu
from graphcrate.model import codec
from graphcrate.model.errors import ResolutionError, UsageError
from tests.made import OF_ONE_DAY, refused
from tests.unit.house.test_wiring import world  # noqa: F401 (a fixture)

CODE = b"""
import os, torch
import torch_geometric.nn as nn
from sklearn.metrics import f1_score
from . import here
import mine.tool
import cv2
try:
    import wandb
except ImportError:
    wandb = None
def late():
    import einops
"""


def imports(needed, optional=()):
    return Imports(frozenset(needed), frozenset(optional))


def test_imports_are_read_without_running_the_code():
    found = begun.imports_of(CODE)
    assert found.needed == {"os", "torch", "torch_geometric", "sklearn", "mine", "cv2", "einops"}
    assert found.optional == {"wandb"}
    assert begun.imports_of(b"print 'two'\n") is None
    assert begun.imports_of(b"\0") is None


def test_modules_become_packages_by_the_tables_and_unknown_ones_are_not_taken():
    made = begun.begin(
        [begun.imports_of(CODE), imports({"secret_of_ours"})], {"mine"}, {"einops"}, {"pyg": {"scikit-learn"}}
    )
    assert made.stack == "pyg"
    assert made.packages == ("opencv-python-headless",)
    assert made.unsure == ("secret_of_ours", "wandb")
    assert begun.begin([imports({"graphlearn_torch", "torch_geometric"})], (), (), {}).stack == "glt"
    assert begun.begin([imports({"torch", "numpy"})], (), (), {}).stack == "torch"
    assert begun.begin([imports({"torch", "torch_scatter"})], (), (), {}).stack == "pyg"
    assert begun.begin([imports({"torch"})], (), {"torch-geometric"}, {}).stack == "pyg"
    assert begun.begin([imports({"numpy"})], (), (), {}).stack == "pyg"


@pytest.mark.parametrize(
    ("code", "packages"),
    [
        ("import torch_geometric, yaml", ("pyyaml",)),  # glt's locks have it
        ("import graphlearn_torch, yaml", ()),
        ("import torch, requests", ("requests",)),  # pyg's locks have it
        ("import torch_geometric, requests", ()),
        ("import hydra", ("hydra-core",)),
        ("import umap, Bio", ("biopython", "umap-learn")),
        ("from torch.utils.tensorboard import SummaryWriter", ("tensorboard",)),
        ("from torch.utils import tensorboard", ("tensorboard",)),
        ("import torch.utils.tensorboard", ("tensorboard",)),
        ("from torch.utils.data import DataLoader", ()),
        ("import stranger", ()),
    ],
)
def test_module_that_the_chosen_stack_lacks_is_added(code, packages):
    stacks = {"pyg": {"requests", "numpy"}, "glt": {"requests", "numpy", "pyyaml"}, "torch": {"numpy"}}
    assert begun.begin([begun.imports_of(code.encode())], (), (), stacks).packages == packages


def test_recipe_has_what_was_found():
    made = begun.Begun("glt", ("einops", "rich"), ("x_y",))
    text = begun.recipe(made, "requirements.txt", "12.1")
    assert tomllib.loads(text) == {
        "extends": "glt", "cuda": "12.1", "requirements": "requirements.txt", "pip": ["einops", "rich"]
    }  # fmt: skip
    assert "# imported, not sure, left out: x_y" in text
    assert text.count("\n") <= 6


def test_recipes_name_is_its_folders_and_no_stacks():
    names = {"My Project": "my-project", "pyg": "my-pyg", "图": "my-image", "a" * 39 + "-bc": "a" * 39}
    assert {folder: begun.recipe_name(folder) for folder in names} == names


ONE_LINE = 'extends = "pyg"  # ours\npip = ["einops", \'rich\']  # more\n[env]\nA = "pip = [1]"\n'
LINES = 'extends = "pyg"\npip = [\n    # layers\n    "einops",  # 0.8\n    "rich>=13" # no comma\n]\n'


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        (ONE_LINE, ONE_LINE.replace("'rich'", "'rich', \"wandb\"")),
        (LINES, LINES.replace('13" # no comma\n', '13", # no comma\n    "wandb",\n')),
        ('extends = "pyg"', 'extends = "pyg"\npip = ["wandb"]\n'),
        ('extends = "pyg"\n\n[env]\nA = "1"\n', 'extends = "pyg"\n\npip = ["wandb"]\n[env]\nA = "1"\n'),
        ('extends = "pyg"\npip = []\n', 'extends = "pyg"\npip = ["wandb"]\n'),
        ('extends = "pyg"\npip = ["a",]\n', 'extends = "pyg"\npip = ["a", "wandb"]\n'),
        ('extends = "pyg"\npip = ["WandB==0.1"]\n', 'extends = "pyg"\npip = ["wandb"]\n'),
    ],
)
def test_added_package_comes_last_and_the_rest_stays(text, edited):
    assert begun.added(text, ["wandb"]) == edited


@pytest.mark.parametrize(
    ("text", "name", "edited"),
    [
        (ONE_LINE, "einops", ONE_LINE.replace('"einops", ', "")),
        (ONE_LINE, "Rich", ONE_LINE.replace(", 'rich'", "")),
        (LINES, "einops", LINES.replace('    "einops",  # 0.8\n', "")),
        (LINES, "rich", LINES.replace('    "rich>=13" # no comma\n', "")),
    ],
)
def test_removed_package_goes_with_its_line(text, name, edited):
    assert begun.without(text, [name]) == edited


def test_what_cannot_be_edited_is_refused_and_named():
    with refused(UsageError, "has no wandb; it has einops and rich"):
        begun.without(ONE_LINE, ["wandb"])
    with refused(UsageError, "is written in a form"):
        begun.added('extends = "pyg"\n"pip" = ["a"]\n', ["wandb"])
    with refused(UsageError, "is not TOML"):
        begun.added("extends = \n", ["wandb"])


NAMES = some.lists(some.sampled_from(["einops", "rich", "lxml", "h5py", "dask"]), unique=True, max_size=5)
SPACE = some.sampled_from(["", " ", "\n", "\n    ", '  # a ] and "b"\n    '])


@given(NAMES, NAMES.filter(bool), some.lists(SPACE, min_size=12, max_size=12), some.booleans())
def test_any_array_is_edited_to_what_was_asked_for_with_its_comments(before, more, spaces, comma):
    spaces = iter(spaces)
    array = ",".join(f"{next(spaces)}{json.dumps(name)}{next(spaces)}" for name in before)
    text = f'extends = "pyg"\npip = [{array}{"," * (comma and bool(before))}]\n# end\n'
    edited = begun.added(text, more)
    assert tomllib.loads(edited)["pip"] == [name for name in before if name not in more] + more
    gone = begun.without(edited, more)
    assert tomllib.loads(gone)["pip"] == [name for name in before if name not in more]
    assert edited.endswith("# end\n")


@pytest.fixture
def project(world, monkeypatch):  # noqa: F811
    for path in OF_ONE_DAY.glob("*.toml"):
        (world.root / "recipes" / path.name).write_bytes(path.read_bytes())
    folder = world.root / "My Project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text("import einops, own_thing, helper\n")
    (folder / "helper.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setattr(pipeline, "plan_image", lambda request, ctx: (["plan"], None))
    world.folder = folder
    return world


def test_init_writes_a_recipe_once_and_add_and_remove_edit_it(project):
    (project.folder / "requirements.txt").write_text("rich\n")
    code, out, said = project.typed("init")
    assert (code, out, "left out: own_thing" in said) == (0, "my-project.toml\n", True), said
    recipe = project.folder / "my-project.toml"
    assert tomllib.loads(recipe.read_text()) == {
        "extends": "pyg", "cuda": "11.8", "requirements": "requirements.txt", "pip": ["einops"]
    }  # fmt: skip
    code, _, said = project.typed("init")
    assert (code, "my-project.toml is there already" in said) == (2, True)
    assert project.typed("add", "lxml>=5", "h5py")[:2] == (0, "plan\nmy-project.toml\n")
    assert tomllib.loads(recipe.read_text())["pip"] == ["einops", "lxml>=5", "h5py"]
    assert project.typed("remove", "lxml", "--no-plan")[0] == 0
    assert tomllib.loads(recipe.read_text())["pip"] == ["einops", "h5py"]


@pytest.mark.parametrize(
    ("lines", "models", "driver", "cuda"),
    [
        ("torch==2.3.1+cu121\n", ("Tesla V100-SXM3-32GB",), "450.80.02", "12.1"),
        ("rich\n", ("Tesla V100-SXM3-32GB",) * 2, "450.80.02", "11.8"),
        ("rich\n", ("NVIDIA GeForce RTX 5090",), "580.65.06", "13.0"),
        ("rich\n", ("NVIDIA Unheard Of",), "580.65.06", "11.8"),
    ],
)
def test_init_names_the_cuda_of_the_list_else_that_of_the_gpus_here(project, monkeypatch, lines, models, driver, cuda):
    (project.folder / "requirements.txt").write_text(lines)
    monkeypatch.setattr(gpu, "gpu_models", lambda: models)
    monkeypatch.setattr(gpu, "driver_version", lambda: driver)
    code, _, said = project.typed("init")
    assert (code, f"CUDA {cuda}: " in said) == (0, True), said
    assert tomllib.loads((project.folder / "my-project.toml").read_text())["cuda"] == cuda


def test_recipe_stays_as_it_was_where_its_plan_fails(project, monkeypatch):
    assert project.typed("init")[0] == 0
    recipe = project.folder / "my-project.toml"
    before = recipe.read_bytes()

    def plan(request, ctx):
        raise ResolutionError("no such package")

    monkeypatch.setattr(pipeline, "plan_image", plan)
    assert project.typed("add", "h5py")[0] == ResolutionError.exit_code
    for words in (["--nosuch"], ["-r x"], ["a b; c"]):
        assert project.typed("add", "--no-plan", "--", *words)[0] == 2, words
    assert recipe.read_bytes() == before


def test_devcontainer_opens_the_image_that_the_recipe_plans(project, monkeypatch):
    planned = SimpleNamespace(name="my-project", tag="2.0.1-cu118-py311")
    monkeypatch.setattr(pipeline, "plan_image", lambda request, ctx: ([], planned))
    code, out, said = project.typed("init", "--devcontainer")
    assert (code, out) == (0, "my-project.toml\n.devcontainer/devcontainer.json\n"), said
    assert 'docker load --input "$(./build.py convert my-project:2.0.1-cu118-py311 --to docker)"' in said
    path = project.folder / ".devcontainer/devcontainer.json"
    document = codec.decode(path.read_bytes(), dict)
    assert (document["image"], document["workspaceFolder"]) == ("my-project:2.0.1-cu118-py311", "/work")
    recipe = project.folder / "my-project.toml"
    recipe.write_text(recipe.read_text() + 'mounts = ["data:/data:ro"]\n')
    (project.folder / "data").mkdir()
    code, _, said = project.typed("init", "--devcontainer")
    assert (code, "is there already, and is another one" in said) == (2, True)
    path.unlink()
    assert project.typed("init", "--devcontainer")[0] == 0
    mounts = codec.decode(path.read_bytes(), dict)["mounts"]
    assert mounts == ["source=${localWorkspaceFolder}/data,target=/data,type=bind,readonly"]


def test_init_leaves_nothing_where_no_image_can_be_planned(project, monkeypatch):
    def plan(request, ctx):
        raise ResolutionError("no such package")

    monkeypatch.setattr(pipeline, "plan_image", plan)
    before = sorted(project.folder.rglob("*"))
    assert project.typed("init", "--devcontainer")[0] == ResolutionError.exit_code
    assert sorted(project.folder.rglob("*")) == before


@pytest.mark.parametrize(
    "mount",
    ["a,source=/etc:/data", "${localEnv:HOME}:/data", "/etc:/data", "~/x:/data", "data", "data:/d,readonly=false"],
)
def test_mount_that_docker_or_the_editor_reads_otherwise_is_refused(mount):
    with refused(UsageError, "has no form that devcontainer.json takes"):
        begun.devcontainer("p", "p:1", [mount])


def test_folder_without_code_or_with_several_recipes_is_refused(project):
    for name in ("train.py", "helper.py"):
        (project.folder / name).unlink()
    assert project.typed("init")[0] == 2
    assert project.typed("add", "h5py")[0] == 2
    for name in ("a.toml", "b.toml"):
        (project.folder / name).write_text('extends = "pyg"\n')
    code, _, said = project.typed("remove", "h5py")
    assert (code, "several recipes here: a.toml and b.toml" in said) == (2, True)
    assert project.typed("add", "--no-plan", "--recipe", "b.toml", "h5py")[0] == 0
