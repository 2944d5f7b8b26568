"""When a lock that compiles is used and when it is left: EXTENSIONS, TOOLKIT, FLAVOUR, channels that come and go."""

import msgspec
import pytest

from graphcrate.compat import addresses
from graphcrate.compat.request import Extensions, SourceOptions
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.recipe import BaseSpec
from graphcrate.resolve.fetch import fetch
from graphcrate.resolve.locks import request_digest
from tests.made import place
from tests.unit import small_index
from tests.unit.resolve_world import NOWHERE
from tests.unit.small_index import COMPATIBLE, CP311
from tests.unit.wheel_server import small_wheel


def test_a_lock_that_compiles_for_a_silent_channel_is_left_once_it_answers(world, monkeypatch):
    """Although nothing is missing in it."""
    page = addresses.PYG
    monkeypatch.setattr(addresses, "PYG", NOWHERE)
    recipe = small_index.recipe(COMPATIBLE, extensions=("torch_scatter",))
    committed = world.choose(recipe=recipe).lock
    assert committed.missing == ()
    assert world.choose(recipe=recipe, committed=committed).lock == committed
    monkeypatch.setattr(addresses, "PYG", page)
    assert world.choose(recipe=recipe, committed=committed).lock.package("torch-scatter").unreachable == ()


def test_what_is_built_needs_neither_source_nor_compiler(world):
    lock = world.choose(COMPATIBLE).lock
    fetch(lock, SourceOptions(), place(world.cache, world.environment))
    world.built = {package.file.sha256 for package in lock.packages if package.compiled}
    for package in lock.packages:
        if package.compiled:
            world.cache.file(package.file.sha256, package.file.name).unlink()
    world.silence()
    assert world.choose(COMPATIBLE).lock == lock


def test_each_way_to_come_by_extensions_is_a_request_of_its_own(world):
    found = {mode: world.choose(COMPATIBLE, extensions=mode).lock for mode in Extensions}
    assert len({lock.request_sha256 for lock in found.values()}) == len(Extensions)
    assert found["auto"].package("torch-scatter").compiled
    assert found["source"].package("torch-scatter").compiled
    assert found["source"].missing[0].reason.startswith("wheels are not asked for")
    assert {missing.name for missing in found["none"].missing} == {"pyg-lib", "torch-scatter"}
    assert world.choose(COMPATIBLE, committed=found["auto"], extensions="none").lock == found["none"]
    assert not any("older recipe" in line for line in world.notes.lines)


def test_a_committed_lock_in_which_all_is_compiled_serves_where_source_is_wanted(world, monkeypatch):
    """Also once the channel answers that was silent when it was made: its wheels are not wanted."""
    with monkeypatch.context() as cut:
        cut.setattr(addresses, "PYG", NOWHERE)
        committed = world.choose(COMPATIBLE).lock
    assert world.choose(COMPATIBLE, committed=committed, extensions="source").lock == committed
    name, content = small_wheel("torch_scatter", "2.1.2+pt20cu117", tag=CP311)
    world.server.pyg("2.0.0+cu117", {name: content})
    ready = world.choose(COMPATIBLE, fresh=True).lock
    assert not ready.package("torch-scatter").compiled
    assert world.choose(COMPATIBLE, committed=ready, extensions="source").lock.package("torch-scatter").compiled


def test_a_recipe_without_extensions_has_one_lock_for_all_ways():
    recipe = small_index.recipe(COMPATIBLE, extensions=())
    of_mode = [
        request_digest(recipe, recipe.variants[0], COMPATIBLE, SourceOptions(extensions=mode)) for mode in Extensions
    ]
    assert len(set(of_mode)) == 1


def test_a_compiler_that_is_wanted_in_the_image_is_locked_where_nothing_is_compiled(world):
    recipe = small_index.recipe(COMPATIBLE, extensions=())
    committed = world.choose(recipe=recipe).lock
    assert committed.compilation is None
    world.fetch(committed)
    devel = world.choose(recipe=recipe, devel=True).lock
    assert devel.compilation.compiler.startswith("g++-")
    assert devel.packages == committed.packages
    assert world.choose(recipe=recipe).lock == committed
    world.silence()
    assert world.choose(recipe=recipe, devel=True).lock == devel


def test_a_compiler_that_nobody_knows_for_this_base(world):
    recipe = small_index.recipe(COMPATIBLE, extensions=())
    registry = BaseSpec(provider="registry", reference="docker.io/library/python:3.11-slim")
    variant = msgspec.structs.replace(recipe.variants[0], base=registry)
    with pytest.raises(ResolutionError, match="only Debian's compilers are known"):
        world.choose(recipe=msgspec.structs.replace(recipe, variants=(variant,)), devel=True)


@pytest.mark.parametrize(
    ("request_", "words"),
    [({"extensions": "sources"}, "auto, wheels, source, none"), ({"toolkit": "conda"}, "debian, pypi, image")],
)
def test_ways_and_toolkits_that_do_not_exist(world, request_, words):
    with pytest.raises(UsageError, match=words):
        world.choose(COMPATIBLE, **request_)
