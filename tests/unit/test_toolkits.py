"""CUDA toolkits: facts, the lines that put one together, providers. What compiles with one is in tests/engines."""

import dataclasses
import hashlib
import re
import sys
import zipfile

import pytest

from graphcrate.compat import toolkits as facts
from graphcrate.host.process import Completed
from graphcrate.host.progress import Silent
from graphcrate.inputs import toolkits
from graphcrate.inputs.bases import BaseDriftError, debian
from graphcrate.model.errors import BuildError, ResolutionError, UsageError
from graphcrate.model.lock import (
    DebianPackage,
    DebianToolkit,
    ImageToolkit,
    LockedFile,
    LockedPackage,
    WheelToolkit,
)
from graphcrate.model.plan import CUDA_HOME
from graphcrate.model.recipe import Channel
from graphcrate.oci import spec
from tests.unit.tars import file, folder, hardlink, symlink


def locked(name, version, content=b"PK"):
    sha256 = hashlib.sha256(content).hexdigest()
    named = LockedFile(name=f"{name.replace('-', '_')}-{version}-py3-none-any.whl", size=len(content), sha256=sha256)
    return LockedPackage(name=name, version=version, channel=Channel.PYPI, file=named)


DEB = DebianPackage(
    name="nvidia-cuda-toolkit",
    version="11.8.89~11.8.0-5~deb12u1",
    architecture="amd64",
    file=LockedFile(name="nvidia-cuda-toolkit_11.8.89_amd64.deb", size=3, sha256=hashlib.sha256(b"deb").hexdigest()),
)
RUNTIME = locked("nvidia-cuda-runtime-cu11", "11.8.89")
DEBIAN = DebianToolkit(version="11.8.89", suite="bookworm", packages=(DEB,), wheels=(RUNTIME,))
WHEELS = WheelToolkit(version="13.0.88", wheels=(RUNTIME,))


# -- facts


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        ("11.7", [("debian", "11.8.89"), ("image", "11.7")]),
        ("11.3", [("debian", "11.8.89")]),
        ("12.8", [("debian", "12.4.131"), ("image", "12.8")]),
        ("13.0", [("pypi", "13.0.88"), ("image", "13.0")]),
        ("10.2", []),
        ("cpu", []),
    ],
)
def test_options_fit_torchs_major_version(cuda, expected):
    found = facts.options(cuda)
    assert [(option.provider, option.version) for option in found] == expected
    assert {option.provider for option in found} <= set(facts.PROVIDERS)


def test_libraries_come_in_the_version_that_the_lock_has():
    option = facts.options("11.8")[0]
    pins = facts.requirements(option, {"nvidia-cublas-cu11": "11.11.3.6", "nvidia-cuda-runtime-cu11": "11.7.99"})
    assert "nvidia-cublas-cu11==11.11.3.6" in pins
    assert "nvidia-cusparse-cu11==11.7.4.91" in pins
    assert "nvidia-cuda-runtime-cu11==11.8.89" in pins, "what belongs to nvcc has nvcc's version"
    assert list(pins) == sorted(pins)


@pytest.mark.parametrize(
    ("version", "gcc", "range_"),
    [("11.8.89", 11, ("3.5", "9.0")), ("12.5", 13, ("5.0", "9.0")), ("13.0.88", 15, ("7.5", "12.1"))],
)
def test_what_an_nvcc_takes_and_makes(version, gcc, range_):
    made = facts.nvcc(version)
    assert (made.newest_gcc, made.sm[0], made.sm[-1]) == (gcc, *range_)


def test_an_unknown_nvcc_is_no_guess():
    with pytest.raises(UsageError, match=r"nothing is known of the nvcc of CUDA 14\.0"):
        facts.nvcc("14.0")


@pytest.mark.parametrize(
    ("wanted", "version", "words"),
    [
        (("7.0", "10.0"), "11.8.89", r"nvcc 11\.8\.89 makes code for 3\.5 to 9\.0; 10\.0 needs CUDA 12\.8"),
        (("10.0+PTX",), "12.4.131", r"10\.0 needs CUDA 12\.8(.|\n)*TOOLKIT=image"),
        (("3.5", "7.0"), "12.4", r"3\.5 was dropped after CUDA 11\.8"),
        (("7.0",), "13.0.88", r"7\.0 was dropped after CUDA 12\.9(.|\n)*leave 7\.0 out"),
        (("8.4",), "11.8", r"8\.4 is known to no CUDA \(near it are 8\.6, 8\.7\)"),
        (("eight",), "11.8", r"'eight' is no GPU architecture"),
    ],
)
def test_architectures_that_cannot_be_made(wanted, version, words):
    with pytest.raises(UsageError) as caught:
        facts.refuse_impossible(wanted, version)
    assert re.search(words, str(caught.value))


def test_architectures_that_can_be_made():
    facts.refuse_impossible(("7.0", "8.0+PTX", "9.0a+PTX"), "11.8.89")


# -- the lines


def test_the_extraction_takes_what_is_wanted_and_no_library(tmp_path, monkeypatch):
    place = tmp_path / "one.whl"
    names = [
        "nvidia/cuda_runtime/include/cuda.h",
        "nvidia/cuda_runtime/lib/libcudart.so.11.0",
        "nvidia/cuda_runtime/lib/libOpenCL.so.1",
        "nvidia/cublas/include/cublas_v2.h",
        "nvidia/cublas/lib/libcublas.so.11",
        "nvidia/cuda_nvcc/bin/ptxas",
    ]
    with zipfile.ZipFile(place, "w") as wheel:
        for name in names:
            wheel.writestr(name, b"")
    pattern = "|".join(("/include/", facts._RUNTIME))
    monkeypatch.setattr(sys, "argv", ["-c", str(tmp_path / "out"), pattern, str(place)])
    exec(compile(facts._EXTRACT, "one line", "exec"), {})
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert found == {names[0], names[1], names[3]}


# -- debian and pypi


@dataclasses.dataclass
class Sandbox:
    """Stands in for the sandbox: notes what it was given, makes an nvcc."""

    version: str = "11.8.89"
    code: int = 0
    runs: list = dataclasses.field(default_factory=list)

    def __call__(self, rootfs, argv, *, environment, binds, timeout):
        packages, cuda = binds
        inside = sorted(str(path.relative_to(packages.source)) for path in packages.source.rglob("*") if path.is_file())
        self.runs.append((packages.target, inside, cuda.target))
        (cuda.source / "bin").mkdir()
        (cuda.source / "bin" / "nvcc").write_bytes(b"nvcc")
        return Completed(self.code, ("cp: oh", f"Cuda compilation tools, release 11.8, V{self.version}"))


@pytest.fixture
def sandbox(monkeypatch):
    sandbox = Sandbox()
    monkeypatch.setattr(toolkits, "run_in", sandbox)
    return sandbox


@pytest.fixture
def packages(tmp_path, cache):
    """The .deb in the cache, the wheel elsewhere."""
    deb = cache.file(DEB.file.sha256, DEB.file.name)
    deb.parent.mkdir(parents=True)
    deb.write_bytes(b"deb")
    wheel = tmp_path / "downloaded"
    wheel.write_bytes(b"PK")
    return {RUNTIME.file.sha256: wheel}


@pytest.mark.parametrize(
    ("toolkit", "inside"),
    [(DEBIAN, [f"debs/{DEB.file.name}", f"wheels/{RUNTIME.file.name}"]), (WHEELS, [f"wheels/{RUNTIME.file.name}"])],
)
def test_a_toolkit_of_packages_is_made_once(sandbox, packages, cache, tmp_path, toolkit, inside):
    sandbox.version = toolkit.version
    assert toolkits.cached(toolkit, cache) is None
    made = toolkits.prepare(toolkit, packages, tmp_path, cache, {}, Silent())
    assert (made / "bin" / "nvcc").read_bytes() == b"nvcc"
    assert toolkits.prepare(toolkit, {}, tmp_path, cache, {}, Silent()) == made == toolkits.cached(toolkit, cache)
    assert sandbox.runs == [("/opt/toolkit", inside, CUDA_HOME)]


@pytest.mark.parametrize(("code", "version", "words"), [(1, "11.8.89", "cannot be put"), (0, "11.7.1", "is another")])
def test_a_toolkit_that_does_not_come_about_leaves_nothing(sandbox, packages, cache, tmp_path, code, version, words):
    sandbox.code, sandbox.version = code, version
    with pytest.raises(BuildError, match=words):
        toolkits.prepare(DEBIAN, packages, tmp_path, cache, {}, Silent())
    assert toolkits.cached(DEBIAN, cache) is None
    assert not list((cache.root / "tmp").glob("run-*/*"))


def test_a_package_that_debian_has_replaced(cache, tmp_path, monkeypatch):
    newer = DebianPackage(name=DEB.name, version="11.8.90", architecture="amd64", file=DEB.file)

    class Apt:
        def __init__(self, folder, suite, mirror, environment, components):
            assert (suite, components) == ("bookworm", ("contrib", "non-free"))

        def update(self):
            pass

        def available(self, names):
            return [newer]

    monkeypatch.setattr(debian, "Apt", Apt)
    with pytest.raises(
        BaseDriftError, match=r"bookworm CUDA toolkit 11\.8\.89 is out of date.*now 11\.8\.90"
    ) as caught:
        toolkits.prepare(DEBIAN, {}, tmp_path, cache, {"DEBIAN_MIRROR": "http://mirror.example/debian"}, Silent())
    assert "./build.py lock" in caught.value.next_step


# -- image

TOOLKIT_FILES = [
    symlink("usr/local/cuda", "/etc/alternatives/cuda"),
    symlink("etc/alternatives/cuda", "/usr/local/cuda-11.8"),
    folder("usr/local/cuda-11.8/bin"),
    file("usr/local/cuda-11.8/bin/nvcc", b"nvcc", mode=0o755),
    hardlink("usr/local/cuda-11.8/bin/also", "usr/local/cuda-11.8/bin/nvcc"),
    file("usr/local/cuda-11.8/targets/x86_64-linux/lib/libcublas_static.a", b"large"),
    file("usr/local/cuda-11.8/targets/x86_64-linux/lib/libcudart_static.a", b"small"),
    file("usr/local/cuda-11.8/removed"),
    symlink("usr/local/cuda-11.8/lib64", "targets/x86_64-linux/lib"),
    file("usr/local/other", b"not wanted"),
]
SYSTEM = [folder("etc"), file("etc/passwd"), file("usr/bin/python3")]


@pytest.fixture
def server(registry_server):
    return registry_server


def image_toolkit(server, layers, **more):
    described = server.image("nvidia/cuda", layers, "11.8.0-devel", **more)
    return ImageToolkit(version="11.8", reference=f"{server.host}/nvidia/cuda", digest=described["digest"])


def test_an_images_toolkit_is_taken_out_of_its_layers(server, cache, tmp_path):
    later = [file("usr/local/cuda-11.8/.wh.removed", b""), file("usr/local/cuda-11.8/version.json", b"{}")]
    types = (spec.LAYER_GZIP, spec.LAYER_ZSTD, spec.LAYER_TAR)
    toolkit = image_toolkit(server, [SYSTEM, TOOLKIT_FILES, later], types=types)
    made = toolkits.prepare(toolkit, {}, tmp_path, cache, {}, Silent())
    assert sorted(str(path.relative_to(made)) for path in made.rglob("*") if not path.is_dir()) == [
        "bin/also",
        "bin/nvcc",
        "targets/x86_64-linux/lib/libcudart_static.a",
        "version.json",
    ]
    assert (made / "lib64" / "libcudart_static.a").read_bytes() == b"small"
    asked = len(server.asked)
    assert toolkits.prepare(toolkit, {}, tmp_path, cache, {}, Silent()) == made == toolkits.cached(toolkit, cache)
    assert len(server.asked) == asked


@pytest.mark.parametrize(
    "layers",
    [
        [SYSTEM],
        [[symlink("usr/local/cuda", "cuda")]],
        [[symlink("usr/local/cuda", "../../../../etc"), file("etc/bin/nvcc")]],
        [[folder("usr/local/cuda/bin")]],
    ],
)
def test_an_image_without_a_toolkit(server, cache, tmp_path, layers):
    with pytest.raises(ResolutionError, match=r"has no CUDA toolkit(.|\n)*devel"):
        toolkits.prepare(image_toolkit(server, layers), {}, tmp_path, cache, {}, Silent())
    assert not list((cache.root / "tmp").glob("run-*/*"))
