"""An image cut to a V100, from real wheels: it runs, its libraries load, nothing else differs, other GPUs are out."""

import json

import pytest

from tests.engines.conftest import remove_later
from tests.engines.workplace import second_place

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.engine("user namespaces"),
]
LOAD = """
import ctypes, os, pathlib, torch
libraries = [path for path in pathlib.Path(torch.__file__).parents[1].rglob("*.so*") if path.stat().st_size > 1 << 20]
for path in libraries:
    if "torchaudio_sox" not in path.name:  # which needs a library that no wheel brings
        ctypes.CDLL(str(path), mode=os.RTLD_NOW)
print(len(libraries))
"""


#: torch for CUDA of the package index, which every machine reaches
STACK = ("torch", "--cuda", "11.8", "--channel", "pypi")
CUT = ("image", *STACK, "--gpu", "v100", "--slim", "yes", "--json")


@pytest.fixture(scope="module")
def place(workplace, built_image, own):
    """A folder and a cache for this module alone: 12 GB of no use after it."""
    yield second_place(workplace, own / "slim", base=True)
    remove_later(own / "slim")


@pytest.fixture(scope="module")
def whole(place):
    """The report of the image with all of its code."""
    return place.run("image", *STACK, "--no-smoke", "--json").json


@pytest.fixture(scope="module")
def cut(place):
    """The report of the image that is cut to a V100."""
    return place.run(*CUT).json


def test_slim_image_is_smaller_passes_and_names_what_was_cut(place, whole, cut):
    assert cut["tag"].endswith("-sm70-slim")
    assert [suite["status"] for suite in cut["suites"]] == ["passed"]
    files = {one["path"].rpartition("/")[2]: one for layer in cut["layers"] for one in layer["cut"]}
    assert {"libtorch_cuda.so", "libtorch_cuda_linalg.so", "libnccl.so.2"} <= set(files)
    assert not any(name.startswith(("libcublas", "libcudnn")) for name in files)
    assert all(one["packed"] < one["before"] for one in files.values() if one["bytes"] > 1e7)
    assert cut["bytes"] < 0.85 * whole["bytes"]
    assert any(note.startswith("slim: ") for note in cut["notes"])
    again = place.run(*CUT)
    assert again.json["digest"] == cut["digest"]
    assert "making" not in again.err
    done = place.run("run", f"torch:{cut['tag']}", "--", "python", "-c", LOAD).ok()
    assert int(done.out) > 20
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
