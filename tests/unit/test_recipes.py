"""Recipes: what is accepted, and what a mistake is told (file, line, field)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate import recipes
from graphcrate.errors import RecipeError

ROOT = Path(__file__).parents[2]
PYG = (ROOT / "recipes" / "pyg.toml").read_text()


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


@pytest.mark.parametrize("name", ["pyg", "torch"])
def test_shipped_recipes_have_every_variant(name):
    recipe = recipes.load(ROOT / "recipes" / f"{name}.toml")
    assert recipe.name == name
    assert [variant.cuda for variant in recipe.variants] == [
        "11.6",
        "11.7",
        "11.8",
        "12.1",
        "12.6",
        "12.8",
        "13.0",
        "cpu",
    ]


def test_compatible_candidate_is_told_apart_and_keeps_cupti():
    compatible = recipes.parse(PYG, "pyg.toml").variant("11.8").candidates[1]
    assert compatible.suffix == "-compat"
    assert compatible.torch_cuda == "11.7"
    assert not any("cupti" in override for override in compatible.overrides)


@pytest.mark.parametrize(
    ("old", "new", "field", "words"),
    [
        ('python = "3.11"', "python = 3.10", "variant[1].python", "3.10 is 3.1"),
        ('name = "pypi"', 'nome = "pypi"', "variant[1].candidate[0].nome", "unknown field"),
        ('suite = "bookworm"', 'suite = "buster"', "variant[1].base", "bullseye, bookworm, trixie"),
        ('"numpy<2"', '"numpy<<2"', "variant[0].requirements", "PEP 508"),
        ('channels = ["pypi", "pyg"]', 'channels = ["pypy"]', "variant[1].candidate[0].channels[0]", "pypy"),
        ('cuda = "11.8"', 'cuda = "12.8"', "variant[5].cuda", "twice"),
        ('cuda = "11.8"', 'cuda = "eleven"', "variant[2].cuda", "no CUDA version"),
        ('torch = "2.0.1"', 'torch = ">=2.0"', "variant[1].candidate[0].torch", "exact version"),
        ('suffix = "-compat"', 'suffix = "compat"', "variant[2].candidate[1].suffix", "-compat"),
        ('smoke = ["dna"]', 'smoke = ["rna"]', "smoke", "rna"),
        ('name = "pyg"', 'name = "PyG"', "name", "image name"),
    ],
)
def test_a_mistake_is_told_with_line_and_field(old, new, field, words):
    text = PYG.replace(old, new, 1)
    with pytest.raises(RecipeError) as caught:
        recipes.parse(text, "recipes/pyg.toml")
    number = [at for at, line in enumerate(text.splitlines(), 1) if new in line and not line.startswith("torch_cuda")][
        -1 if "twice" in words else 0
    ]
    assert caught.value.what.startswith(f"recipes/pyg.toml:{number}: {field}: ")
    assert words in caught.value.what


def test_broken_toml_has_its_line():
    text = PYG.replace('smoke = ["dna"]', 'smoke = ["dna"')
    with pytest.raises(RecipeError, match=r"^r\.toml:\d+: "):
        recipes.parse(text, "r.toml")


def test_a_missing_field_points_to_its_table():
    text = PYG.replace('cuda = "11.6"\n', "", 1)
    with pytest.raises(RecipeError) as caught:
        recipes.parse(text, "r.toml")
    assert caught.value.what.startswith(f"r.toml:{line_of(text, '[[variant]]')}: ")
    assert "`cuda`" in caught.value.what


def test_unreadable_file(tmp_path):
    (tmp_path / "r.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(RecipeError, match="cannot be read"):
        recipes.load(tmp_path / "r.toml")


def test_committed_schema_is_fresh():
    assert (ROOT / "recipes" / "recipe.schema.json").read_text() == json.dumps(recipes.schema(), indent=2) + "\n"


@given(st.text(max_size=300) | st.text(alphabet='[]="\n.variantcud1 ', max_size=300))
def test_any_text_is_a_recipe_or_a_recipe_error(text):
    with pytest.raises(RecipeError, match=r"^r\.toml:\d+: "):
        recipes.parse(text, "r.toml")
