"""Variables to compile with: as typed, refused with a reason, joined with what a build sets itself."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.compat.facts import back_ends, build_environment, compilers
from graphcrate.compat.requirements import own_packages, own_typed
from graphcrate.inputs.extensions import CompileJob, back_end
from graphcrate.inputs.extensions import compile as house
from graphcrate.model.errors import UsageError
from graphcrate.model.recipe import Additions
from tests.made import refused
from tests.unit.inputs.test_extensions import step


@pytest.mark.parametrize(
    ("texts", "variables"),
    [
        (["A=1 B=2"], {"A": "1", "B": "2"}),
        (["A=1", "B=2", "A=3"], {"A": "3", "B": "2"}),
        (["CMAKE_ARGS=-DGGML_CUDA=on -DX=y"], {"CMAKE_ARGS": "-DGGML_CUDA=on -DX=y"}),
        (["CMAKE_ARGS=-DGGML_CUDA=on -DX=y B=2"], {"CMAKE_ARGS": "-DGGML_CUDA=on -DX=y", "B": "2"}),
        (["A='x B=2' C=3"], {"A": "x B=2", "C": "3"}),
        (['CMAKE_ARGS=-DCMAKE_CXX_FLAGS="-O1 -g"'], {"CMAKE_ARGS": '-DCMAKE_CXX_FLAGS="-O1 -g"'}),
        (["A= B=''"], {"A": "", "B": ""}),
        (['  A="it\'s"  '], {"A": "it's"}),
        ([], {}),
    ],
)
def test_variables_are_read_as_typed(texts, variables):
    assert build_environment.read(texts) == variables
    assert build_environment.read([build_environment.written(variables)] if variables else []) == variables


@given(st.dictionaries(st.sampled_from("ABC"), st.text("ab= -'\"", max_size=12).map(str.strip)))
def test_what_was_read_is_written_so_that_it_is_read_again(variables):
    try:
        once = build_environment.read([build_environment.written(variables)] if variables else [])
    except UsageError:
        return
    assert not once or build_environment.read([build_environment.written(once)]) == once


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not NAME=VALUE"),
        ("GGML_CUDA", "'GGML_CUDA' is not NAME=VALUE"),
        ("-DX=y", "is not NAME=VALUE"),
        ("A=it's B=1", "is not NAME=VALUE with its quotation marks closed"),
        ("1A=2", "is not NAME=VALUE"),
        ("A=\x1b", "A has a control character"),
        ("A=x\ny", "A has a control character"),
        ("PATH=/opt/x", "By it the build's own programs"),
        ("LD_PRELOAD=x.so", "LD_PRELOAD cannot be set"),
        ("PYTHONPATH=/x", "The interpreter is the image's"),
        ("SOURCE_DATE_EPOCH=1", "The same source gives the same bytes"),
        ("https_proxy=http://x", "Nothing is reached from the sandbox"),
        ("MAX_JOBS=64", "is for the cores and the memory of the machine that builds"),
        ("TORCH_CUDA_ARCH_LIST=9.0", "GPU=a100"),
        ("CUDA_HOME=/usr/local/cuda", "TOOLKIT=image"),
        ("CARGO_HOME=/x", "crates are those that Cargo.lock names"),
        ("RUSTC_WRAPPER=sccache", "Rust is the lock's"),
        ("CARGO_SOURCE_CRATES_IO_REPLACE_WITH=x", "RUSTFLAGS and CARGO_PROFILE_RELEASE_LTO"),
    ],
)
def test_what_is_no_variable_or_is_the_builds_own_is_refused_with_the_reason(text, words):
    with refused(UsageError, "--build-env: ", words):
        own_typed.given((), build_env=(text,))


def test_all_that_a_build_sets_is_refused_or_joined():
    made = house.environment(CompileJob(**{**dict.fromkeys(CompileJob.__dataclass_fields__), "step": step()}), 2)
    made |= back_end.environment(made, ("8.0",), 2)
    made |= back_end.isolated(made, "3.11", step().compilation)
    made |= back_end.for_cargo(2)
    made |= compilers.variables(step(toolkit=None).compilation)
    free = {name for name in made if not [*build_environment.faults({name: "x"})]}
    assert free == {"CFLAGS", "CXXFLAGS", "LDFLAGS", "NVCC_PREPEND_FLAGS"}
    joined = build_environment.joined(made, dict.fromkeys(made, "x"))
    assert {name for name in made if joined[name] != made[name]} == free


@pytest.mark.parametrize(
    ("variables", "asks"),
    [
        ({"CMAKE_ARGS": "-DGGML_CUDA=on"}, True),
        ({"CMAKE_ARGS": "-DX=y -DGGML_CUDA:BOOL=ON"}, True),
        ({"MINE_WITH_CUDA": "1"}, True),
        ({"CMAKE_ARGS": "-DGGML_CUDA=off"}, False),
        ({"MINE": "cuda"}, False),
    ],
)
def test_variables_that_turn_cuda_on_are_known(variables, asks):
    assert build_environment.asks_for_cuda(variables) is asks


def test_flags_come_after_the_builds_own_and_what_it_sets_stays():
    given = {"CFLAGS": "-O2", "PATH": "/bin"}
    asked = {"CFLAGS": "-DX", "CXXFLAGS": "-DY", "PATH": "/evil", "LD_PRELOAD": "x.so", "A": "1"}
    assert build_environment.joined(given, asked) == {"CFLAGS": "-O2 -DX", "CXXFLAGS": "-DY", "PATH": "/bin", "A": "1"}


def test_flags_of_a_known_package_stay_beside_those_that_are_asked_for():
    """torch's header that MinkowskiEngine's spmm.cu lacks is still there beside thrust's, asked for by the user."""
    made, package = step().compilation, msgspec.structs.replace(step().packages[0], name="minkowskiengine")
    header = back_ends.package(package.name).variables_where("/there", cuda=True)["NVCC_PREPEND_FLAGS"]
    assert header.endswith("-I/there/pybind11/include")
    asked = msgspec.structs.replace(made, with_env=("NVCC_PREPEND_FLAGS=-include thrust/remove.h", "A=1"))
    assert build_environment.asked_for(package, made, "/there") == {"NVCC_PREPEND_FLAGS": header}
    both = {"NVCC_PREPEND_FLAGS": f"{header} -include thrust/remove.h", "A": "1"}
    assert build_environment.asked_for(package, asked, "/there") == both
    assert build_environment.of_step({}, [package], asked, requirements="/there") == both


def test_variable_of_a_known_package_gives_way_to_what_is_asked_for():
    made, package = step().compilation, msgspec.structs.replace(step().packages[0], name="causal-conv1d")
    asked = msgspec.structs.replace(made, with_env=("CAUSAL_CONV1D_FORCE_BUILD=FALSE",))
    assert build_environment.asked_for(package, asked, "") == {"CAUSAL_CONV1D_FORCE_BUILD": "FALSE"}


def test_what_is_for_compiling_alone_is_an_addition_so_that_it_is_refused_and_not_passed_over():
    assert not Additions()
    assert Additions(build_environment={"A": "1"})
    assert Additions(build_apt=("swig",))


def test_what_is_typed_goes_before_the_variables_of_a_recipe():
    first, second = Additions(build_environment={"A": "1"}), Additions(build_environment={"A": "2", "B": "3"})
    assert own_packages.merge_additions(first, second).build_environment == {"A": "2", "B": "3"}
