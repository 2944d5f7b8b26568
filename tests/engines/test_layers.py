"""Each layer of the stack, broken for real in an image with PyG: the suite's report blames just that layer.

Nothing in the image is changed: what is broken lies over it, in the sandbox of one run.
"""

import dataclasses
from pathlib import Path

import pytest

from graphcrate.engines.embedded import run as embedded
from graphcrate.host.sandbox import Bind
from graphcrate.oci.layout import read_layout
from graphcrate.smoke import suites
from tests.engines.workplace import call

pytestmark = [pytest.mark.slow, pytest.mark.engine("patchelf")]

SITE = "opt/venv/lib/python3.11/site-packages"
STUB = f"{SITE}/torch/_C.cpython-311-x86_64-linux-gnu.so"  #: small, and the first of torch's libraries to be loaded
EXTENSION = """
import pathlib, torch
torch.ops.load_library(str(pathlib.Path(__file__).with_name("_scatter.so")))
"""


class Broken:
    """The image with broken things over it: files over its own, packages before its own, variables, other words."""

    def __init__(self, inside, scratch):
        self.inside, self.scratch = inside, scratch
        self.binds, self.variables, self.words, self.before = [], {}, [], []

    def run(self, command):
        found = {**command.environment, "PYTHONPATH": "/broken", **self.variables}
        binds = [*command.binds, Bind(self.scratch / "packages", "/broken"), *self.binds]
        argv = [*self.before, *command.argv, *self.words]
        return self.inside.run(dataclasses.replace(command, argv=argv, environment=found, binds=binds))

    def library(self):
        return (self.inside.rootfs / STUB).read_bytes()

    def cover(self, path, content):
        """Put other bytes over a file of the image."""
        source = self.scratch / Path(path).name
        source.write_bytes(content)
        self.binds.append(Bind(source, f"/{path}"))
        return source

    def package(self, name, **files):
        """Put a package of another build before those of the image."""
        folder = self.scratch / "packages" / name
        folder.mkdir(parents=True)
        for file, content in files.items():
            (folder / file.replace("__so", ".so").replace("__py", ".py")).write_bytes(content)
        distribution = self.scratch / "packages" / f"{name}-2.1.2.dist-info"
        distribution.mkdir()
        (distribution / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.1.2\n")

    def startup(self, text):
        """Run this in each Python before anything else."""
        (self.scratch / "packages" / "sitecustomize.py").write_text(text)


@pytest.fixture(scope="module")
def image(pyg_image, cache):
    """The image, unpacked."""
    with embedded.unpacked(read_layout(pyg_image.layout), cache=cache) as inside:
        yield inside


@pytest.fixture
def broken(image, scratch):
    (scratch / "packages").mkdir()
    return Broken(image, scratch)


def gpu_without_a_driver(broken):
    broken.startup("import torch\ntorch.version.cuda = '12.1'\n")
    broken.words = ["--device", "cuda"]


def cuda_library_that_is_missing(broken):
    call("patchelf", "--add-needed", "libcudart.so.12", broken.cover(STUB, broken.library()))


def torch_that_is_cut_off(broken):
    broken.cover(STUB, broken.library()[:2000])


def extension_of_another_torch(broken):
    text = broken.library()
    assert b"\0initModule\0" in text
    broken.package(
        "torch_scatter", __init____py=EXTENSION.encode(), _scatter__so=text.replace(b"initModule", b"otherTorch")
    )


def extension_that_crashes(broken):
    broken.package("torch_sparse", __init____py=b"import ctypes\nctypes.string_at(0)\n")


def pyg_that_does_not_fit(broken):
    broken.package("torch_geometric", __init____py=b"from torch import what_only_a_newer_one_has\n")


def no_way_to_the_other_process(broken):
    broken.variables = {"GLOO_SOCKET_IFNAME": "eth7"}


def nowhere_to_write(broken):
    broken.binds = [Bind(broken.scratch / "packages", "/tmp")]  # read-only


def too_little_memory(broken):
    broken.before = ["/bin/sh", "-c", 'ulimit -v 4000000; exec "$@"', "sh"]
    broken.startup("import atexit, torch\ntorch.randn = lambda *size: torch.ones(1 << 33)\n")


def too_little_time(broken):
    broken.words = ["--limit", "0.5"]


def an_optimizer_that_does_nothing(broken):
    broken.startup("import torch\ntorch.optim.Adam.step = lambda self, closure=None: None\n")


@pytest.mark.parametrize(
    ("suite", "breaks", "layer", "seen"),
    [
        ("torch", gpu_without_a_driver, "driver", "the container sees no driver library"),
        ("torch", cuda_library_that_is_missing, "CUDA library", "libcudart.so.12: cannot open shared object file"),
        ("torch", torch_that_is_cut_off, "torch", "a library that is cut off ends like this while importing torch"),
        ("dna", extension_of_another_torch, "extension", "undefined symbol: otherTorch"),
        ("dna", extension_that_crashes, "extension", "it was ended by SIGSEGV"),
        ("dna", pyg_that_does_not_fit, "PyG", "what_only_a_newer_one_has"),
        ("torch", no_way_to_the_other_process, "network", "Unable to find address for: eth7"),
        ("torch", nowhere_to_write, "machine", "No usable temporary directory"),
        ("torch", too_little_memory, "machine", "memory"),
        ("torch", too_little_time, "machine", "not finished within the limit of 0.5 s"),
        ("torch", an_optimizer_that_does_nothing, "training", "the loss went from"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_the_layer_that_is_broken_is_blamed(broken, suite, breaks, layer, seen):
    breaks(broken)
    report = suites.run_suite(suite, broken, broken.scratch / "out", say=print, device="cpu")
    assert (report.status, report.layer) == ("failed", layer), report.reason
    assert report.reason.startswith(f"{layer}: ")
    assert seen in report.reason
