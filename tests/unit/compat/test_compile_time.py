"""A plan's lines on compiling: minutes from files, architectures and measured rates, and GPUs that get no code."""

import msgspec
import pytest

from graphcrate.assembly import extensions
from graphcrate.compat.facts import compile_time, libraries
from graphcrate.model.errors import ResolutionError
from graphcrate.model.words import duration
from tests.made import place, refused, sdist
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


def test_compile_estimate_counts_the_gpus_that_are_asked_for_of_a_packages_own_list():
    """`launcher` leaves out code that was not asked for."""
    files = [f"csrc/flash_attn/src/{number}.cu" for number in range(72)]
    alone, both = (work("flash-attn", files, architectures).seconds for architectures in (("8.0",), ("8.0", "9.0")))
    assert both - alone == pytest.approx(72 * 107)
    assert work("flash-attn", files, ("8.6", "8.9")).seconds == alone, "code for 8.0, once"


@pytest.mark.parametrize(
    ("name", "architectures", "words"),
    [
        ("flash-attn", ("7.0",), ["flash-attn 1 makes no code for 7.0 (V100)", "8.0 (A100)", "GPU=a100,h100"]),
        (
            "causal-conv1d==1.7.0",
            ("7.0",),
            ["causal-conv1d 1.7.0 makes no code for 7.0 (V100)", "7.5 (T4)", "'WITH=causal-conv1d<1.7', which"],
        ),
        ("causal-conv1d==1.6.0", ("7.0",), []),
        ("flash-attn", ("7.0", "8.0"), []),
        ("flash-attn", ("8.6+PTX",), []),
        ("other", ("7.0",), []),
    ],
)
def test_gpu_that_a_package_makes_no_code_for_is_refused_where_it_is_the_only_one(name, architectures, words):
    name, _, version = name.partition("==")
    package = msgspec.structs.replace(sdist(name, version or "1"), back_end=True)
    wanted = lock(TOOLKITS["debian"], packages=(package,), architectures=architectures)
    if not words:
        compile_time.refuse_useless(wanted)
        return
    with refused(ResolutionError, *words):
        compile_time.refuse_useless(wanted)


def test_other_release_is_named_only_where_it_makes_the_code_that_is_asked_for():
    package = msgspec.structs.replace(sdist("causal-conv1d", "1.7.0"), back_end=True)
    with refused(ResolutionError, "next:  leave causal-conv1d out") as found:
        compile_time.refuse_useless(lock(TOOLKITS["debian"], packages=(package,), architectures=("6.0",)))
    assert "WITH=" not in found.value.next_step


def test_back_end_that_compiles_one_file_after_another_gets_no_help_from_cores():
    plain = work("other", ["a.cpp"] * 30, has_torch=False, parallel=False)
    assert next(iter(compile_time.lines([plain], 1))).startswith("some 3 minutes on 1 core")
    assert list(compile_time.lines([plain], 8)) == [
        "some 3 minutes on 8 cores: files of other (30 C++, one after another)"
    ]


def test_compile_estimate_has_cuda_files_only_where_a_variable_turns_them_on():
    files = ["vendor/llama.cpp/ggml/src/ggml-cuda/a.cu", "vendor/llama.cpp/src/a.cpp"]
    compilation = lock(TOOLKITS["debian"], architectures=("8.0",)).compilation
    asked = msgspec.structs.replace(compilation, with_env=("CMAKE_ARGS=-DGGML_CUDA=on",))
    package = sdist("llama-cpp-python", "1")
    assert [compile_time.of_package(package, files, each).cu for each in (compilation, asked)] == [0, 1]


def test_compile_estimate_grows_with_architectures_and_fewer_cores():
    files = ["a.cu"] * 10 + ["b.cpp"] * 5
    seconds = [work("other", files, architectures).seconds for architectures in (("7.0",), ("7.0", "8.0"))]
    assert seconds[0] < seconds[1]
    assert work("other", ["b.pyx"], has_torch=False).seconds < work("other", ["b.cpp"]).seconds
    assert work("other", files, toolkit="cpu").cu == 0


def test_compile_estimate_has_the_library_that_a_package_is_linked_to():
    compilation = lock(TOOLKITS["debian"]).compilation
    within = libraries.with_libraries(compilation, ["torch-sparse"])
    seconds = [compile_time.of_package(sdist("torch-sparse"), None, one).seconds for one in (compilation, within)]
    assert seconds[1] - seconds[0] == pytest.approx(18)
    assert libraries.titled(sdist("torch-sparse", "0.6.18"), within) == "torch-sparse 0.6.18 (with METIS 5.1.0)"
    assert libraries.titled(sdist("torch-sparse", "0.6.18"), compilation) == "torch-sparse 0.6.18"


def test_unknown_sources_have_no_compile_estimate():
    assert work("other", None) is None
    assert list(compile_time.lines([], 2)) == []


def test_deepspeed_compile_line_names_ds_build_ops():
    (line,) = compile_time.lines([work("deepspeed", ["csrc/adam/x.cu"])], 2)
    assert "DS_BUILD_OPS" in line


@pytest.mark.parametrize("seconds", [0, 59, 5000, 90_000])
def test_compile_duration_has_a_unit(seconds):
    assert duration(seconds).split()[-1] in ("minute", "minutes", "hours")


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
