"""An image cut to a V100: its libraries load, nothing else differs, other GPUs are out.

Each day with a real NCCL beside a torch in little; once a week with all real wheels, which pass their suite.
"""

import json
import random
import subprocess
import sys

import pytest

from tests.engines.conftest import remove_later
from tests.engines.test_update import RECIPE, torch_wheel
from tests.engines.workplace import second_place
from tests.unit.elfmaker import SASS, entry, fat_binary, make_elf
from tests.unit.wheel_server import WheelServer, small_wheel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.engine("user namespaces"),
]
LOAD = """
import ctypes, os, pathlib, sys, torch
packages = pathlib.Path(torch.__file__).parents[1]
libraries = [path for path in (packages / sys.argv[1]).rglob("*.so*") if path.stat().st_size > 1 << 20]
for path in libraries:
    if "torchaudio_sox" not in path.name:  # which needs a library that no wheel brings
        ctypes.CDLL(str(path), mode=os.RTLD_NOW)
print(len(libraries))
"""


#: torch in little, whose NCCL is real, by an index of our own
LITTLE = ("made", "--cuda", "11.8")
#: torch for CUDA of the package index, which every machine reaches
REAL = ("torch", "--cuda", "11.8", "--channel", "pypi")
#: of each: what is cut of torch, below which folder how many libraries load at least, the suites
CUTS = {
    LITTLE: ({"libtorch_cuda.so"}, "nvidia", 1, []),
    REAL: ({"libtorch_cuda.so", "libtorch_cuda_linalg.so"}, ".", 20, ["passed"]),
}
NCCL = "nvidia-nccl-cu11==2.14.3"
CODE = random.Random(7).randbytes(2 << 20)


@pytest.fixture(scope="module", params=[LITTLE, pytest.param(REAL, marks=pytest.mark.weekly)], ids=["little", "real"])
def stack(request):
    """A recipe and a variant, as `image` takes them."""
    return request.param


@pytest.fixture(scope="module")
def place(stack, workplace, built_image, own, tmp_path_factory):
    """A folder and a cache for this module alone: 12 GB of real wheels are of no use after it."""
    with WheelServer() as index:
        made = second_place(workplace, own / f"slim-{stack[0]}", base=True)
        if stack == LITTLE:
            fill(index, tmp_path_factory.mktemp("wheels"))
            recipe = RECIPE.replace('smoke = ["torch"]', "smoke = []").replace("13.0", "11.8").replace('["tqdm"]', "[]")
            (made.folder / "recipes/made.toml").write_text(recipe)
            made = made.having(UV_DEFAULT_INDEX=index.url("/simple"), PIP_CONFIG_FILE="/dev/null", UV_NO_CONFIG="1")
            made.run("lock", *LITTLE).ok()
        yield made
    remove_later(own / f"slim-{stack[0]}")


def fill(index, folder):
    """Give an index torch with code for two GPUs, and what it requires."""
    library = make_elf(fatbin=fat_binary(*(entry(SASS, number, code=CODE) for number in (70, 80))))
    more = {"torch/lib/libtorch_cuda.so": library}
    torch = torch_wheel(folder, "2.98.0", "11.8", 70, 80, requires=[NCCL], more=more)
    command = ["pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", folder / "nccl", NCCL]
    subprocess.run([sys.executable, "-m", *command], check=True)
    (nccl,) = (folder / "nccl").iterdir()
    for name, wheel in {
        "torch": torch, "pip": small_wheel("pip", "25.0"), NCCL.partition("=")[0]: (nccl.name, nccl.read_bytes()),
    }.items():  # fmt: skip
        index.simple(name, dict([wheel]), uploaded="2026-11-01T00:00:00Z")


@pytest.fixture(scope="module")
def whole(place, stack):
    """The report of the image with all of its code."""
    return place.run("image", *stack, "--no-smoke", "--json").json


@pytest.fixture(scope="module")
def request_cut(stack):
    return ("image", *stack, "--gpu", "v100", "--slim", "yes", "--json")


@pytest.fixture(scope="module")
def cut(place, request_cut):
    """The report of the image that is cut to a V100."""
    return place.run(*request_cut).json


def test_slim_image_is_smaller_passes_and_names_what_was_cut(place, whole, cut, stack, request_cut):
    of_torch, below, loaded, suites = CUTS[stack]
    assert cut["tag"].endswith("-sm70-slim")
    assert [suite["status"] for suite in cut["suites"]] == suites
    files = {one["path"].rpartition("/")[2]: one for layer in cut["layers"] for one in layer["cut"]}
    assert {*of_torch, "libnccl.so.2"} <= set(files)
    assert not any(name.startswith(("libcublas", "libcudnn")) for name in files)
    assert all(one["packed"] < one["before"] for one in files.values() if one["bytes"] > 1e7)
    assert cut["bytes"] < 0.85 * whole["bytes"]
    assert any(note.startswith("slim: ") for note in cut["notes"])
    again = place.run(*request_cut)
    assert again.json["digest"] == cut["digest"]
    assert "making" not in again.err
    done = place.run("run", f"{cut['name']}:{cut['tag']}", "--", "python", "-c", LOAD, below).ok()
    assert int(done.out) >= loaded
    for command, code in (("check", 14), ("audit", 15)):
        assert place.run(command, place.layout(cut), "--gpu", "v100").code == 0
        done = place.run(command, place.layout(cut), "--gpu", "a100")
        assert (done.code, "A100" in done.out) == (code, True), done.err


def test_slim_image_differs_from_the_whole_in_cut_files_only(place, whole, cut):
    done = place.run("diff", place.layout(whole), place.layout(cut), "--strict", "--json")
    changed = {one["path"] for one in json.loads(done.out)["unexpected"] if one["path"].startswith("/opt/venv")}
    told = {path for path in changed if path.endswith((".dist-info/RECORD", "/sitecustomize.py"))}
    assert changed - told == {one["path"] for layer in cut["layers"] for one in layer["cut"]}
    assert len(told) > 1
