"""A stack is a recipe; its channel a name and a row, from which addresses, options, layers and next steps come."""

import ast

import pytest

from graphcrate.compat.facts import addresses
from graphcrate.compat.plan import layering
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.model.recipe import BUILT_FOR_TORCH, CHANNELS, Channel, TorchChannel
from graphcrate.pages.report import group_of
from graphcrate.render import layout, steps
from graphcrate.resolve.sources.channels import sources
from graphcrate.resolve.sources.offers import FIXES
from graphcrate.resolve.sources.source import SourceKind
from graphcrate.resolve.sources.user_indexes import UserIndexes
from tests import ROOT, nodes_of, tree_of_file

DGL = TorchChannel(
    owner="DGL",
    root="https://data.dgl.example/wheels",
    page="torch-{series}/{label}/repo.html",
    variable="DGL_LINKS",
    for_torch=True,
    libraries=frozenset({"dgl"}),
)
USER = UserIndexes("https://index.example/simple")


def test_every_channel_but_the_users_own_has_a_row():
    assert {*CHANNELS, Channel.PYPI, Channel.LOCAL} == {*Channel}
    assert FIXES.keys() == {*Channel}
    assert {Channel.PYG, Channel.LOCAL} <= set(BUILT_FOR_TORCH)
    assert not {Channel.PYPI, Channel.PYTORCH} & set(BUILT_FOR_TORCH)
    assert len({row.variable for row in CHANNELS.values()}) == len(CHANNELS)


@pytest.mark.parametrize(
    ("channel", "where", "option"),
    [
        (Channel.PYTORCH, "https://download.pytorch.org/whl/cu118", '--index-url "${PYTORCH_INDEX}" '),
        (
            Channel.PYG,
            "https://data.pyg.org/whl/torch-2.0.0+cu118.html",
            '--no-index --find-links "${PYG_LINKS}" ',
        ),
    ],
)
def test_channel_row_gives_source_kind_location_and_option(channel, where, option):
    kind = SourceKind.INDEX if CHANNELS[channel].is_index else SourceKind.LINKS
    (source,) = sources(channel, "2.0.1+cu118", "11.8", SourceOptions(), USER)
    assert (source.kind, source.location, layout.where(channel)) == (kind, where, option)


def test_channel_row_of_dgl_gives_its_address_layout_and_group(monkeypatch):
    """As a stack of DGL would have it: in the place of PyG's, since a name of an enumeration cannot be made here."""
    monkeypatch.setitem(CHANNELS, Channel.PYG, DGL)
    monkeypatch.setitem(addresses.ROOTS, Channel.PYG, DGL.root)
    (source,) = sources(Channel.PYG, "2.4.1", "12.1", SourceOptions(), USER)
    assert source.location == "https://data.dgl.example/wheels/torch-2.4/cu121/repo.html"
    assert layout.where(Channel.PYG) == '--no-index --find-links "${DGL_LINKS}" '
    assert layering.group("dgl") == layering.FAMILIES[Channel.PYG]
    assert layering.group("torch-scatter") != layering.FAMILIES[Channel.PYG]


def test_layer_groups_stages_and_colours_are_those_of_existing_images():
    assert layering.GROUPS[:4] == ("CUDA libraries", "torch and libraries", "tools", "PyG family")
    assert steps.STAGES["PyG family"] == "pyg"
    names = (
        "torch-scatter",
        "pyg-lib",
        "torch-geometric",
        "graphlearn-torch",
        "dgl",
        "ogb",
        "torch",
        "nvidia-nccl-cu12",
    )
    assert [group_of(name) for name in names] == [*["pyg"] * 5, "other", "torch", "nvidia"]


def test_only_mirrors_hosts_extensions_open_plans_and_the_rule_on_its_wheels_name_the_channel_of_pyg():
    naming = {
        str(path.relative_to(ROOT / "graphcrate"))
        for path in sorted((ROOT / "graphcrate").rglob("*.py"))
        if "PYG" in path.read_text(encoding="utf-8")
        for node in nodes_of(tree_of_file(path), ast.Attribute)
        if node.attr == "PYG"
    }
    others = {
        "resolve/sources/wheel_mirrors.py",
        "resolve/sources/hosts.py",
        "resolve/stack/extensions.py",
        "compat/plan/planning.py",
        "compat/variants/rules.py",
    }
    assert naming == {"model/recipe.py"} | others
