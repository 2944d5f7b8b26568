"""What a plan says of compiling: minutes from files, architectures and measured rates, and GPUs that get no code."""

import pytest

from graphcrate.assembly import extensions
from graphcrate.compat import compile_time
from tests.made import place, sdist
from tests.unit.compiled_plans import TOOLKITS, lock
from tests.unit.wheel_server import small_sdist

STACKS = ("torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv")


def work(name, files, architectures=("7.0", "8.0", "9.0"), toolkit="debian", **options):
    compilation = lock(TOOLKITS[toolkit], architectures=architectures).compilation
    return compile_time.of_package(sdist(name, "1"), files, compilation, **options)


def test_compile_estimate_of_a_stack_equals_its_measurement():
    """docs/performance.md: 325 s on the wall of two cores, for 7.0 and 8.0+PTX."""
    works = [work(name, None, ("7.0", "8.0+PTX")) for name in STACKS]
    assert (sum(one.cu for one in works), sum(one.cpp for one in works)) == (16, 51)
    (line,) = compile_time.lines(works, 2)
    assert line.startswith("some 5 minutes on 2 cores: files of torch-cluster (7 .cu, 16 C++), ")
    assert next(compile_time.lines(works, 1)).startswith("some 9 minutes on 1 core")


def test_compile_lines_of_flash_attn_name_hours_and_missing_gpus():
    files = [f"csrc/flash_attn/src/{number}.cu" for number in range(72)] + ["csrc/cutlass/tools/x.cu", "csrc/y.cpp"]
    one = work("flash-attn", files)
    assert (one.cu, one.makes, one.lacks) == (72, ("8.0", "9.0"), ("7.0",))
    first, second = compile_time.lines([one], 2)
    assert "hours on 2 cores" in first
    assert "7.0 (V100)" in second
    assert "GPU=a100,h100" in second
    assert work("flash-attn", files, ("8.6",)).lacks == (), "code for 8.0 runs there"


def test_compile_estimate_grows_with_architectures_and_fewer_cores():
    files = ["a.cu"] * 10 + ["b.cpp"] * 5
    seconds = [work("other", files, architectures).seconds for architectures in (("7.0",), ("7.0", "8.0"))]
    assert seconds[0] < seconds[1]
    assert work("other", ["b.pyx"], has_torch=False).seconds < work("other", ["b.cpp"]).seconds
    assert work("other", files, toolkit="cpu").cu == 0


def test_unknown_sources_have_no_compile_estimate():
    assert work("other", None) is None
    assert list(compile_time.lines([], 2)) == []


def test_deepspeed_compile_line_names_ds_build_ops():
    (line,) = compile_time.lines([work("deepspeed", ["csrc/adam/x.cu"])], 2)
    assert "DS_BUILD_OPS" in line


@pytest.mark.parametrize("seconds", [0, 59, 5000, 90_000])
def test_compile_duration_has_a_unit(seconds):
    assert compile_time._duration(seconds).split()[-1] in ("minute", "minutes", "hours")


def test_compile_estimate_counts_cached_sources_without_compiled_ones(cache, progress, monkeypatch):
    more = {f"csrc/{number}.cu": "" for number in range(9)}
    _, content = small_sdist("mine", "1.0", pyproject="", more=more)
    package = sdist("mine", "1.0")
    path = cache.file(package.file.sha256, package.file.name)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    ctx, wanted = place(cache, {}, progress), lock(TOOLKITS["debian"], packages=(package,))
    monkeypatch.setattr(extensions, "built", lambda *_: ())
    assert "mine (9 .cu)" in extensions.time_lines(wanted, ctx)[0]
    monkeypatch.setattr(extensions, "built", lambda *_: {package.file.sha256})
    assert extensions.time_lines(wanted, ctx) == []
