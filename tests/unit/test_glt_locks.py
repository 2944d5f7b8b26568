"""Locks with graphlearn-torch: what is known to break is refused by name, with the version that fits."""

import msgspec
import pytest

from graphcrate.compat import addresses
from graphcrate.errors import ResolutionError
from graphcrate.host import http
from graphcrate.host.cache import Cache
from graphcrate.model.lock import DebianBase
from graphcrate.model.recipe import BaseSpec, Candidate, Channel
from graphcrate.resolve import toolkit, uv
from graphcrate.resolve.channels import Request
from graphcrate.resolve.offers import Market
from graphcrate.resolve.resolver import Wanted, resolve
from tests.unit import small_index
from tests.unit.wheel_server import WheelServer, small_sdist, small_wheel

CP39 = "cp39-cp39-linux_x86_64"
CANDIDATE = Candidate(name="pypi", channels=(Channel.PYPI, Channel.PYG), torch="1.13.1", torch_cuda="11.7")


@pytest.fixture
def program(monkeypatch):
    stand_in = small_index.Uv()
    monkeypatch.setattr(uv, "compile_requirements", stand_in)
    monkeypatch.setattr(toolkit, "lock_toolkit", lambda *_: small_index.TOOLKIT)
    return stand_in


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(http, "PAUSES", (0.0,))
    with WheelServer() as running:
        monkeypatch.setattr(addresses, "PYG", running.url("/whl"))
        small_index.fill(running)
        running.simple("torch", dict([small_wheel("torch", "1.13.1", tag=CP39)]))
        for name, version in (("torch_scatter", "2.1.2"), ("torch_sparse", "0.6.18")):
            running.simple(name.replace("_", "-"), dict([small_sdist(name, version, pyproject="")]))
        glt = [small_wheel("graphlearn_torch", version, tag=CP39) for version in ("0.2.2", "0.2.4")]
        running.simple("graphlearn-torch", dict(glt))
        yield running


@pytest.fixture
def lock(server, tmp_path, program):
    cache = Cache(tmp_path / "cache")

    def locked(requirement, wanted_extensions=("torch_scatter", "torch_sparse"), **request):
        recipe = small_index.recipe(CANDIDATE, requirements=(requirement,), extensions=wanted_extensions)
        base = BaseSpec(suite="bullseye")
        variant = msgspec.structs.replace(recipe.variants[0], python="3.9", base=base, torch_geometric="")
        environment = {"UV_DEFAULT_INDEX": server.url("/simple"), "PIP_CONFIG_FILE": "/dev/null"}
        market = Market(Request(**request), cache, environment)
        wanted = Wanted(recipe, variant, CANDIDATE, "f" * 64)
        return resolve(wanted, market, lambda: DebianBase(suite="bullseye", packages=()), small_index.lock_compiler)

    yield locked
    cache.close()


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
