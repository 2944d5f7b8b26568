"""The locks under images/: each answers its recipe as it is, names no address, and compiles with what was asked for."""

from pathlib import Path

import pytest

from graphcrate import recipes
from graphcrate.model.lock import DebianBase, decode_lock, encode
from graphcrate.resolve.candidates import request_digest
from graphcrate.resolve.channels import Request
from graphcrate.resolve.compilation import means_for

ROOT = Path(__file__).parents[2]
PATHS = sorted((ROOT / "images").glob("*/*/*.lock.json"))
RECIPES = {path.stem: recipes.load(path) for path in (ROOT / "recipes").glob("*.toml")}


def opened(path):
    lock = decode_lock(path.read_bytes())
    variant = RECIPES[lock.recipe].variant(lock.cuda)
    candidate = next(candidate for candidate in variant.candidates if candidate.name == lock.candidate)
    return lock, variant, candidate


@pytest.mark.parametrize("path", PATHS, ids=lambda path: "-".join(path.parts[-3:-1]))
def test_a_committed_lock_answers_its_recipe(path):
    lock, variant, candidate = opened(path)
    assert lock.request_sha256 == request_digest(RECIPES[lock.recipe], variant, candidate), "./build.py lock"
    assert path.read_bytes() == encode(lock)
    assert b"://" not in encode(lock)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: "-".join(path.parts[-3:-1]))
def test_what_is_compiled_is_compiled_as_the_recipe_says(path):
    lock, variant, candidate = opened(path)
    compiled = [package for package in lock.packages if package.compiled]
    assert bool(compiled) == (lock.compilation is not None)
    if lock.compilation is None:
        return
    means = means_for(variant, candidate, Request())
    assert lock.compilation.architectures == variant.architectures
    assert (lock.compilation.compiler, lock.compilation.toolkit.version) == (means.compiler, means.option.version)
    assert {"pip", "setuptools", "wheel", "ninja"} <= {tool.name for tool in lock.compilation.tools}
    # The image's own base with more: a compiler must not meet another libc than the image has.
    assert isinstance(lock.base, DebianBase)
    assert set(lock.base.packages) <= set(lock.compilation.base.packages)
