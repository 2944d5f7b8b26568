"""The torchvision and torchaudio of each torch."""

import pytest
from packaging.version import Version

from graphcrate.compat.facts import facts, pairs


@pytest.mark.parametrize(
    ("torch", "constraints"),
    [
        ("1.13.1+cu116", {"torchvision==0.14.1", "torchaudio==0.13.1"}),
        ("2.0.0", {"torchvision==0.15.1", "torchaudio==2.0.1"}),
        ("2.7.1", {"torchvision==0.22.1", "torchaudio==2.7.1"}),
        ("2.10.0", {"torchvision==0.25.0", "torchaudio==2.10.0"}),  # and not 2.11.0, which is for CUDA 13
        ("2.12.1+cpu", {"torchvision==0.27.1", "torchaudio==2.11.0"}),
        ("2.15.0", {"torchvision==0.29.2", "torchaudio==2.11.1"}),
        ("2.15.1", {"torchaudio>=2.11.1"}),  # newer than the table
        ("3.0.0.dev20270101+cu132", {"torchaudio>=2.11.1"}),
        ("2.8.1", {"torchaudio==2.8.*"}),  # never published
        ("1.12.1", {"torchaudio==0.12.*"}),  # older than the table
    ],
)
def test_pair_constraints_of_a_torch(torch, constraints):
    assert set(pairs.constraints(torch)) == constraints


@pytest.mark.parametrize(
    ("package", "version", "torch_cuda", "built"),
    [
        ("torchaudio", "2.0.2", "11.8", "11.7"),
        ("torchaudio", "2.0.2", "11.7", ""),
        ("torchaudio", "2.0.2+cu118", "11.8", ""),
        ("torchaudio", "2.0.2+cu118", "11.7", "11.8"),
        ("torchaudio", "2.11.0", "13.2", "13.0"),
        ("torchaudio", "2.11.1", "13.0", ""),  # takes any CUDA 13
        ("torchaudio", "2.0.2", "cpu", ""),
        ("torchaudio", "2.0.2+cpu", "11.8", ""),
        ("torchaudio", "2.0.9", "11.8", ""),  # not known
        ("torchvision", "0.15.2", "11.8", "11.7"),
        ("torchvision", "0.16.0", "12.2", ""),
        ("torchtext", "0.15.2", "11.8", ""),
    ],
)
def test_other_cuda_names_the_cuda_of_a_mismatched_torchaudio(package, version, torch_cuda, built):
    assert pairs.other_cuda(package, version, torch_cuda) == built


def test_pairs_table_is_ordered_with_sources_and_all_measured_torches():
    rows = pairs.pairs()
    assert [row.torch for row in rows] == sorted((row.torch for row in rows), key=Version)
    assert not [row.torch for row in rows if not row.source or not row.known]
    assert {build.torch for build in facts.torch_builds()} <= {row.torch for row in rows}
    of_index = {(build.torch, build.cuda) for build in facts.torch_builds()}
    assert {(row.torch, row.cuda) for row in rows} <= of_index, "torchvision and torchaudio are for torch's own CUDA"
