"""What is known of packages: PyG's features and their extensions, its wheels, its releases."""

import pytest

from graphcrate.compat import packages
from tests.made import SHIPPED

SPARSE = "SparseTensor, HGTLoader, ShaDowKHopSampler"


@pytest.mark.parametrize(
    ("extension", "version", "there", "lost"),
    [
        ("torch-scatter", "2.3.1", (), "segment()"),
        ("torch-sparse", "2.3.1", ("pyg-lib",), SPARSE),
        ("torch-sparse", "2.3.1", (), f"{SPARSE}; neighbour sampling unless pyg_lib is there"),
        ("torch-spline-conv", "2.7.0", (), "SplineConv"),
        ("torch-spline-conv", "2.8.1", (), ""),
        ("torch-cluster", "2.8.1", (), "random walks"),
    ],
)
def test_what_is_lost_without_an_extension(extension, version, there, lost):
    assert packages.lost(extension, version, there) == lost
    assert "SplineConv" not in packages.lost("pyg-lib", "2.7.0", ())
    assert "SplineConv" in packages.lost("pyg-lib", "2.8.0.post1", ())


@pytest.mark.parametrize(
    ("torch", "cuda", "there"),
    [("2.0.1+cu118", "11.8", True), ("2.0.1", "12.1", False), ("2.10.0", "12.8", True), ("99.0", "12.8", None)],
)
def test_wheels_on_pygs_pages(torch, cuda, there):
    assert packages.has_wheels(torch, cuda) is there


def test_every_shipped_pyg_is_known_and_has_wheels_on_its_pages():
    for _, variant, candidate in SHIPPED:
        if variant.torch_geometric:
            assert packages.pyg_release(variant.torch_geometric), variant.cuda
            assert candidate.torch == "*" or packages.has_wheels(candidate.torch, candidate.torch_cuda), variant.cuda
