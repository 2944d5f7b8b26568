"""Releases that are known not to fit each other, and what packages say when they are imported."""

import re

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from graphcrate.compat.facts import together


@pytest.mark.parametrize(
    ("versions", "broken"),
    [
        ({"dgl": "2.1.0", "torchdata": "0.11.0"}, ["torchdata<0.10"]),
        ({"dgl": "2.1.0", "torchdata": "0.9.0", "torch": "2.0.1+cu118"}, ["torch>=2.3"]),
        ({"dgl": "2.1.0", "torchdata": "0.7.1", "torch": "2.0.1+cu118"}, []),
        ({"causal-conv1d": "1.7.0", "torch": "2.0.1"}, ["torch>=2.4"]),
        ({"causal-conv1d": "1.5.0.post8", "torch": "2.0.1"}, []),
        ({"transformers": "4.51.3", "torch": "2.0.1"}, ["torch>=2.1"]),
        ({"transformers": "4.49.0", "torch": "2.0.1"}, []),
        ({"dgl": "2.1.0", "torch": "2.3.1+cu121"}, ["torch>=2.0,<2.2.2"]),
        ({"dgl": "1.1.3", "torchdata": "0.11.0", "torch": "2.3.1"}, []),
        ({"e3nn": "0.5.9", "torch": "2.0.1+cu118"}, ["torch>=2.1"]),
        ({"deepsnap": "0.2.0", "torch": "2.0.1"}, ["torch<1.13"]),
        ({"deepsnap": "0.2.1", "torch": "2.0.1"}, []),
        ({"lightning": "2.0.6", "lightning-cloud": "0.6.0"}, ["lightning-cloud<0.6"]),
        ({"lightning": "2.3.3", "lightning-cloud": "0.6.0"}, []),
        ({"transformers": "4.51.3", "torch": "2.0.1+cu118"}, ["torch>=2.1"]),
        ({"pyarrow": "26.0.1", "numpy": "1.26.4"}, ["numpy>=2"]),
        ({"pyarrow": "26.0.1", "numpy": "2.0.0"}, []),
        ({"pyarrow": "26.0.1"}, []),
        ({"torch-geometric": "2.5.3", "scikit-learn": "1.8.0"}, ["scikit-learn<1.8"]),
        ({"torch-geometric": "2.5.3", "scikit-learn": "1.7.2"}, []),
        ({"torch-geometric": "2.6.1", "scikit-learn": "1.9.1"}, []),
    ],
)
def test_incompatible_releases_are_broken_pairs(versions, broken):
    assert [one.needs for one in together.broken(versions)] == broken


def test_pair_constraint_excludes_exactly_its_versions():
    for one in together.pairs():
        assert re.fullmatch(r"(>=|<|==|!=)[\d.*]+", one.versions), "one comparison"
        contrary = Requirement(one.without).specifier
        for version in ("0.1", "1.1.3", "2", "2.1.0", "2.2", "26", "27.1"):
            assert SpecifierSet(one.versions).contains(version) != contrary.contains(version)
    assert {one.name for one in together.extras()} == {"torch"}


def test_undeclared_imports_of_dgl_are_extra_packages():
    assert together.undeclared({"dgl": "2.1.0", "pandas": "2.0"}) == {"pydantic": "dgl", "pyyaml": "dgl"}
    assert together.undeclared({"dgl": "1.1.3"}) == {}
