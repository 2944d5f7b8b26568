"""Facts on packages: PyG's features, wheels and releases; graphlearn-torch and the torch that it fits."""

import re

import pytest

from graphcrate.assembly.summary import plan_lines
from graphcrate.cli import tables
from graphcrate.compat.facts import glt, packages
from graphcrate.compat.variants import catalog
from graphcrate.host.context import Context
from graphcrate.model.lock import decode_lock
from tests import ROOT
from tests.made import SHIPPED

DISJOINT = "disjoint sampling (disjoint=True), temporal sampling (time_attr)"
SINCE_2_4 = "weighted sampling (weight_attr), trim_to_layer after a loader, torch_geometric.distributed"
FAST = "fast HeteroLinear and RGCNConv (segment_matmul)"
SPARSE = "SparseTensor, HGTLoader, ShaDowKHopSampler"


@pytest.mark.parametrize(
    ("extension", "version", "there", "lost"),
    [
        ("torch-scatter", "2.3.1", (), "segment()"),
        ("torch-sparse", "2.3.1", ("pyg-lib",), f"{SPARSE}, ClusterData"),
        ("torch-sparse", "2.3.1", (), f"{SPARSE}, ClusterData; neighbour sampling unless pyg_lib is there"),
        ("torch-sparse", "2.4.0", ("pyg-lib",), SPARSE),
        ("torch-spline-conv", "2.7.0", (), "SplineConv"),
        ("torch-spline-conv", "2.8.1", (), ""),
        ("torch-cluster", "2.8.1", (), ""),
        ("pyg-lib", "2.3.1", ("torch-sparse",), f"{DISJOINT}, trim_to_layer after a loader, {FAST}"),
        ("pyg-lib", "2.5.3", ("torch-sparse",), f"{DISJOINT}, {SINCE_2_4}, {FAST}"),
    ],
)
def test_lost_features_of_a_missing_extension(extension, version, there, lost):
    assert packages.lost(extension, version, there) == lost
    assert "SplineConv" not in packages.lost("pyg-lib", "2.7.0", ())
    assert {"SplineConv", "random walks"} <= {*re.split("[,;] ", packages.lost("pyg-lib", "2.8.0.post1", ()))}


@pytest.mark.parametrize(
    ("torch", "cuda", "there"),
    [("2.0.1+cu118", "11.8", True), ("2.0.1", "12.1", False), ("2.10.0", "12.8", True), ("99.0", "12.8", None)],
)
def test_has_wheels_by_torch_and_cuda_on_pygs_pages(torch, cuda, there):
    assert packages.has_wheels(torch, cuda) is there


def test_shipped_pyg_releases_are_known_and_none_is_known_to_lack_wheels():
    for _, variant, candidate in SHIPPED:
        if variant.torch_geometric:
            assert packages.pyg_release(variant.torch_geometric), variant.cuda
            # None: nobody has looked yet, as after an update of torch; without a wheel extensions are compiled
            assert candidate.torch == "*" or packages.has_wheels(candidate.torch, candidate.torch_cuda) is not False


ALL = ("torch", "torch_sparse", "graphlearn-torch")
ABSENT = "graphlearn-torch imports torch_sparse at start-up; its metadata does not say so."
FITS = "ask for graphlearn-torch==0.2.2, which fits"


def test_compatible_glt_has_notes_only():
    code = "has machine code for compute capabilities 5.0,"
    for about, note in (
        (("0.2.2", "1.13.1+cu116", "11.6", "3.9"), f"graphlearn-torch 0.2.2 {code}"),
        (("0.2.3", "2.6.0", "12.4", "3.10"), f"graphlearn-torch 0.2.3 {code}"),
        (("0.3.0", "2.9.0", "12.8", "3.12"), "nobody has checked graphlearn-torch 0.3.0"),
    ):
        verdict = glt.judge(*about, ALL)
        assert (verdict.reasons, verdict.next_step) == ((), "")
        assert verdict.notes[0].startswith(note)


@pytest.mark.parametrize(
    ("version", "torch", "cuda", "python", "packages", "reasons", "next_step"),
    [
        # what `pip install graphlearn-torch` does to torch 1.13
        ("0.2.4", "1.13.1+cu116", "11.6", "3.9", ALL, "21 undefined symbols, such as c10::cuda::ExchangeDevice.", FITS),
        ("0.2.2", "2.0.0", "11.7", "3.9", ALL, "8 undefined symbols of 2.0.1, such as at::_ops::narrow::call.", ""),
        ("0.2.2", "1.9.0", "11.1", "3.9", ALL, "cannot be imported with torch 1.9.0.", ""),
        ("0.2.4", "2.3.1+cu118", "11.8", "3.11", ALL, "runtime of CUDA 12; torch 2.3.1+cu118 brings that of 11.8.", ""),
        ("0.2.2", "1.13.1", "11.7", "3.11", ALL, "no wheel for Python 3.11; it has for 3.7, 3.8, 3.9 and 3.10.", ""),
        ("0.2.4", "2.3.1", "12.1", "3.11", ("torch",), ABSENT, "add torch-sparse to the recipe"),
        ("0.2.4", "1.13.1", "11.7", "3.9", (), ABSENT, f"{FITS}; add torch-sparse to the recipe"),
        ("0.9", "2.3.1+cpu", "cpu", "3.11", ALL, "with device=torch.device('cpu').", ""),
    ],
)
def test_incompatible_glt_has_reasons_and_a_next_step(version, torch, cuda, python, packages, reasons, next_step):
    verdict = glt.judge(version, torch, cuda, python, packages)
    assert " ".join(verdict.reasons).endswith(reasons)
    assert verdict.next_step == next_step


def test_glt_beside_a_cpu_torch_is_refused_with_its_undefined_symbols():
    for version, torch, counted in (("0.2.4", "2.3.1+cpu", "46 undefined"), ("0.2.2", "1.13.1+cpu", "44 undefined")):
        (reason,) = glt.judge(version, torch, "cpu", "3.9", ALL).reasons
        assert counted in reason
        assert "c10::cuda::CUDACachingAllocator and the CUDA runtime" in reason


def test_glt_releases_agree_with_their_symbol_checks():
    """No release fits a torch that it was found to miss symbols of, nor misses one where none was missing."""
    judged = set()
    for check in [check for check in glt._checks() if check.torch_cuda != "cpu"]:
        for release in filter(None, map(glt.known, check.releases)):
            found = glt.judge(release.version, check.torch, check.torch_cuda, release.python[-1], ALL)
            assert bool(found.reasons) == bool(check.undefined) == bool(check.example), (release.version, check.torch)
            judged.add(release)
    assert judged == set(glt.releases())


TAKEN_OVER = "fps, knn, radius, nearest, graclus, voxel_grid, random walks, SplineConv"


@pytest.mark.parametrize(
    ("version", "there", "lost"),
    [
        ("2.8.1", (), (TAKEN_OVER, "pyg_lib")),
        ("2.8.1", ("torch-cluster", "torch-spline-conv", "torch-sparse"), (TAKEN_OVER, "pyg_lib")),
        ("2.8.1", ("pyg-lib",), ("", "")),
        ("2.7.0", (), ("", "")),
        ("2.3.1", ("torch-scatter",), ("", "")),
    ],
)
def test_features_that_moved_to_an_extension_that_is_missing(version, there, lost):
    assert packages.moved(version, there) == lost


def test_plan_and_list_say_first_what_moved_to_a_missing_extension():
    lock = decode_lock((ROOT / "images/pyg/cu128/pypi.lock.json").read_bytes())
    title, line, *_ = plan_lines("pyg:2.8.1-torch2.10.0-cu128-py311", lock, (), "", 0)
    assert line == f"  without   {TAKEN_OVER}: PyG 2.8.1 has them by pyg_lib alone, which is missing"
    old = decode_lock((ROOT / "images/pyg/cu121/pypi.lock.json").read_bytes())
    assert not any(line.startswith("  without") for line in plan_lines(title, old, (), "", 0))
    ctx = Context(root=ROOT, environment={})
    listed = [*tables.variants(ctx, catalog.all_recipes(ctx))]
    assert [line.split()[1] for line in listed if "2.8.1†" in line] == ["12.8", "13.0", "13.2", "cpu"]
    assert "† without pyg_lib, so without fps, knn, radius and 5 more: docs/extensions.md" in listed
    told = {one["cuda"]: one["without"] for one in tables.described(ctx, [catalog.find_recipe(ctx, "pyg")])}
    assert {cuda for cuda, lost in told.items() if lost} == {"12.8", "13.0", "13.2", "cpu"}
    assert told["12.8"] == {"extension": "pyg_lib", "features": TAKEN_OVER.split(", ")}
