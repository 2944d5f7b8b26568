"""Variants that are refused, and images by their names and digests."""

import pytest

from graphcrate.artifacts import locate
from graphcrate.cli import tables
from graphcrate.compat import catalog, recipes
from graphcrate.host.context import Context
from graphcrate.model.errors import ResolutionError, UsageError
from tests import ROOT
from tests.unit import small_layouts, tars


def test_a_refused_variant_says_why_and_what_to_do_instead():
    with pytest.raises(ResolutionError) as caught:
        catalog.find_variant(Context(root=ROOT, environment={}), "glt", "cpu")
    assert "CUDA" in caught.value.cause
    assert caught.value.next_step.startswith("make image STACK=glt CUDA=")


def test_a_refused_variant_stands_in_the_list_but_not_among_what_can_be_built():
    glt = recipes.load(ROOT / "recipes" / "glt.toml")
    assert [entry["cuda"] for entry in catalog.describe([glt], set())] == ["11.6", "11.6", "11.7", "12.1"]
    assert any("not available: " in line for line in tables.variants([glt], set()))


def test_a_digest_that_is_named_is_that_of_the_image(tmp_path):
    folder = tmp_path / "pyg/1.0"
    folder.mkdir(parents=True)
    layout = small_layouts.layout(folder, [tars.file("a")])
    for ref in ("pyg:1.0", f"pyg:1.0@{layout.digest}", str(layout.path)):
        assert locate.find_image(ref, tmp_path)[0].digest == layout.digest
    with pytest.raises(UsageError, match=rf"pyg:1\.0 is {layout.digest} now, and sha256:0+ was asked for") as caught:
        locate.find_image(f"pyg:1.0@sha256:{'0' * 64}", tmp_path)
    assert caught.value.next_step.endswith(f" pyg:1.0@{layout.digest}")
