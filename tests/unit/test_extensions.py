"""Compiled extensions: wheels where a channel has them, else sources with all it takes to compile them."""

import hashlib

import msgspec
import pytest

from graphcrate.compat import addresses
from graphcrate.compat.request import SourceOptions
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.lock import encode
from graphcrate.model.recipe import BaseSpec, Channel
from tests.unit import small_index
from tests.unit.small_index import COMPATIBLE, CP311, LOCAL
from tests.unit.wheel_server import small_sdist, small_wheel

NOWHERE = "http://127.0.0.1:1/whl"


@pytest.fixture
def server(channels, program):
    small_index.fill(channels)
    return channels


@pytest.fixture
def lock(server, cache):
    return lambda candidate=COMPATIBLE, **options: small_index.locked(server, cache, candidate, **options)


def reason(found, name):
    return next(missing.reason for missing in found.missing if missing.name == name)


def cost(found, name):
    return next(missing.cost for missing in found.missing if missing.name == name)


def test_what_has_no_wheel_is_compiled_from_the_newest_source(server, lock):
    sdists = [small_sdist("torch_scatter", version, pyproject="") for version in ("2.1.1", "2.1.2", "2.2.0rc1")]
    server.simple("torch-scatter", dict(sdists))
    scatter = lock().package("torch-scatter")
    assert (scatter.version, scatter.channel, scatter.compiled, scatter.build) == ("2.1.2", Channel.PYPI, True, ())
    assert scatter.file.sha256 == hashlib.sha256(dict(sdists)["torch_scatter-2.1.2.tar.gz"]).hexdigest()
    assert scatter.unreachable == ()


def test_a_pin_chooses_the_version_of_wheel_and_source(server, lock):
    server.simple("torch-scatter", dict([small_sdist("torch_scatter", v, pyproject="") for v in ("2.1.1", "2.1.2")]))
    assert lock(extensions=("torch_scatter==2.1.1",)).package("torch-scatter").version == "2.1.1"
    wheels = [small_wheel("torch_scatter", f"{v}+pt20cu117", tag=CP311) for v in ("2.1.0", "2.1.2")]
    server.pyg("2.0.0+cu117", dict(wheels))
    found = lock(extensions=("torch_scatter==2.1.0",)).package("torch-scatter")
    assert (found.version, found.compiled) == ("2.1.0+pt20cu117", False)


def test_what_was_taken_back_is_not_taken(server, lock):
    sdists = [small_sdist("torch_scatter", v, pyproject="") for v in ("2.1.1", "2.1.2")]
    server.simple("torch-scatter", dict(sdists), yanked=("torch_scatter-2.1.2.tar.gz",))
    assert lock().package("torch-scatter").version == "2.1.1"
    wheels = [small_wheel("torch_scatter", f"{v}+pt20cu117", tag=CP311) for v in ("2.1.0", "2.1.2")]
    server.pyg("2.0.0+cu117", dict(wheels), yanked=(wheels[1][0],))
    assert lock().package("torch-scatter").version == "2.1.0+pt20cu117"


def test_with_what_it_is_compiled_is_locked(lock):
    found = lock().compilation
    assert found.architectures == ("7.0", "8.0")
    assert found.compiler == "g++-11"
    assert [package.name for package in found.base.packages] == ["g++-11"]
    assert {package.name: package.version for package in found.tools} == {
        "ninja": "1.13.2",
        "pip": "25.0",
        "setuptools": "69.5.1",  # torch 2.0 builds with nothing newer
        "wheel": "0.45",
    }
    assert found.toolkit == small_index.TOOLKIT


def test_a_lock_that_compiles_names_no_host(server, lock):
    text = encode(lock()).decode()
    assert "://" not in text
    assert str(server.port) not in text


def test_what_a_source_requires_is_resolved_too(server, lock):
    name, content = small_sdist("torch_sparse", "0.6.18", pyproject="", metadata_requires=["tqdm", "x ; extra == 'y'"])
    server.simple("torch-sparse", {name: content})
    server.simple("torch-scatter", dict([small_sdist("torch_scatter", "2.1.2", pyproject="")]))
    found = lock(extensions=("torch_sparse", "torch_scatter"), requirements=())
    assert found.package("tqdm").version == "4.66"
    assert "compiled without METIS" in found.notes[-1]


def test_a_recipe_with_half_of_what_belongs_together_is_refused(lock):
    with pytest.raises(ResolutionError, match="torch-sparse cannot be imported without torch-scatter") as refused:
        lock(extensions=("torch_sparse",))
    assert "torch_scatter" in refused.value.next_step


def test_what_cannot_be_imported_without_a_missing_one_is_missing_too(server, lock):
    server.simple("torch-sparse", dict([small_sdist("torch_sparse", "0.6.18", pyproject="")]))
    found = lock(extensions=("torch_scatter==9.9", "torch_sparse"))
    assert reason(found, "torch-sparse") == "it cannot be imported without torch-scatter, which is missing"


def test_source_even_where_there_is_a_wheel(server, lock):
    server.pyg("2.0.0+cu117", dict([small_wheel("torch_scatter", "2.1.2+pt20cu117", tag=CP311)]))
    assert not lock().package("torch-scatter").compiled
    found = lock(request=SourceOptions(extensions="source"))
    assert found.package("torch-scatter").compiled
    assert reason(found, "pyg-lib") == (
        "wheels are not asked for (EXTENSIONS=source); the package index does not have it"
    )


def test_what_is_missing_costs_less_where_another_stands_in(server, lock):
    assert cost(lock(), "pyg-lib").endswith("; neighbour sampling unless torch_sparse is there")
    for name, version in (("torch_sparse", "0.6.18"), ("torch_scatter", "2.1.2")):
        server.simple(name.replace("_", "-"), dict([small_sdist(name, version, pyproject="")]))
    assert cost(lock(extensions=("pyg_lib", "torch_scatter", "torch_sparse")), "pyg-lib") == (
        "weighted and temporal sampling, distributed training (NeighborLoader falls back to torch_sparse)"
    )


def test_a_channel_that_is_silent_is_remembered_with_the_source(lock, monkeypatch):
    monkeypatch.setattr(addresses, "PYG", NOWHERE)
    assert lock().package("torch-scatter").unreachable == (Channel.PYG,)
    assert lock(request=SourceOptions(extensions="source")).package("torch-scatter").unreachable == ()


def test_an_image_for_the_cpu_needs_no_toolkit(lock, tmp_path):
    name, content = small_wheel("torch", "2.13.0+cpu", tag=CP311, requires=["filelock"])
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / name).write_bytes(content)
    variant = {"cuda": "cpu", "architectures": ()}
    found = lock(LOCAL, variant=variant, request=SourceOptions(wheels=tmp_path / "w"))
    assert found.package("torch-scatter").compiled
    assert (found.compilation.toolkit, found.compilation.architectures) == (None, ())
    assert found.compilation.compiler == "g++-12"  # no nvcc has a say
    assert {package.name: package.version for package in found.compilation.tools}["setuptools"] == "84.0"


REGISTRY = BaseSpec(provider="registry", reference="docker.io/library/python:3.11-slim")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"request": SourceOptions(extensions="wheels")}, "; the package index has source only"),
        ({"request": SourceOptions(extensions="none")}, "left out on request (EXTENSIONS=none)"),
        (
            {"variant": {"base": REGISTRY}},
            "the package index has source only; it cannot be compiled: its base is an image of a registry, "
            "and only Debian's compilers are known",
        ),
        (
            {"candidate": msgspec.structs.replace(COMPATIBLE, torch_cuda="10.2")},
            "there is no CUDA toolkit for torch's CUDA 10.2",
        ),
        ({"variant": {"base": BaseSpec(suite="trixie")}}, "too new for this CUDA"),
    ],
)
def test_where_nothing_is_compiled_the_reason_is_told(lock, options, words):
    found = lock(**options)
    assert words in reason(found, "torch-scatter")
    assert cost(found, "torch-scatter") == "segment()"
    assert found.compilation is None


def test_a_toolkit_that_does_not_fit_is_refused(lock):
    with pytest.raises(UsageError, match=r"no CUDA toolkit 'pypi' fits torch 2\.0\.1, built with CUDA 11\.7"):
        lock(request=SourceOptions(toolkit="pypi"))


def test_an_architecture_that_the_toolkit_cannot_make_is_refused_where_it_is_needed(server, lock):
    variant = {"architectures": ("7.0", "12.0")}
    with pytest.raises(UsageError, match=r"12\.0"):
        lock(variant=variant)
    wheels = [small_wheel(name, "1.0+pt20cu117", tag=CP311) for name in ("pyg_lib", "torch_scatter")]
    server.pyg("2.0.0+cu117", dict(wheels))
    assert lock(variant=variant).missing == ()
