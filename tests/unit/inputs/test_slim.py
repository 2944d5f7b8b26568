"""Images cut to some GPUs: what may be cut, what the plan, the tag and Python say of it, layers with zeros in them."""

import json
import random

import msgspec
import pytest

from graphcrate.compat.facts import slim
from graphcrate.compat.plan.planning import make_plan
from graphcrate.inputs.wheels.layer import write_wheels_layer
from graphcrate.model.errors import UsageError
from graphcrate.model.plan import Slim, WheelsStep
from tests.made import wheel
from tests.unit.compiled_plans import RECIPE, TOOLKITS, VARIANT, plain_lock
from tests.unit.compiled_plans import lock as compiled_lock
from tests.unit.elfmaker import PTX, SASS, entry, fat_binary, make_elf
from tests.unit.inputs.test_wheels_layer import PACKAGES, PYTHON, unpacked, wheel_file
from tests.unit.wheelmaker import make_wheel, record_row

VOLTA = Slim(capabilities=("7.0",), ptx=False, everything=False)
ALL = msgspec.structs.replace(VOLTA, everything=True)
LARGE = 2 << 20


@pytest.mark.parametrize(
    ("package", "free", "names"),
    [
        ("torch", True, ["torch/lib/libtorch_cuda.so"]),
        ("torch", False, ["libcudnn_cnn_infer.so.8", "libcublas-1a2b.so.11", "libnvrtc-builtins.so.11.8"]),
        ("nvidia-nccl-cu11", True, ["nvidia/nccl/lib/libnccl.so.2"]),
        ("nvidia-cudnn-cu11", False, ["nvidia/cudnn/lib/libcudnn_ops_infer.so.8"]),
        ("cuda-tile", False, ["cuda/libtile.so"]),
        ("torchvision", False, ["torchvision.libs/libnvjpeg.36e11081.so.13", "torchvision.libs/libcudart.faf0.so.13"]),
    ],
)
def test_may_cut_takes_large_libraries_of_free_packages_only(package, free, names):
    for name in names:
        assert slim.may_cut(package, name, LARGE, VOLTA) is free
        assert slim.may_cut(package, name, LARGE, ALL)
        assert not slim.may_cut(package, name, 1000, ALL)
    assert not slim.may_cut(package, f"{package}/__init__.py", LARGE, ALL)


def test_slim_without_a_gpu_or_for_cpu_is_a_usage_error():
    lock = compiled_lock(TOOLKITS["debian"])
    assert slim.wanted("no", "", lock) is None
    assert slim.wanted("yes", "a100,v100", lock) == Slim(capabilities=("7.0", "8.0"), ptx=True, everything=False)
    assert slim.wanted("all", "v100", compiled_lock(TOOLKITS["debian"], architectures=("7.0",))).ptx is False
    with pytest.raises(UsageError, match="none is named"):
        slim.wanted("yes", "", lock)
    with pytest.raises(UsageError, match="for CPUs"):
        slim.wanted("yes", "v100", compiled_lock(None))


def planned(cut):
    packages = [wheel("nvidia-cudnn-cu11", size=500_000_000), wheel("torchvision", size=600_000_000), wheel("tqdm")]
    lock = plain_lock(*packages)
    return make_plan(RECIPE, lock, VARIANT.candidates[0], examples={}, slim=cut)


def test_slim_plan_cuts_free_packages_and_gets_its_tag_and_label():
    whole, free, everything = planned(None), planned(VOLTA), planned(ALL)
    cut = [
        [step.packages[0].name for step in plan.steps if isinstance(step, WheelsStep) and step.slim]
        for plan in (free, everything)
    ]
    assert cut == [["torch", "torchvision"], ["nvidia-cudnn-cu11", "torch", "torchvision"]]
    assert (free.tag, everything.tag) == (f"{whole.tag}-sm70-slim", f"{whole.tag}-sm70-slim-all")
    assert free.config.labels[slim.LABEL] == "7.0"
    assert next(step for step in whole.steps if step not in free.steps).title == "torch 2.0.1"
    assert slim.plan_lines(whole) == []
    said = "\n".join(slim.plan_lines(free))
    words = ("7.0 alone: torch, torchvision", "whole by NVIDIA's terms", "500 MB: nvidia-cudnn-cu11")
    assert [word for word in words if word not in said] == []
    assert "NVIDIA's own libraries too" in "\n".join(slim.plan_lines(everything))


CODE = random.Random(1).randbytes(LARGE // 2)
LIBRARY = make_elf(
    soname="libx.so",
    fatbin=fat_binary(entry(SASS, 70, code=CODE), entry(SASS, 80, code=CODE[::-1]), entry(PTX, 80, code=CODE)),
)
PATH = f"{PACKAGES}/pkg/libx.so"


def layer(tmp_path, cache, cut, content=LIBRARY):
    path = make_wheel(tmp_path, files={"pkg/libx.so": content, "pkg/__init__.py": b""})
    record = write_wheels_layer("pkg", [wheel_file(path)], PYTHON, cache, slim=cut)
    return record, unpacked(cache, record)


def test_slim_layer_has_zeros_in_place_of_other_gpus_code(tmp_path, cache):
    whole, before = layer(tmp_path, cache, None)
    record, files = layer(tmp_path, cache, VOLTA)
    content = files[PATH][0]
    at, reverse = LIBRARY.index(CODE), LIBRARY.index(CODE[::-1])
    expected = bytearray(LIBRARY)
    for start in (reverse, LIBRARY.index(CODE, at + 1)):
        expected[start : start + len(CODE)] = bytes(len(CODE))
    assert content == bytes(expected)
    assert record.size < whole.size / 2
    (about,) = record.cut
    assert (about.path, about.bytes, about.whole) == (f"/{PATH}", 2 * len(CODE), 0)
    assert about.packed < about.before
    assert "2 MB of code in 1 libraries are zeros" in slim.saved([record])
    assert slim.saved([whole]) == ""
    rows = f"{PACKAGES}/pkg-1.0.dist-info/RECORD"
    assert record_row("pkg/libx.so", content) in files[rows][0].decode().splitlines()
    assert {path for path in before if before[path] != files[path]} == {PATH, rows}


@pytest.mark.parametrize("content", [make_elf(soname="libx.so") + bytes(LARGE), b"text" * LARGE, LIBRARY[:-100]])
def test_library_without_readable_gpu_code_is_copied_unchanged(tmp_path, cache, content):
    record, files = layer(tmp_path, cache, VOLTA, content)
    assert files[PATH][0] == content
    assert record == layer(tmp_path, cache, None, content)[0]
    assert record.cut == ()


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start Python in an image for V100 on a node with these GPUs."""
    folder = tmp_path / "gpus"

    def run(*models, **variables):
        for number, model in enumerate(models):
            place = folder / f"0000:{number}:00.0"
            place.mkdir(parents=True, exist_ok=True)
            (place / "information").write_text(f"Model: \t\t {model}\nIRQ: 1\n")
        for name in (slim.VARIABLE, "CUDA_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        text = slim.guard(VOLTA)
        assert "/proc/driver/nvidia/gpus" in text
        exec(compile(text.replace("/proc/driver/nvidia/gpus", str(folder)), "sitecustomize.py", "exec"), {})

    return run


A100 = "NVIDIA A100-SXM4-80GB"


def test_python_in_a_slim_image_exits_if_no_visible_gpu_has_code(start):
    start()
    with pytest.raises(SystemExit, match=r"compute capability 7\.0 .* here is NVIDIA A100-SXM4-80GB \(8\.0\)"):
        start(A100)
    start(A100, CUDA_VISIBLE_DEVICES="")
    start(A100, **{slim.VARIABLE: "1"})
    for model in ("Tesla V100-SXM3-32GB", "NVIDIA X1"):
        start(model)
    start(A100, "Tesla V100-PCIE-16GB")
    known = json.loads(slim.guard(VOLTA).partition("GPUS = ")[2].partition("\n}")[0] + "}")
    assert (known["V100"], len(known) > 30) == ("7.0", True)


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        (("9.0",), "such images were run on H100"),
        (("7.0",), "not yet run on a GPU of 7.0"),
        (("8.0", "9.0"), "not yet run on a GPU of 8.0"),
    ],
)
def test_the_plan_says_whether_images_cut_to_these_capabilities_were_run_on_a_gpu(capabilities, said):
    assert slim.shown(capabilities) == said
