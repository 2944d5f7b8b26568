"""Locks with graphlearn-torch: what is known to break is refused by name, with the version that fits."""

import pytest

from graphcrate.compat.request import SourceOptions
from graphcrate.model.errors import ResolutionError
from graphcrate.model.recipe import BaseSpec, Candidate, Channel
from tests.unit import small_index
from tests.unit.wheel_server import small_sdist, small_wheel

CP39 = "cp39-cp39-linux_x86_64"
CANDIDATE = Candidate(name="pypi", channels=(Channel.PYPI, Channel.PYG), torch="1.13.1", torch_cuda="11.7")


@pytest.fixture
def server(channels):
    small_index.fill(channels)
    channels.simple("torch", dict([small_wheel("torch", "1.13.1", tag=CP39)]))
    for name, version in (("torch_scatter", "2.1.2"), ("torch_sparse", "0.6.18")):
        channels.simple(name.replace("_", "-"), dict([small_sdist(name, version, pyproject="")]))
    glt = [small_wheel("graphlearn_torch", version, tag=CP39) for version in ("0.2.2", "0.2.4")]
    channels.simple("graphlearn-torch", dict(glt))
    return channels


@pytest.fixture
def lock(server, cache, program):
    def locked(requirement, wanted_extensions=("torch_scatter", "torch_sparse"), **request):
        variant = {"python": "3.9", "base": BaseSpec(suite="bullseye"), "torch_geometric": ""}
        options = {"variant": variant, "requirements": (requirement,), "extensions": wanted_extensions}
        return small_index.locked(server, cache, CANDIDATE, SourceOptions(**request), **options)

    return locked


def test_the_release_for_this_torch(lock):
    found = lock("graphlearn-torch==0.2.2")
    assert found.package("graphlearn-torch").version == "0.2.2"
    assert found.package("torch-sparse").compiled
    assert found.compilation.compiler == "g++-10"
    assert any("515" in note for note in found.notes)  # the driver that its PTX needs


def test_one_for_another_torch_is_refused_before_anything_is_resolved(lock, program):
    with pytest.raises(ResolutionError, match="21 undefined symbols") as caught:
        lock("graphlearn-torch==0.2.4")
    assert "graphlearn-torch==0.2.2" in caught.value.next_step
    assert program.calls == []


def test_one_that_is_not_pinned_is_judged_by_what_comes_out(lock):
    with pytest.raises(ResolutionError) as caught:
        lock("graphlearn-torch")
    assert "graphlearn-torch==0.2.2" in caught.value.next_step


@pytest.mark.parametrize("request_", [{"extensions": "none"}, {"extensions": "wheels"}])
def test_it_is_refused_without_what_it_imports(lock, request_):
    with pytest.raises(ResolutionError, match="imports torch_sparse at start-up") as caught:
        lock("graphlearn-torch==0.2.2", **request_)
    assert "EXTENSIONS=auto" in caught.value.next_step


def test_it_is_refused_where_the_recipe_forgets_what_it_imports(lock):
    with pytest.raises(ResolutionError) as caught:
        lock("graphlearn-torch==0.2.2", wanted_extensions=())
    assert caught.value.next_step == "add torch-sparse to the recipe"
