"""Compiled extensions: wheels where a channel has them, else sources with all it takes; which lock serves whom."""

from typing import get_args

import msgspec
import pytest

from graphcrate.compat.facts import addresses
from graphcrate.compat.variants.request import Extensions, SourceOptions
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.lock import encode
from graphcrate.model.recipe import BaseSpec, Candidate, Channel
from graphcrate.resolve.sources.fetch import fetch
from graphcrate.resolve.stack.locks import request_digest
from tests.made import file_of, place, refused
from tests.unit import small_index
from tests.unit.resolve_world import NOWHERE
from tests.unit.small_index import COMPATIBLE, CP311, LOCAL
from tests.unit.wheel_server import small_sdist, small_wheel

MODES = get_args(Extensions)
CP39 = "cp39-cp39-linux_x86_64"
GLT = Candidate(name="pypi", channels=(Channel.PYPI, Channel.PYG), torch="1.13.1", torch_cuda="11.7")
REGISTRY = BaseSpec(provider="registry", reference="docker.io/library/python:3.11-slim")


def sdists(server, name, *versions, yanked=(), **more):
    """Puts sources on the package index; gives them by file name."""
    found = dict(small_sdist(name, version, pyproject="", **more) for version in versions)
    server.simple(name.replace("_", "-"), found, yanked=yanked)
    return found


def wheels(server, *versions, yanked=()):
    """Puts wheels of torch_scatter on PyG's page."""
    found = dict(small_wheel("torch_scatter", f"{version}+pt20cu117", tag=CP311) for version in versions)
    server.pyg("2.0.0+cu117", found, yanked=yanked)


def missing(found, name):
    return next(one for one in found.missing if one.name == name)


@pytest.mark.parametrize(
    ("wanted", "on_page", "yanked", "version"),
    [
        ("torch_scatter", (), "", "2.1.2"),
        ("torch_scatter==2.1.1", (), "", "2.1.1"),
        ("torch_scatter", (), "torch_scatter-2.1.2.tar.gz", "2.1.1"),
        ("torch_scatter==2.1.0", ("2.1.0", "2.1.2"), "", "2.1.0+pt20cu117"),
        ("torch_scatter", ("2.1.0", "2.1.2"), f"torch_scatter-2.1.2+pt20cu117-{CP311}.whl", "2.1.0+pt20cu117"),
    ],
)
def test_extension_is_the_newest_requested_unyanked_wheel_or_source(server, lock, wanted, on_page, yanked, version):
    files = sdists(server, "torch_scatter", "2.1.1", "2.1.2", "2.2.0rc1", yanked=(yanked,))
    wheels(server, *on_page, yanked=(yanked,))
    scatter = lock(extensions=(wanted,)).package("torch-scatter")
    assert (scatter.version, scatter.compiled, scatter.unreachable) == (version, not on_page, ())
    if not on_page:
        file = file_of(scatter.file.name, files[f"torch_scatter-{version}.tar.gz"])
        assert (scatter.channel, scatter.file, scatter.build) == (Channel.PYPI, file, ())


def test_compiled_extension_locks_compiler_toolkit_and_tools_without_hosts(server, lock):
    made = lock()
    found = made.compilation
    assert (found.architectures, found.compiler, found.toolkit) == (("7.0", "8.0"), "g++-11", small_index.TOOLKIT)
    assert [package.name for package in found.base.packages] == ["g++-11"]
    # torch 2.0 builds with no newer setuptools
    tools = {"ninja": "1.13.2", "pip": "25.0", "setuptools": "69.5.1", "wheel": "0.45"}
    assert {package.name: package.version for package in found.tools} == tools
    assert not any(address in encode(made).decode() for address in ("://", str(server.port)))


def test_requirements_of_an_extension_source_are_resolved(server, lock):
    sdists(server, "torch_sparse", "0.6.18", metadata_requires=["tqdm", "x ; extra == 'y'"])
    found = lock(extensions=("torch_sparse", "torch_scatter"), requirements=())
    assert found.package("tqdm").version == "4.66"


def test_source_of_torch_sparse_is_locked_with_metis_and_others_without(server, lock):
    sdists(server, "torch_sparse", "0.6.18")
    found = lock(extensions=("torch_sparse", "torch_scatter"))
    assert [(source.name, source.architecture) for source in found.compilation.linked] == [("metis", "source")]
    assert not any("METIS" in note for note in found.notes)
    assert lock(extensions=("torch_scatter",)).compilation.linked == ()


def test_torch_sparse_without_torch_scatter_is_refused_or_missing(server, lock):
    with refused(ResolutionError, "torch-sparse cannot be imported without torch-scatter", 'add "torch_scatter" to'):
        lock(extensions=("torch_sparse",))
    sdists(server, "torch_sparse", "0.6.18")
    found = missing(lock(extensions=("torch_scatter==9.9", "torch_sparse")), "torch-sparse")
    assert found.reason == "it cannot be imported without torch-scatter, which is missing"


def test_extensions_source_compiles_despite_a_wheel(server, lock):
    wheels(server, "2.1.2")
    found = lock(request=SourceOptions(extensions="source"))
    assert found.package("torch-scatter").compiled
    assert missing(found, "pyg-lib").reason.startswith("wheels are not asked for (EXTENSIONS=source); the ")


def test_missing_pyg_lib_costs_less_beside_torch_sparse(server, lock):
    assert missing(lock(), "pyg-lib").cost.endswith("; neighbour sampling unless torch_sparse is there")
    sdists(server, "torch_sparse", "0.6.18")
    found = lock(extensions=("pyg_lib", "torch_scatter", "torch_sparse"))
    cost = missing(found, "pyg-lib").cost
    assert cost.endswith(" (NeighborLoader falls back to torch_sparse)")
    assert "unless" not in cost


def test_cpu_image_compiles_extensions_without_a_toolkit(lock, tmp_path):
    small_index.put_torch(tmp_path, "2.13.0+cpu")
    found = lock(LOCAL, variant={"cuda": "cpu", "architectures": ()}, request=SourceOptions(wheels=tmp_path))
    assert found.package("torch-scatter").compiled
    compilation = found.compilation
    assert (compilation.toolkit, compilation.architectures, compilation.compiler) == (None, (), "g++-12")
    assert {package.name: package.version for package in found.compilation.tools}["setuptools"] == "84.0"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"request": SourceOptions(extensions="wheels")}, "; sources are not asked for (EXTENSIONS=wheels)"),
        ({"request": SourceOptions(extensions="none")}, "left out on request (EXTENSIONS=none)"),
        (
            {"variant": {"base": REGISTRY}},
            "it cannot be compiled: its base is an image of a registry, and only Debian's",
        ),
        ({"candidate": msgspec.structs.replace(COMPATIBLE, torch_cuda="10.2")}, "no CUDA toolkit for torch's CUDA"),
        ({"variant": {"base": BaseSpec(suite="trixie")}}, "too new for this CUDA"),
    ],
)
def test_missing_extension_has_its_reason(lock, options, words):
    found = lock(**options)
    assert words in missing(found, "torch-scatter").reason
    assert missing(found, "torch-scatter").cost == "segment()"
    assert found.compilation is None


def test_unfit_toolkit_or_architecture_is_refused_if_something_is_compiled(server, lock):
    with pytest.raises(UsageError, match=r"no CUDA toolkit 'pypi' fits torch 2\.0\.1, built with CUDA 11\.7"):
        lock(request=SourceOptions(toolkit="pypi"))
    variant = {"architectures": ("7.0", "12.0")}
    with pytest.raises(UsageError, match=r"12\.0"):
        lock(variant=variant)
    wheels(server, "1.0")
    assert lock(variant=variant, extensions=("torch_scatter",)).missing == ()


# Which lock serves which request


def test_built_extension_needs_neither_source_nor_compiler(world):
    lock = world.choose(COMPATIBLE).lock
    fetch(lock, SourceOptions(), place(world.cache, world.environment))
    compiled = [package.file for package in lock.packages if package.compiled]
    world.built = {file.sha256 for file in compiled}
    for file in compiled:
        world.cache.file(file.sha256, file.name).unlink()
    world.silence()
    assert world.choose(COMPATIBLE).lock == lock


def test_extensions_option_is_part_of_the_request_digest(world):
    found = {mode: world.choose(COMPATIBLE, extensions=mode).lock for mode in MODES}
    assert len({lock.request_sha256 for lock in found.values()}) == len(MODES)
    assert all(found[mode].package("torch-scatter").compiled for mode in ("auto", "source"))
    assert {one.name for one in found["none"].missing} == {"pyg-lib", "torch-scatter"}
    assert world.choose(COMPATIBLE, committed=found["auto"], extensions="none").lock == found["none"]
    assert not any("older recipe" in line for line in world.notes.lines)
    without = small_index.recipe(COMPATIBLE, extensions=())
    requests = [SourceOptions(extensions=mode) for mode in MODES]
    assert len({request_digest(without, without.variants[0], COMPATIBLE, request) for request in requests}) == 1


def test_committed_lock_with_compiled_extensions_serves_extensions_source(world, monkeypatch):
    """Also once the channel answers that was silent when it was made: its wheels are not asked for."""
    with monkeypatch.context() as cut:
        cut.setitem(addresses.ROOTS, Channel.PYG, NOWHERE)
        committed = world.choose(COMPATIBLE).lock
    assert world.choose(COMPATIBLE, committed=committed, extensions="source").lock == committed
    wheels(world.server, "2.1.2")
    ready = world.choose(COMPATIBLE, fresh=True).lock
    assert not ready.package("torch-scatter").compiled
    assert world.choose(COMPATIBLE, committed=ready, extensions="source").lock.package("torch-scatter").compiled


def test_devel_image_locks_a_compiler_without_compiled_extensions(world):
    recipe = small_index.recipe(COMPATIBLE, extensions=())
    variant = msgspec.structs.replace(recipe.variants[0], base=REGISTRY)
    with pytest.raises(ResolutionError, match="only Debian's compilers are known"):
        world.choose(recipe=msgspec.structs.replace(recipe, variants=(variant,)), devel=True)
    committed = world.choose(recipe=recipe).lock
    assert committed.compilation is None
    world.fetch(committed)
    devel = world.choose(recipe=recipe, devel=True).lock
    assert (devel.compilation.compiler[:4], devel.packages) == ("g++-", committed.packages)
    assert world.choose(recipe=recipe).lock == committed
    world.silence()
    assert world.choose(recipe=recipe, devel=True).lock == devel


# graphlearn-torch: what is known to break is refused by name, with the version that fits


@pytest.fixture
def lock_glt(server, lock):
    server.simple("torch", dict([small_wheel("torch", "1.13.1", tag=CP39)]))
    sdists(server, "torch_sparse", "0.6.18")
    server.simple("graphlearn-torch", dict(small_wheel("graphlearn_torch", v, tag=CP39) for v in ("0.2.2", "0.2.4")))
    variant = {"python": "3.9", "base": BaseSpec(suite="bullseye"), "torch_geometric": ""}

    def locked(wanted, extensions=("torch_scatter", "torch_sparse"), mode="auto"):
        request = SourceOptions(extensions=mode)
        return lock(GLT, variant=variant, request=request, requirements=(wanted,), extensions=extensions)

    return locked


def test_glt_release_for_the_torch_is_locked(lock_glt):
    found = lock_glt("graphlearn-torch==0.2.2")
    assert (found.package("graphlearn-torch").version, found.package("torch-sparse").compiled) == ("0.2.2", True)
    assert found.compilation.compiler == "g++-10"
    assert any("515" in note for note in found.notes)  # the driver that its PTX needs


@pytest.mark.parametrize(
    ("wanted", "options", "words", "next_step"),
    [
        ("graphlearn-torch==0.2.4", {}, "21 undefined symbols", "graphlearn-torch==0.2.2"),
        ("graphlearn-torch==0.2.2", {"extensions": ()}, "imports torch_sparse", "add torch-sparse to the recipe"),
        ("graphlearn-torch==0.2.2", {"mode": "wheels"}, "imports torch_sparse at start-up", "EXTENSIONS=auto"),
    ],
)
def test_incompatible_glt_is_refused(lock_glt, wanted, options, words, next_step):
    with refused(ResolutionError, words, next_step):
        lock_glt(wanted, **options)
