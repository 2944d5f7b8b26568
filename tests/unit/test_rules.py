"""What runs where: each rule by itself, and what must hold of all of them together."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcrate.compat import drivers, facts, rules
from graphcrate.model.target import STATUSES, Software, Target

STACK = Software(torch="2.3.1", torch_cuda="12.1", python="3.11", suite="bookworm")
WITH_EXTENSIONS = msgspec.structs.replace(
    STACK, extensions=("torch_scatter", "torch_sparse"), architectures=("7.0", "8.0"), nvcc="12.4.131"
)
GLT_PACKAGES = ("torch", "torch-scatter", "torch-sparse", "graphlearn-torch")
GLT = msgspec.structs.replace(STACK, glt="0.2.4", packages=GLT_PACKAGES)
PTX = next(build for build in facts.torch_builds() if build.ptx and build.cuda == "13.2")


def verdict(stack=STACK, gpus=("V100",), driver="550.54.15", **target):
    made = Target(gpus=gpus, drivers=(driver,) if driver else (), **target)
    return rules.judge(stack, made)


def only(found):
    (reason,) = found.reasons
    return reason


def test_a_stack_runs_natively_where_nothing_is_in_the_way():
    assert verdict() == rules.Verdict(status="native", driver="550.54.15")


def test_an_old_driver_rejects_with_the_one_that_would_do():
    reason = only(verdict(driver="450.80.02"))
    assert reason.rule == "driver"
    assert reason.what == "CUDA 12 wants driver 525.60.13 or newer, and this is 450.80.02"
    assert reason.fix.startswith("driver >= 525.60.13")
    assert "cuda-compat-12-1" in reason.fix
    assert "release notes" in reason.source


def test_a_driver_of_the_major_version_is_enough():
    """Minor-version compatibility: 12.8 came with 570.26."""
    stack = msgspec.structs.replace(STACK, torch="2.10.0", torch_cuda="12.8")
    assert verdict(stack, driver="525.60.13").status == "native"


def test_no_new_driver_is_proposed_where_none_is_enough():
    stack = msgspec.structs.replace(STACK, torch="2.12.1", torch_cuda="13.0")
    reason = only(verdict(stack, driver="450.80.02"))
    assert reason.rule == "driver"
    assert reason.fix.startswith("no driver is enough: torch 2.12.1 for CUDA 13.0 has no code for V100 (sm_70)")
    assert "driver >=" not in reason.fix


def test_a_driver_that_is_not_known_is_assumed_and_named():
    found = verdict(driver="")
    assert (found.status, found.assumes) == ("native", ("driver 525.60.13 or newer",))


def test_a_branch_may_be_any_driver_of_it():
    assert verdict(driver="525").assumes == ("driver 525.60.13 or newer, of the branch 525",)
    assert verdict(driver="535").assumes == ()
    assert verdict(driver="470").status == "rejected"


def test_a_cuda_that_nobody_knows_is_not_known():
    stack = msgspec.structs.replace(STACK, torch_cuda="99.0")
    assert [(one.rule, verdict(stack).status) for one in verdict(stack).reasons] == [
        ("driver", "unknown"),
        ("GPU code of torch", "unknown"),
    ]


def test_torch_without_code_names_another_torch_that_has_it():
    stack = msgspec.structs.replace(STACK, torch="2.12.1", torch_cuda="13.0")
    reason = only(verdict(stack, driver="580.95.05"))
    assert reason.rule == "GPU code of torch"
    assert reason.fix == "the CUDA 12.6 build of torch 2.12.1 has sm_70 (documented)"
    assert reason.source.startswith("measured: torch-2.12.1-cp311")
    reason = only(verdict(gpus=("RTX5090",)))
    assert reason.fix.startswith("the newest torch known to have sm_120 is ")


def test_ptx_of_torch_runs_with_a_slow_first_start_by_a_driver_that_compiles_it():
    stack = msgspec.structs.replace(STACK, torch=PTX.torch, torch_cuda=PTX.cuda)
    newer = "B300"  # sm_103: SASS for 10.0 runs there, so take a GPU that is beyond all of it
    assert verdict(stack, gpus=(newer,), driver="595.45.04").status == "native"
    known = facts.gpus() | {"X900": "13.0"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "all_gpus", lambda: known)
        found = verdict(stack, gpus=("X900",), driver="595.45.04")
        assert (found.status, only(found).rule) == ("jit", "GPU code of torch")
        rejected = verdict(stack, gpus=("X900",), driver="580.65.06")
        assert only(rejected).what.endswith("which drivers from 595.45.04 on compile, and this is 580.65.06")
        assert verdict(stack, gpus=("X900",), driver="").assumes[-1] == "driver 595.45.04 or newer"


def test_without_a_gpu_named_one_that_has_code_is_assumed():
    (told,) = verdict(gpus=None).assumes
    assert told.startswith("a GPU that torch 2.3.1 for CUDA 12.1 has code for: ")
    assert "V100" in told
    assert "B200" not in told


def test_without_any_gpu_a_cuda_stack_runs_on_the_cpu():
    found = verdict(WITH_EXTENSIONS, gpus=(), driver="")
    assert (found.status, found.assumes) == ("native", ())
    assert "on the CPU" in found.notes[0]


def test_torch_for_the_cpu_is_refused_where_there_is_a_gpu_and_only_there():
    stack = Software(torch="2.12.1+cpu", torch_cuda="cpu", python="3.11", suite="bookworm")
    assert only(verdict(stack)).rule == "device"
    assert verdict(stack, gpus=(), driver="").status == "native"
    assert verdict(stack, gpus=None, driver="").status == "native"


def test_a_driver_alone_speaks_of_a_gpu():
    stack = Software(torch="2.12.1+cpu", torch_cuda="cpu", python="3.11", suite="bookworm")
    reason = only(verdict(stack, gpus=None, driver="418.39"))
    assert (reason.rule, reason.what) == ("device", "torch for the CPU leaves the GPU, which was not named, idle")


def test_extensions_without_code_are_recompiled_for_the_gpu():
    reason = only(verdict(WITH_EXTENSIONS, gpus=("P100",)))
    assert reason.rule == "GPU code of extensions"
    assert reason.what == "torch_scatter and torch_sparse are compiled for 7.0, 8.0, and not for P100 (sm_60)"
    assert "TORCH_CUDA_ARCH_LIST=6.0" in reason.fix
    assert "make image GPU=p100" in reason.fix


def test_ptx_of_extensions_wants_the_driver_of_the_nvcc_that_made_it():
    stack = msgspec.structs.replace(WITH_EXTENSIONS, architectures=("7.0", "8.0+PTX"))
    assert verdict(stack, gpus=("H100",), driver="550.54.14").status == "jit"
    assert "550.54.14" in only(verdict(stack, gpus=("H100",), driver="545.23.06")).what
    assert verdict(stack, gpus=("P100",)).status == "rejected"  # PTX is for newer GPUs alone


def test_an_impossible_compile_rejects():
    stack = msgspec.structs.replace(WITH_EXTENSIONS, impossible="nvcc 13.0 dropped 7.0")
    assert only(verdict(stack)).what == "nvcc 13.0 dropped 7.0"
    assert verdict(stack, gpus=()).status == "native"


def test_glt_on_a_gpu_of_its_time_is_native_and_on_a_newer_one_compiled():
    assert verdict(GLT).status == "native"
    assert verdict(GLT, gpus=("A100",)).status == "jit"
    reason = only(verdict(GLT, gpus=("A100",), driver="525.85.12"))
    assert "drivers from 530.30.02 on compile" in reason.what


def test_glt_with_another_torch_is_rejected_with_the_release_that_fits():
    stack = msgspec.structs.replace(GLT, torch="1.13.1", torch_cuda="11.7", python="3.9")
    reason = only(verdict(stack))
    assert reason.rule == "graphlearn-torch"
    assert "0.2.2" in reason.fix


def test_glt_without_torch_sparse_is_rejected():
    assert "torch-sparse" in only(verdict(msgspec.structs.replace(GLT, packages=("torch",)))).fix


def test_a_glt_that_nobody_checked_is_not_known():
    assert verdict(msgspec.structs.replace(GLT, glt="0.9.9")).status == "unknown"


def test_a_kernel_that_glibc_does_not_run_on_is_rejected():
    assert only(verdict(kernel="2.6.32-754.el6")).what.startswith("glibc 2.36 of Debian bookworm needs Linux 3.2")
    assert verdict(kernel="3.10.0-1160.el7").status == "native"


def test_an_unknown_base_is_said_to_be_unknown():
    (note,) = verdict(msgspec.structs.replace(STACK, suite=""), kernel="3.10").notes
    assert "not known" in note


def test_graphics_libraries_of_a_newer_host_are_noted():
    old = msgspec.structs.replace(STACK, suite="bullseye")
    assert "2.31 is older" in verdict(old, glibc="2.35", runtimes={"apptainer": ""}).notes[0]
    assert verdict(old, glibc="2.35", runtimes={"docker": ""}).notes == ()


@pytest.mark.parametrize(
    ("runtimes", "kernel", "status", "words"),
    [
        ({"apptainer": "2.6"}, "", "rejected", "SIF needs Singularity 3.0"),
        ({"apptainer": "3.5"}, "3.10", "native", "no SIF of zstd"),
        ({"pyxis": ""}, "3.10", "native", ""),
        ({"apptainer": "3.5"}, "4.18", "native", ""),
        ({"pyxis": "3.3.0"}, "", "native", "no OCI manifest"),
        ({"docker": ""}, "3.10", "native", ""),
    ],
)
def test_limits_of_runtimes(runtimes, kernel, status, words):
    found = verdict(runtimes=runtimes, kernel=kernel)
    told = [*(reason.what for reason in found.reasons), *found.notes]
    assert found.status == status
    assert words in " ".join(told)
    assert bool(words) == bool(told)


def test_of_several_drivers_the_oldest_that_serves_best_is_named():
    target = Target(gpus=("A100",), drivers=("550.54.15", "470", "525.85.12", "535.54.03"))
    found = rules.judge(GLT, target)
    assert (found.status, found.driver) == ("jit", "535.54.03")
    assert rules.judge(STACK, target).driver == "525.85.12"


BUILDS = [build for build in facts.torch_builds() if build.cuda != "cpu"]
STACKS = st.builds(
    lambda build, architectures, glt: Software(
        torch=build.torch,
        torch_cuda=build.cuda,
        python="3.11",
        suite="bookworm",
        extensions=("torch_scatter",) if architectures else (),
        architectures=tuple(architectures),
        nvcc=f"{build.cuda}.99",
        glt=glt,
        packages=GLT_PACKAGES,
    ),
    st.sampled_from(BUILDS),
    st.lists(st.sampled_from(["6.0", "7.0", "8.0", "8.0+PTX", "9.0", "9.0+PTX"]), unique=True, max_size=3),
    st.sampled_from(["", "0.2.4", "0.2.2", "9.9"]),
)
DRIVERS = sorted(
    {"418.39", "450.80.02", "470.82.01", "525.85.12", "535.54.03", *drivers._drivers().toolkit.values(), "600.1"},
    key=drivers.numbers,
)
GPUS = st.lists(st.sampled_from(list(facts.gpus())), unique=True, min_size=1, max_size=3)
KERNELS = st.sampled_from(["", "2.6.32", "3.10", "5.14"])


def rank(found):
    return STATUSES.index(found.status)


@given(STACKS, GPUS, KERNELS, st.integers(0, len(DRIVERS) - 2), st.data())
def test_a_newer_driver_never_makes_it_worse(stack, gpus, kernel, place, data):
    newer = data.draw(st.integers(place + 1, len(DRIVERS) - 1))
    before, after = (verdict(stack, tuple(gpus), DRIVERS[at], kernel=kernel) for at in (place, newer))
    assert rank(after) <= rank(before)


@given(STACKS, GPUS, st.sampled_from(DRIVERS), st.sampled_from(list(facts.gpus())))
def test_another_gpu_never_makes_it_better(stack, gpus, driver, more):
    assert rank(verdict(stack, (*gpus, more), driver)) >= rank(verdict(stack, tuple(gpus), driver))


@given(STACKS, GPUS, st.lists(st.sampled_from(DRIVERS), unique=True, min_size=1, max_size=3))
def test_to_choose_among_drivers_is_as_good_as_the_best_of_them(stack, gpus, choices):
    together = rules.judge(stack, Target(gpus=tuple(gpus), drivers=tuple(choices)))
    assert rank(together) == min(rank(verdict(stack, tuple(gpus), driver)) for driver in choices)


@given(STACKS, GPUS, st.sampled_from(DRIVERS))
def test_what_is_not_known_of_the_driver_is_assumed_to_be_good(stack, gpus, driver):
    hopeful = verdict(stack, tuple(gpus), "")
    assert rank(hopeful) <= rank(verdict(stack, tuple(gpus), driver))
    assert hopeful.status == "rejected" or hopeful.assumes


@given(STACKS, GPUS, st.sampled_from(DRIVERS), KERNELS)
def test_a_rejection_has_one_reason_with_its_source_and_anything_else_says_why(stack, gpus, driver, kernel):
    found = verdict(stack, tuple(gpus), driver, kernel=kernel)
    if found.status == "rejected":
        assert only(found).source
        assert only(found).fix
    assert bool(found.reasons) == (found.status != "native")


@given(STACKS, GPUS)
def test_native_is_said_only_where_torch_has_machine_code(stack, gpus):
    if verdict(stack, tuple(gpus), "600.1").status == "native":
        assert all(facts.torch_runs_on(stack.torch, stack.torch_cuda, facts.compute_capability(gpu)) for gpu in gpus)


def test_forward_compatibility_is_proposed_for_gpus_that_have_it_alone():
    assert "cuda-compat-12-1" in only(verdict(gpus=("V100", "A100"), driver="450.80.02")).fix
    assert only(verdict(gpus=("V100", "RTX3090"), driver="450.80.02")).fix == "driver >= 525.60.13"


def test_forward_compatibility_of_an_architecture_is_that_of_its_data_center_gpus():
    def fix(*gpus):
        return only(verdict(gpus=gpus, driver="450.80.02")).fix

    package = "NVIDIA's package cuda-compat-12-1 may do instead"
    assert fix("sm_80").endswith(f"; for data center GPUs of sm_80 {package}")
    assert fix("V100", "sm_80", "sm_75").endswith(f"; for data center GPUs of sm_80 and sm_75 {package}")
    assert fix("V100").endswith(f"; for this GPU {package}")
    stack = msgspec.structs.replace(STACK, torch="2.12.1", torch_cuda="13.0")
    assert only(verdict(stack, gpus=("sm_120",), driver="570.26")).fix == "driver >= 580.65.06"  # RTX alone
    assert "compat" not in only(verdict(gpus=("sm_80", "RTX3090"), driver="450.80.02")).fix


def test_an_architecture_is_named_once():
    assert rules.capability_name("v100") == "V100 (sm_70)"
    assert rules.capability_name("sm_70") == "sm_70"
    assert rules.capability_name("sm_70", "7.0", "V100", "TITAN_V") == "V100, TITAN_V (sm_70)"


def test_every_gpu_with_forward_compatibility_is_a_known_one():
    assert drivers._drivers().forward.gpus < set(facts.all_gpus())


def test_a_python_that_torch_or_pyg_does_not_declare_is_rejected():
    stack = msgspec.structs.replace(STACK, torch="2.15.0", torch_cuda="13.2", python="3.9")
    reason = only(verdict(stack, gpus=("H100",), driver="600.1"))
    assert (reason.rule, reason.what) == ("Python", "torch 2.15.0 wants Python >=3.11; the image has 3.9")
    old = msgspec.structs.replace(STACK, python="3.9", torch_geometric="2.7.0")
    assert only(verdict(old)).what == "PyG 2.7.0 wants Python >=3.10; the image has 3.9"


def test_a_base_older_than_torchs_glibc_is_rejected():
    stack = msgspec.structs.replace(STACK, torch="2.7.1", torch_cuda="12.6", suite="old")
    known = rules.runtimes.known()
    older = {"old": msgspec.structs.replace(known.suites["bullseye"], glibc="2.24")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules.runtimes, "known", lambda: msgspec.structs.replace(known, suites=older))
        assert only(verdict(stack)).what == "torch 2.7.1 wants glibc 2.28; Debian old has 2.24"


def test_extensions_without_wheels_on_pygs_pages_are_noted():
    stack = msgspec.structs.replace(WITH_EXTENSIONS, torch_cuda="12.4", extensions=("pyg_lib", "torch_scatter"))
    (note,) = verdict(msgspec.structs.replace(stack, torch="2.3.1")).notes
    assert note.endswith("extensions are compiled, and pyg_lib is left out")
    assert verdict(WITH_EXTENSIONS).notes == ()
