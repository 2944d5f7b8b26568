"""From "a new torch is on the index" to a lock, an image and a text: the whole command against a loopback index."""

import json
import shutil
import subprocess
import sys

import pytest
from packaging.utils import canonicalize_name

from graphcrate.compat.variants import recipes
from graphcrate.model.lock import decode_lock
from graphcrate.model.lock_proof import decode_proof
from tests.conftest import ROOT
from tests.engines.workplace import Workplace, copy_bases, copy_project
from tests.unit.elfmaker import SASS, make_elf
from tests.unit.tools.test_measure_wheel import code
from tests.unit.wheel_server import WheelServer, small_sdist, small_wheel
from tests.unit.wheelmaker import make_wheel
from upkeep.news import torch_builds

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.engine("uv", "user namespaces")]

ARCHITECTURES = (75, 80, 86, 90, 100, 120)
RECIPE = """name = "made"
description = "a torch that nobody made"
smoke = ["torch"]
requirements = ["pip"]

# as it was
[[variant]]
cuda = "13.0"
python = "3.11"
base = { provider = "debian", suite = "bookworm" }
requirements = ["tqdm"]

[[variant.candidate]]
name = "pypi"
channels = ["pypi"]
torch = "2.98.0"
torch_cuda = "13.0"
"""


def torch_wheel(folder, version, cuda, *architectures, requires=(), more=None):
    """A torch in little: its version, its own list of architectures, code for them, its C++ ABI. `more`: files."""
    string = "_ZN3c105ErrorC1ENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    kernels = code(*((SASS, number) for number in architectures))
    listed = " ".join(f"sm_{number}" for number in architectures).encode() + b"\0"
    libraries = {
        "torch/lib/libc10.so": make_elf(soname="libc10.so", defined=[string], needs={"libc.so.6": ["GLIBC_2.14"]}),
        "torch/lib/libtorch_cuda.so": make_elf(needs={"libc.so.6": ["GLIBC_2.17"]}, fatbin=kernels),
        "torch/lib/libtorch_python.so": make_elf() + listed,
    }
    files = {
        "torch/__init__.py": b"",
        "torch/version.py": f"cuda: Optional[str] = {cuda!r}\n".encode(),
        **libraries,
        **(more or {}),
    }
    metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\nRequires-Python: >=3.10\n"
    metadata += "".join(f"Requires-Dist: {line}\n" for line in requires)
    tag = "cp311-cp311-manylinux_2_28_x86_64"
    path = make_wheel(folder, "torch", version, files, tag=tag, metadata=metadata.encode(), purelib=False)
    return path.name, path.read_bytes()


@pytest.fixture
def index():
    with WheelServer() as server:
        yield server


@pytest.fixture
def project(index, workplace, built_image, tmp_path):
    """A clone with one recipe more, and an index with torch 2.99: one that fits, one without T4, one that locks not."""
    torches = [
        torch_wheel(tmp_path, "2.98.0", "13.0", *ARCHITECTURES),
        torch_wheel(tmp_path, "2.99.0", "13.0", *ARCHITECTURES, requires=["filelock"]),
        torch_wheel(tmp_path, "2.99.1", "13.0", *ARCHITECTURES[1:]),
        torch_wheel(tmp_path, "2.99.2", "13.2", *ARCHITECTURES, requires=["nothing-has-it"]),
    ]
    index.simple("torch", dict(torches), uploaded="2026-11-01T00:00:00Z")
    for name in ("filelock", "tqdm", "pip"):
        index.simple(name, dict([small_wheel(name, "25.0")]), uploaded="2026-11-01T00:00:00Z")
    root = tmp_path / "clone"
    copy_project(root)
    for name in ("docs", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "recipes/made.toml").write_text(RECIPE)
    environment = {"UV_DEFAULT_INDEX": index.url("/simple"), "PIP_CONFIG_FILE": "/dev/null", "UV_NO_CONFIG": "1"}
    copy_bases(workplace.cache, tmp_path / "cache")  # the small image has the same
    return Workplace(root, tmp_path / "cache", environment)


def test_a_torch_of_an_index_becomes_facts_a_lock_an_image_and_a_text(project):
    root, known = project.folder, {path: path.read_bytes() for path in project.folder.rglob("*.toml")}
    checked = project.run("update", "made", "--check")
    assert (checked.code, "made CUDA 13.0" in checked.err) == (20, True), checked.err
    assert {path: path.read_bytes() for path in root.rglob("*.toml")} == known

    text = project.run("update", "made").ok().out
    for words in (
        "| made CUDA 13.0 | 2.98.0 → 2.99.0 |",
        "- made CUDA 13.0: no torch 2.99.1: it has no code for T4 (sm_75), which torch 2.98.0 runs on.",
        "- made CUDA 13.2: no torch 2.99.2: ",
        "- torch 2.99.0: CUDA 13.0, code for 7.5, 8.0, 8.6, 9.0, 10.0, 12.0",
    ):
        assert words in text, text
    variant = recipes.load(root / "recipes/made.toml").variants
    assert [(each.cuda, each.candidates[0].torch) for each in variant] == [("13.0", "2.99.0")]
    assert "# as it was\n" in (root / "recipes/made.toml").read_text()
    builds = {(build.torch, build.cuda) for build in torch_builds.builds_in(
        (root / "graphcrate/compat/data/torch.toml").read_text())}  # fmt: skip
    assert {("2.98.0", "13.0"), ("2.99.0", "13.0"), ("2.99.1", "13.0"), ("2.99.2", "13.2")} <= builds
    lock = decode_lock((root / "images/made/cu130/pypi.lock.json").read_bytes())
    assert lock.package("filelock"), "what the new torch requires"
    assert (root / "images/made/cu130/Dockerfile").is_file()
    assert not (root / "images/made/cu132").exists() or not any((root / "images/made/cu132").iterdir())

    report = project.run("image", "made", "--cuda", "13.0", "--no-smoke", "--engine", "embedded", "--json").ok().json
    assert {package["name"]: package["version"] for package in report["packages"]}["torch"] == "2.99.0"
    assert project.run("update", "made", "--check").code == 20, "2.99.2 may lock another day"


@pytest.mark.parametrize("suites", [[], ["torch"]], ids=["no-suite", "suite-fails"])
def test_prove_takes_an_image_that_passes_and_holds_back_one_whose_suite_fails(project, suites):
    """Nothing of this torch can be imported but an empty package."""
    root, recipe = project.folder, project.folder / "recipes/made.toml"
    recipe.write_text(RECIPE.replace('smoke = ["torch"]', f"smoke = {json.dumps(suites)}"))
    text = project.run("update", "made", "--prove").ok().out
    torch = recipes.load(recipe).variants[0].candidates[0].torch
    proof = root / "images/made/cu130/pypi.proof.json"
    if suites:
        assert "- made CUDA 13.0: no torch 2.99.0: 1 of 1 images were not proved; first made 13.0 pypi: " in text, text
        assert (torch, proof.exists()) == ("2.98.0", False)
    else:
        assert (torch, decode_proof(proof.read_bytes()).suites) == ("2.99.0", ()), text
        assert list((root / "dist").rglob("report.html")), "reports stay in the checkout"


#: of torch: what setup.py and our compile take of it, and the header that releases up to 2.98 have
TO_COMPILE_WITH = {
    "torch/utils/__init__.py": b"",
    "torch/utils/cpp_extension.py": b"from setuptools.command.build_ext import build_ext as BuildExtension\n",
}
HEADER = {"torch/include/ATen/small.h": b"inline bool small() { return true; }\n"}
SETUP = """
from pathlib import Path
import torch
from setuptools import Extension, setup
from torch.utils.cpp_extension import BuildExtension

scatter = Extension(
    "torch_scatter._scatter", ["csrc/scatter.cpp"], include_dirs=[str(Path(torch.__file__).parent / "include")]
)
setup(
    name="torch_scatter", version="2.1.2", packages=["torch_scatter"], ext_modules=[scatter],
    cmdclass={"build_ext": BuildExtension},
)
"""
SCATTER = """
#include <Python.h>
#include <ATen/small.h>
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_scatter", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit__scatter() { return small() ? PyModule_Create(&module) : nullptr; }
"""
ON_CPU = """
[[variant]]
cuda = "cpu"
python = "3.11"
base = { provider = "debian", suite = "bookworm" }
extensions = ["torch_scatter"]

[[variant.candidate]]
name = "pypi"
channels = ["pypi"]
torch = "2.97.0"
torch_cuda = "cpu"
"""


@pytest.fixture
def with_extension(project, index, tmp_path):
    """The recipe for the CPU, with an extension as source, torches with and without its header, real setuptools."""
    torches = {"2.97.0": HEADER, "2.98.5": HEADER, "2.99.5": {}}
    wheels = [torch_wheel(tmp_path, version, None, more=TO_COMPILE_WITH | more) for version, more in torches.items()]
    index.simple("torch", dict(wheels), uploaded="2026-11-01T00:00:00Z")
    pyproject = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    files = {"setup.py": SETUP, "csrc/scatter.cpp": SCATTER, "torch_scatter/__init__.py": ""}
    sdist = small_sdist("torch_scatter", "2.1.2", pyproject=pyproject, more=files)
    index.simple("torch-scatter", dict([sdist]), uploaded="2026-11-01T00:00:00Z")
    folder = tmp_path / "tools"
    command = ["pip", "download", "-q", "--only-binary", ":all:", "-d", folder, "pip", "setuptools", "wheel", "ninja"]
    subprocess.run([sys.executable, "-m", *command], check=True)
    for path in folder.iterdir():
        name = canonicalize_name(path.name.partition("-")[0])
        index.simple(name, {path.name: path.read_bytes()}, uploaded="2026-11-01T00:00:00Z")
    recipe = RECIPE.partition("# as it was")[0].replace('smoke = ["torch"]', "smoke = []")
    (project.folder / "recipes/made.toml").write_text(recipe + ON_CPU)
    return project


def test_torch_that_an_extension_does_not_compile_for_is_held_back_and_the_one_before_it_is_taken(with_extension):
    """By the compiler of the image's base: 2.99 lacks a header that the extension includes."""
    root = with_extension.folder
    text = with_extension.run("update", "made", "--prove").ok().out
    held = next((line for line in text.splitlines() if line.startswith("- made CUDA cpu: no torch 2.99.5: ")), text)
    for words in ("torch-scatter", "ATen/small.h: No such file or directory"):
        assert words in held, text
    assert "| made CUDA cpu | 2.97.0 → 2.98.5 |" in text, text
    proof, path = root / "images/made/cpu/pypi.proof.json", root / "images/made/cpu/pypi.lock.json"
    assert recipes.load(root / "recipes/made.toml").variants[0].candidates[0].torch == "2.98.5"
    lock = decode_lock(path.read_bytes())
    assert (lock.package("torch").version, lock.package("torch-scatter").compiled) == ("2.98.5", True)
    assert decode_proof(proof.read_bytes()).lock_sha256 == lock.sha256
