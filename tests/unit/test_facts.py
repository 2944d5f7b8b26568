"""GPU and architecture facts, and the rules that read them."""

from pathlib import Path

import pytest

from graphcrate import recipes
from graphcrate.compat import facts
from graphcrate.errors import UsageError

ROOT = Path(__file__).parents[2]
RECIPE = recipes.load(ROOT / "recipes" / "pyg.toml")


def candidate(cuda, index=0):
    return RECIPE.variant(cuda).candidates[index]


@pytest.mark.parametrize(
    ("gpu", "capability"), [("v100", "7.0"), ("A100", "8.0"), ("rtx-4090", "8.9"), ("titan v", "7.0")]
)
def test_gpu_models_in_any_spelling(gpu, capability):
    assert facts.compute_capability(gpu) == capability


def test_an_unknown_gpu_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="V100"):
        facts.compute_capability("v10")


@pytest.mark.parametrize(
    ("cuda", "index", "capability", "runs"),
    [
        ("11.8", 0, "9.0", True),
        ("11.8", 1, "9.0", False),  # the compatible candidate lacks sm_90 …
        ("11.8", 1, "8.9", True),  # … but sm_86 code runs on 8.9
        ("12.8", 0, "7.0", True),
        ("13.0", 0, "7.0", False),
        ("cpu", 0, "8.0", False),
    ],
)
def test_machine_code_runs_on_the_same_major_and_newer_minor(cuda, index, capability, runs):
    assert facts.runs_on(candidate(cuda, index), capability) is runs


@pytest.mark.parametrize("variant", RECIPE.variants, ids=lambda variant: variant.cuda)
def test_every_shipped_candidate_is_known(variant):
    for each in variant.candidates:
        assert facts.runs_on(each, "8.0") is not None
