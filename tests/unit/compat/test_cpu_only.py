"""Packages of which the index has builds for the CPU alone."""

import msgspec
import pytest

from graphcrate.compat.facts import cpu_only
from tests import made


@pytest.mark.parametrize(
    ("changes", "cuda", "is_said"),
    [
        ({"version": "2.1.0"}, "11.8", True),
        ({"version": "2.1.0"}, "cpu", False),
        ({"version": "2.1.0+cu118"}, "11.8", False),
        ({"version": "2.1.0", "index": "requirements.txt:1"}, "11.8", False),
        ({"version": "2.1.0", "channel": "local"}, "11.8", False),
        ({"version": "2.1.0", "compiled": True}, "11.8", False),
        ({"version": "2.1.0", "name": "einops"}, "11.8", False),
    ],
)
def test_package_of_the_index_without_cuda_is_said_in_an_image_with_cuda(changes, cuda, is_said):
    package = msgspec.structs.replace(made.wheel("dgl"), **changes)
    notes = list(cpu_only.notes([package], cuda))
    assert bool(notes) is is_said
    assert not notes or notes[0].startswith("dgl 2.1.0 of the package index has no CUDA: graphs stay on the CPU")
