"""CUDA toolkits: facts, the lines that put one together, providers. What compiles with one is in tests/engines."""

import dataclasses
from types import SimpleNamespace

import msgspec
import pytest

from graphcrate.compat.facts import toolkits as facts
from graphcrate.host.process import Completed
from graphcrate.inputs import toolkits
from graphcrate.inputs.bases import BaseDriftError, debs
from graphcrate.model.errors import BuildError, ResolutionError, UsageError
from graphcrate.model.lock import DebianToolkit, ImageToolkit, WheelToolkit
from graphcrate.model.plan import CUDA_HOME
from ocilayout import spec
from tests.made import deb, file_of, locked, place, refused
from tests.unit.tars import file, folder, hardlink, symlink

DEB_FILE = file_of("nvidia-cuda-toolkit_11.8.89_amd64.deb", b"deb")
DEB = msgspec.structs.replace(deb("nvidia-cuda-toolkit", "11.8.89~11.8.0-5~deb12u1"), file=DEB_FILE)
RUNTIME = locked(("nvidia_cuda_runtime_cu11-11.8.89-py3-none-any.whl", b"PK"))
DEBIAN = DebianToolkit(version="11.8.89", suite="bookworm", packages=(DEB,), wheels=(RUNTIME,))
WHEELS = WheelToolkit(version="13.0.88", wheels=(RUNTIME,))


def test_toolkit_options_match_the_cuda_major_version_and_nvcc_its_gcc_and_sm():
    options = {"11.7": ["debian 11.8.89", "image 11.7"], "13.0": ["pypi 13.0.88", "image 13.0"], "cpu": []}
    for cuda, expected in options.items():
        assert [f"{option.provider} {option.version}" for option in facts.options(cuda)] == expected
    takes = {"11.8.89": (11, "3.5", "9.0"), "12.5": (13, "5.0", "9.0"), "13.0.88": (15, "7.5", "12.1")}
    for version, expected in takes.items():
        made = facts.nvcc(version)
        assert (made.newest_gcc, made.sm[0], made.sm[-1]) == expected


@pytest.mark.parametrize(
    ("torch", "cuda", "version", "architectures"),
    [
        ("2.0.1", "11.7", "11.8.89", ("7.0", "7.5", "8.0", "8.6")),
        ("2.0.1+cu118", "11.8", "11.8.89", ("7.0", "7.5", "8.0", "8.6", "9.0")),
        ("1.13.1", "11.7", "11.7", ("7.0", "7.5", "8.0", "8.6")),
        ("9.9", "11.7", "11.7", ()),
    ],
)
def test_architectures_of_a_torch_are_its_gpus(torch, cuda, version, architectures):
    assert facts.architectures_of(torch, cuda, version) == architectures


@pytest.mark.parametrize(
    ("wanted", "version", "words"),
    [
        (("7.0", "10.0"), "11.8.89", ["nvcc 11.8.89 makes code for 3.5 to 9.0; 10.0 needs CUDA 12.8"]),
        (("10.0+PTX",), "12.4.131", ["10.0 needs CUDA 12.8", "TOOLKIT=image"]),
        (("3.5", "7.0"), "12.4", ["3.5 was dropped after CUDA 11.8"]),
        (("7.0",), "13.0.88", ["7.0 was dropped after CUDA 12.9", "leave 7.0 out"]),
        (("8.4",), "11.8", ["8.4 is known to no CUDA"]),
    ],
)
def test_impossible_architectures_are_refused(wanted, version, words):
    with refused(UsageError, *words):
        facts.refuse_impossible(wanted, version)


# -- debian and pypi


@dataclasses.dataclass
class Sandbox:
    """Stands in for the sandbox: notes what it was given, makes an nvcc."""

    code: int = 0
    runs: list = dataclasses.field(default_factory=list)

    def __call__(self, rootfs, command):
        packages, cuda = command.binds
        inside = sorted(str(path.relative_to(packages.source)) for path in packages.source.rglob("*") if path.is_file())
        self.runs.append((packages.target, inside, cuda.target))
        (cuda.source / "bin").mkdir()
        (cuda.source / "bin" / "nvcc").write_bytes(b"nvcc")
        return Completed(self.code, ("cp: oh",))


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
def test_toolkit_from_packages_is_made_once(sandbox, packages, cache, tmp_path, toolkit, inside):
    assert toolkits.cached(toolkit, "base", cache) is None
    made = toolkits.prepare(toolkit, packages, tmp_path, place(cache), base="base")
    assert (made / "bin" / "nvcc").read_bytes() == b"nvcc"
    again = toolkits.prepare(toolkit, {}, tmp_path, place(cache), base="base")
    assert again == made == toolkits.cached(toolkit, "base", cache)
    if toolkit is DEBIAN:
        later = msgspec.structs.replace(toolkit, listed="20261126T000000Z")
        assert toolkits.cached(later, "base", cache) == made, "a new lock, and the same packages"
        assert toolkits.cached(later, "another", cache) is None, "whose programs put it together"
    assert sandbox.runs == [("/opt/toolkit", inside, CUDA_HOME)]


def test_failed_toolkit_leaves_nothing_in_the_cache(sandbox, packages, cache, tmp_path):
    sandbox.code = 1
    with pytest.raises(BuildError, match="cannot be put"):
        toolkits.prepare(DEBIAN, packages, tmp_path, place(cache), base="base")
    assert toolkits.cached(DEBIAN, "base", cache) is None
    assert not list((cache.root / "tmp").glob("run-*/*"))


def test_toolkit_deb_missing_from_the_mirror_is_a_base_drift_error(no_places, server, cache, tmp_path):
    there = place(cache, {**no_places, "DEBIAN_MIRROR": server.url("/debian")})
    path = f"pool/contrib/n/nvidia-cuda-toolkit/{DEB.file.name}"
    toolkit = msgspec.structs.replace(DEBIAN, packages=(msgspec.structs.replace(DEB, path=path),))
    words = "Debian bookworm CUDA toolkit 11.8.89", "nvidia-cuda-toolkit 11.8.89~11.8.0-5~deb12u1", "./build.py lock"
    with refused(BaseDriftError, *words):
        toolkits.prepare(toolkit, {}, tmp_path, there, base="base")
    assert set(server.paths()) == {f"/debian/{path}", f"/debian-security/{path.replace('pool', 'pool/updates')}"}


def test_toolkit_deb_without_a_path_is_looked_up_in_the_non_free_sections(
    no_places, server, cache, tmp_path, monkeypatch
):
    asked = []

    def archive(suite, ctx, components, **_):
        asked.append((suite, components))
        return SimpleNamespace(lists=SimpleNamespace(paths=dict))

    monkeypatch.setattr(debs, "SuiteArchive", archive)
    there = place(cache, {**no_places, "DEBIAN_MIRROR": server.url("/debian")})
    with refused(BaseDriftError, "nvidia-cuda-toolkit 11.8.89"):
        toolkits.prepare(DEBIAN, {}, tmp_path, there, base="base")
    assert asked == [("bookworm", ("contrib", "non-free"))]


# -- image

TOOLKIT_FILES = [
    symlink("etc/alternatives/cuda", "/usr/local/cuda-11.8"),
    folder("usr/local/cuda-11.8/bin"),
    file("usr/local/cuda-11.8/bin/nvcc", b"nvcc", mode=0o755),
    hardlink("usr/local/cuda-11.8/bin/also", "usr/local/cuda-11.8/bin/nvcc"),
    file("usr/local/cuda-11.8/targets/x86_64-linux/lib/libcublas_static.a", b"large"),
    file("usr/local/cuda-11.8/targets/x86_64-linux/lib/libcudart_static.a", b"small"),
    file("usr/local/cuda-11.8/removed"),
    hardlink("usr/local/cuda-11.8/lib/copy.so", "usr/local/cuda-11.8/targets/x86_64-linux/lib/libcublas_static.a"),
    hardlink("usr/local/cuda-11.8/lib/python", "usr/bin/python3"),
    *(symlink(f"usr/local/cuda{number}", "cuda-11.8") for number in ("", "-1", "-11", "-12", "-2")),
    symlink("usr/local/cuda-11.8/lib64", "targets/x86_64-linux/lib"),
    file("usr/local/other", b"not wanted"),
]
SYSTEM = [folder("etc"), file("etc/passwd"), file("usr/bin/python3")]


def image_toolkit(server, layers, **more):
    described = server.image("nvidia/cuda", layers, "11.8.0-devel", **more)
    return ImageToolkit(version="11.8", reference=f"{server.host}/nvidia/cuda", digest=described["digest"])


def test_toolkit_of_an_image_is_extracted_from_its_layers(registry_server, cache, tmp_path):
    later = [file("usr/local/cuda-11.8/.wh.removed", b""), file("usr/local/cuda-11.8/version.json", b"{}")]
    types = (spec.LAYER_GZIP, spec.LAYER_ZSTD, spec.LAYER_TAR)
    toolkit = image_toolkit(registry_server, [SYSTEM, TOOLKIT_FILES, later], types=types)
    made = toolkits.prepare(toolkit, {}, tmp_path, place(cache), base="base")
    files = {str(path.relative_to(made)) for path in made.rglob("*") if not path.is_dir()}
    assert files == {"bin/also", "bin/nvcc", "targets/x86_64-linux/lib/libcudart_static.a", "version.json"}
    assert (made / "lib64" / "libcudart_static.a").read_bytes() == b"small"
    assert not made.is_symlink(), "the folder itself, whichever of its names is met first"
    asked = len(registry_server.asked)
    again = toolkits.prepare(toolkit, {}, tmp_path, place(cache), base="base")
    assert again == made == toolkits.cached(toolkit, "base", cache)
    assert len(registry_server.asked) == asked


@pytest.mark.parametrize(
    "layer",
    [
        SYSTEM,
        [symlink("usr/local/cuda", "cuda")],
        [symlink("usr/local/cuda", "../../../../etc"), file("etc/bin/nvcc")],
        [folder("usr/local/cuda/bin")],
    ],
)
def test_image_without_a_toolkit_is_refused(registry_server, cache, tmp_path, layer):
    with refused(ResolutionError, "has no CUDA toolkit", "devel"):
        toolkits.prepare(image_toolkit(registry_server, [layer]), {}, tmp_path, place(cache), base="base")
    assert not list((cache.root / "tmp").glob("run-*/*"))
