"""Each layer of the stack, broken for real in an image with PyG: the suite's report blames just that layer.

Nothing in the image is changed: broken files are mounted over it, in the sandbox of one run.
"""

import dataclasses
from types import SimpleNamespace

import pytest

from graphcrate.engines.embedded import run as embedded
from graphcrate.oci.layout import read_layout
from graphcrate.smoke import suites
from nsbox.box import Bind
from tests.engines.workplace import call

pytestmark = [pytest.mark.slow, pytest.mark.engine("patchelf")]

SITE = "opt/venv/lib/python3.11/site-packages"
STUB = f"{SITE}/torch/_C.cpython-311-x86_64-linux-gnu.so"  #: small, and the first of torch's libraries to be loaded
LOAD = b"""
import pathlib, torch
torch.ops.load_library(str(pathlib.Path(__file__).with_name("_scatter.so")))
"""


@pytest.fixture(scope="module")
def image(pyg_image, cache):
    """The image, unpacked."""
    with embedded.unpacked(read_layout(pyg_image.layout), cache=cache) as inside:
        yield inside


def broken(image, folder, *, startup="", package=("", {}), library=None, variables=None, words=(), before=(), tmp=True):
    """Runs commands in the image with broken things over it.

    `startup`: runs in each Python before all else; `package`: one of another build, its name and files; `library`:
    changes a copy of torch's first one; `words`, `before`: behind and before the command; `tmp`: it can be written to.
    """
    packages, stub = folder / "packages", folder / "stub.so"
    packages.mkdir()
    (packages / "sitecustomize.py").write_text(startup)
    stub.write_bytes((image.rootfs / STUB).read_bytes())
    (name, files), binds = package, [Bind(packages, "/broken")]
    if name:
        (packages / name).mkdir()
        for file, content in files.items():
            (packages / name / file).write_bytes(content(stub.read_bytes()) if callable(content) else content)
        (packages / f"{name}-2.1.2.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.1.2\n"
        (packages / f"{name}-2.1.2.dist-info" / "METADATA").write_text(metadata)
    if library:
        library(stub)
        binds.append(Bind(stub, f"/{STUB}"))
    binds += [] if tmp else [Bind(packages, "/tmp")]

    def run(command):
        environment = {**command.environment, "PYTHONPATH": "/broken", **(variables or {})}
        argv = [*before, *command.argv, *words]
        return image.run(
            dataclasses.replace(command, argv=argv, environment=environment, binds=[*command.binds, *binds])
        )

    return SimpleNamespace(run=run)


def of_another_torch(library):
    assert b"\0initModule\0" in library
    return library.replace(b"initModule", b"otherTorch")


MEMORY = {
    "before": ("/bin/sh", "-c", 'ulimit -v 4000000; exec "$@"', "sh"),
    "startup": "import atexit, torch\ntorch.randn = lambda *size: torch.ones(1 << 33)\n",
}
SCATTER = ("torch_scatter", {"__init__.py": LOAD, "_scatter.so": of_another_torch})
SPARSE = ("torch_sparse", {"__init__.py": b"import ctypes\nctypes.string_at(0)\n"})
PYG = ("torch_geometric", {"__init__.py": b"from torch import what_only_a_newer_one_has\n"})
NO_STEP = "import torch\ntorch.optim.Adam.step = lambda self, closure=None: None\n"
FOR_CUDA = {"startup": "import torch\ntorch.version.cuda = '12.1'\n", "words": ("--device", "cuda")}
CASES = {
    "a GPU without a driver": ("torch", "driver", "the container sees no driver library", FOR_CUDA),
    "a CUDA library that is missing": (
        "torch",
        "CUDA library",
        "libcudart.so.12: cannot open shared object file",
        {"library": lambda path: call("patchelf", "--add-needed", "libcudart.so.12", path)},
    ),
    "torch that is cut off": (
        "torch",
        "torch",
        "a library that is cut off ends like this while importing torch",
        {"library": lambda path: path.write_bytes(path.read_bytes()[:2000])},
    ),
    "an extension of another torch": ("dna", "extension", "undefined symbol: otherTorch", {"package": SCATTER}),
    "an extension that crashes": ("dna", "extension", "it was ended by SIGSEGV", {"package": SPARSE}),
    "PyG that does not fit": ("dna", "PyG", "what_only_a_newer_one_has", {"package": PYG}),
    "no way to the other process": (
        "torch",
        "network",
        "Unable to find address for: eth7",
        {"variables": {"GLOO_SOCKET_IFNAME": "eth7"}},
    ),
    "nowhere to write": ("torch", "machine", "No usable temporary directory", {"tmp": False}),
    "too little memory": ("torch", "machine", "memory", MEMORY),
    "too little time": ("torch", "machine", "not finished within the limit of 0.5 s", {"words": ("--limit", "0.5")}),
    "an optimizer that does nothing": ("torch", "training", "the loss went from", {"startup": NO_STEP}),
}


@pytest.mark.parametrize(("suite", "layer", "seen", "what"), CASES.values(), ids=CASES)
def test_the_layer_that_is_broken_is_blamed(image, scratch, suite, layer, seen, what):
    program, inside = suites.suite(suite, on_gpu=False), broken(image, scratch, **what)
    report = suites.run(program, inside, scratch / "out", say=print, on_gpu=False)
    assert (report.status, report.layer) == ("failed", layer), report.reason
    assert report.reason.startswith(f"{layer}: ")
    assert seen in report.reason
