"""GPU and architecture facts, and the rules that read them."""

import pytest

from graphcrate.compat import facts, recipes
from graphcrate.model.errors import UsageError
from tests import ROOT

RECIPE = recipes.load(ROOT / "recipes" / "pyg.toml")


def candidate(cuda, index=0):
    return RECIPE.variant(cuda).candidates[index]


@pytest.mark.parametrize(
    ("gpu", "capability"), [("v100", "7.0"), ("A100", "8.0"), ("rtx-4090", "8.9"), ("titan v", "7.0")]
)
def test_gpu_models_in_any_spelling(gpu, capability):
    assert facts.compute_capability(gpu) == capability


@pytest.mark.parametrize(
    ("gpu", "model"),
    [
        ("Tesla V100-SXM2-32GB", "V100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("a100-80gb", "A100"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA H800", "H800"),
        ("NVIDIA GeForce RTX 3090 Ti", "RTX3090"),
        ("NVIDIA GeForce RTX 4070 Laptop GPU", "RTX4070"),
        ("NVIDIA RTX A6000", "A6000"),
        ("Quadro RTX 6000", "QUADRO_RTX_6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX_6000_ADA"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX_PRO_6000"),
        ("rtx_pro_6000", "RTX_PRO_6000"),
        ("sm_80", "sm_80"),
        ("8.0", "sm_80"),
        ("SM_103", "sm_103"),
        ("12.0", "sm_120"),
    ],
)
def test_gpus_as_nvidia_smi_shows_them_and_as_architectures(gpu, model):
    assert facts.gpu_model(gpu) == model
    assert facts.gpu_model(model.lower()) == model
    assert facts.compute_capability(gpu) == facts.compute_capability(model)


@pytest.mark.parametrize("gpu", ["", "v100 a100", "sm_99", "80", "8", "sm_8", "1.2.3", "RTX 6000", "Radeon RX 7900"])
def test_what_names_no_gpu_or_two_is_refused(gpu):
    with pytest.raises(UsageError, match="unknown GPU"):
        facts.gpu_model(gpu)


def test_names_of_gpus_are_models():
    for model in facts.all_gpus():
        assert facts.gpu_model(model) == model
    assert facts.gpu_models("a100, v100,A100-PCIE-40GB") == ("A100", "V100")
    assert facts.compute_capability("8.6") == "8.6"


@pytest.mark.parametrize(
    ("ptx", "served", "not_served"),
    [("9.0", "10.0", "8.9"), ("9.0a", "9.0", "10.0"), ("10.0f", "10.3", "12.0"), ("10.3f", "10.3", "10.0")],
)
def test_ptx_for_one_architecture_or_a_family_serves_no_others(ptx, served, not_served):
    assert facts.compiles_for(ptx, served)
    assert not facts.compiles_for(ptx, not_served)


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
