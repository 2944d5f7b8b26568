"""Packages of a stack's time: what is asked of uv, which index can answer, and what a lock says of it."""

import json

import msgspec
import pytest

from graphcrate.assembly.summary import plan_lines
from graphcrate.compat.facts.cutoff import Cutoff, cutoff_of
from graphcrate.compat.plan.planning import make_open_plan
from graphcrate.compat.variants import recipes
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.model import toml
from graphcrate.model.errors import RecipeError, ResolutionError
from graphcrate.model.lock import Added, decode_lock, encode
from graphcrate.model.plan import RequirementsStep
from graphcrate.model.recipe import Recipe
from graphcrate.render.texts import dockerfile
from graphcrate.resolve.sources.index import Listings
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.source import Source, SourceKind
from graphcrate.resolve.stack import pinning
from graphcrate.resolve.stack.locks import request_digest
from tests.made import RECIPES, index_of, refused
from tests.unit import small_index
from tests.unit.small_index import COMPATIBLE
from tests.unit.wheel_server import small_wheel

DAY = "2023-08-31"
RECIPE = """
name = "r"
description = ""
smoke = ["torch"]
{more}
[[variant]]
cuda = "11.7"
python = "3.11"
base = {{ suite = "bookworm" }}
exclude_newer = "{day}"
[[variant.candidate]]
name = "pypi"
channels = ["pypi"]
torch = "2.0.1"
torch_cuda = "11.7"
"""


def parse(day=DAY, more=""):
    return toml.parse(RECIPE.format(day=day, more=more), "r.toml", Recipe, recipes.contradictions, "")


def states_times(server, *, uploaded=DAY + "T10:00:00Z"):
    """Let every page of the index say when its files were uploaded."""
    for page in server.pages.values():
        page.uploaded = uploaded


@pytest.mark.parametrize("day", ["2023-8-31", "2023-02-30", "20230831", "yesterday", "2023-08-31T00:00:00Z"])
def test_recipe_with_no_such_day_is_refused_with_its_line(day):
    with refused(RecipeError, 'is not a day: write "2023-08-31"') as caught:
        parse(day)
    assert caught.value.what.startswith("r.toml:10: variant[0].exclude_newer")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('exclude_newer_except = { "a b" = "CVE" }', "'a b' is not the name of a package"),
        ('exclude_newer_except = { "--index" = "CVE" }', "'--index' is not the name of a package"),
        ('exclude_newer_except = { pip = " " }', "say why newer files of pip are taken"),
    ],
)
def test_recipe_exemption_without_a_name_or_a_reason_is_refused(more, words):
    with refused(RecipeError, words):
        parse(more=more)


def test_cutoff_exempts_exact_versions_and_named_packages():
    recipe = parse(more='exclude_newer_except = { Jinja2 = "CVE-2024-22195" }')
    lines = [
        "not: a requirement",
        "graphlearn-torch==0.2.2",
        "torch===2.0.1",
        "numpy<2",
        "torchaudio==2.0.*",
        "a @ file:///a-1-py3-none-any.whl",
    ]
    cutoff = cutoff_of(recipe, recipe.variants[0], lines)
    assert cutoff == Cutoff(DAY, ("a", "graphlearn-torch", "jinja2", "torch"))
    assert cutoff.options[:4] == [
        "--exclude-newer", "2023-08-31T23:59:59.999999Z", "--exclude-newer-package", "a=false",
    ]  # fmt: skip
    undated = msgspec.structs.replace(recipe.variants[0], exclude_newer="")
    assert cutoff_of(recipe, undated, lines) is None


def test_uv_gets_the_day_for_the_stack_and_not_for_build_tools(server, lock, program):
    locked = lock(variant={"exclude_newer": DAY})
    (stack,) = [call for call in program.calls if call["cutoff"]]
    assert stack["cutoff"] == Cutoff(DAY, ("nvidia-cublas-cu11", "torch", "torchaudio", "torchvision"))
    tools = [line for call in program.calls if not call["cutoff"] for line in call["requirements"]]
    assert {"flit_core", "ninja>=1.13"} <= {*tools}
    assert locked.as_of == DAY
    assert decode_lock(encode(locked)) == locked
    assert b"exclude_newer" not in encode(lock()), "locks without a date keep their bytes"


def test_plan_says_the_day_of_the_packages(lock):
    locked = lock(variant={"exclude_newer": DAY})
    (line,) = [line for line in plan_lines("pyg", locked, (), "", 0) if DAY in line]
    assert line == f"  as of     {DAY}: what the recipe neither pins nor exempts"
    own = msgspec.structs.replace(locked, added=Added(packages=("numpy",)))
    assert any(line.endswith("; yours are the newest") for line in plan_lines("pyg", own, (), "", 0))


def test_index_without_times_of_upload_gives_the_newest_with_a_note(server, lock, program):
    program.newest = "2024-01-01"
    locked = lock(variant={"exclude_newer": DAY})
    assert locked.as_of == ""
    (note,) = [note for note in locked.notes if DAY in note]
    assert note == f"packages are the newest, not those of {DAY}: 127.0.0.1 gives no times of upload (PEP 700)"


def test_stack_that_no_package_of_its_day_satisfies_is_refused_with_the_day(server, lock, program):
    program.newest = "2024-01-01"
    states_times(server)
    with refused(ResolutionError, f"no packages of {DAY} or before", "exclude_newer_except") as caught:
        lock(variant={"exclude_newer": DAY})
    assert "no versions of numpy" in caught.value.what


@pytest.mark.parametrize(
    ("body", "has_times"),
    [
        ({"files": [{"filename": "numpy-1.0.zip", "upload-time": "2023-08-31T00:00:00Z"}]}, True),
        ({"files": [{"filename": "numpy-1.0.zip"}]}, False),
        ({"files": [{"upload-time": 3}]}, False),
        (b"<html></html>", False),
        (b"[" * 100_000, False),
        (None, False),
    ],
    ids=["times", "no times", "a number", "HTML", "deep", "absent"],
)
def test_index_has_times_where_its_json_says_so(server, cache, body, has_times):
    if body is not None:
        server.put("/simple/numpy/", body if isinstance(body, bytes) else json.dumps(body).encode())
    listings = Listings(Sources(SourceOptions(), cache, index_of(server)).client)
    assert listings.has_times(Source(SourceKind.INDEX, server.url("/simple")), "numpy") is has_times


def test_index_on_this_machine_has_no_times(cache, tmp_path):
    listings = Listings(Sources(SourceOptions(), cache, {}).client)
    assert not listings.has_times(Source(SourceKind.INDEX, tmp_path.as_uri()), "numpy")


def test_indexes_without_times_are_named_without_passwords(server, cache):
    server.simple("numpy", dict([small_wheel("numpy", "1.26.4")]), uploaded="2023-08-31T00:00:00Z")
    other = server.url("/other").replace("127.0.0.1", "me:secret@localhost")
    sources = Sources(SourceOptions(), cache, {**index_of(server), "UV_INDEX": other})
    assert pinning.without_times(sources) == ["localhost"]


def test_request_digest_has_day_and_exempt_names_where_there_is_a_day():
    recipe = parse()
    (variant,), (candidate,) = recipe.variants, recipe.variants[0].candidates
    undated = msgspec.structs.replace(variant, exclude_newer="")
    exempting = msgspec.structs.replace(recipe, exclude_newer_except={"pip": "CVE-2023-5752"})
    reworded = msgspec.structs.replace(recipe, exclude_newer_except={"pip": "CVE-2025-8869"})
    of = {
        name: request_digest(one, its, candidate)
        for name, one, its in [
            ("undated", recipe, undated), ("dated", recipe, variant), ("exempting", exempting, variant),
            ("reworded", reworded, variant), ("undated, exempting", exempting, undated),
        ]
    }  # fmt: skip
    assert of["undated"] == of["undated, exempting"], "locks without a date stay valid"
    assert of["exempting"] == of["reworded"]
    assert len({of["undated"], of["dated"], of["exempting"]}) == 3


def test_open_plan_gives_uv_the_day_where_the_package_index_is_asked():
    recipe = small_index.recipe(COMPATIBLE)
    variant = msgspec.structs.replace(recipe.variants[0], exclude_newer=DAY)
    plan = make_open_plan(recipe, variant, COMPATIBLE, examples={})
    options = {step.channel: step.options[:2] for step in plan.of(RequirementsStep)}
    assert options == {"pypi": ("--exclude-newer", f"{DAY}T23:59:59.999999Z"), "pyg": ()}
    assert "'--exclude-newer'" in dockerfile(plan)


def test_stacks_of_one_torch_geometric_share_a_day_and_reasons_are_the_same_in_all_recipes():
    days, reasons = {}, {}
    for recipe in RECIPES.values():
        assert [*recipe.exclude_newer_except] == sorted(recipe.exclude_newer_except)
        for name, why in recipe.exclude_newer_except.items():
            reasons.setdefault(name, set()).add(why)
        for variant in recipe.variants:
            if variant.torch_geometric:
                days.setdefault(variant.torch_geometric, set()).add(variant.exclude_newer)
    assert [name for name, texts in reasons.items() if len(texts) > 1] == []
    assert days == {"2.3.1": {"2023-08-31"}, "2.5.3": {"2024-09-30"}, "2.7.0": {"2026-01-31"}, "2.8.1": {""}}
