"""What is known of PyG: features and their extensions, coverage, releases."""

import pytest

from graphcrate.compat import pyg, recipes
from tests import ROOT

RECIPES = [recipes.load(path) for path in (ROOT / "recipes").glob("*.toml")]
VARIANTS = [variant for recipe in RECIPES for variant in recipe.variants if variant.torch_geometric]


@pytest.mark.parametrize(
    ("extension", "version", "there", "lost"),
    [
        ("torch-scatter", "2.3.1", (), "segment()"),
        ("torch-sparse", "2.3.1", ("pyg-lib",), "SparseTensor, HGTLoader, ShaDowKHopSampler"),
        (
            "torch-sparse",
            "2.3.1",
            (),
            "SparseTensor, HGTLoader, ShaDowKHopSampler; neighbour sampling unless pyg_lib is there",
        ),
        ("torch-spline-conv", "2.7.0", (), "SplineConv"),
        ("torch-spline-conv", "2.8.1", (), ""),
        ("torch-cluster", "2.8.1", (), "random walks"),
        ("unheard-of", "2.8.1", (), ""),
    ],
)
def test_what_is_lost_without_an_extension(extension, version, there, lost):
    assert pyg.lost(extension, version, there) == lost


def test_pyg_lib_took_over_from_its_sisters_in_2_8():
    assert "SplineConv" not in pyg.lost("pyg-lib", "2.7.0", ())
    assert "SplineConv" in pyg.lost("pyg-lib", "2.8.0.post1", ())


@pytest.mark.parametrize(
    ("torch", "cuda", "there"),
    [("2.0.1+cu118", "11.8", True), ("2.0.1", "12.1", False), ("2.10.0", "12.8", True), ("99.0", "12.8", None)],
)
def test_wheels_on_pygs_pages(torch, cuda, there):
    assert pyg.has_wheels(torch, cuda) is there


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: f"{variant.cuda}-{variant.torch_geometric}")
def test_every_shipped_pyg_is_known_and_has_wheels_on_its_pages(variant):
    assert variant.torch_geometric in {release.version for release in pyg.releases()}
    for candidate in variant.candidates:
        if candidate.torch != "*":
            assert pyg.has_wheels(candidate.torch, candidate.torch_cuda)
