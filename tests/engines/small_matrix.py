"""A project whose recipes are copies of the small stack's: rows of a matrix that need no download."""

import shutil

import msgspec

from graphcrate.compat.variants import catalog
from graphcrate.host.context import Context
from graphcrate.model.lock import Lock, encode
from graphcrate.resolve.stack.locks import request_digest

RECIPE = """
name = "{name}"
description = "CUDA and PyTorch"
smoke = ["torch"]
program = "torch_check.py"
requirements = ["numpy", "tqdm", "pip"]

[[variant]]
cuda = "{lock[cuda]}"
python = "{lock[python]}"
base = {{ provider = "debian", suite = "bookworm" }}

[[variant.candidate]]
name = "pypi"
channels = ["pypi"]
torch = "{torch[version]}"
torch_cuda = "{lock[torch_cuda]}"
"""


def matrix_of(folder, lock, names):
    """Make a clone's recipes these alone, each with the lock of the small stack, whose files a cache has."""
    (torch,) = [package for package in lock["packages"] if package["name"] == "torch"]
    torch["channel"] = "pypi"
    for name in ("recipes", "images"):
        shutil.rmtree(folder / name)
        (folder / name).mkdir()
    for name in names:
        (folder / "recipes" / f"{name}.toml").write_text(RECIPE.format(name=name, lock=lock, torch=torch))
        recipe = catalog.find_recipe(Context(root=folder, environment={}), name)
        (variant,) = recipe.variants
        digest = request_digest(recipe, variant, variant.candidates[0])
        of_row = {**lock, "recipe": name, "candidate": "pypi", "request_sha256": digest}
        path = catalog.lock_path(Context(root=folder, environment={}), recipe, variant, variant.candidates[0])
        path.parent.mkdir(parents=True)
        path.write_bytes(encode(msgspec.convert(of_row, Lock)))
