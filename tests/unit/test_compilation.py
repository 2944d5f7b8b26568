"""With what is compiled: the compiler, what it goes by, and which files of a CUDA toolkit are locked."""

from types import SimpleNamespace

import pytest

from graphcrate.compat import compilers
from graphcrate.compat.request import SourceOptions
from graphcrate.compat.toolkits import Option
from graphcrate.model.errors import ResolutionError
from graphcrate.model.lock import ImageToolkit, WheelToolkit
from graphcrate.resolve import compilation, pinning
from graphcrate.resolve.compilation import means_for
from graphcrate.resolve.offers import Offers, Sources
from graphcrate.resolve.target import Target
from tests.made import SHIPPED, deb, index_of, place, refused
from tests.unit import compiled_plans, small_index
from tests.unit.wheel_server import small_wheel

TARGET = Target("3.11", "2.36")
WHEELS = ("nvidia-cuda-nvcc-cu11==11.8.89", "nvidia-cuda-runtime-cu11==11.8.89")
DEBIAN = Option(
    provider="debian", version="11.8.89", suite="bookworm", packages=("nvidia-cuda-toolkit",), wheels=WHEELS,
    libraries=("nvidia-cublas-cu11==11.10.3.66",),
)  # fmt: skip


@pytest.fixture
def offers(channels, cache, monkeypatch):
    monkeypatch.setattr(pinning, "compile_requirements", small_index.Uv())
    small_index.fill(channels)
    for name, version in (pin.split("==") for pin in WHEELS):
        channels.simple(name, dict([small_wheel(name.replace("-", "_"), version, requires=["tqdm"])]))
    return Offers(Sources(SourceOptions(), cache, index_of(channels)), "2.0.1", "11.7")


def locked(option, installed, offers):
    ctx = place(offers.sources.cache, {"DEBIAN_MIRROR": "http://debian.example/debian"})
    return compilation.lock_toolkit(option, installed, TARGET, offers, ctx)


@pytest.fixture
def archive(monkeypatch):
    """Versions of nvidia-cuda-toolkit that Debian's archive has; and what was asked of it."""
    known = SimpleNamespace(versions=["11.8.89~11.8.0-5~deb12u1"], asked=[])

    def archive_of(suite, cache, environment, components):
        known.asked.append((suite, components))
        return SimpleNamespace(available=lambda names: [deb(name, one) for name in names for one in known.versions])

    monkeypatch.setattr(compilation, "Archive", archive_of)
    return known


def versions(packages):
    return {package.name: package.version for package in packages}


def test_debian_s_nvcc_with_the_wheels_it_wants_and_no_more(offers, archive):
    found = locked(DEBIAN, {}, offers)
    assert archive.asked == [("bookworm", ("contrib", "non-free"))]
    assert versions(found.packages) == {"nvidia-cuda-toolkit": "11.8.89~11.8.0-5~deb12u1"}
    # tqdm, which they require, is nothing to compile with
    wheels = dict(pin.split("==") for pin in (*WHEELS, *DEBIAN.libraries))
    assert versions(found.wheels) == wheels
    found = locked(DEBIAN, {"nvidia-cublas-cu11": "11.11.3.6"}, offers)  # the image's own
    assert versions(found.wheels) == {**wheels, "nvidia-cublas-cu11": "11.11.3.6"}


@pytest.mark.parametrize(("versions", "words"), [(["12.4.131~12.4.1-2"], "12.4.131"), ([], "has none")])
def test_an_archive_with_another_nvcc(offers, archive, versions, words):
    archive.versions = versions
    with refused(ResolutionError, "no nvidia-cuda-toolkit 11.8.89", words):
        locked(DEBIAN, {}, offers)


def test_a_toolkit_of_wheels(offers):
    found = locked(Option(provider="pypi", version="11.8.89", wheels=WHEELS), {}, offers)
    assert isinstance(found, WheelToolkit)
    assert versions(found.wheels) == dict(pin.split("==") for pin in WHEELS)


def test_an_image_is_locked_by_its_digest(offers, monkeypatch):
    tags = {"11.8.0-devel-ubuntu22.04": f"sha256:{'a' * 64}"}
    monkeypatch.setattr(compilation.pull, "find", lambda wanted, ctx: (None, tags[wanted.tag]))
    reference = "docker.io/nvidia/cuda:11.8.0-devel-ubuntu22.04"
    found = locked(Option(provider="image", version="11.8", reference=reference), {}, offers)
    assert found == ImageToolkit(version="11.8", reference="docker.io/nvidia/cuda", digest=f"sha256:{'a' * 64}")


def test_every_shipped_variant_can_be_compiled_for_its_architectures():
    for recipe, variant, candidate in SHIPPED:
        if recipe.name in ("pyg", "glt"):
            means = means_for(variant, candidate, SourceOptions())
            assert (means.obstacle, means.compiler[:4]) == ("", "g++-"), (variant.cuda, candidate.name)
            assert (means.option is None) == (candidate.torch_cuda == "cpu"), (variant.cuda, candidate.name)


def test_the_newest_compiler_that_the_toolkit_takes():
    asked = [("bookworm", 11), ("bookworm", None), ("bullseye", 11), ("trixie", 15)]
    assert [compilers.compiler_for(*one) for one in asked] == ["g++-11", "g++-12", "g++-10", "g++-14"]
    with refused(ResolutionError, "it takes gcc 11 and older", "and trixie begins with gcc 12"):
        compilers.compiler_for("trixie", 11)


def test_variables_for_the_cpu_know_no_cuda_and_those_for_cuda_make_the_one_variant_that_is_loaded():
    toolkits = (compiled_plans.TOOLKITS[name] for name in ("cpu", "debian"))
    cpu, cuda = (compilers.variables(compiled_plans.lock(toolkit).compilation) for toolkit in toolkits)
    assert cpu.keys() == {"CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "FORCE_ONLY_CPU", "WITH_CUDA"}
    assert (cpu["CC"], cpu["CXX"], "-s " in cpu["LDFLAGS"]) == ("gcc-11", "g++-11", True)
    assert cpu["CFLAGS"] == cpu["CXXFLAGS"]  # whole, where setuptools takes them in place of Python's
    assert {"-O2", "-DNDEBUG", "-g0"} <= set(cpu["CXXFLAGS"].split())
    assert cuda["FORCE_CUDA"] == cuda["FORCE_ONLY_CUDA"] == "1"
    assert (cuda["CUDA_HOME"], cuda["TORCH_CUDA_ARCH_LIST"]) == ("/usr/local/cuda", "7.0;8.0+PTX")
    assert cuda["NVCC_PREPEND_FLAGS"] == "-ccbin g++-11"
