"""pyg_lib: which release goes with which PyG, where its sources come from, what a lock has of them."""

import hashlib
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.assembly import with_engine
from graphcrate.compat.facts import compile_time, licences
from graphcrate.compat.facts import pyg_lib as facts
from graphcrate.compat.facts.pyg_lib import Part, Release
from graphcrate.compat.variants import recipes
from graphcrate.compat.variants.request import BuildRequest, SourceOptions
from graphcrate.inputs import repository
from graphcrate.model.errors import IntegrityError, NetworkError, UsageError
from graphcrate.model.recipe import Channel
from graphcrate.publish import bill
from graphcrate.resolve.sources import pyg_lib
from graphcrate.resolve.sources.fetch import fetch, missing_packages
from graphcrate.resolve.stack.locks import request_digest
from tests import ROOT
from tests.made import index_of, place, refused, sdist
from tests.unit import small_index
from tests.unit.small_index import COMPATIBLE, CP311
from tests.unit.wheel_server import small_wheel

COMMIT = "c" * 40
SETUP = b"from setuptools import setup\nsetup()  # by cmake\n"
HASH = hashlib.sha256(facts.listing({"setup.py": hashlib.sha256(SETUP).hexdigest()}).encode()).hexdigest()
MADE_UP = Release(
    version="0.2.0",
    pyg=">=2.3,<2.4",
    wheels="<0.3",
    parts=(
        Part(repository="pyg-team/pyg-lib", commit=COMMIT, licence="MIT", take=("setup.py",), sha256=HASH),
        Part(
            repository="NVIDIA/cutlass",
            commit=COMMIT,
            licence="Zlib",
            take=("include",),
            path="third_party/cutlass",
            cuda=True,
        ),
    ),
)


@pytest.fixture
def release(monkeypatch):
    """A release of one file; its submodule is for GPUs alone, with an unknown hash."""
    monkeypatch.setattr(facts, "releases", lambda: (MADE_UP,))
    return MADE_UP


@pytest.fixture
def folder(tmp_path, release, monkeypatch):
    """The sources as exported trees, with a hash for the submodule too."""
    clone = tmp_path / "pyg-lib"
    (clone / "third_party/cutlass/include").mkdir(parents=True)
    (clone / "setup.py").write_bytes(SETUP)
    (clone / "third_party/cutlass/include/a.h").write_bytes(b"")
    listing = facts.listing({"include/a.h": hashlib.sha256(b"").hexdigest()})
    cutlass = msgspec.structs.replace(release.parts[1], sha256=hashlib.sha256(listing.encode()).hexdigest())
    known = msgspec.structs.replace(release, parts=(release.parts[0], cutlass))
    monkeypatch.setattr(facts, "releases", lambda: (known,))
    return clone


@pytest.fixture
def tools(server):
    """CMake, as the package index has it."""
    server.simple("cmake", dict([small_wheel("cmake", "4.4.4", tag="py3-none-manylinux_2_17_x86_64")]))


def reason(lock):
    return next(package.reason for package in lock.missing if package.name == "pyg-lib")


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda path: path.stem)
def test_every_pyg_of_a_recipe_with_pyg_lib_has_a_release(path):
    for variant in recipes.load(path).variants:
        if any(facts.NAME in line.replace("_", "-") for line in variant.extensions):
            release = facts.release_for(variant.torch_geometric)
            assert release is not None, variant.torch_geometric
            assert release.version in facts.wheels_for(variant.torch_geometric)


@pytest.mark.parametrize(
    ("pyg", "version", "wheel"),
    [("2.3.1", "0.2.0", False), ("2.5.3", "0.4.0", True), ("2.7.0", "0.5.0", True), ("2.8.1", "0.8.0", False)],
)
def test_release_and_wheels_for_a_pyg(pyg, version, wheel):
    assert facts.release_for(pyg).version == version
    assert facts.wheels_for(pyg).contains("0.4.0") is wheel


def test_data_name_each_part_once_with_a_commit_and_hashes_where_the_files_were_had():
    commits = {release.commit for release in facts.releases()}
    assert len(commits) == len(facts.releases())
    for release in facts.releases():
        assert release.parts[0].path == ""
        paths = [part.path for part in release.parts]
        assert len(set(paths)) == len(paths)
        for part in release.parts:
            assert len(part.commit) == 40
            assert len(part.sha256) == 64 or (part.repository, release.version) == ("NVIDIA/cuCollections", "0.8.0")
        assert facts.release_at(release.commit) is release
    assert facts.release_at("f" * 40) is None
    assert [part.path for part in facts.release_for("2.8.1").of("cpu")] == [
        "",
        "third_party/METIS",
        "third_party/METIS/GKlib",
        "third_party/parallel-hashmap",
    ]


def test_wheel_of_a_release_that_pyg_cannot_call_is_passed_over(server, lock):
    found = dict(small_wheel("pyg_lib", f"{version}+pt20cu117", tag=CP311) for version in ("0.2.0", "0.4.0"))
    server.pyg("2.0.0+cu117", found)
    assert lock(extensions=("pyg_lib",)).package("pyg-lib").version == "0.2.0+pt20cu117"


def test_missing_pyg_lib_says_that_github_is_not_reached(lock, release):
    assert reason(lock()).endswith(f"; {pyg_lib.UNREACHED} (0.2.0)")


def test_folder_is_locked_by_hash_and_commit_with_cmake(lock, folder, tools):
    found = lock(request=SourceOptions(pyg_lib=str(folder)))
    package = found.package("pyg-lib")
    assert (package.version, package.channel, package.file.name) == ("0.2.0", Channel.LOCAL, "pyg_lib-0.2.0.tar.gz")
    assert (package.compiled, package.back_end, package.commit) == (True, True, COMMIT)
    assert [(tool.name, tool.version) for tool in package.build] == [("cmake", "4.4.4")]
    assert Channel.PYG in package.unreachable or package.unreachable == ()
    assert str(folder) not in repr(found)
    again = lock(request=SourceOptions(pyg_lib=str(folder)))
    assert again.package("pyg-lib") == package


def test_wheel_of_the_channel_goes_before_the_folder_and_is_said(server, lock, folder, tools):
    server.pyg("2.0.0+cu117", dict([small_wheel("pyg_lib", "0.2.0+pt20cu117", tag=CP311)]))
    found = lock(request=SourceOptions(pyg_lib=str(folder)))
    assert not found.package("pyg-lib").compiled
    assert pyg_lib.UNUSED in found.notes
    found = lock(request=SourceOptions(pyg_lib=str(folder), extensions="source"))
    assert found.package("pyg-lib").back_end
    assert pyg_lib.UNUSED not in found.notes


def test_github_is_asked_where_it_is_reached(lock, folder, tools, monkeypatch):
    servers = []

    def of_git(tree, server, cache, environment):
        servers.append(server)
        return repository.of_folder(tree, folder, cache, environment)

    monkeypatch.setattr(pyg_lib, "of_git", of_git)
    monkeypatch.setattr(pyg_lib, "reached", lambda _: True)
    by_git = lock().package("pyg-lib")
    assert by_git == lock(request=SourceOptions(pyg_lib=str(folder))).package("pyg-lib")
    lock(request=SourceOptions(pyg_lib="https://git.example/mirror"))
    assert servers == ["https://github.com", "https://git.example/mirror"]


@pytest.mark.parametrize("error", [NetworkError("git cannot fetch it\n    fatal"), IntegrityError("other files")])
def test_git_that_fails_is_a_reason_or_an_error_where_it_was_asked_for(lock, release, tools, monkeypatch, error):
    def of_git(*_):
        raise error

    monkeypatch.setattr(pyg_lib, "of_git", of_git)
    monkeypatch.setattr(pyg_lib, "reached", lambda _: True)
    assert reason(lock()).endswith(f"; its sources are on GitHub: {error.what.splitlines()[0]}")
    with pytest.raises(type(error)):
        lock(request=SourceOptions(pyg_lib="git"))


def test_pyg_whose_release_is_unknown_or_another_than_the_recipes(lock, folder, tools):
    request = SourceOptions(pyg_lib=str(folder))
    words = "with PyG 2.3.1 goes 0.2.0, and the recipe asks for another"
    assert reason(lock(extensions=("pyg_lib>=0.4",), request=request)).endswith(words)
    assert reason(lock(variant={"torch_geometric": ""}, request=request)).endswith("is not known")


@pytest.mark.parametrize(
    ("options", "extensions", "words"),
    [
        ({"pyg_lib": "git"}, ("torch_scatter",), "is for stacks with pyg_lib, and this one has none"),
        ({"pyg_lib": "git", "extensions": "wheels"}, ("pyg_lib",), "EXTENSIONS=wheels compiles none"),
        ({"pyg_lib": "git", "extensions": "none"}, ("pyg_lib",), "EXTENSIONS=none compiles none"),
        ({"pyg_lib": "/nowhere"}, ("pyg_lib",), "there is no folder /nowhere"),
    ],
)
def test_sources_that_would_serve_nothing_are_refused(options, extensions, words):
    variant = small_index.recipe(COMPATIBLE, extensions=extensions).variants[0]
    with refused(UsageError, words):
        pyg_lib.check(SourceOptions(**options), variant)
    pyg_lib.check(SourceOptions(), variant)


def test_request_with_sources_has_its_own_digest_wherever_they_are():
    recipe = small_index.recipe(COMPATIBLE)
    variant = recipe.variants[0]

    def digest(**options):
        return request_digest(recipe, variant, COMPATIBLE, SourceOptions(**options))

    assert digest(pyg_lib="/a") == digest(pyg_lib="git") != digest()


def test_locked_sources_are_brought_again_where_the_cache_lost_them(server, lock, folder, tools, cache, progress):
    request = SourceOptions(pyg_lib=str(folder))
    made = lock(request=request)
    package = made.package("pyg-lib")
    ctx = place(cache, index_of(server), progress)
    cache.file(package.file.sha256, package.file.name).unlink()
    assert package in missing_packages(made, cache)
    found = fetch(made, request, ctx, compilation=True)
    assert found[package.file.sha256].is_file()
    cache.file(package.file.sha256, package.file.name).unlink()
    (folder / "setup.py").write_bytes(b"other")
    with pytest.raises(UsageError):
        fetch(made, request, ctx, compilation=True)
    other = msgspec.structs.replace(package, commit="d" * 40)
    strange = msgspec.structs.replace(made, packages=(other,))
    with refused(IntegrityError, "which is not known here"):
        fetch(strange, request, ctx, compilation=True)


def test_bill_and_licences_have_the_repositories(lock, folder, tools):
    made = lock(request=SourceOptions(pyg_lib=str(folder)))
    (sdist,) = [part for part in bill.parts(made) if part.name == "pyg-lib"]
    packed = {entry.name: entry.value for entry in sdist.properties}["graphcrate:packed-of"]
    assert packed == f"pyg-team/pyg-lib@{COMMIT} NVIDIA/cutlass@{COMMIT}"
    assert "cmake" in {part.name for part in bill.parts(made)}
    assert {"MIT", "Zlib"} <= set(licences.parts_of(licences.of_lock(made)))
    assert "Zlib" not in licences.parts_of(licences.of_lock(lock()))


def test_other_engines_refuse_what_a_back_end_compiles(lock, folder, tools):
    made = lock(request=SourceOptions(pyg_lib=str(folder)))
    with refused(UsageError, "pyg-lib is compiled by its own back-end, which docker does not do", "ENGINE=embedded"):
        with_engine._refuse_back_ends(SimpleNamespace(name="docker"), made)
    with_engine._refuse_back_ends(SimpleNamespace(name="docker"), lock())
    added = msgspec.structs.replace(made, packages=(sdist("demo", "1.0", compiled=True, back_end=True),))
    with_engine._refuse_back_ends(SimpleNamespace(name="docker"), added)  # the user's own: as it stands


def test_submodules_are_no_part_of_the_time_that_a_plan_says(lock, folder, tools):
    made = lock(request=SourceOptions(pyg_lib=str(folder)))
    files = ["pyg_lib/csrc/a.cpp", "pyg_lib/csrc/ops/b.cu", *(f"third_party/METIS/libmetis/{n}.c" for n in range(75))]
    time = compile_time.of_package(made.package("pyg-lib"), files, made.compilation)
    assert (time.cpp, time.cu) == (1, 1)


def test_next_command_and_provenance_have_the_sources():
    request = BuildRequest(name="pyg", cuda="11.8", sources=SourceOptions(pyg_lib="./pyg-lib"))
    assert "PYG_LIB=./pyg-lib" in str(request.command())
    secret = msgspec.structs.replace(request, sources=SourceOptions(pyg_lib="https://me:word@git.example/x"))
    assert "word" not in str(secret.command())


def test_commands_for_a_release_name_its_tag():
    assert facts.commands(MADE_UP.parts, "0.2.0") == (
        "git clone --recursive --shallow-submodules --branch 0.2.0 https://github.com/pyg-team/pyg-lib pyg-lib"
    )
