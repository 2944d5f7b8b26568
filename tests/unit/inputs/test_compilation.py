"""With what is compiled and for which GPUs: compiler, variables, the locked files of a CUDA toolkit, architectures."""

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

import msgspec
import pytest

from graphcrate.assembly import extension_wheels, extensions
from graphcrate.compat.facts import compilers
from graphcrate.compat.facts.toolkits import Option
from graphcrate.compat.plan.compile_steps import compile_steps
from graphcrate.compat.variants.request import SourceOptions
from graphcrate.host.context import Context
from graphcrate.inputs import toolkits
from graphcrate.inputs.bases import BaseDriftError
from graphcrate.model.errors import ResolutionError, UsageError
from graphcrate.model.lock import ImageToolkit, WheelToolkit
from graphcrate.resolve.sources.offers import Offers
from graphcrate.resolve.sources.request_sources import Sources
from graphcrate.resolve.sources.target import WheelTarget
from graphcrate.resolve.stack import extensions as compilation
from graphcrate.resolve.stack import pinning
from tests.made import deb, index_of, place, refused
from tests.unit import compiled_plans, small_index
from tests.unit.compiled_plans import TOOLKITS, lock, plain_lock
from tests.unit.wheel_server import small_wheel

TARGET = WheelTarget("3.11", "2.36")
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

    def archive_of(suite, ctx, components, platform):
        known.asked.append((suite, components, platform))
        return SimpleNamespace(
            available=lambda names: [deb(name, one) for name in names for one in known.versions],
            listed="20250811T020304Z",
        )

    monkeypatch.setattr(compilation, "SuiteArchive", archive_of)
    return known


def versions(packages):
    return {package.name: package.version for package in packages}


def test_debian_toolkit_locks_nvcc_and_its_wheels(offers, archive):
    found = locked(DEBIAN, {}, offers)
    assert archive.asked == [("bookworm", ("contrib", "non-free"), TARGET.platform)]
    assert versions(found.packages) == {"nvidia-cuda-toolkit": "11.8.89~11.8.0-5~deb12u1"}
    assert found.listed == "20250811T020304Z"
    # tqdm, which they require, is nothing to compile with
    wheels = dict(pin.split("==") for pin in (*WHEELS, *DEBIAN.libraries))
    assert versions(found.wheels) == wheels
    found = locked(DEBIAN, {"nvidia-cublas-cu11": "11.11.3.6"}, offers)  # the image's own
    assert versions(found.wheels) == {**wheels, "nvidia-cublas-cu11": "11.11.3.6"}


def test_archive_with_another_nvcc_version_is_refused(offers, archive):
    for archive.versions, words in ((["12.4.131~12.4.1-2"], "12.4.131"), ([], "has none")):
        with refused(ResolutionError, "no nvidia-cuda-toolkit 11.8.89", words):
            locked(DEBIAN, {}, offers)


def test_wheel_toolkit_locks_its_pinned_wheels(offers):
    found = locked(Option(provider="pypi", version="11.8.89", wheels=WHEELS), {}, offers)
    assert isinstance(found, WheelToolkit)
    assert versions(found.wheels) == dict(pin.split("==") for pin in WHEELS)


def test_image_toolkit_is_locked_by_digest(offers, monkeypatch):
    tags = {"11.8.0-devel-ubuntu22.04": f"sha256:{'a' * 64}"}
    monkeypatch.setattr(compilation.pull, "find", lambda image, ctx, platform: (None, tags[image.tag]))
    reference = "docker.io/nvidia/cuda:11.8.0-devel-ubuntu22.04"
    found = locked(Option(provider="image", version="11.8", reference=reference), {}, offers)
    assert found == ImageToolkit(version="11.8", reference="docker.io/nvidia/cuda", digest=f"sha256:{'a' * 64}")


def test_compiler_for_a_suite_is_the_newest_that_the_toolkit_supports():
    asked = [("bookworm", 11), ("bookworm", None), ("bullseye", 11), ("trixie", 15)]
    assert [compilers.compiler_for(*one) for one in asked] == ["g++-11", "g++-12", "g++-10", "g++-14"]
    with refused(ResolutionError, "it takes gcc 11 and older", "and trixie begins with gcc 12"):
        compilers.compiler_for("trixie", 11)


def test_compiler_variables_for_cpu_have_no_cuda():
    toolkits = (compiled_plans.TOOLKITS[name] for name in ("cpu", "debian"))
    cpu, cuda = (compilers.variables(compiled_plans.lock(toolkit).compilation) for toolkit in toolkits)
    assert cpu.keys() == {"CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "FORCE_ONLY_CPU", "WITH_CUDA"}
    assert (cpu["CC"], cpu["CXX"], "-s " in cpu["LDFLAGS"]) == ("gcc-11", "g++-11", True)
    assert cpu["CFLAGS"] == cpu["CXXFLAGS"]  # whole, where setuptools takes them in place of Python's
    assert {"-O2", "-DNDEBUG", "-g0"} <= set(cpu["CXXFLAGS"].split())
    assert cuda["FORCE_CUDA"] == cuda["FORCE_ONLY_CUDA"] == "1"
    assert (cuda["CUDA_HOME"], cuda["TORCH_CUDA_ARCH_LIST"]) == ("/usr/local/cuda", "7.0;8.0+PTX")
    assert cuda["NVCC_PREPEND_FLAGS"] == "-ccbin g++-11"


# For GPUs that were named


COMPILED = lock(TOOLKITS["pypi"])
NEWER = "nvcc 12.4.131 makes no code for 10.0: extensions bring PTX of 9.0, which the driver translates"


def compiled_by(nvcc):
    return lock(msgspec.structs.replace(TOOLKITS["pypi"], version=nvcc))


def test_gpu_option_gives_the_compiled_architectures():
    for gpus, toolkit, architectures, notes in (
        ("v100", "11.8.89", ("7.0",), []),
        ("v100,a100", "11.8.89", ("7.0", "8.0"), []),
        ("v100,b200", "12.4.131", ("7.0", "9.0+PTX"), [NEWER]),
        ("h100,b200", "12.4.131", ("9.0+PTX",), [NEWER]),  # not machine code beside PTX of the same architecture
    ):
        made = extensions.for_gpus(compiled_by(toolkit), gpus)
        assert made.compilation.architectures == architectures
        assert [note[: len(NEWER)] for note in made.notes] == notes


def test_gpu_that_nvcc_cannot_compile_for_is_refused():
    with refused(UsageError, "7.0 was dropped after CUDA 12"):
        extensions.for_gpus(compiled_by("13.0.88"), "v100")
    with refused(UsageError, "unknown GPU 'v1000'"):
        extensions.for_gpus(compiled_by("11.8.89"), "v1000")


def test_lock_without_gpu_option_or_toolkit_is_unchanged():
    for value, gpus in ((COMPILED, None), (plain_lock(), "v100"), (lock(None), "v100")):
        assert extensions.for_gpus(value, gpus) is value


def test_toolkit_drift_is_not_a_base_drift_error(tmp_path, monkeypatch):
    drift = BaseDriftError("the lock's Debian bookworm CUDA toolkit 11.8.89 is out of date", cause="Replaced.")
    monkeypatch.setattr(toolkits, "prepare", Mock(side_effect=drift))
    monkeypatch.setattr(extension_wheels.Compiling, "files", lambda _: {})
    ctx = Context(root=tmp_path, environment={"GRAPHCRATE_CACHE": str(tmp_path / "cache")})
    compiling = extension_wheels.Compiling(None, COMPILED, SourceOptions(toolkit="debian"), ctx)
    with refused(ResolutionError, "CUDA toolkit", "./build.py lock small --cuda 11.7 --toolkit debian") as caught:
        compiling._toolkit(COMPILED.compilation.toolkit, SimpleNamespace(rootfs=Path("/nowhere"), identity="a"))
    assert not isinstance(caught.value, BaseDriftError)


@pytest.mark.parametrize("there", [False, True])
def test_compiler_base_is_built_only_if_something_is_compiled(monkeypatch, tmp_path, there):
    build = Mock(side_effect=BaseDriftError("the lock's Debian bookworm base is out of date"))
    (step,) = compile_steps(COMPILED)
    monkeypatch.setattr(extension_wheels.Compiling, "_build_base", build)
    monkeypatch.setattr(extensions, "built", lambda *_: [one.file.sha256 for one in step.packages] if there else [])
    ctx = Context(root=Path(), environment={"GRAPHCRATE_CACHE": str(tmp_path)})
    extension_wheels.Compiling(
        SimpleNamespace(of=lambda _: [step]), COMPILED, None, ctx
    ).prepare()  # reported when it is wanted
    extension_wheels.Compiling(SimpleNamespace(of=lambda _: []), plain_lock(), None, None).prepare()
    assert build.call_args_list == ([] if there else [call(step)])
