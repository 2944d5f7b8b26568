"""A channel that no candidate names is asked for extensions before they are compiled."""

import json

import msgspec
import pytest

from graphcrate.compat.facts import addresses
from graphcrate.host.net import HttpError
from graphcrate.model.recipe import CHANNELS, Channel
from graphcrate.resolve.sources import index
from graphcrate.resolve.sources.source import Source, SourceKind
from graphcrate.resolve.stack import extensions
from tests.unit import small_index
from tests.unit.resolve_world import NOWHERE
from tests.unit.small_index import CP311, PYTORCH
from tests.unit.wheel_server import small_wheel

NEW = msgspec.structs.replace(PYTORCH, torch="2.11.0+cu128", torch_cuda="12.8")
ROW = CHANNELS[Channel.ASTRAL]


@pytest.fixture
def found(world, monkeypatch):
    """Look for torch_scatter beside a torch: what was chosen, or why nothing was."""
    monkeypatch.setitem(addresses.ROOTS, Channel.ASTRAL, world.server.url("/astral"))

    def find(candidate=NEW, *labels, forms=("json",)):
        wheels = dict(small_wheel("torch_scatter", f"2.1.2+{label}", tag=CP311) for label in labels)
        tag = addresses.cuda_label(candidate.torch_cuda)
        world.server.simple("torch-scatter", wheels, prefix=f"/astral/{tag}", forms=forms)
        recipe = small_index.recipe(candidate, extensions=("torch_scatter",))
        context = world.context(recipe, extensions="wheels")
        offers = extensions.Offers(context.sources, candidate.torch, candidate.torch_cuda)
        target = extensions.target_of(context.variant.base, "3.11")
        offered, missing = extensions.find_extensions(context.variant, candidate, target, offers)
        return offered, [each.reason for each in missing], [each.unreachable for each in missing]

    return find


@pytest.mark.parametrize("forms", [("json",), ("html",), ("json", "html")])
def test_wheel_for_this_torch_and_cuda_is_taken(found, forms):
    (offer,), _, _ = found(NEW, "cu.12.8.torch.2.11", "cu.12.8.torch.2.12", forms=forms)
    assert (offer.version, offer.channel) == ("2.1.2+cu.12.8.torch.2.11", Channel.ASTRAL)


def test_torch_without_a_wheel_yet_is_told_which_ones_have_it(found):
    _, (reason,), _ = found(NEW, "cu.12.8.torch.2.9", "cu.12.8.torch.2.10")
    assert "(it has torch-scatter for torch 2.10, 2.9)" in reason


def test_unreachable_host_is_one_line_and_counts_as_silent(world, found, monkeypatch):
    monkeypatch.setitem(addresses.ROOTS, Channel.ASTRAL, NOWHERE)
    _, (reason,), (unreachable,) = found(NEW)
    assert "astral channel: not reached" in reason
    assert Channel.ASTRAL in unreachable
    assert len([line for line in world.notes.lines if "is not reached" in line]) == 1


def test_older_torch_does_not_ask_it(world, found):
    found(PYTORCH, "cu.11.8.torch.2.0")
    assert not [path for path in world.server.paths() if path.startswith("/astral")]


@pytest.mark.parametrize(("channel", "label"), [(Channel.PYG, "pt210cu128"), (Channel.ASTRAL, "cu.12.8.torch.2.10")])
def test_label_of_a_channel_names_torch_and_cuda(channel, label):
    assert CHANNELS[channel].local("2.10.1+cu128", "12.8") == label
    assert not ROW.extends("torch-scatter", "2.9.1")
    assert ROW.extends("torch-scatter", "2.10.0")
    assert not ROW.extends("torch-sparse", "2.10.0")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"files": [{"url": 1}]}', b'{"files": {}}'])
def test_damaged_json_page_is_a_network_error(body):
    with pytest.raises(HttpError):
        index.parse_json(body, "https://h/simple/x/")


def test_json_page_gives_what_a_link_has():
    entry = {
        "filename": "x-1-py3-none-any.whl",
        "url": "../x-1-py3-none-any.whl#frag",
        "hashes": {"sha256": "ab" * 32},
        "size": 5,
        "yanked": "broken",
        "requires-python": ">=3.9",
        "core-metadata": {"sha256": "cd" * 32},
    }
    (link,) = index.parse_json(json.dumps({"files": [entry]}).encode(), "https://h/simple/x/")
    assert (link.url, link.sha256, link.size) == ("https://h/simple/x-1-py3-none-any.whl", "ab" * 32, 5)
    assert (link.yanked, link.yanked_for, link.python) == (True, "broken", ">=3.9")
    assert (link.has_metadata, link.metadata_sha256) == (True, "cd" * 32)
    assert Source(SourceKind.INDEX, "https://h/simple").page("x") == "https://h/simple/x/"
