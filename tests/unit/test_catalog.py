"""Variants that are refused, and images by their names and digests."""

from graphcrate.artifacts import locate
from graphcrate.cli import tables
from graphcrate.compat import catalog
from graphcrate.host.context import Context
from graphcrate.model.errors import ResolutionError, UsageError
from tests import ROOT
from tests.made import RECIPES, refused
from tests.unit import small_layouts, tars


def test_a_refused_variant_says_why_and_what_to_do_instead():
    with refused(ResolutionError, "CUDA", "make image STACK=glt CUDA="):
        catalog.find_variant(Context(root=ROOT, environment={}), "glt", "cpu")


def test_a_refused_variant_stands_in_the_list_but_not_among_what_can_be_built():
    glt = [RECIPES["glt"]]
    assert [entry["cuda"] for entry in catalog.describe(glt, set())] == ["11.6", "11.6", "11.7", "12.1"]
    assert any("not available: " in line for line in tables.variants(glt, set()))


def test_a_digest_that_is_named_is_that_of_the_image(tmp_path):
    layout = small_layouts.layout(tmp_path / "pyg/1.0", [tars.file("a")])
    named = f"pyg:1.0@{layout.digest}"
    for ref in ("pyg:1.0", named, str(layout.path)):
        assert locate.find_image(ref, tmp_path)[0].digest == layout.digest
    with refused(UsageError, f"pyg:1.0 is {layout.digest} now, and sha256:00", f" {named}"):
        locate.find_image(f"pyg:1.0@sha256:{'0' * 64}", tmp_path)


def test_a_file_where_a_layout_is_needed_is_called_what_it_is(tmp_path):
    file = tmp_path / "made.sqsh"
    file.write_bytes(b"hsqs" + bytes(92))
    with refused(UsageError, "made.sqsh is a squashfs, and this takes an OCI layout", "./build.py list"):
        locate.find_image(str(file), tmp_path)
