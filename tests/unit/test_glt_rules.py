"""compat.glt: which graphlearn-torch goes with which torch, and what is said of those that do not."""

import pytest

from graphcrate.compat import glt

PACKAGES = ("torch", "torch_sparse", "graphlearn-torch")


@pytest.mark.parametrize(
    ("version", "torch", "cuda", "python"),
    [
        ("0.2.2", "1.13.1+cu116", "11.6", "3.9"),
        ("0.2.2", "1.13.1", "11.7", "3.9"),
        ("0.2.4", "2.3.1", "12.1", "3.11"),
        ("0.2.3", "2.6.0", "12.4", "3.10"),
    ],
)
def test_what_fits(version, torch, cuda, python):
    verdict = glt.judge(version, torch, cuda, python, PACKAGES)
    assert verdict.ok
    assert (verdict.reasons, verdict.next_step) == ((), "")
    assert f"graphlearn-torch {version} has machine code for compute capabilities 5.0," in verdict.notes[0]


def test_the_newest_release_with_the_torch_of_the_tutorials():
    """What `pip install graphlearn-torch` does to torch 1.13: the version that fits is named."""
    verdict = glt.judge("0.2.4", "1.13.1+cu116", "11.6", "3.9", PACKAGES)
    assert verdict.reasons == (
        "graphlearn-torch 0.2.4 was compiled for torch 2.3, 2.4, 2.5 and 2.6 and cannot be imported with torch 1.13.1: "
        "21 undefined symbols, such as c10::cuda::ExchangeDevice.",
    )
    assert verdict.fitting == "0.2.2"
    assert verdict.next_step == "ask for graphlearn-torch==0.2.2, which fits"


def test_counts_of_another_torch_of_the_series_are_told_as_such():
    (reason,) = glt.judge("0.2.2", "2.0.0", "11.7", "3.9", PACKAGES).reasons
    assert reason.endswith("with torch 2.0.0: 8 undefined symbols of 2.0.1, such as at::_ops::narrow::call.")
    (reason,) = glt.judge("0.2.2", "1.9.0", "11.1", "3.9", PACKAGES).reasons
    assert reason.endswith("cannot be imported with torch 1.9.0.")


def test_another_major_version_of_cuda():
    (reason,) = glt.judge("0.2.4", "2.3.1+cu118", "11.8", "3.11", PACKAGES).reasons
    assert reason == "graphlearn-torch 0.2.4 calls the runtime of CUDA 12; torch 2.3.1+cu118 brings that of 11.8."
    assert glt.fitting("2.3.1+cu118", "11.8", "3.11") is None


def test_a_torch_for_the_cpu_is_refused_with_the_reason():
    verdict = glt.judge("0.2.4", "2.3.1+cpu", "cpu", "3.11", PACKAGES)
    (reason,) = verdict.reasons
    assert "c10::cuda::CUDACachingAllocator and the CUDA runtime" in reason
    assert "46 undefined symbols" in reason
    assert "A CUDA build of torch serves machines without a GPU too" in reason
    assert (verdict.fitting, verdict.next_step) == (None, "")
    assert "44 undefined" in glt.judge("0.2.2", "1.13.1+cpu", "cpu", "3.9", PACKAGES).reasons[0]
    assert not glt.judge("0.9", "2.3.1+cpu", "cpu", "3.11", PACKAGES).ok


def test_a_python_without_a_wheel():
    verdict = glt.judge("0.2.2", "1.13.1", "11.7", "3.11", PACKAGES)
    assert verdict.reasons == (
        "graphlearn-torch 0.2.2 has no wheel for Python 3.11; it has for 3.7, 3.8, 3.9 and 3.10.",
    )
    assert verdict.fitting is None
    assert verdict.next_step == ""


def test_the_requirement_that_is_declared_nowhere():
    verdict = glt.judge("0.2.4", "2.3.1", "12.1", "3.11", ("torch", "torch_geometric"))
    assert verdict.reasons == (
        "graphlearn-torch imports torch_sparse at start-up; its metadata does not say so.",
    )  # fmt: skip
    assert verdict.absent == ("torch-sparse",)
    assert verdict.next_step == "add torch-sparse to the recipe"
    both = glt.judge("0.2.4", "1.13.1", "11.7", "3.9", ())
    assert len(both.reasons) == 2
    assert both.next_step == "ask for graphlearn-torch==0.2.2, which fits; add torch-sparse to the recipe"


def test_a_release_that_nobody_has_read_is_not_judged():
    verdict = glt.judge("0.3.0", "2.9.0", "12.8", "3.12", PACKAGES)
    assert verdict.ok
    assert verdict.notes == ("nobody has checked graphlearn-torch 0.3.0",)


@pytest.mark.parametrize("release", glt.releases(), ids=lambda release: release.version)
def test_facts_agree_with_each_other(release):
    """No release fits a torch that it was found to miss symbols of, nor misses one where none was missing."""
    checks = [check for check in glt._facts().check if release.version in check.releases and check.torch_cuda != "cpu"]
    assert checks
    for check in checks:
        judged = glt.judge(release.version, check.torch, check.torch_cuda, release.python[-1], PACKAGES)
        assert judged.ok == (check.undefined == 0)
        assert bool(check.example) == bool(check.undefined)
