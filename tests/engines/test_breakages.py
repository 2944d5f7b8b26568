"""The suite `ops` and what is broken: forty operators and five files of extensions, one at a time.

The image has every extension for the CPU, from the folder of wheels where that has them, else compiled (minutes).
pyg_lib is in it where its wheel or its sources (PYG_LIB) are; without it 32 operators are broken.
"""

import json
import os

import pytest

from graphcrate.engines.embedded import run as embedded
from graphcrate.host.disk.cache import Cache
from graphcrate.host.sandbox.sandbox import Exec
from graphcrate.oci.layout import read_layout
from nsbox.box import Bind
from tests import ROOT
from tests.engines.workplace import Workplace, copy_project, wheel_folder

pytestmark = [
    pytest.mark.weekly,
    pytest.mark.network,
    pytest.mark.engine("user namespaces"),
    pytest.mark.skipif(not wheel_folder(), reason="no wheel of torch for the CPU here"),
]
LISTED = '"pyg_lib", "torch_scatter", "torch_sparse"]'
MORE = '"torch_cluster", "torch_spline_conv"]'


def test_each_breakage_is_named_with_its_layer(ground, scratch):
    copy = copy_project(scratch / "project")
    recipe = copy / "recipes" / "pyg.toml"
    text = recipe.read_text()
    assert LISTED in text
    recipe.write_text(text.replace(LISTED, f"{LISTED[:-1]}, {MORE}"))
    place = Workplace(copy, ground / "cache")
    sources = ("--pyg-lib", os.environ["PYG_LIB"]) if os.environ.get("PYG_LIB") else ()
    made = place.run("image", "pyg", "--cuda", "cpu", "--wheels", wheel_folder(), *sources, "--no-smoke", "--json").ok()
    has_pyg_lib = "pyg-lib" in {package["name"] for package in made.json["packages"]}
    with embedded.unpacked(read_layout(place.layout(made.json)), cache=Cache(place.cache)) as opened:
        binds = (Bind(ROOT / "tests" / "engines", "/given"),)
        told: list[str] = []
        done = opened.run(Exec(["python", "/given/broken_operators.py"], binds=binds, on_line=told.append))
    rows = [json.loads(line) for line in told if line.startswith('{"row"')]
    assert done.returncode == 0, told[-5:]
    assert [row for row in rows if not row["right"]] == []
    assert len(rows) == (45 if has_pyg_lib else 32 + 5)
