"""Recipes: what is accepted, and what a mistake is told (file, line, field)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.compat.variants import recipes
from graphcrate.model import toml
from graphcrate.model.errors import RecipeError
from graphcrate.model.recipe import Recipe
from tests import ROOT
from tests.made import refused

PYG = (ROOT / "recipes" / "pyg.toml").read_text()
UNAVAILABLE = """
name = "r"
description = ""
smoke = ["dna"]

[[variant]]
cuda = "cpu"
python = "3.11"
base = { suite = "bookworm" }
unavailable = { why = "nobody has it", instead = "make image CUDA=12.1" }
"""
CANDIDATE = '[[variant.candidate]]\nname = "pypi"\nchannels = ["pypi"]\ntorch = "2.0.1"\ntorch_cuda = "11.7"\n'


def parse(text):
    return toml.parse(text, "r.toml", Recipe, recipes.contradictions, "")


@pytest.mark.parametrize(
    ("old", "new", "field", "words"),
    [
        ('python = "3.11"', "python = 3.10", "variant[0].python", "3.10 is 3.1"),
        ('name = "pypi"', 'nome = "pypi"', "variant[1].candidate[0].nome", "unknown field"),
        ('suite = "bookworm"', 'suite = "buster"', "variant[0].base", "bullseye, bookworm, trixie"),
        ('"numpy<2"', '"numpy<<2"', "variant[0].requirements", "PEP 508"),
        ('cuda = "11.8"', 'cuda = "12.8"', "variant[5].cuda", "twice"),
        ('cuda = "11.8"', 'cuda = "eleven"', "variant[2].cuda", "is not a CUDA version"),
        ('torch = "2.0.1"', 'torch = ">=2.0"', "variant[1].candidate[0].torch", "exact version"),
        ('suffix = "-compat"', 'suffix = "compat"', "variant[0].candidate[0].suffix", "-compat"),
        ('suffix = "-compat"', "", "variant[0].candidate[0]", "torch is for CUDA 11.7, and the tag must tell"),
        ('smoke = ["dna", "ops", "ddp"]', 'smoke = ["rna"]', "smoke", "rna"),
        ('smoke = ["dna", "ops", "ddp"]', 'smoke = ["dna", "ops", "ddp"', "", "Unclosed array"),
        ('["7.0", "8.0"]', '["7.0", "Ampere"]', "variant[0].architectures", 'write "8.0"'),
        ('["7.0", "8.0"]', '["7.0", "7.0"]', "variant[0].architectures", "twice"),
        ('["7.0", "8.0"]', '["7.0", "9.0"]', "variant[0].architectures", "torch 1.13.1 has no code for 9.0"),
        ('architectures = ["7.0", "8.0"]', "", "variant[0]", "architectures: extensions may have to be compiled"),
        ('cuda = "11.6"', "", "variant[0]", "Object missing required field `cuda`"),
        ('name = "pyg"', 'name = "PyG"', "name", "image name"),
        ('program = "dna.py"', 'program = "../dna.py"', "program", "file of examples/"),
    ],
)
def test_recipe_mistake_is_an_error_with_line_and_field(old, new, field, words):
    text = PYG.replace(old, new, 1)
    with refused(RecipeError, words) as caught:
        parse(text)
    file, line, what = caught.value.what.split(":", 2)
    assert (file, what.strip().startswith(field)) == ("r.toml", True)
    assert not field or (new or "[[variant") in text.splitlines()[int(line) - 1]


def test_recipe_architecture_of_any_candidate_is_accepted():
    head, cuda, rest = PYG.partition('cuda = "11.8"')
    text = head + cuda + rest.replace('["7.0", "8.0+PTX"]', '["9.0"]')
    assert parse(text).variant("11.8").architectures == ("9.0",)


@pytest.mark.parametrize(
    ("replaced", "more", "told"),
    [
        ("unavailable", CANDIDATE, "r.toml:10: variant[0].unavailable: "),
        ("# unavailable", "", "or `unavailable` with the reason"),
        ('architectures = ["8.0"]\n# unavailable', CANDIDATE, "architectures: nothing is compiled for a GPU"),
    ],
)
def test_recipe_with_contradicting_fields_or_bad_bytes_is_refused(tmp_path, replaced, more, told):
    with refused(RecipeError, told):
        parse(UNAVAILABLE.replace("unavailable", replaced) + more)
    (tmp_path / "r.toml").write_bytes(b"\xff\xfe")
    with refused(RecipeError, "is not in UTF-8"):
        recipes.load(tmp_path / "r.toml")
    with refused(RecipeError, "there is no file"):
        recipes.load(tmp_path / "mine.toml")


@given(st.text(max_size=300) | st.text(alphabet='[]="\n.variantcud1 ', max_size=300))
def test_random_text_as_recipe_is_a_recipe_error(text):
    with pytest.raises(RecipeError, match=r"^r\.toml:\d+: "):
        parse(text)


@pytest.mark.parametrize("text", ["[" * 5000, "{a=" * 5000, "9" * 5000])
def test_recipe_that_overflows_tomllib_is_a_recipe_error(text):
    with refused(RecipeError, "r.toml:1: "):
        parse(f"name = {text}")
